"""Programs swap tensors that tools were shown, as those do whom no tool looks at."""

import weakref

import amanda
import pytest
import torch
from amanda.driving import Reference
from plain_models import perceptron
from torch import Tensor, nn
from watching import everything

X = torch.randn(4, 3)


class Refers(amanda.Tool):
    """Tells parameters apart by references to them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Reference[object]] = []
        self.add_inst_for_op(self.analyze)

    def analyze(self, ctx: amanda.OpContext) -> None:
        for name in ctx.input_names:
            parameter = ctx.parameter(name)
            if parameter is not None:
                self.found.append(Reference(parameter.source))


def converted(*tools: amanda.Tool) -> tuple[nn.Module, Tensor]:
    """Run, convert, load and run a model whose parameters are swapped for that."""
    torch.manual_seed(0)
    model = perceptron()
    kept = list(model.parameters())
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with amanda.apply(*tools):
            model(X).sum().backward()
            model.zero_grad()
            model.double()
            sum(p.square().sum() for p in model.parameters()).backward()
        model.zero_grad()
        model.load_state_dict({k: v / 2 for k, v in model.state_dict().items()})
        assert all(a is b for a, b in zip(kept, model.parameters(), strict=True))
        return model, model(X.double())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def test_parameters_are_swapped_in_a_scope_and_after_it() -> None:
    _, plain = converted()
    tool = Refers()
    _, output = converted(*everything(), tool)
    assert len(tool.found) > 4
    assert torch.equal(output, plain)


def test_what_somebody_else_refers_to_is_still_refused() -> None:
    a, b = torch.ones(2), torch.zeros(2)
    reference = weakref.ref(a)
    with pytest.raises(RuntimeError, match="weakref"):
        torch.utils.swap_tensors(a, b)
    assert reference() is a
