"""Tensors with names are read from and written to NumPy's npz and to safetensors."""

from __future__ import annotations

import json
import struct
import tempfile
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from amanda_tools.document import Document
from amanda_tools.formats import ending_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from amanda_tools.activations.captured import Array, Part

ENDINGS = (".npz", ".safetensors")
_TYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}


class TensorFile(Document):
    """A tensor file holds tensors in the format that its ending says: ``.npz`` or ``.safetensors``.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._packed = _npz if ending_of(path, ENDINGS) == ".npz" else _safetensors
        super().__init__(path, b"".join(self._packed([])))

    def save(self, parts: Iterable[Part]) -> None:
        """Have these tensors in the file.

        Raises:
            ValueError: the format has no room for one.
        """
        self.write_parts(self._packed(list(parts)))


def read_tensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the tensors of a file that ends in ``.npz`` or ``.safetensors``, by their names.

    Raises:
        OSError: it cannot be read.
        ValueError: it ends in something else, or holds a type that NumPy lacks.
    """
    if ending_of(path, ENDINGS) == ".npz":
        with np.load(path) as file:
            return dict(file)
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__", None)
    names = {of: dtype for dtype, of in _TYPES.items()}
    found = {}
    for name, entry in header.items():
        if entry["dtype"] not in names:
            raise ValueError(f"{path}: {name!r} is of type {entry['dtype']}, which NumPy lacks")
        first, last = entry["data_offsets"]
        array = np.frombuffer(data[first:last], names[entry["dtype"]])
        found[name] = array.reshape(entry["shape"])
    return found


def _safetensors(parts: Sequence[Part]) -> Iterator[bytes]:
    header: dict[str, Any] = {}
    end = 0
    for part in parts:
        if part.dtype.name not in _TYPES:
            raise ValueError(f"safetensors has no type for {part.name!r}, which is {part.dtype}")
        shape, first, end = list(part.shape), end, end + part.size
        dtype = _TYPES[part.dtype.name]
        header[part.name] = {"dtype": dtype, "shape": shape, "data_offsets": [first, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for part in parts:
        yield from part.chunks()


def _npz(parts: Sequence[Part]) -> Iterator[bytes]:
    with tempfile.TemporaryFile() as whole:
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
            for part in parts:
                with archive.open(f"{part.name}.npy", "w", force_zip64=True) as entry:
                    array = np.lib.format.header_data_from_array_1_0(np.zeros(0, part.dtype))
                    np.lib.format.write_array_header_1_0(entry, {**array, "shape": part.shape})
                    for chunk in part.chunks():
                        entry.write(chunk)
        whole.seek(0)
        while chunk := whole.read(1 << 20):
            yield chunk
