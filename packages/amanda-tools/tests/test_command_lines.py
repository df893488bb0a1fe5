"""Whatever stands on the command line, the answer is a run, or one line and exit code 2."""

import itertools
import re
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

TOOLS = """
import enum, os
import amanda
from pathlib import Path
from typing import Literal

class Color(enum.Enum):
    RED = "red"

class Fits(amanda.Tool):
    def __init__(
        self, count: int = 0, rate: "float | None" = None, mode: Literal["a", "b"] = "a",
        out: Path | None = None, data: bytes = b"", pair: tuple[int, str] = (0, ""),
        table: dict = {}, color: Color = Color.RED, odd: "nowhere.Missing" = None,
        flag: bool = False, many: list[int] = (), wrong: "1 +" = None, call: print = None,
    ):
        super().__init__()

class Fails(amanda.Tool):
    def __init__(self): raise KeyError("no")

class Exits(amanda.Tool):
    def __init__(self): raise SystemExit(0)

class Unready(amanda.Tool):
    def __init__(self): pass

class Cyclic(amanda.Tool):
    def __init__(self):
        super().__init__()
        self.depends_on(self)

class NeedsFailing(amanda.Tool):
    def __init__(self):
        super().__init__()
        self.depends_on(Fails)

class Equal(amanda.Tool):
    def __eq__(self, other): return True
    def __hash__(self): return 0

class Named(amanda.Tool):
    @property
    def name(self): raise RuntimeError("no name")

class NoOpen(amanda.Tool):
    def open(self): raise OSError(28, "No space left on device")

class Reports(amanda.Tool):
    def report(self): raise RuntimeError("no \\x1b[31m report")

class ReportsOddly(amanda.Tool):
    def report(self): return object()

class Columns(amanda.Tool):
    def columns(self): return [1]

class Leaves(amanda.Tool):
    def on_exit(self): raise SystemExit(0)

class Silent(amanda.Tool):
    def __init__(self): raise Unspeakable

class Unspeakable(Exception):
    def __str__(self): raise RuntimeError

class Slotted(amanda.Tool):
    __signature__ = "odd"

function = print
"""

