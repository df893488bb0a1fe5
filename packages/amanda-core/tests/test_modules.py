"""Which modules tools look at, and what is said where they see none."""

import amanda
import pytest
from amanda._drivers.vocabulary import check_sees
from amanda._plans.selection import select
from amanda.testing.modules import AtModules
from fake_backend import FakeDriver, Noting, engine, execution, operator

LAYER = "encoder.layer.0"


class WithModules(FakeDriver):
    has_modules = True


def selected(type="Layer", path=LAYER, **options):
    (subscription,) = AtModules(**options).subscriptions
    return select(subscription, WithModules()).has_module(type, path)


@pytest.mark.parametrize("glob", ["encoder.layer.0", "encoder.layer.*", "*", "*.0", "*layer.[02]"])
def test_a_glob_selects_the_modules_whose_path_it_matches(glob):
    assert selected(modules=[glob])


@pytest.mark.parametrize("glob", ["encoder", "encoder.layer", "layer.0", "encoder.layer.[12]", ""])
def test_it_selects_no_others(glob):
    assert not selected(modules=[glob])


def test_the_empty_glob_is_the_model():
    assert selected(path="", modules=[""])
    assert selected(path="")


def test_classes_and_globs_select_together():
    assert selected(types=["Layer"])
    assert selected(types=["Layer", "Norm"], modules=["encoder.*"])
    assert not selected(types=["Norm"], modules=["encoder.*"])
    assert not selected(types=["Layer"], modules=["decoder.*"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modules": "encoder.*"}, r"write modules=\['encoder.\*'\]"),
        ({"types": "Layer"}, r"write types=\['Layer'\]"),
        ({"types": [int]}, "types is a list of names"),
    ],
)
def test_what_is_no_list_of_names_is_refused(options, message):
    with pytest.raises(TypeError, match=message):
        AtModules(**options)


def test_a_tool_that_looks_at_modules_alone_wants_no_operators():
    tool = AtModules(modules=["encoder.*"])
    found = engine(tool, driver=WithModules())
    assert found.wanted == frozenset()
    assert found.wants_modules
    assert found.filters_scopes
    assert found.looks_within("encoder")
    assert not found.looks_within("decoder")


def test_a_tool_that_can_do_without_modules_is_refused_nowhere():
    tool = amanda.Tool()
    tool.add_inst_for_module(lambda ctx: None, optional=True)
    check_sees(tool, [FakeDriver()])
    with pytest.raises(amanda.UnsupportedError, match="has no modules"):
        check_sees(AtModules(), [FakeDriver()])
    assert engine(tool, driver=WithModules()).wants_modules
    assert not engine(tool, driver=WithModules()).needs_modules
    assert engine(tool, AtModules(), driver=WithModules()).needs_modules


def test_a_restriction_to_types_of_operators_leaves_modules():
    tool = AtModules()
    tool.restrict(["relu"])
    assert engine(tool, driver=WithModules()).wants_module("Layer", LAYER)


def test_operators_and_modules_are_not_mixed_up():
    module = operator("Layer", LAYER, is_module=True)
    operators, modules = Noting(), AtModules()
    found = engine(operators, modules, driver=WithModules())
    assert found.analyze(execution(module)).inside is found
    found.analyze(execution(operator("relu", LAYER)))
    assert operators.asked == [f"{LAYER}/relu"]
    assert [o.id for o in modules.analyzed] == [f"{LAYER}/Layer"]


def test_what_is_inserted_at_a_module_is_planned_for_both_directions():
    def analyze(ctx):
        assert ctx.is_forward()
        ctx.insert_before_op(routine)
        ctx.insert_on_grad_inputs(routine, inputs=[1], with_inputs=[0])

    def routine(*tensors):
        pass

    found = engine(AtModules(analyze), driver=WithModules())
    module = operator("Layer", LAYER, is_module=True)
    plan = found.analyze(execution(module))
    assert [action.routine for action in plan.before] == [routine]
    assert plan.gradient
    assert [action.indices for action in plan.whole.after] == [(1,)]
    assert not plan.asked
    assert len(plan.whole.asked) == 1
    assert found.known_gradient_plan(module) is plan.whole


def test_outputs_that_are_not_known_cannot_all_be_asked_for():
    tool = AtModules(lambda ctx: ctx.insert_on_grad_inputs(lambda *_: None, with_outputs=None))
    module = operator("Layer", LAYER, is_module=True)
    with pytest.raises(amanda.ActionError, match="require_outputs=True"):
        engine(tool, driver=WithModules()).analyze(execution(module))


def test_an_output_that_is_not_known_has_no_name_yet():
    tool = AtModules(lambda ctx: ctx.insert_after_op(lambda y: None, outputs=["y"]))
    module = operator("Layer", LAYER, is_module=True)
    with pytest.raises(amanda.ActionError, match=r"no names before it runs.*require_outputs=True"):
        engine(tool, driver=WithModules()).analyze(execution(module))
