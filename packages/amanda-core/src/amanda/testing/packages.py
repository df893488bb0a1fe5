"""Tests pretend here that packages are installed: their metadata alone are put on the path."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def install(
    folder: Path, name: str, version: str = "1.0", metadata: str = "", **files: str
) -> None:
    """Write the metadata of a package into a folder, which a test has put on the path.

    Args:
        folder: where.
        name: of the package.
        version: of the package.
        metadata: more lines of its METADATA, e.g. what it requires.
        **files: the text of other files by their names, e.g. ``entry_points``, ``top_level``.
    """
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(head + metadata)
    for file, text in files.items():
        (info / f"{file}.txt").write_text(text)