FILES = {
    "good.py": "pass",
    "no_suffix": "pass",
    "wrong.py": "def f(:",
    "fails.py": "raise ValueError('no')",
    "exits.py": "raise SystemExit(3)",
    "latin.py": b"x = '\xe9'",
    "zero.py": b"x = 1\0",
    "cut.pyc": b"\xa7\r\r\n\0\0",
    "empty.py": "",
    "mine.py": TOOLS,
    "unfinished.py": "class T(",
    "leaving.py": "raise SystemExit('no')",
    "package/__init__.py": "",
    "package/__main__.py": "pass",
    "package/inner.py": "pass",
    "library/__init__.py": "",
    "broken/__init__.py": "raise RuntimeError('no')",
    "broken/__main__.py": "pass",
    "leaver/__init__.py": "raise SystemExit(0)",
    "leaver/inner.py": "pass",
    "folder/nothing.txt": "",
    "odd\x1b[31mname.py": "pass",
    "__main__.py": "pass",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder")
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for name, member in (("good.zip", "__main__.py"), ("lame.zip", "other.py")):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr(member, "pass")
    (folder / "loop.py").symlink_to("loop.py")
    (folder / "link.py").symlink_to("good.py")
    return folder


CLASSES = re.findall(r"class (\w+)", TOOLS)
names = st.sampled_from(
    [
        "flops",
        "profile",
        "trace",
        "mine",
        "nosuch",
        "unfinished",
        "leaving",
        "broken",
        "os",
        "amanda",
    ]
)
odd = st.text(max_size=20) | st.sampled_from(
    [
        "",
        "..",
        "[/x]",
        "[bold]",
        "\x1b[31m",
        "\x00",
        "\udcff",
        "x" * 300,
        "9" * 5000,
        "-",
        "--",
        "%s",
        "a\nb",
    ]
)
outs = st.sampled_from(
    [
        "t",
        "t.json",
        "t.jsonl",
        "t.csv",
        "good.py",
        "./good.py",
        "link.py",
        "folder",
        "no/t",
        "loop.py",
        "~nobody/t",
        "mine.py",
        "/dev/null",
        "/dev/stdout",
        "/dev/full",
        "",
        "x" * 300,
        "\x00",
        "t/../t",
        "new.json",
        "None",
    ]
)
keys = st.sampled_from(
    [
        "out",
        "count",
        "rate",
        "mode",
        "data",
        "pair",
        "table",
        "color",
        "odd",
        "flag",
        "many",
        "wrong",
        "call",
    ]
)
values = odd | outs | st.sampled_from(["1", "-1", "1e999", "nan", "a", "red", "1,2", "none", "yes"])
options = st.lists(st.tuples(keys, values), max_size=3).map(
    lambda pairs: ",".join(f"{key}={value}" for key, value in pairs)
)
lines = st.one_of(
    names,
    st.builds("mine:{}".format, st.sampled_from([*CLASSES, "function", "missing"])),
    st.builds("{}:{}".format, names, options),
    st.builds("mine:Fits:{}".format, options),
    st.builds("trace:out={}".format, outs),
    st.builds("{}:{}".format, odd, odd),
    odd,
)
switches = st.one_of(
    lines.map(lambda line: ["--tool", line]),
    (odd | st.sampled_from(["relu", "relu,linear", ",", " "])).map(lambda ops: ["--ops", ops]),
    st.sampled_from(["0", "-1", "2", "1e3", "9" * 40, "x", ""]).map(
        lambda depth: ["--depth", depth]
    ),
    odd.map(lambda word: [word]),
    st.sampled_from([["-c"], ["--help"], ["--nosuch"], ["--"], ["--tool"], ["-m"]]),
)
FILE_TARGETS = [*FILES, "good.zip", "lame.zip", "loop.py", "link.py", "folder", "package"]
FILE_TARGETS += [".", "/", "nowhere/good.py", "good.py/", "good", "./good.py", "/dev/null"]
MODULE_TARGETS = ["good", "good.py", "package", "package.inner", "library", "broken", "broken.x"]
MODULE_TARGETS += ["leaver", "leaver.inner", "wrong", "zero", ".", "..", "__main__", "__main__.x"]
MODULE_TARGETS += ["sys", "_io", "os.path", "folder", "good.x.y", "a..b", ".a", "a.", "fails"]
targets = st.one_of(
    st.sampled_from(FILE_TARGETS).map(lambda target: [target]),
    st.sampled_from(MODULE_TARGETS).map(lambda module: ["-m", module]),
    odd.map(lambda target: [target]),
    odd.map(lambda module: ["-m", module]),
    st.just([]),
)
commands = st.one_of(
    st.builds(
        lambda parts, target, rest: ["run", *itertools.chain(*parts), *target, *rest],
        st.lists(switches, max_size=3),
        targets,
        st.lists(odd, max_size=2),
    ),
    st.builds(lambda line, target: ["run", "--tool", line, *target], lines, targets),
    st.builds(lambda rest: ["tools", *rest], st.lists(odd, max_size=1)),
    st.lists(odd, max_size=3),
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(commands)
def test_no_command_line_ends_in_a_traceback_of_ours(folder, in_process, arguments):
    before = {name: (folder / name).read_bytes() for name in FILES}
    code, out, err = in_process(folder, *arguments)
    assert code in (0, 1, 2, 3), (code, err)
    assert "amanda_tools/" not in err  # no frame of ours
    assert "\x1b" not in err + out
    if code == 2 and "Usage:" not in err:
        assert all(line.startswith("amanda: ") for line in err.splitlines()), err
    assert {name: (folder / name).read_bytes() for name in FILES} == before
