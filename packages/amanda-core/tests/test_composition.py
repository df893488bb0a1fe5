"""Tools that depend on tools: S1's "dependencies first", each built once, no circles."""

import amanda
import pytest
from amanda import Tool
from amanda.tool import in_order
from hypothesis import given, settings
from hypothesis import strategies as st


def make(name, *dependencies):
    """A tool class that depends on these classes, and counts how often it is built."""

    class Made(Tool):
        built = 0

        def __init__(self):
            super().__init__()
            type(self).built += 1
            self.depends_on(*dependencies)

    Made.__name__ = name
    return Made


def names(tools):
    return [tool.name for tool in tools]


class TestInstances:
    def test_a_dependency_comes_first(self):
        a, b = make("A")(), make("B")()
        a.depends_on(b)
        assert in_order([a]) == [b, a]

    def test_dependencies_keep_the_order_in_which_they_were_given(self):
        a, b, c = make("A")(), make("B")(), make("C")()
        a.depends_on(b, c)
        assert in_order([a]) == [b, c, a]

    def test_tools_keep_the_order_in_which_they_were_applied(self):
        a, b = make("A")(), make("B")()
        assert in_order([b, a]) == [b, a]

    def test_a_dependency_that_is_applied_later_still_comes_first(self):
        a, b = make("A")(), make("B")()
        a.depends_on(b)
        assert in_order([a, b]) == [b, a]

    def test_two_instances_of_a_class_are_two_tools(self):
        cls = make("A")
        one, other = cls(), cls()
        assert in_order([one, other]) == [one, other]

    def test_tools_already_in_force_come_first_and_once(self):
        a, b, c = make("A")(), make("B")(), make("C")()
        c.depends_on(a)
        assert in_order([c, b], present=[a, b]) == [a, b, c]

    @settings(deadline=None)
    @given(
        edges=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=15),
        applied=st.permutations(range(7)),
    )
    def test_every_dependency_precedes_whoever_needs_it(self, edges, applied):
        cls = make("A")
        tools = [cls() for _ in range(7)]
        edges = {(max(edge), min(edge)) for edge in edges if edge[0] != edge[1]}
        for tool, dependency in edges:
            tools[tool].depends_on(tools[dependency])
        order = in_order([tools[number] for number in applied])
        assert sorted(map(id, order)) == sorted(map(id, tools))
        for tool, dependency in edges:
            assert order.index(tools[dependency]) < order.index(tools[tool])


class TestClasses:
    def test_a_dependency_is_built(self):
        b = make("B")
        a = make("A", b)()
        assert names(in_order([a])) == ["B", "A"]
        assert b.built == 1

    def test_a_diamond_builds_its_bottom_once(self):
        bottom = make("Bottom")
        left, right = make("Left", bottom), make("Right", bottom)
        top = make("Top", left, right)()
        assert names(in_order([top])) == ["Bottom", "Left", "Right", "Top"]
        assert bottom.built == 1

    def test_tools_that_are_applied_share_a_dependency(self):
        shared = make("Shared")
        one, other = make("One", shared)(), make("Other", shared)()
        assert names(in_order([one, other])) == ["Shared", "One", "Other"]
        assert one.dependency(shared) is other.dependency(shared)

    @pytest.mark.parametrize(
        "where", ["present", "applied before", "applied after", "a dependency"]
    )
    def test_an_instance_that_is_there_serves(self, where):
        cls = make("B")
        b, a = cls(), make("A", cls)()
        other = make("Other")()
        other.depends_on(b)
        order = {
            "present": lambda: in_order([a], present=[b]),
            "applied before": lambda: in_order([b, a]),
            "applied after": lambda: in_order([a, b]),
            "a dependency": lambda: in_order([a, other]),
        }[where]()
        assert a.dependency(cls) is b
        assert order.index(b) < order.index(a)
        assert cls.built == 1

    def test_a_dependency_keeps_its_state_over_scopes(self):
        cls = make("B")
        a = make("A", cls)()
        for _ in range(2):
            with amanda.apply(a):
                pass
        assert cls.built == 1

    def test_an_inner_scope_shares_what_the_outer_one_built(self):
        cls = make("B")
        one, other = make("One", cls)(), make("Other", cls)()
        with amanda.apply(one), amanda.apply(other):
            assert one.dependency(cls) is other.dependency(cls)

    def test_a_tool_finds_what_it_depends_on_by_class(self):
        cls = make("B")
        a = make("A", cls)()
        with pytest.raises(amanda.AmandaError, match="A has no dependency B that is built"):
            a.dependency(cls)
        with amanda.apply(a):
            assert isinstance(a.dependency(cls), cls)

    def test_a_tool_does_not_find_what_it_does_not_depend_on(self):
        cls = make("B")
        a, b = make("A")(), cls()
        with amanda.apply(b, a), pytest.raises(amanda.AmandaError, match="A has no dependency B"):
            a.dependency(cls)


class TestCycles:
    def test_a_cycle_is_named(self):
        a, b, c = make("A")(), make("B")(), make("C")()
        a.depends_on(b)
        b.depends_on(c)
        c.depends_on(b)
        with pytest.raises(amanda.DependencyCycleError, match="B -> C -> B") as caught:
            in_order([a])
        assert caught.value.cycle == ("B", "C", "B")

    def test_a_tool_that_depends_on_itself(self):
        a = make("A")()
        a.depends_on(a)
        with pytest.raises(amanda.DependencyCycleError, match="A -> A"):
            in_order([a])

    def test_a_cycle_of_classes(self):
        class A(Tool):
            def __init__(self):
                super().__init__()
                self.depends_on(B)

        class B(Tool):
            def __init__(self):
                super().__init__()
                self.depends_on(A)

        with pytest.raises(amanda.DependencyCycleError, match="A -> B -> A"):
            in_order([A()])

    def test_a_scope_does_not_open_on_a_cycle(self):
        a = make("A")()
        a.depends_on(a)
        entered = False
        with pytest.raises(amanda.DependencyCycleError), amanda.apply(a):
            entered = True
        assert not entered


def test_what_is_not_a_tool_cannot_be_depended_on():
    with pytest.raises(TypeError, match="'trace', which is not a tool"):
        make("A")().depends_on("trace")
