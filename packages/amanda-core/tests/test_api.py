"""What a tool's author may rely on: names and signatures of the published system, and ours."""

import inspect
import pkgutil
import re
from pathlib import Path

import amanda
import amanda.driving
import amanda.testing
import pytest
from amanda import OpContext, Tool


def parameters(function):
    return list(inspect.signature(function).parameters)


TOOL_AUTHORS = [
    *("ActionError", "AmandaError", "AmandaWarning", "DependencyCycleError", "Driver"),
    *("IncompatibleVersionError", "MissingContextMapError", "MissingDriverError", "OpContext"),
    *("Operator", "Parameter", "RoutineError", "Source", "TensorInfo", "Tool"),
    *(
        "UnsupportedError",
        "ValueUnavailableError",
        "apply",
        "cache_disabled",
        "cache_enabled",
        "clear_cache",
    ),
    *("disabled", "enabled"),
    *("is_cache_enabled", "is_enabled", "register_driver", "unregister_driver"),
]
DRIVER_AUTHORS = [
    *("Alike", "Ask", "Forward", "InputProducers", "Layouts", "NOTHING", "Producer", "Producers"),
    "Reference",
    *("Action", "ActiveEngine", "Analysis", "Announcement", "ByOperator", "Call", "Composite"),
    *("ContextMap", "Driver", "Engine", "Execution", "Ids", "Operator", "Operators", "Parameter"),
    *("Patches", "Plan", "Point", "PrivateNames", "Selection", "Source", "StagedCall", "Stored"),
    *("Subscription", "calling_source", "is_program", "places_of"),
    *("TensorInfo", "Translation", "View", "alike", "announced", "calling_instructions"),
    *("context_map", "entry_points_of", "frameworks", "in_routine", "install_hint"),
    *("Held", "Kernel", "Profiler", "leaves", "tensors_in", "with_tensors_in"),
    *("known_drivers", "name_of", "numbered", "register_driver", "unregister_driver"),
    *("OnImport", "versions_tested"),
]
SUITE = [
    *(
        "Adapter",
        "Asking",
        "Backward",
        "Beside",
        "Caching",
        "Conformance",
        "Contexts",
        "Descriptions",
    ),
    *("Errors", "Gradients", "Identity", "InPlace", "Loops", "Model", "Modules", "OPTIONAL"),
    "Order",
    "Permanent",
    *("Program", "ReturnValues", "Scopes", "SecondOrder", "Step", "Untouched", "Values"),
    *("WithoutTensors", "run_step"),
]


@pytest.mark.parametrize(
    ("module", "names"),
    [(amanda, TOOL_AUTHORS), (amanda.driving, DRIVER_AUTHORS), (amanda.testing, SUITE)],
)
def test_what_is_public(module, names):
    assert sorted(module.__all__) == sorted(names)
    assert [name for name in names if not hasattr(module, name)] == []


def test_the_other_modules_are_private():
    modules = {module.name for module in pkgutil.iter_modules(amanda.__path__)}
    assert {name for name in modules if not name.startswith("_")} == {
        *("driving", "testing"),
        *("driver", "tool"),  # which stand for names that were published
    }


def test_frameworks_are_named_where_drivers_are_installed_and_as_published_alone():
    frameworks = re.compile("torch|tensorflow|keras|jax|onnx", re.IGNORECASE)
    rooms = Path(amanda.__file__).parent.glob("**/*.py")
    sources = [source for source in rooms if source.parent.name != "testing"]
    naming = {source.name for source in sources if frameworks.search(source.read_text("utf-8"))}
    assert naming == {"published.py", "discovery.py"}


def test_errors_are_named_as_users_import_them():
    errors = [getattr(amanda, n) for n in amanda.__all__ if n.endswith(("Error", "Warning"))]
    assert {error.__module__ for error in errors} == {"amanda"}


def test_apply_is_also_found_in_the_tool_module():
    assert amanda.tool.apply is amanda.apply
    assert amanda.tool.Tool is amanda.Tool


