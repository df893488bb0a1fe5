"""Small programs that between them rest on each of PyTorch's private names that the driver uses.

They are run with the oldest and the newest supported version too.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import amanda_torch._internals as internals
import pytest
import torch
from amanda.testing.probes import Insert, Observe, after, recorded, under
from torch.utils.checkpoint import checkpoint


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Scale(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, factor=3):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


held_double, held_scale = Double.apply, Scale.apply


def plus_ten(op):
    return after(op, lambda y: y + 10)


# Custom Functions


@pytest.mark.parametrize(
    ("call", "type", "plain", "gradient"),
    [
        (held_double, "Double", 2.0, 2.0),
        (Double.apply, "Double", 2.0, 2.0),
        (held_scale, "Scale", 3.0, 3.0),
        (lambda x: held_scale(x, 5), "Scale", 5.0, 5.0),
    ],
)
def test_a_function_of_which_apply_was_taken_before_the_scope(call, type, plain, gradient):
    x = torch.ones(2, requires_grad=True)
    y = under(plus_ten(type), lambda: call(x))
    assert y.tolist() == [plain + 10] * 2
    y.sum().backward()
    assert x.grad.tolist() == [gradient] * 2
    assert call(x).tolist() == [plain] * 2


def test_a_function_that_no_tool_wants_runs_as_it_does():
    x = torch.ones(2, requires_grad=True)
    y = under(plus_ten("exp"), lambda: held_double(held_scale(x)))
    assert y.tolist() == [6.0, 6.0]


def test_a_function_within_a_function():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return held_double(held_double(x))

        @staticmethod
        def backward(ctx, grad):
            return grad * 4

    x = torch.ones(1, requires_grad=True)
    assert recorded(lambda: Twice.apply(x), "Twice", "Double") == ["Twice"]
    assert under(plus_ten("Double"), lambda: Twice.apply(x)).item() == (2 + 10) * 2 + 10


def test_a_function_that_fails_leaves_no_transform_behind():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            raise ValueError("as it should")

    def run():
        with pytest.raises(ValueError, match="as it should"):
            Fails.apply(torch.ones(1))
        with pytest.raises(TypeError):
            held_scale(torch.ones(1), 2, 3)
        return held_double(torch.ones(1))

    assert under(Observe(), run).item() == 2
    assert not internals.transforms_active()


def test_a_function_under_a_transform():
    x = torch.tensor([1.0, 2.0])
    grads = under(Observe(), lambda: torch.func.vmap(torch.func.grad(held_scale))(x))
    assert grads.tolist() == [3.0, 3.0]
    assert under(plus_ten("Scale"), lambda: torch.func.vmap(held_scale)(x)).tolist() == [13.0, 16.0]


def test_what_a_class_says_of_itself_is_what_it_says_without_tools():
    def own():
        return (
            Scale.setup_context is vars(Scale)["setup_context"].__func__,
            Double.setup_context is torch.autograd.Function.setup_context,
            getattr(Scale, "setup" + "_context")(torch.nn.Module(), (None, 4), None),
        )

    assert under(Observe(), own) == (True, True, None)


def test_a_setup_context_given_to_a_class_in_a_scope_is_its_own():
    class Given(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 2

    def give():
        Given.setup_context = staticmethod(lambda ctx, inputs, output: None)
        return Given.apply(torch.ones(1))

    assert under(Observe(), give).item() == 2
    assert "setup_context" in vars(Given)


# Models, and what is exchanged in a scope


def test_a_model_trained_under_observing_tools_is_bit_identical():
    def trained():
        torch.manual_seed(0)
        layers = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(inplace=True)
        model = torch.nn.Sequential(*layers, torch.nn.Dropout(), torch.nn.Linear(8, 2))
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            loss = model(torch.randn(5, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    for plain, observed in zip(trained(), under(Observe(), trained), strict=True):
        assert torch.equal(plain, observed)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_runs_again_under_the_same_tools(reentrant):
    x = torch.full((2,), 3.0, requires_grad=True)
    tool = Insert("insert_before_op", "mul", lambda a, b: (a + 1, b))

    def run():
        checkpoint(lambda t: t * t, x, use_reentrant=reentrant).sum().backward()

    under(tool, run)
    assert x.grad.tolist() == [3.0 + 4.0] * 2  # d/da of (a + 1) * b, and of b


def test_a_compiled_model_runs_as_it_is_written():
    compiled = torch.compile(torch.nn.Sequential(torch.nn.ReLU()), backend="eager")
    assert under(plus_ten("relu"), lambda: compiled(torch.ones(1))).item() == 11
    assert compiled(torch.ones(1)).item() == 1


def test_tracing_and_export_are_left_alone():
    model = torch.nn.Linear(2, 2)
    x = torch.ones(1, 2)
    program = under(Observe(), lambda: torch.export.export(model, (x,)))
    assert torch.equal(program.module()(x), model(x))
    traced = under(Observe(), lambda: torch.jit.trace(model, (x,)))
    assert torch.equal(traced(x), model(x))


def test_an_operator_of_a_library_defined_in_a_scope():
    def run():
        library = torch.library.Library("kiln", "FRAGMENT")
        library.define("fire(Tensor x) -> Tensor")
        library.impl("fire", lambda x: x * 7, "CPU")
        result = torch.ops.kiln.fire(torch.ones(1))
        library._destroy()
        return result

    assert under(plus_ten("kiln::fire"), run).item() == 17


def test_an_operator_that_takes_functions():
    def run():
        return torch.cond(torch.tensor(True), lambda x: x.sin(), lambda x: x.cos(), [torch.ones(1)])

    assert torch.equal(under(Observe(), run), torch.ones(1).sin())


def test_forward_mode_and_a_write_in_place():
    x = torch.ones(2)
    _, tangent = under(
        plus_ten("exp"), lambda: torch.func.jvp(torch.exp, (x,), (torch.full((2,), 2.0),))
    )
    assert torch.equal(tangent, x.exp() * 2)
    y = torch.ones(2, requires_grad=True)
    z = under(plus_ten("exp_"), lambda: (y * 1).exp_())
    z.sum().backward()
    assert torch.equal(z, x.exp() + 10)
    assert torch.equal(y.grad, x.exp())


# A version that lacks something


def test_a_version_that_lacks_a_name_is_refused_by_this_name(interpreter):
    program = """
        import amanda, torch
        del torch._C._is_alias_of
        tool = amanda.Tool()
        tool.add_inst_for_op(print)
        try:
            with amanda.apply(tool):
                pass
        except amanda.AmandaError as error:
            print(error)
        print(torch.ones(2).sum().item())
    """
    printed = interpreter.run("-c", textwrap.dedent(program), check=True).stdout
    assert f"does not work with torch {torch.__version__}" in printed
    assert "has no torch._C._is_alias_of" in printed
    assert "python -m pip install 'amanda-torch[tested]'" in printed
    assert printed.endswith("\n2.0\n")


def test_a_version_that_lacks_a_name_does_not_break_the_import_of_the_program():
    program = """
        import sys, warnings, amanda
        import importlib.abc, importlib.machinery
        from amanda.driving import PrivateNames
        find = PrivateNames.find
        def lacking(self, path, *members):
            return find(self, path.replace("_is_alias_of", "_is_alias_of_no_more"), *members)
        PrivateNames.find = lacking
        tool = amanda.Tool()
        tool.add_inst_for_op(print)
        with warnings.catch_warnings(record=True) as caught, amanda.apply(tool):
            warnings.simplefilter("always")
            import torch
            print(torch.ones(2).sum().item())
        print(*(warning.message for warning in caught))
    """
    printed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    ).stdout
    assert printed.startswith("2.0\n")
    assert "which has no torch._C._is_alias_of_no_more" in printed
    assert "python -m pip install 'amanda-torch[tested]'" in printed
