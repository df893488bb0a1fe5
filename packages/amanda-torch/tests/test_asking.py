"""Routines that ask for the forward side, and replacements that run the operator itself."""

import gc

import amanda
import pytest
import torch
from amanda.testing.probes import Insert, after, replace, under
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def on_grad_inputs(ops, routine, **options):
    return Insert("insert_on_grad_inputs", ops, routine, **options)


def adding_inputs(ops="mul"):
    """Adds to the gradient of the first input the inputs that the operator saw."""
    return on_grad_inputs(ops, lambda g, a, b: g + a + b, inputs=[0], with_inputs=[0, 1])


def leaf(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, requires_grad=True)


class TestWhatWasWritten:
    def test_an_input_comes_as_it_was_before_the_operator_wrote_to_it(self):
        seen = []
        tool = after("relu_", lambda y, x: seen.append((x.clone(), y.clone())), with_inputs=[0])
        x = torch.tensor([-1.0, 2.0])
        under(tool, lambda: x.relu_())
        ((before, now),) = seen
        assert before.tolist() == [-1, 2]
        assert now.tolist() == [0, 2]

    @pytest.mark.parametrize("times", [1, 2])
    def test_and_so_it_comes_with_the_gradient(self, times):
        x = torch.tensor([-1.0, 2.0], requires_grad=True)
        tool = on_grad_inputs(
            "relu_",
            lambda g, saw, gave: g + saw * 10 + gave * 100,
            with_inputs=[0],
            with_outputs=[0],
        )
        with amanda.apply(tool):
            for _ in range(times):  # analyzed, and then known
                x.grad = None
                (x * 1).relu_().sum().backward()
        assert x.grad.tolist() == [-10, 1 + 20 + 200]

    def test_outputs_come_as_the_operator_gave_them_also_if_they_are_replaced_in_place(self):
        x = torch.tensor([-1.0, 2.0], requires_grad=True)
        tools = [
            after("relu_", lambda y: y * 5),
            on_grad_inputs("relu_", lambda g, gave: gave, with_outputs=[0]),
        ]
        with amanda.apply(*tools):
            for _ in range(2):
                x.grad = None
                (x * 1).relu_().sum().backward()
                assert x.grad.tolist() == [0, 2]

    def test_running_means_come_as_they_were(self):
        norm = nn.BatchNorm1d(3)
        seen = []
        tool = after(
            "batch_norm",
            lambda y, mean: seen.append(mean.clone()),
            outputs=[0],
            with_inputs=["running_mean"],
        )
        under(tool, lambda: norm(torch.ones(4, 3)))
        assert seen[0].tolist() == [0, 0, 0]
        assert norm.running_mean.tolist() == pytest.approx([0.1] * 3)

    @pytest.mark.parametrize("known", [False, True])
    def test_what_the_program_writes_to_later_is_refused_by_name(self, known):
        x = leaf(3)

        def step(write):
            y = x + 1
            z = y * 2  # needs no more of y
            if write:
                y.zero_()
            z.sum().backward()

        tool = on_grad_inputs("mul", lambda g, y: None, with_inputs=[0])
        with amanda.apply(tool):
            if known:
                step(write=False)
            with pytest.raises(amanda.RoutineError, match=r"asks for inputs\[0\].*written to"):
                step(write=True)
            step(write=False)

    def test_what_nobody_asks_for_may_be_written_to(self):
        x = leaf(3)
        tool = on_grad_inputs("mul", lambda g, z: g + z, with_outputs=[0])
        with amanda.apply(tool):
            for _ in range(2):
                x.grad = None
                y = x + 1
                z = y * 2
                y.zero_()
                z.sum().backward()
                assert torch.equal(x.grad, 2 + (x.detach() + 1) * 2)