def test_a_driver_must_say_what_can_stand_for_what_by_the_name_that_is_asked():
    class Old(amanda.Driver):
        backend = vocabulary = "old"
        xp = activate = value = describe = variable = None

        def refusal(self, original, substitute):
            return "no"

    with pytest.raises(TypeError, match="incompatible_reason"):
        Old()


def test_the_driver_class_is_also_found_in_the_driver_module():
    assert amanda.driver.Driver is amanda.Driver


class TestTool:
    def test_add_inst_for_op(self):
        expected = ["self", "callback", "backward", "require_outputs", "ops", "scopes", "opt_in"]
        expected += ["require_producers", "keep_forward"]
        assert parameters(Tool.add_inst_for_op) == expected
        defaults = inspect.signature(Tool.add_inst_for_op).parameters
        assert defaults["backward"].default is False
        assert defaults["require_outputs"].default is False
        assert defaults["ops"].default is None

    def test_add_inst_for_gradient(self):
        assert parameters(Tool.add_inst_for_gradient) == ["self", "callback", "ops", "scopes"]

    @pytest.mark.parametrize("name", ["depends_on", "dependency", "invalidate", "on_exit"])
    def test_methods(self, name):
        assert callable(getattr(Tool, name))

    def test_another_layout_does_not_exist(self):
        with pytest.raises(ValueError, match="'canonical' or 'native'"):
            Tool(namespace="loud", layout="NCHW")

    @pytest.mark.parametrize(
        ("namespace", "vocabulary"),
        [
            (None, None),
            ("amanda", None),
            ("amanda/pytorch", "torch"),
            ("pytorch", "torch"),
            ("mapping", None),
            ("my/tool", None),
            ("amanda/tensorflow", "tensorflow"),
            ("torch", "torch"),
            ("tensorflow", "tensorflow"),
            ("onnx", "onnx"),
        ],
    )
    def test_namespaces(self, namespace, vocabulary):
        assert Tool(namespace=namespace).vocabulary == vocabulary

    def test_a_namespace_is_a_name(self):
        with pytest.raises(TypeError, match="name of a vocabulary, not 3"):
            Tool(namespace=3)

    def test_its_name_is_that_of_its_class_unless_it_has_one(self):
        class Pruner(Tool):
            def __init__(self, name=None):
                if name is not None:
                    self.name = name
                super().__init__()

        assert Pruner().name == "Pruner"
        assert Pruner("channels").name == "channels"

    def test_ops_must_be_a_list(self):
        with pytest.raises(TypeError, match=r"write ops=\['conv2d'\]"):
            Tool().add_inst_for_op(print, ops="conv2d")

    @pytest.mark.parametrize("type", [3, None, print])
    def test_ops_are_names(self, type):
        with pytest.raises(TypeError, match="is not a name"):
            Tool().add_inst_for_op(print, ops=["conv2d", type])

    @pytest.mark.parametrize("glob", ["conv*", "conv?d", "conv[12]d"])
    def test_ops_are_no_globs(self, glob):
        with pytest.raises(TypeError, match=r"no globs, .* list the types"):
            Tool().add_inst_for_op(print, ops=[glob])

    @pytest.mark.parametrize(
        "use",
        [
            lambda tool: tool.add_inst_for_op(print),
            lambda tool: tool.depends_on(Tool),
            lambda tool: amanda.apply(tool).__enter__(),
        ],
    )
    def test_an_init_that_forgets_the_base_is_told(self, use):
        class Forgetful(Tool):
            def __init__(self):
                pass

        with pytest.raises(AttributeError, match=r"Forgetful.__init__ has to call super"):
            use(Forgetful())

    def test_an_analysis_routine_must_be_callable(self):
        with pytest.raises(TypeError, match="'conv2d' is not callable"):
            Tool().add_inst_for_op("conv2d")

    def test_an_analysis_routine_runs_when_it_is_called(self):
        async def coroutine(ctx):
            ctx.insert_after_op(print)

        def generator(ctx):
            yield ctx.insert_after_op(print)

        for routine in (coroutine, generator):
            with pytest.raises(TypeError, match=f"{routine.__name__}.* write an ordinary function"):
                Tool().add_inst_for_op(routine)


