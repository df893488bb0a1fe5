"""Scales and zero points go to files as JSON, CSV, a picture or safetensors, by their ending."""

from __future__ import annotations

import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from amanda_tools.charts import bars
from amanda_tools.formats import Saving, json_of
from amanda_tools.optional_packages import needed
from amanda_tools.pictures import Pictured
from amanda_tools.quantization.tensors import QuantizedTensor

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from amanda_tools.charts import Chart

_TENSORS = ".safetensors"


class SavingScales(Pictured[QuantizedTensor], Saving[QuantizedTensor]):
    """This is a base of tools whose scales go into a file, if one is named, when a scope is left.

    A file of safetensors has arrays ``ID.INPUT.scale`` and ``ID.INPUT.zero_point``, by the
    operator's id and the role of the tensor there. The rest of each row is in its metadata,
    under ``tensors``, as JSON, and why that is not all under ``partial``.
    """

    row_type = QuantizedTensor
    rows_name = "tensors"
    keys = ("id", "input")
    units = MappingProxyType({"error": "share"})
    endings = (*Pictured.endings, _TENSORS)

    def save_to(self, out: str | os.PathLike[str] | None) -> None:
        """Name the file; None for none.

        Raises:
            ModuleNotFoundError: it is one of safetensors, which are not installed.
            OSError: it cannot be written there.
            ValueError: its name ends in something else.
        """
        super().save_to(out)
        if self._saved is None or self._saved.ending != _TENSORS:
            return
        needed(
            "safetensors.numpy",
            "a file that ends in .safetensors needs safetensors; "
            "python -m pip install 'amanda-tools[safetensors]', or name one that ends in .json",
        )

    def charts(self) -> list[Chart]:
        """Draw what rounding changes of each tensor, where that is known."""
        errors = {f"{r.id} {r.input}": r.error for r in self.rows() if r.error is not None}
        return [bars("Relative error of rounding", {"error": errors})]

    def text(self, ending: str) -> str | bytes:
        """Return what was found, in the format of an ending."""
        return _packed(self.rows(), self.partial) if ending == _TENSORS else super().text(ending)


def _packed(rows: Sequence[QuantizedTensor], partial: str | None) -> bytes:
    """Return scales and zero points as safetensors."""
    arrays: dict[str, np.ndarray] = {}
    for row in rows:
        if row.scale is not None and row.zero_point is not None:
            arrays[f"{row.id}.{row.input}.scale"] = np.array(row.scale, np.float32)
            arrays[f"{row.id}.{row.input}.zero_point"] = np.array(row.zero_point, np.int32)
    rest = [
        {k: v for k, v in vars(row).items() if k not in ("scale", "zero_point")} for row in rows
    ]
    said = {} if partial is None else {"partial": partial}
    save = importlib.import_module("safetensors.numpy").save
    packed: bytes = save(arrays, {"tensors": json_of(rest), **said})
    return packed
