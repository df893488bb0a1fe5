"""Where in the program's code an operator is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda.driving import Source, is_program, places_of

from amanda_torch.frames import COMPILED

if TYPE_CHECKING:
    from types import FrameType

_PACKAGES = ("torch", "amanda_torch", "keras")


def source_of(frame: FrameType | None) -> Source | None:
    """The nearest line that is the program's, from a frame outwards.

    None if there is none, as in a thread of autograd, and for what TorchScript has compiled.
    """
    places = places_of(_PACKAGES)
    while frame is not None:
        code = frame.f_code
        if id(code) in COMPILED:
            return None
        if is_program(code.co_filename, places):
            return Source(code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None