class TestContext:
    @pytest.mark.parametrize(
        "name",
        [
            *("op", "op_id", "backward_op", "backward_op_id"),
            *("inputs", "outputs", "grad_outputs", "grad_inputs"),
        ],
    )
    def test_what_it_shows_has_two_forms(self, name):
        assert isinstance(inspect.getattr_static(OpContext, name), property)
        assert parameters(getattr(OpContext, f"get_{name}")) == ["self"]

    @pytest.mark.parametrize("name", ["is_forward", "is_backward"])
    def test_which_side_it_is_on(self, name):
        assert parameters(getattr(OpContext, name)) == ["self"]

    @pytest.mark.parametrize("name", ["input_names", "attrs", "xp"])
    def test_properties_beyond_the_published_ones(self, name):
        assert isinstance(inspect.getattr_static(OpContext, name), property)

    def test_methods_beyond_the_published_ones(self):
        assert parameters(OpContext.input) == ["self", "name"]
        assert parameters(OpContext.value) == ["self", "index"]
        assert parameters(OpContext.variable) == ["self", "name", "initial"]

    @pytest.mark.parametrize(
        ("insertion", "indices"),
        [
            ("insert_before_op", "inputs"),
            ("insert_after_op", "outputs"),
            ("replace_op", "inputs"),
            ("insert_before_backward_op", "grad_outputs"),
            ("insert_after_backward_op", "grad_inputs"),
            ("replace_backward_op", "grad_outputs"),
            ("insert_on_grad_outputs", "outputs"),
            ("insert_on_grad_inputs", "inputs"),
        ],
    )
    def test_insertions(self, insertion, indices):
        signature = inspect.signature(getattr(OpContext, insertion))
        self_, routine, chosen, *options = signature.parameters.values()
        assert (self_.name, routine.name, chosen.name) == ("self", "routine", indices)
        assert chosen.default is None
        by_name = {option.name: option for option in options}
        assert by_name["pure"].default is False
        assert all(o.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD for o in options)
        assert options[-1].kind is inspect.Parameter.VAR_KEYWORD

    @pytest.mark.parametrize(
        ("insertion", "asking"),
        [
            ("insert_before_op", ["with_inputs", "with_given"]),
            ("insert_after_op", ["with_inputs", "with_given"]),
            ("insert_on_grad_outputs", ["with_inputs", "with_given", "with_outputs"]),
            ("insert_on_grad_inputs", ["with_inputs", "with_given", "with_outputs"]),
            ("replace_op", ["original"]),
        ],
    )
    def test_what_insertions_may_ask_for(self, insertion, asking):
        options = inspect.signature(getattr(OpContext, insertion)).parameters
        assert [name for name in options if name.startswith(("with_", "orig"))] == asking
        assert not any(options[name].default for name in asking)

    @pytest.mark.parametrize("insertion", ["insert_before_op", "insert_after_op", "replace_op"])
    def test_forward_insertions_may_be_differentiable(self, insertion):
        option = inspect.signature(getattr(OpContext, insertion)).parameters["differentiable"]
        assert option.default is False

    def test_it_is_a_dict(self):
        assert issubclass(OpContext, dict)


class TestOperator:
    def operator(self, type):
        return amanda.Operator(id=f"a.b/{type}", type=type, name="n", scope="a.b", backend="x")

    def test_what_it_says_of_itself(self):
        operator = self.operator("conv2d")
        assert operator.id == "a.b/conv2d"
        assert operator.type == "conv2d"
        assert operator.name == "n"
        assert operator.scope == "a.b"
        assert operator.backend == "x"
        assert "a.b/conv2d" in repr(operator)

    def test_its_bare_name(self):
        assert self.operator("conv2d").__name__ == "conv2d"
        assert self.operator("mylib::op").__name__ == "op"

    def test_a_record_of_it_is_equal_and_another_operator_is_not(self):
        operator = self.operator("conv2d")
        assert operator.snapshot() == operator
        assert operator.snapshot() is not operator
        assert len({operator, operator.snapshot()}) == 1
        assert self.operator("conv2d") != operator
