"""How drivers are found, in processes of their own with frameworks and drivers made up for it."""

import contextlib
import textwrap

import pytest
from amanda.testing.packages import install
from forks import Interpreter

DRIVER = """
import {framework}
from amanda import Driver

class Made(Driver):
    backend = vocabulary = "{framework}"
    xp = None
    engines = []
    def activate(self, engine): self.engines.append(engine)
    def value(self, tensor): ...
    def describe(self, tensor): ...
    def variable(self, initial, execution): ...
    def incompatible_reason(self, original, substitute): ...

driver = Made()
"""


class Site:
    """A folder on the path of a Python process, with frameworks and drivers in it."""

    def __init__(self, path, interpreter):
        self._path = path
        self._interpreter = interpreter

    def module(self, name, source=""):
        (self._path / f"{name}.py").write_text(textwrap.dedent(source))

    def driver(self, framework, source=DRIVER, announced=None):
        """Install a driver for a framework the way a package does, by its metadata."""
        module = f"amanda_{framework}"
        self.module(module, source.format(framework=framework))
        self.entry_point(module, "amanda.drivers", f"{announced or framework} = {module}:driver")

    def entry_point(self, package, group, line):
        """Install a package that announces one thing."""
        install(self._path, package, entry_points=f"[{group}]\n{line}\n")

    def run(self, program):
        """What a program prints, line by line."""
        here = f"import sys; sys.path.insert(1, {str(self._path)!r})\n"
        done = self._interpreter.run("-c", here + textwrap.dedent(program), check=True)
        return (done.stdout + done.stderr).splitlines()


@pytest.fixture(scope="module")
def interpreter(core_alone):
    """Python with what core needs of the standard library imported, and nothing of core itself."""
    needed = ("contextlib", "dataclasses", "importlib.metadata", "inspect", "threading", "weakref")
    # -S: without the packages installed here, so that what is in a folder is all there is
    options = ("-S", "-W", "always")
    with contextlib.closing(Interpreter(*needed, path=[core_alone], options=options)) as one:
        yield one


@pytest.fixture
def site(tmp_path, interpreter):
    return Site(tmp_path, interpreter)


def test_a_driver_is_loaded_when_its_framework_is_imported_already(site):
    site.module("gluon")
    site.driver("gluon")
    assert site.run("""
        import gluon, amanda
        from amanda.driving import known_drivers
        print([driver.backend for driver in known_drivers()])
        tool = amanda.Tool()
        tool.add_inst_for_op(print)
        with amanda.apply(tool):
            (driver,) = known_drivers()
            print(driver.backend, driver.engines[-1] is not None)
        print(driver.engines[-1])
    """) == ["[]", "gluon True", "None"]


def test_scopes_of_two_threads_wait_for_the_same_driver(site):
    site.module("gluon")
    site.driver("gluon", DRIVER + "import time; time.sleep(0.2)\n")
    assert site.run("""
        import gluon, amanda, threading
        from amanda.driving import known_drivers
        tool = amanda.Tool()
        tool.add_inst_for_op(print)
        seen = []

        def enter():
            with amanda.apply(tool):
                seen.append(len(known_drivers()))

        threads = [threading.Thread(target=enter) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(seen)
    """) == ["[1, 1, 1]"]


def test_a_driver_whose_framework_is_not_imported_is_left_alone(site):
    site.module("gluon", "raise SystemExit('imported')")
    site.driver("gluon")
    assert site.run("""
        import sys, amanda
        from amanda.driving import announced
        with amanda.apply(amanda.Tool()):
            print("gluon" in sys.modules, "amanda_gluon" in sys.modules)
        print([a.framework for a in announced()])
    """) == ["False False", "['gluon']"]


@pytest.mark.parametrize(
    "statement", ["import gluon", "from gluon import anything", "import gluon.part"]
)
def test_a_framework_imported_inside_a_scope_is_instrumented_from_then_on(site, statement):
    site.module("gluon", "anything = 1; __path__ = []")
    site.module("gluon_part")
    site.driver("gluon")
    program = f"""
        import sys, amanda
        tool = amanda.Tool()
        tool.add_inst_for_op(print)
        sys.modules["gluon.part"] = sys
        with amanda.apply(tool):
            {statement}
            from amanda_gluon import driver
            print(driver.engines[-1] is not None)
        print(driver.engines[-1])
        print([finder for finder in sys.meta_path if "amanda" in type(finder).__module__])
        print("exec_module" in vars(sys.modules["gluon"].__loader__))
    """
    assert site.run(program) == ["True", "None", "[]", "False"]