class TestWhichExecution:
    def test_a_module_used_twice(self):
        layer = nn.Linear(3, 3, bias=False)
        x = leaf(2, 3)
        tool = on_grad_inputs("linear", lambda g, x: g + x, inputs=[0], with_inputs=[0])
        with torch.no_grad():
            h = layer(x)
        expected = (torch.ones(2, 3) @ layer.weight + h) @ layer.weight + x
        with amanda.apply(tool):
            for _ in range(2):
                x.grad = None
                layer(layer(x)).sum().backward()
                torch.testing.assert_close(x.grad, expected)

    def test_several_forwards_before_their_backwards(self):
        layer = nn.Linear(3, 2)
        inputs = [leaf(2, 3, seed=seed) for seed in range(3)]
        tool = on_grad_inputs("linear", lambda g, x: g * 0 + x, inputs=[0], with_inputs=[0])
        with amanda.apply(tool):
            for _ in range(2):
                losses = [layer(x).sum() for x in inputs]
                for x, loss in zip(inputs, losses, strict=True):
                    x.grad = None
                    loss.backward()
                    assert torch.equal(x.grad, x)

    @pytest.mark.parametrize("reentrant", [False, True])
    def test_activation_checkpoints(self, reentrant):
        layer = nn.Linear(3, 3)
        x = leaf(2, 3)

        def block(x):
            return torch.sigmoid(layer(x) * 2)

        def gradient(run):
            x.grad = None
            run().sum().backward()
            return x.grad

        tool = on_grad_inputs(
            ["linear", "sigmoid"],
            lambda g, saw, gave: g + saw + gave,
            inputs=[0],
            with_inputs=[0],
            with_outputs=[0],
        )
        with amanda.apply(tool):
            plain = gradient(lambda: block(x))
            for _ in range(2):
                found = gradient(lambda: checkpoint(block, x, use_reentrant=reentrant))
                torch.testing.assert_close(found, plain)
        with amanda.apply(tool):  # where nothing is known yet
            found = gradient(lambda: checkpoint(block, x, use_reentrant=reentrant))
            torch.testing.assert_close(found, plain)

    def test_gradients_twice_of_one_graph(self):
        x = leaf(3)
        with amanda.apply(adding_inputs()):
            loss = (x * x.detach()).sum()
            first = torch.autograd.grad(loss, x, retain_graph=True)
            second = torch.autograd.grad(loss, x)
        assert torch.equal(first[0], x + 2 * x)
        assert torch.equal(first[0], second[0])

    def test_views_have_theirs(self):
        x = leaf(2, 3)
        tool = on_grad_inputs("transpose", lambda g, x: g + x, with_inputs=[0])
        with amanda.apply(tool):
            for _ in range(2):
                x.grad = None
                x.transpose(0, 1).sum().backward()
                torch.testing.assert_close(x.grad, 1 + x)


class TestTransforms:
    def test_vmap_gives_each_sample_its_own(self):
        x, w = leaf(4, 3), leaf(3, seed=1)
        with amanda.apply(adding_inputs()):
            for _ in range(2):
                x.grad = w.grad = None
                torch.vmap(lambda x: (x * w).sum())(x).sum().backward()
                torch.testing.assert_close(x.grad, w + x + w)

    def test_also_along_another_axis_and_within_another_vmap(self):
        x, w = leaf(2, 3, 4), leaf(3, seed=1)
        run = torch.vmap(torch.vmap(lambda x: (x * w).sum(), in_dims=1))
        with amanda.apply(adding_inputs()):
            for _ in range(2):
                x.grad = None
                run(x).sum().backward()
                torch.testing.assert_close(x.grad, x + 2 * w[:, None])

    def test_vmap_of_a_view(self):
        x = leaf(4, 2, 3)
        tool = on_grad_inputs("transpose", lambda g, x: g + x, with_inputs=[0])
        with amanda.apply(tool):
            for _ in range(2):
                x.grad = None
                torch.vmap(lambda x: x.transpose(0, 1) * 1)(x).sum().backward()
                torch.testing.assert_close(x.grad, 1 + x)

    def test_gradients_of_each_sample(self):
        x, w = leaf(4, 3).detach(), leaf(3, seed=1).detach()
        run = torch.vmap(torch.func.grad(lambda w, x: (w * x).sum()), in_dims=(None, 0))
        with amanda.apply(adding_inputs()):
            for _ in range(2):
                torch.testing.assert_close(run(w, x), x + w + x)

    def test_vjp_called_later(self):
        x, w = leaf(3).detach(), leaf(3, seed=1).detach()
        with amanda.apply(adding_inputs()):
            for _ in range(2):
                _, vjp = torch.func.vjp(lambda x: x * w, x)
                (found,) = vjp(torch.ones(3))
                torch.testing.assert_close(found, w + x + w)


class TestMemory:
    @pytest.mark.parametrize("known", [False, True])
    def test_what_is_asked_for_is_freed_with_the_graph(self, known):
        x = leaf(3)
        tool = on_grad_inputs("exp", lambda *_: None, with_inputs=[0], with_outputs=[0])
        gc.collect()
        gc.disable()
        try:
            with amanda.apply(tool):
                if known:
                    (x + 1).exp().sum().backward()
                h = x + 1
                storage = StorageWeakRef(h.untyped_storage())
                loss = h.exp().sum()
                del h
                assert not storage.expired()
                loss.backward()
                del loss
                assert storage.expired()
        finally:
            gc.enable()

    def test_without_a_backward_too(self):
        x = leaf(3)
        tool = after("exp", lambda y, h: None, with_inputs=[0])
        tools = [tool, on_grad_inputs("exp", lambda g, h: None, with_inputs=[0])]
        gc.disable()
        try:
            with amanda.apply(*tools):
                h = x + 1
                storage = StorageWeakRef(h.untyped_storage())
                loss = h.exp().sum()
                del h
                assert not storage.expired()
                del loss
                assert storage.expired()
        finally:
            gc.enable()


