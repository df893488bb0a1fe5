"""Some findings are a picture too."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, ClassVar, TypeVar

from amanda_tools.charts import note, page
from amanda_tools.findings import Findings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda_tools.charts import Chart

_Row = TypeVar("_Row")


class Pictured(Findings[_Row]):
    """This is a base of what has rows to show as charts, in a file that ends in ``.svg``.

    It stands ahead of :class:`amanda_tools.formats.Saving` among the bases.
    """

    endings: ClassVar[Sequence[str]] = (".json", ".csv", ".svg")

    @abc.abstractmethod
    def charts(self) -> Sequence[Chart]:
        """Return what the picture shows, from top to bottom."""

    def to_svg(self) -> str:
        """Draw the picture."""
        said = [] if self.partial is None else [note(f"partial: {self.partial}")]
        return page(*said, *self.charts())
