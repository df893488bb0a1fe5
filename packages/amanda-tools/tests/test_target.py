"""The program to run: what there is, and what is said of what there is not."""

import py_compile
import zipfile

import pytest

REFUSED = [
    (("",), "no file ''"),
    (("missing.py",), "no file 'missing.py'"),
    (("gone/missing.py",), "there is no folder 'gone'"),
    (("x" * 300 + ".py",), "no file 'xxx"),
    (("\0",), "no file '\\x00'"),
    (("loop.py",), "no file 'loop.py'"),
    (("folder",), "'folder' cannot be run, it has no __main__.py"),
    ((".",), "'.' cannot be run, it has no __main__.py"),
    (("empty.zip",), "'empty.zip' cannot be run, it has no __main__.py"),
    (("-m", ""), "no module ''"),
    (("-m", "."), "no module '.'"),
    (("-m", ".beside"), "no module '.beside'"),
    (("-m", "beside."), "no module 'beside.'"),
    (("-m", "a..b"), "no module 'a.'"),
    (("-m", "__main__"), "no module '__main__'"),
    (("-m", "__main__.x"), "no module '__main__'"),
    (("-m", "beside.py"), "'beside' is no package; a file is run without -m"),
    (("-m", "beside.x.y"), "'beside' is no package"),
    (("-m", "bsaide"), "did you mean 'beside'?"),
    (("-m", "library"), "package 'library' cannot be run, it has no __main__.py"),
    (("-m", "broken"), "'broken' cannot be run: RuntimeError: no (__init__.py, line 1)"),
    (("-m", "broken.inner"), "'broken.inner' cannot be run: RuntimeError: no"),
    (("-m", "leaving.inner"), "'leaving.inner' cannot be run: SystemExit: 0"),
    (("-m", "sys"), "module 'sys' cannot be run, it is not Python code"),
    (("-m", "folder"), "package 'folder' cannot be run"),
]
SHOUT = "print('beside ran')"
FILES = {
    "beside.py": SHOUT,
    "library/__init__.py": SHOUT,
    "broken/__init__.py": "raise RuntimeError('no')",
    "broken/__main__.py": SHOUT,
    "broken/inner.py": SHOUT,
    "leaving/__init__.py": "raise SystemExit(0)",
    "leaving/inner.py": SHOUT,
    "folder/text.txt": "",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "loop.py").symlink_to("loop.py")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as archive:
        archive.writestr("other.py", "")
    return tmp_path


@pytest.mark.parametrize(("target", "message"), REFUSED)
def test_that_cannot_be_run_is_one_line_and_runs_nothing(folder, in_process, target, message):
    code, out, err = in_process(folder, "run", "--tool", "trace:out=t.json", *target)
    assert code == 2
    assert out in ("", "beside ran\n" if target == ("-m", "library") else "")
    assert err.startswith("amanda: ")
    assert err.count("\n") == 1
    assert message in err
    assert not (folder / "t.json").exists()


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (b"def f(:", "SyntaxError"),
        (b"x = '\xe9'", "SyntaxError"),
        (b"x = 1\0", "Error"),
        (b"# coding: nosuch\n", "SyntaxError"),
        (b"(" * 1000, "Error"),
        (b"x = " + b"-" * 100_000 + b"1", "Error"),
    ],
)
@pytest.mark.parametrize("how", [("wrong.py",), ("-m", "wrong")])
def test_that_does_not_compile_ends_as_under_python(tmp_path, in_process, source, error, how):
    (tmp_path / "wrong.py").write_bytes(source)
    code, _, err = in_process(tmp_path, "run", "--tool", "trace:out=t.json", *how)
    assert code == 1
    assert error in err
    assert "before anything ran; no file was touched" in err
    assert "Traceback" not in err
    assert not (tmp_path / "t.json").exists()


def test_may_be_compiled_already(tmp_path, in_process):
    (tmp_path / "script.py").write_text("print('compiled')")
    py_compile.compile(str(tmp_path / "script.py"), cfile=str(tmp_path / "script.pyc"))
    assert in_process(tmp_path, "run", "--tool", "trace:out=t.json", "script.pyc")[:2] == (
        0,
        "compiled\n",
    )


def test_may_be_an_archive(tmp_path, in_process):
    with zipfile.ZipFile(tmp_path / "program.pyz", "w") as archive:
        archive.writestr("__main__.py", "import beside_in_archive; print(beside_in_archive.x)")
        archive.writestr("beside_in_archive.py", "x = 'within'")
    assert in_process(tmp_path, "run", "--tool", "trace:out=t.json", "program.pyz")[:2] == (
        0,
        "within\n",
    )