class TestDifferentiable:
    def test_gradients_flow_to_what_is_asked_for(self):
        x, w = leaf(3), leaf(3, seed=1)
        tool = after("mul", lambda y, w: y * w, with_inputs=[1], differentiable=True)
        under(tool, lambda: (x * w).sum().backward())
        torch.testing.assert_close(x.grad, w**2)
        torch.testing.assert_close(w.grad, 2 * x * w)

    def test_not_from_a_routine_that_is_not_differentiated(self):
        x, w = leaf(3), leaf(3, seed=1)
        under(after("mul", lambda y, w: y * w, with_inputs=[1]), lambda: (x * w).sum().backward())
        torch.testing.assert_close(w.grad, x)

    def test_also_to_what_the_operator_wrote_to(self):
        x = torch.tensor([-1.0, 2.0], requires_grad=True)
        tool = after("relu_", lambda y, x: y + x * 3, with_inputs=[0], differentiable=True)
        under(tool, lambda: (x * 1).relu_().sum().backward())
        assert x.grad.tolist() == [3, 4]


class TestOriginal:
    def test_random_numbers_are_drawn_once_and_the_gradient_is_of_these(self):
        x = torch.ones(64, requires_grad=True)
        tool = replace("dropout", lambda original, x: original(x) * 3, original=True)
        torch.manual_seed(0)
        plain = functional.dropout(x)
        state = torch.get_rng_state()
        torch.manual_seed(0)
        with amanda.apply(tool):
            found = functional.dropout(x)
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(found, plain * 3)
        found.sum().backward()
        assert torch.equal(x.grad, plain.detach())

    def test_again_it_draws_others(self):
        x = torch.ones(64, requires_grad=True)
        seen = []
        tool = replace(
            "dropout",
            lambda original, x: seen.extend([original(x), original(x)]) or x,
            original=True,
        )
        under(tool, lambda: functional.dropout(x))
        assert not torch.equal(*seen)

    @pytest.mark.parametrize("needs_gradient", [False, True])
    def test_in_place_it_writes_to_copies(self, needs_gradient):
        x = torch.tensor([-1.0, 2.0], requires_grad=needs_gradient)
        h = x * 1
        tool = replace("relu_", lambda original, h: original(h) + original(-h) * 2, original=True)
        found = under(tool, lambda: h.relu_())
        assert found is h
        assert h.tolist() == [2, 2]
        if needs_gradient:
            h.sum().backward()
            assert x.grad.tolist() == [0, 1]

    def test_with_a_destination(self):
        x, out = torch.tensor([-1.0, 2.0]), torch.zeros(2)
        tool = replace("mul", lambda original, a, b: original(a, b) + original(b, b), original=True)
        under(tool, lambda: torch.mul(x, x + 1, out=out))
        assert out.tolist() == [0, 6 + 9]

    def test_several_outputs(self):
        x = leaf(2, 3)
        tool = replace(
            "topk",
            lambda original, x: [value * 2 for value in original(x)],
            original=True,
        )
        plain = x.topk(1)
        found = under(tool, lambda: x.topk(1))
        assert torch.equal(found.values, plain.values * 2)
        assert torch.equal(found.indices, plain.indices * 2)

    def test_running_means_are_updated_once(self):
        norm = nn.BatchNorm1d(3)
        x = torch.ones(4, 3, requires_grad=True)
        tool = replace("batch_norm", lambda original, *tensors: original(*tensors), original=True)
        under(tool, lambda: norm(x))
        assert norm.running_mean.tolist() == pytest.approx([0.1] * 3)

    def test_it_is_differentiated_through(self):
        x, w = leaf(2, 3), leaf(4, 3, seed=1)
        tool = replace(
            "linear",
            lambda original, x, w: original(x * 2, w) ** 2,
            original=True,
            differentiable=True,
        )
        under(tool, lambda: functional.linear(x, w).sum().backward())
        grads = x.grad, w.grad
        x.grad = w.grad = None
        (functional.linear(x * 2, w) ** 2).sum().backward()
        torch.testing.assert_close(grads, (x.grad, w.grad))

    def test_an_error_of_the_operator_names_the_routine(self):
        tool = replace("matmul", lambda original, a, b: original(a, a), original=True)
        with pytest.raises(amanda.RoutineError, match="matmul"):
            under(tool, lambda: torch.ones(2, 3) @ torch.ones(3, 2))
