"""Tests in several files that use the same slow processes are run by one of xdist's workers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    import pathlib


class Together(LoadFileScheduling):
    """All files in which a word stands are one unit of work; each other file is one.

    Args:
        config: of pytest.
        log: of xdist.
        word: one that stands where the processes are used that are slow to start.
    """

    def __init__(self, config: Any, log: Any, word: str) -> None:
        super().__init__(config, log)
        self._word = word

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return self._word if self._word in _text_of(self.config.rootpath / file) else file


@functools.cache
def _text_of(file: pathlib.Path) -> str:
    return file.read_text("utf-8")
