"""Inputs that are there in one execution and not in another."""

import amanda
import torch
from amanda.testing.probes import Watch, before
from torch import nn


class Normalize(nn.Module):
    def forward(self, x, weight):
        return nn.functional.batch_norm(
            x, torch.full((2,), 7.0), torch.ones(2), weight, None, eps=0.0
        )


def test_a_routine_is_never_given_another_input_than_it_chose():
    model, x, weight = Normalize(), torch.full((1, 2), 9.0), torch.full((2,), 5.0)

    def scale(ctx):
        if ctx.input("weight") is not None:
            ctx.insert_before_op(lambda weight: weight * 3, inputs=["weight"])

    tool = Watch(scale, "batch_norm")
    with amanda.apply(tool):
        for _ in range(2):
            torch.testing.assert_close(model(x, weight), torch.full((1, 2), 30.0))
            torch.testing.assert_close(model(x, None), torch.full((1, 2), 2.0))
    assert tool.analyzed == ["batch_norm", "batch_norm#2"]


def test_lists_of_other_lengths_in_front_shift_nothing():
    class Put(nn.Module):
        def forward(self, x, *indices):
            return torch.index_put(x, indices, torch.ones(()))

    model, first = Put(), torch.tensor([0])
    with amanda.apply(before("index_put", lambda values: values + 1, inputs=["values"])):
        assert model(torch.zeros(2, 2), first).tolist() == [[2, 2], [0, 0]]
        assert model(torch.zeros(2, 2), first, first).tolist() == [[2, 0], [0, 0]]


def test_one_place_that_takes_turns_with_overloads_runs_each_as_it_is():
    class Sum(nn.Module):
        def forward(self, x, *dims):
            return torch.sum(x, *dims)

    model, x = Sum(), torch.arange(6.0).reshape(2, 3)
    with amanda.apply(before("sum", lambda x: x + 1)):
        for _ in range(2):
            assert model(x).item() == 21
            assert model(x, 0).tolist() == [5, 7, 9]
            assert model(x, (0, 1)).item() == 21


def test_a_place_that_is_given_tensors_parameters_and_subclasses_by_turns():
    class Scale(nn.Module):
        def forward(self, x, weight):
            return nn.functional.linear(x, weight)

    class Kind(torch.Tensor):
        pass

    model, weight = Scale(), torch.eye(2)
    tool = before("linear", lambda weight: weight * 2, inputs=[1])
    with amanda.apply(tool), torch.no_grad():
        for given in (weight, nn.Parameter(weight), weight.as_subclass(Kind)) * 2:
            result = model(torch.ones(1, 2), given)
            assert (type(result) is Kind) is (type(given) is Kind)
            assert result.tolist() == [[2, 2]]
