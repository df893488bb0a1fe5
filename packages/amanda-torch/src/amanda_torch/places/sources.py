"""The line of the program that calls an operator is found here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda.driving import Source, is_program, places_of

from amanda_torch._internals import gather_traceback, symbolize_tracebacks
from amanda_torch.frames import COMPILED

if TYPE_CHECKING:
    from types import FrameType

_PACKAGES = ("torch", "amanda_torch", "keras")


def source_of(frame: FrameType | None) -> Source | None:
    """Return the nearest line that is the program's, from a frame outwards.

    None if there is none, as in a thread of autograd.
    """
    places = places_of(_PACKAGES)
    while frame is not None:
        code = frame.f_code
        if id(code) in COMPILED:
            source = _scripted(places)
            if source is not None:
                return source
        if is_program(code.co_filename, places):
            return Source(code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def _scripted(places: tuple[str, ...]) -> Source | None:
    """Return the nearest such line of the TorchScript that this thread runs."""
    traceback = gather_traceback(python=False, script=True, cpp=False)
    for line in symbolize_tracebacks([traceback])[0]:
        if is_program(line["filename"], places):
            return Source(line["filename"], line["line"])
    return None