def test_a_framework_imported_inside_nested_scopes(site):
    site.module("gluon")
    site.driver("gluon")
    assert site.run("""
        import sys, amanda
        tools = [amanda.Tool(), amanda.Tool()]
        for tool in tools:
            tool.add_inst_for_op(print)
        with amanda.apply(tools[0]):
            with amanda.apply(tools[1]):
                import gluon
                from amanda_gluon import driver
                inner = driver.engines[-1]
            print(driver.engines[-1] not in (None, inner))
        print(driver.engines[-1])
    """) == ["True", "None"]


def test_tools_of_all_scopes_around_are_told_of_a_framework_that_is_imported(site):
    site.module("gluon")
    site.driver("gluon")
    assert site.run("""
        import amanda
        class Told(amanda.Tool):
            def on_enter(self, driver):
                print(self.name, driver.backend)
        outer, inner = Told(), Told()
        outer.name, inner.name = "outer", "inner"
        with amanda.apply(outer):
            with amanda.apply(inner):
                import gluon
    """) == ["outer gluon", "inner gluon"]


def test_a_driver_imported_by_hand_inside_a_scope_does_no_harm(site):
    site.module("gluon")
    site.driver("gluon")
    assert site.run("""
        import amanda
        tool = amanda.Tool()
        tool.add_inst_for_op(print)
        with amanda.apply(tool):
            import amanda_gluon
            with amanda.apply(tool):
                print(amanda_gluon.driver.engines[-1] is not None)
    """) == ["True"]


def test_a_framework_that_fails_to_import_fails_as_it_would(site):
    site.module("gluon", "raise RuntimeError('no device')")
    site.driver("gluon")
    assert site.run("""
        import amanda
        with amanda.apply(amanda.Tool()):
            try:
                import gluon
            except RuntimeError as error:
                print(error)
    """) == ["no device"]


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_a_missing_driver_names_the_package(site, framework):
    site.module(framework)
    assert site.run(f"""
        import {framework}, amanda
        try:
            with amanda.apply(amanda.Tool()):
                print("entered")
        except amanda.MissingDriverError as error:
            print(error)
    """) == [f"{framework} has no driver; python -m pip install 'amanda-core[{framework}]'"]


def test_a_driver_that_is_missing_for_an_import_inside_a_scope_is_a_warning(site):
    site.module("torch")
    (warning, *_) = site.run("""
        import amanda
        with amanda.apply(amanda.Tool()):
            import torch
    """)
    assert "tools see nothing of it: torch has no driver" in warning
    assert "pip install 'amanda-core[torch]'" in warning


def test_a_framework_without_a_driver_beside_one_that_has_one_is_named_once(site):
    site.module("torch")
    site.module("gluon")
    site.driver("gluon")
    entered, again, warning, *_ = lines = site.run("""
        import torch, gluon, amanda
        for _ in range(2):
            with amanda.apply(amanda.Tool()):
                print("entered")
    """)
    assert [entered, again] == ["entered", "entered"]
    assert "tools see nothing of it: torch has no driver; python -m pip install" in warning
    assert sum("torch has no driver" in line for line in lines) == 1


BROKEN = {
    "import": "raise ImportError('needs {framework}<2')",
    "syntax": "def f(:",
    "abstract": "import amanda\ndriver = type('D', (amanda.Driver,), dict())()",
    "no driver": "driver = 1",
    "nothing": "",
    "activate": DRIVER + "def fail(engine): raise KeyError('x')\ndriver.activate = fail\n",
}
SEEN = """
        import amanda, {before}
        tool = amanda.Tool()
        tool.add_inst_for_op(print)
        with amanda.apply(tool):
            {inside}
            from amanda_gluon import driver
            print(driver.engines[-1] is not None)
        with amanda.apply(tool):
            print(driver.engines[-1] is not None)
        print(driver.engines[-1])
"""


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize(
    ("before", "inside"),
    [("gluon, pastel", "pass"), ("gluon", "import pastel")],
    ids=["before", "inside"],
)
def test_a_driver_that_fails_is_named_once_and_takes_nothing_from_the_others(
    site, broken, before, inside
):
    for framework in ("gluon", "pastel"):
        site.module(framework)
    site.driver("pastel", broken)
    site.driver("gluon")
    lines = site.run(SEEN.format(before=before, inside=inside))
    assert lines[:3] == ["True", "True", "None"]
    assert sum("tools see nothing of it: pastel" in line for line in lines) == 1


