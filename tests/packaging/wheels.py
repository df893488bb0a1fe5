"""Build what is uploaded, into ``dist``, and try it where nothing else is installed.

    wheels.py [VERSION OF PYTHON]... [ENVIRONMENT]...

Without arguments all environments are made with the Python that runs this.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from email.message import Message

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
PACKAGES = sorted((ROOT / "packages").glob("amanda-*"))
# What a user installs, and the packages whose READMEs' first examples run on it.
ENVIRONMENTS = {
    "core": ("amanda-core", ""),
    "torch": ("amanda-core[torch]", "core torch"),
    "tensorflow": ("amanda-core[tensorflow]", "tensorflow"),
    "jax": ("amanda-jax", "jax"),
    "all": ("amanda-tools[all]", "core torch tensorflow contextmap tools"),
}
# A program for the first example of the tools' README, which is a command.
TRAIN = """
import sys

import torch

assert sys.argv[1:] == ["--epochs", "1"]
model = torch.nn.Linear(4, 2)
model(torch.ones(3, 4)).sum().backward()
"""


def main(arguments: list[str]) -> None:
    """Build, check what was built, and try it."""
    chosen = [name for name in arguments if name in ENVIRONMENTS] or list(ENVIRONMENTS)
    pythons = [name for name in arguments if name not in ENVIRONMENTS]
    wheels = build()
    metadata = {wheel: metadata_of(wheel) for wheel in wheels}
    for wheel, fields in metadata.items():
        check(wheel, fields)
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, DIST.glob("amanda_*")))
    for python in pythons or [f"{sys.version_info.major}.{sys.version_info.minor}"]:
        for name in chosen:
            if name == "jax" and python == "3.10":
                continue  # which JAX no longer supports
            with tempfile.TemporaryDirectory() as folder:
                attempt(python, name, Path(folder), metadata)


def build() -> list[Path]:
    """Build an sdist of each package, and its wheel from that; give the wheels."""
    for old in DIST.glob("amanda_*"):
        old.unlink()
    for package in PACKAGES:
        options = ["--no-isolation", "--outdir", str(DIST)]
        run(sys.executable, "-m", "build", *options, str(package), quiet=True)
    return sorted(DIST.glob("*.whl"))


def metadata_of(wheel: Path) -> Message:
    """Read what a wheel says of its package."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(path).decode("utf-8"))


def check(wheel: Path, fields: Message) -> None:
    """Hold a package to what it must have, which ``twine check`` does not ask for."""
    name, version = fields["Name"], fields["Version"]
    licence = (ROOT / "LICENSE").read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        path = f"{wheel.name.split('-')[0]}-{version}.dist-info/licenses/LICENSE"
        assert archive.read(path) == licence, f"{wheel.name} has another licence"
    with tarfile.open(DIST / f"{wheel.name.split('-')[0]}-{version}.tar.gz") as archive:
        assert any(member.name.endswith("/LICENSE") for member in archive), f"{name}: no licence"
    for requirement in fields.get_all("Requires-Dist", []):
        ours = re.match(r"(amanda-\w+)(\[.*?\])?(.*?)(;|$)", requirement)
        if ours and ours[1] != name:
            wanted = f"=={version}"
            assert ours[3].strip() == wanted, f"{name} requires {requirement}, not {wanted}"
    links = re.findall(r"\]\(([^)]+)\)", str(fields.get_payload()))
    dead = [link for link in links if not link.startswith(("#", "http://", "https://"))]
    assert not dead, f"{name}: links of its README lead nowhere on an index: {', '.join(dead)}"


def attempt(python: str, name: str, folder: Path, metadata: dict[Path, Message]) -> None:
    """Install what a user would into an empty environment, and run the examples there."""
    requirement, readmes = ENVIRONMENTS[name]
    print(f"Python {python}: {requirement}", flush=True)
    run(sys.executable, "-m", "virtualenv", "--quiet", f"--python={python}", str(folder / "env"))
    bin = folder / "env" / "bin"
    # An index may have packages of these names: ours come from the folder alone.
    ours = folder / "ours.txt"
    lines = (f"{fields['Name']} @ {wheel.as_uri()}\n" for wheel, fields in metadata.items())
    ours.write_text("".join(lines))
    options = ["--quiet", "--no-compile", "--constraint", str(ours)]
    options += ["--no-index"] if name == "core" else []  # it needs nothing from anywhere
    run(str(bin / "python"), "-m", "pip", "install", *options, requirement)
    run(str(bin / "python"), "-m", "pip", "check")
    run(str(bin / "python"), "-c", "import amanda; print('amanda', amanda.__version__)")
    for package in readmes.split():
        example(package, bin, folder)


def example(package: str, bin: Path, folder: Path) -> None:
    """Run the first example of a package's README: a program, or a command on one."""
    text = (ROOT / "packages" / f"amanda-{package}" / "README.md").read_text("utf-8")
    command = re.search(r"^    amanda (run .+)$", text, re.MULTILINE)
    block = re.search(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    if command and (block is None or command.start() < block.start()):
        (folder / "train.py").write_text(TRAIN)
        run(str(bin / "amanda"), *command[1].split(), folder=folder)
    elif block:
        (folder / "example.py").write_text(block[1])
        run(str(bin / "python"), "example.py", folder=folder)
    print(f"    the first example of the README of amanda-{package} runs", flush=True)


def run(*command: str, folder: Path = ROOT, quiet: bool = False) -> None:
    """Run a program that sees only what is installed for it; it must succeed."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    output = subprocess.DEVNULL if quiet else None
    subprocess.run(command, cwd=folder, env=environment, stdout=output, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
