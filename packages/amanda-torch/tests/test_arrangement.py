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
