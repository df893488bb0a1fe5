"""What the packages use of one another."""

import ast
import pathlib
import re

import amanda.testing
import pytest

ROOT = pathlib.Path(__file__).parents[2]
SEMANTICS = ROOT / "docs" / "semantics.md"
PUBLIC = {"amanda", "amanda.driving", "amanda.testing", "amanda.tool"}
# All packages but core, whatever is installed here.
PACKAGES = sorted(ROOT.glob("packages/*/src/amanda_*"))


def imported(package):
    """The modules of core that a package imports from, each with the names, file by file."""
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                yield path.name, node.module, [alias.name for alias in node.names]
            elif isinstance(node, ast.Import):
                yield from ((path.name, alias.name, []) for alias in node.names)


@pytest.mark.parametrize("package", PACKAGES, ids=[package.name for package in PACKAGES])
def test_nothing_private_of_core(package):
    core = [
        (file, module, names)
        for file, module, names in imported(package)
        if module.partition(".")[0] == "amanda"
    ]
    assert core
    assert [found for found in core if found[1] not in PUBLIC] == []
    private = re.compile(r"_(?!_version__$)")  # the version is that of all packages
    assert [found for found in core if any(map(private.match, found[2]))] == []


# Tools ask drivers and context maps. What else names a framework there, and why.
FRAMEWORKS = re.compile(r"torch|tensorflow|keras|\baten\b|\bjax\b|\btf\b|TF_", re.IGNORECASE)
NAMING_FRAMEWORKS = {
    "flops/registry.py": "whose formulas one registers if one does not say",
    "new_tool.py": "writes a test, which runs a model of the framework that is asked for",
    "output.py": "what launchers of processes tell, before any framework is imported",
    "quantization/formula.py": "the option arithmetic=, which names the reference it is equal to",
    "quantization/quantize.py": "the same",
    "quantization/aware.py": "the same",
}


def named_frameworks(source):
    """Lines of code with a name, module or string of a framework; docstrings are left out."""
    tree = ast.parse(source)
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        named = {
            ast.Constant: lambda n: n.value if id(n) not in prose else "",
            ast.Name: lambda n: n.id,
            ast.Attribute: lambda n: n.attr,
            ast.alias: lambda n: n.name,
            ast.ImportFrom: lambda n: n.module,
        }.get(type(node), lambda n: "")(node)
        if isinstance(named, str) and FRAMEWORKS.search(named):
            yield f"{node.lineno}: {named}"


def test_no_tool_names_a_framework():
    tools = ROOT / "packages/amanda-tools/src/amanda_tools"
    found = {
        str(path.relative_to(tools)): [*named_frameworks(path.read_text("utf-8"))]
        for path in tools.rglob("*.py")
    }
    naming = {path: lines for path, lines in found.items() if lines}
    assert {path: naming[path] for path in naming.keys() - NAMING_FRAMEWORKS} == {}
    assert NAMING_FRAMEWORKS.keys() - naming.keys() == set()


def test_every_package_is_looked_at():
    assert {package.name for package in PACKAGES} >= {
        "amanda_contextmap",
        "amanda_jax",
        "amanda_tensorflow",
        "amanda_tools",
        "amanda_torch",
    }


def test_the_conformance_suite_names_what_is_written_about_it():
    suite = pathlib.Path(amanda.testing.__file__).parent
    sources = [path.read_text("utf-8") for path in suite.glob("*.py")]
    named = {anchor for s in sources for anchor in re.findall(r"docs/semantics\.md#([\w-]+)", s)}
    headings = re.findall(r"^## (.*)$", SEMANTICS.read_text("utf-8"), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert len(named) >= 8
    assert named == anchors