def test_a_driver_that_fails_alone_is_an_error_that_says_why(site):
    site.module("pastel")
    site.driver("pastel", BROKEN["import"])
    assert (
        site.run("""
        import pastel, amanda
        for _ in range(2):
            try:
                with amanda.apply(amanda.Tool()):
                    print("entered")
            except amanda.MissingDriverError as error:
                print(error)
    """)
        == [
            "pastel has no driver: amanda_pastel of amanda_pastel cannot be loaded: "
            "ImportError: needs pastel<2"
        ]
        * 2
    )


@pytest.mark.parametrize("vocabulary", ["pastel", "words"])
def test_a_tool_of_a_backend_that_is_not_loaded_sees_nothing_of_others(site, vocabulary):
    for framework in ("gluon", "pastel"):
        site.module(framework)
    site.driver("gluon")
    site.driver("pastel", announced=f"pastel:{vocabulary}")
    assert site.run(f"""
        import gluon, amanda
        tool = amanda.Tool(namespace={vocabulary!r})
        tool.add_inst_for_op(print)
        with amanda.apply(tool):
            from amanda_gluon import driver
            print(driver.engines[-1])
    """) == ["None"]


MAP = """
from amanda.driving import Selection

class Map:
    def select(self, subscription, driver):
        return Selection(subscription, subscription.view, None, None)

map = Map()
"""
PORTABLE = """
        import amanda, {before}
        tool = amanda.Tool(namespace="words")
        tool.add_inst_for_op(print)
        with amanda.apply(tool):
            {inside}
            from amanda_gluon import driver
            print(driver.engines[-1] is not None)
        print(driver.engines[-1])
"""


@pytest.mark.parametrize(
    ("before", "inside"),
    [("gluon, pastel", "pass"), ("pastel, gluon", "pass"), ("gluon", "import pastel")],
)
@pytest.mark.parametrize("map", [None, "pastel:words = nowhere:context_map"])
def test_a_backend_without_a_map_takes_no_tool_from_the_others(site, before, inside, map):
    for framework in ("gluon", "pastel"):
        site.module(framework)
        site.driver(framework)
    site.module("maps", MAP)
    site.entry_point("maps", "amanda.context_maps", "gluon:words = maps:map")
    if map is not None:
        site.entry_point("broken_maps", "amanda.context_maps", map)
    lines = site.run(PORTABLE.format(before=before, inside=inside))
    assert lines[:2] == ["True", "None"]
    assert sum("Tool sees nothing of pastel" in line for line in lines) == 1


def test_a_tool_that_no_backend_understands_is_refused(site):
    for framework in ("gluon", "pastel"):
        site.module(framework)
        site.driver(framework)
    (line,) = site.run("""
        import amanda, gluon, pastel
        try:
            with amanda.apply(amanda.Tool(namespace="onnx")):
                print("entered")
        except amanda.MissingContextMapError as error:
            print(error)
    """)
    assert line.startswith("Tool: nothing here translates 'gluon' into 'onnx'")


def test_an_import_goes_well_though_no_backend_understands_the_tool(site):
    site.module("gluon")
    site.driver("gluon")
    imported, warning, *_ = site.run("""
        import amanda
        with amanda.apply(amanda.Tool(namespace="onnx")):
            import gluon
            print("imported")
    """)
    assert imported == "imported"
    assert "Tool: nothing here translates 'gluon' into 'onnx'" in warning


def test_without_any_framework_a_scope_opens(site):
    assert site.run("""
        import amanda
        with amanda.apply(amanda.Tool()):
            print("entered")
    """) == ["entered"]


def test_a_driver_that_is_registered_by_hand(site):
    site.module("gluon")
    site.module("amanda_gluon", DRIVER.format(framework="gluon"))
    assert site.run("""
        import amanda
        from amanda_gluon import driver
        tool = amanda.Tool()
        tool.add_inst_for_op(print)
        amanda.register_driver(driver)
        with amanda.apply(tool):
            print(driver.engines[-1] is not None)
        amanda.unregister_driver(driver)
        count = len(driver.engines)
        with amanda.apply(tool):
            print(len(driver.engines) == count)
    """) == ["True", "True"]
