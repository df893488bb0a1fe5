"""Scales and zero points in files: as JSON, CSV or safetensors, by the ending of the name."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from amanda_tools.document import Document
from amanda_tools.findings import Findings
from amanda_tools.formats import Saved, ending_of
from amanda_tools.quantization.tensors import QuantizedTensor

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence


class SavedTensors(Document):
    """A file of safetensors, with an array for each scale and zero point.

    They are named ``ID.INPUT.scale`` and ``ID.INPUT.zero_point``, by the operator's id and the role
    of the tensor. The metadata have under ``tensors`` the rest of each row, as JSON.

    Args:
        path: the file.

    Raises:
        ModuleNotFoundError: safetensors is not installed.
        OSError: it cannot be written there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            self._format: Any = importlib.import_module("safetensors.numpy")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "a file that ends in .safetensors needs safetensors; "
                "python -m pip install 'amanda-tools[safetensors]', or name one that ends in .json",
                name="safetensors",
            ) from error
        super().__init__(path)

    def save(self, findings: Findings[QuantizedTensor]) -> None:
        """Have in the file what was found so far."""
        arrays: dict[str, np.ndarray] = {}
        for row in findings.rows():
            if row.scale is not None and row.zero_point is not None:
                arrays[f"{row.id}.{row.input}.scale"] = np.array(row.scale, np.float32)
                arrays[f"{row.id}.{row.input}.zero_point"] = np.array(row.zero_point, np.int32)
        rows: Sequence[dict[str, Any]] = findings.to_dict()["tensors"]
        rest = [{k: v for k, v in row.items() if k not in ("scale", "zero_point")} for row in rows]
        self.write(self._format.save(arrays, {"tensors": json.dumps(rest)}))


class SavingScales(Findings[QuantizedTensor]):
    """A base of tools whose scales go into a file, if one is named, when a scope is left."""

    row_type = QuantizedTensor
    rows_name = "tensors"
    _saved: Saved | SavedTensors | None = None

    def save_to(self, out: str | os.PathLike[str] | None) -> None:
        """Name the file, by its ending JSON, CSV or safetensors; None for none.

        Raises:
            ModuleNotFoundError: it is safetensors, which are not installed.
            OSError: it cannot be written there.
            ValueError: its name ends in something else.
        """
        if out is None:
            return
        ending = ending_of(out, (".json", ".csv", ".safetensors"))
        self._saved = SavedTensors(out) if ending == ".safetensors" else Saved(out)

    def open(self) -> None:
        """Make the file, which leaving the scope does otherwise.

        Raises:
            OSError: it cannot be written.
        """
        if self._saved is not None:
            self._saved.open()

    def on_exit(self) -> None:
        """Bring the file up to date."""
        if self._saved is not None:
            self._saved.save(self)

    @property
    def saved(self) -> str | None:
        """Where the file is, and why it is not complete; None without one."""
        return None if self._saved is None else self._saved.state
