"""Tools that are restricted to scopes of a model by globs."""

import amanda
import pytest
from amanda import Tool
from amanda._operators.names import may_select_within, meant, selects
from fake_backend import engine, execution, operator
from test_engine import Noting
from test_selection import backend, warned  # noqa: F401

LAYER = "encoder.layer.0.attention.self"


class TestAGlobSelects:
    @pytest.mark.parametrize(
        "glob",
        [
            "encoder.layer.*",
            "encoder.*.self",
            "*",
            LAYER,
            "encoder.layer.0",
            "encoder",
            "*.attention",
            "encoder.layer.[02]",
            "encoder.layer.?",
        ],
    )
    def test_what_it_matches_and_what_lies_in_that(self, glob):
        assert selects(glob, LAYER)

    @pytest.mark.parametrize(
        "glob", ["encoder.layer", "layer.*", "enc", "encoder.layer.[13]", "Encoder.*", "*.1.*", ""]
    )
    def test_nothing_else(self, glob):
        assert selects(glob, "encoder.layer") == (glob == "encoder.layer")
        assert not selects(glob, LAYER) or glob == "encoder.layer"

    def test_name_scopes_too(self):
        assert selects("model/layer_*", "model/layer_1/attention")
        assert not selects("model/layer_?", "model/layer_10/attention")

    def test_what_is_in_no_scope_if_it_says_so(self):
        assert selects("", "")
        assert selects("*", "")
        assert not selects("encoder", "")


class TestAScope:
    @pytest.mark.parametrize("scope", ["", "encoder", "encoder.layer", "encoder.layer.0"])
    def test_may_have_one_within_it_that_a_glob_selects(self, scope):
        assert may_select_within("encoder.layer.*", scope)
        assert may_select_within("*.self", scope)

    @pytest.mark.parametrize("scope", ["enc", "decoder", "encoder.layers", "encoder.embeddings"])
    def test_may_have_none(self, scope):
        assert not may_select_within("encoder.layer.*", scope)
        assert not may_select_within("", scope)


class TestATool:
    def asked(self, *operators, **options):
        tool = Noting(**options)
        found = engine(tool)
        plans = [found.analyze(execution(operator)) for operator in operators]
        return tool.asked, plans, found

    def test_is_asked_about_operators_of_these_scopes_alone(self):
        asked, _, _ = self.asked(
            operator("relu", scope="a.b"), operator("relu", scope="b"), scopes=["a.*"]
        )
        assert asked == ["a.b/relu"]

    def test_is_restricted_by_types_too(self):
        asked, _, found = self.asked(
            operator("relu", scope="a"), operator("add", scope="a"), scopes=["a"], ops=["relu"]
        )
        assert asked == ["a/relu"]
        assert not found.wants("add")

    def test_of_which_no_operator_is_wanted_leaves_it_as_it_is(self):
        _, (plan,), _ = self.asked(operator("relu", scope="b"), scopes=["a.*"])
        assert plan.is_noop
        assert plan.inside is None

    def test_looks_inside_an_operator_whose_scope_may_hold_others_that_it_wants(self):
        _, (plan,), found = self.asked(operator("cond", scope="a"), scopes=["a.*"])
        assert plan.is_noop
        assert plan.inside is found

    def test_beside_one_for_all_scopes_hides_nothing_from_that(self):
        everywhere = Noting()
        found = engine(Noting(scopes=["a"]), everywhere)
        found.analyze(execution(operator("relu", scope="b")))
        assert everywhere.asked == ["b/relu"]
        assert not found.filters_scopes
        assert found.looks_within("b")

    def test_has_a_driver_intercept_nothing_elsewhere(self):
        found = engine(Noting(scopes=["a.*"]), Noting(scopes=["b"]))
        assert found.filters_scopes
        assert [scope for scope in ("", "a", "a.c", "b.c", "c") if found.looks_within(scope)] == [
            "",
            "a",
            "a.c",
            "b.c",
        ]

    @pytest.mark.parametrize("view", ["forward", "gradient"])
    def test_that_gives_no_list_is_told_how_to_write_it(self, view):
        tool = Tool()
        register = tool.add_inst_for_op if view == "forward" else tool.add_inst_for_gradient
        with pytest.raises(TypeError, match=r"write scopes=\['encoder'\]"):
            register(print, scopes="encoder")
        with pytest.raises(TypeError, match="3 is not a name"):
            register(print, scopes=[3])


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("layer.*", "*.layer.*"),
        ("encoder/layer/*", "encoder.layer.*"),
        ("layer/*", "*.layer.*"),
        ("decoder.*", None),
    ],
)
def test_what_may_be_meant_by_a_glob(glob, found):
    assert meant(glob, [LAYER, "encoder.embeddings"]) == found


class TestAGlobThatSelectedNothing:
    def run(self, backend):  # noqa: F811
        return lambda: backend.run("relu")  # which runs in the scope "a"

    def test_is_named(self, backend):  # noqa: F811
        (warning,) = warned(Noting(scopes=["b.*"]), run=self.run(backend))
        assert warning == "scopes of a model in which nothing that is wanted ran: 'b.*' of Noting"

    def test_beside_others_is_named_too(self, backend):  # noqa: F811
        (warning,) = warned(Noting(scopes=["a", "b.*", "c"]), run=self.run(backend))
        assert warning.endswith("nothing that is wanted ran: 'b.*' of Noting; 'c' of Noting")

    def test_in_another_registration_is_named_too(self, backend):  # noqa: F811
        tool = Noting(scopes=["a"])
        tool.add_inst_for_op(lambda ctx: None, scopes=["b"])
        (warning,) = warned(tool, run=self.run(backend))
        assert warning.endswith(": 'b' of Noting")

    def test_is_not_named_if_it_selected_operators_of_other_types(self, backend):  # noqa: F811
        both = Noting(["add"], scopes=["a"]), Noting()
        assert warned(*both, run=lambda: (self.run(backend)(), backend.run("add"))) == []

    def test_is_named_once(self, backend):  # noqa: F811
        assert len(warned(Noting(scopes=["b"]), run=self.run(backend), times=2)) == 1

    def test_is_named_with_types(self, backend):  # noqa: F811
        tools = Noting(["Relu"]), Noting(scopes=["b"])
        (warning,) = warned(*tools, run=self.run(backend))
        assert "'Relu' of Noting, did you mean 'relu'?" in warning
        assert "'b' of Noting" in warning

    def test_is_not_named_where_nothing_ran(self, backend):  # noqa: F811
        assert warned(Noting(scopes=["b"]), run=lambda: None) == []

    def test_is_not_named_where_another_tool_runs_what_it_selects(self, backend):  # noqa: F811
        def run():
            with amanda.apply(Noting()):
                backend.run("relu")

        assert warned(Noting(scopes=["a"]), run=run) == []


def test_an_operator_tells_whether_it_is_within_scopes():
    inner = operator(scope=LAYER)
    assert inner.within("decoder", "encoder.layer.0")
    assert not inner.within("encoder.layer.1")
    assert not inner.within()
    assert operator(scope="").within("")
