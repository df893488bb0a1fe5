"""What makes an input: edges worked out by hand, across views, writes in place and aliases."""

import gc
import weakref

import amanda
import pytest
import torch
from amanda.testing.probes import Edges
from torch import nn
from torch.nn import functional

X = torch.ones(2, 4)


def edges(run, **options):
    tool = Edges(**options)
    with amanda.apply(tool):
        run()
    return tool.edges


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.a(x)
        left, right = (y + self.b(y)).chunk(2, 1)
        return torch.cat([right, left, y], 1)


RESIDUAL = {
    *("a/linear > b/linear.input", "a/linear > add.self", "b/linear > add.other"),
    *("add > chunk.self", "chunk:1 > cat.tensors[0]", "chunk > cat.tensors[1]"),
    "a/linear > cat.tensors[2]",
}


class TestOfValues:
    def test_along_a_residual_addition_and_a_concatenation(self):
        model = Residual()
        assert edges(lambda: model(X)) == RESIDUAL

    def test_are_one_for_each_call_of_a_module(self):
        model = nn.Sequential(layer := nn.Linear(4, 4), nn.ReLU(), layer)
        found = edges(lambda: [model(X) for _ in range(2)])
        assert found == {"0/linear > 1/relu.self", "1/relu > 0/linear#2.input"}

    def test_of_later_executions_are_added(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

        def generate():
            x = X
            for _ in range(3):
                x = model(x)

        assert edges(generate) == {"0/linear > 1/relu.self", "1/relu > 0/linear.input"}

    def test_are_those_of_what_the_program_gets_when_others_change_it(self):
        tool, other = Edges(), _Doubles()
        model = Residual()
        with amanda.apply(tool, other):
            model(X)
        assert tool.edges == RESIDUAL

    def test_with_gradients_are_the_same(self):
        model = Residual()

        def train():
            for _ in range(2):
                model(X).sum().backward()

        assert edges(train) == RESIDUAL | {"cat > sum.self"}

    def test_of_functions_with_a_gradient_of_their_own(self):
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        found = edges(lambda: Twice.apply(X.clone()).relu())
        assert {e for e in found if "Twice" in e} == {"clone > Twice.x", "Twice > relu.self"}

    def test_of_modules_that_are_gone(self):
        found = edges(lambda: nn.Softmax(1)(X.exp()).sin())
        assert found == {"exp > softmax.self", "softmax > sin.self"}

    def test_within_vmap(self):
        found = edges(lambda: torch.vmap(lambda x: x.exp().sin())(X).cos())
        assert found == {"exp > sin.self", "sin > cos.self"}


class TestOfViews:
    def test_is_the_view_and_of_that_what_it_views(self):
        assert edges(lambda: X.exp().view(4, 2)[1].sin()) == {
            *("exp > view.self", "view > select.self", "select > sin.self"),
        }

    def test_that_no_operator_is_seen_of_is_what_they_view(self):
        assert edges(lambda: X.exp().detach().sin()) == {"exp > sin.self"}
        assert edges(lambda: X.exp().data.sin()) == {"exp > sin.self"}
        assert edges(lambda: X.exp().T.detach().sin()) == {
            *("exp > numpy_T.self", "numpy_T > sin.self"),
        }

    def test_of_the_same_shape_are_told_from_what_they_view(self):
        def residual():
            x = X.exp()
            return x.sin() + x.view_as(x).cos()

        assert edges(residual) >= {"exp > sin.self", "view_as > cos.self"}

    def test_that_are_the_tensor_itself_come_after_it(self):
        found = edges(lambda: functional.dropout(X.exp(), training=False).sin())
        assert found == {"exp > dropout.input", "dropout > sin.self"}


class TestOfWrites:
    def test_is_the_last_one(self):
        def run():
            x = X.exp()
            x.relu_()
            return x.mul_(2).sin()

        assert edges(run) == {"exp > relu_.self", "relu_ > mul_.self", "mul_ > sin.self"}

    def test_to_a_view_make_the_base_and_other_views(self):
        def run():
            x = X.exp()
            rows, flat = x.t(), x.view(-1)
            flat.relu_()
            return x.sin(), rows.cos()

        assert edges(run) == {
            *("exp > t.self", "exp > view.self", "view > relu_.self"),
            *("relu_ > sin.self", "relu_ > cos.self"),
        }

    def test_to_a_part_leave_what_made_the_rest(self):
        def run():
            x = X.exp()
            x[:, :2].zero_()
            return x.sin()

        assert {e for e in edges(run) if "sin" in e} == {"exp > sin.self", "zero_ > sin.self"}

    def test_to_a_part_are_none_of_another_part(self):
        def run():
            x = X.exp()
            left, right = x[:, :2], x[:, 2:]
            left.zero_()
            return right.sin(), left.cos()

        assert {e for e in edges(run) if "sin" in e or "cos" in e} == {
            *("slice#2 > sin.self", "zero_ > cos.self"),
        }

    @pytest.mark.parametrize("detached", [lambda x: x.detach(), lambda x: x.data])
    def test_through_an_alias_make_the_tensor(self, detached):
        def run():
            x = X.exp()
            detached(x).mul_(2)
            return x.sin()

        assert edges(run) == {"exp > mul_.self", "mul_ > sin.self"}

    def test_to_a_destination(self):
        def run():
            x = torch.zeros(2, 4)
            torch.exp(X, out=x)
            return x.sin()

        assert edges(run) == {"exp > sin.self"}

    def test_of_many_at_once(self):
        def run():
            x, y = X.exp(), X.exp()
            torch._foreach_mul_([x, y], 2)
            return y.sin()

        assert "_foreach_mul_:1 > sin.self" in edges(run)

    def test_into_a_cache_step_by_step(self):
        class Cache(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("cache", torch.zeros(300, 4))

            def forward(self, x, step):
                self.cache[step] = x.exp()
                return self.cache[: step + 1].sum(0)

        model = Cache()
        found = edges(lambda: [model(X[0], step) for step in range(300)])
        assert {e for e in found if "sum" in e} == {"slice > sum.self"}
        assert "exp > copy_.src" in found
        assert "copy_ > slice.self" in found


def test_nothing_is_held():
    tool = Edges()
    with amanda.apply(tool):
        x = X.exp()
        x.sin()
        reference = weakref.ref(x)
        del x
        gc.collect()
        assert reference() is None


def test_nothing_refers_to_the_tensors_of_the_program():
    with amanda.apply(Edges()):
        x, y = X.exp().relu_(), X.sin()
        torch.utils.swap_tensors(x, y)  # refuses what is referred to weakly


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_of_a_nested_tensor_which_does_not_tell_where_it_lies(layout):
    nested = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=layout)
    found = edges(lambda: nested.cos().relu())
    assert any(edge.startswith("cos") and edge.endswith("relu.self") for edge in found)


class _Doubles(amanda.Tool):
    def __init__(self):
        super().__init__()
        self.add_inst_for_op(lambda ctx: ctx.insert_after_op(lambda y: y * 2), ops=["linear"])
