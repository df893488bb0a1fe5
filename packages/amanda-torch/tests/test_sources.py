"""Where in the program's code an operator is."""

import gc
import linecache
import weakref

import amanda
import pytest
import torch
from amanda.testing.probes import Watch, fail
from torch import nn

HERE = __file__


def lines(run, ops=None, **options):
    """The lines of the operators that run, as text."""
    found = []

    def analyze(ctx):
        source = ctx.op.source
        found.append(source and linecache.getline(*source).strip())

    with amanda.apply(Watch(analyze, ops, **options)):
        run()
    return found


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def forward(self, x):
        x = self.stem(x)  # a module of torch's
        x = x.abs()
        return nn.functional.gelu(x) + 1


X = torch.randn(2, 3)


def test_it_is_the_line_that_calls_it():
    net = Net()
    assert lines(lambda: net(X)) == [
        "x = self.stem(x)  # a module of torch's",
        "x = self.stem(x)  # a module of torch's",
        "x = x.abs()",
        "return nn.functional.gelu(x) + 1",
        "return nn.functional.gelu(x) + 1",
    ]


def test_a_gradient_has_that_of_its_operator():
    net = Net()
    assert lines(lambda: net(X).sum().backward(), "abs", gradient=True) == ["x = x.abs()"]
    assert lines(lambda: net(X).sum().backward(), "abs", backward=True) == ["x = x.abs()"]


def test_it_stays_the_same_through_a_checkpoint():
    from torch.utils.checkpoint import checkpoint

    net = Net()
    run = lambda: checkpoint(net, X.clone().requires_grad_(), use_reentrant=False)  # noqa: E731
    assert set(lines(lambda: run().sum().backward(), "abs")) == {"x = x.abs()"}


def test_of_torchscript_is_the_line_that_was_compiled():
    def scripted(x):
        return x.abs()

    function = torch.jit.trace(scripted, X)
    looped = torch.jit.script(in_a_loop)
    assert lines(lambda: looped(function(X)), ["abs", "neg"]) == ["return x.abs()", *["x = -x"] * 2]


def test_of_torchscript_in_torch_is_the_line_that_calls_it():
    module = torch.jit.script(nn.ReLU())

    def run():
        return module(X)

    assert lines(run, "relu") == ["return module(X)"]


def in_a_loop(x):
    for _ in range(2):
        x = -x
    return x


def test_it_is_the_same_in_another_process(interpreter):
    here = []
    tell_sources_of_net(here.append)
    program = "import test_sources; test_sources.tell_sources_of_net(print)"
    assert interpreter.run("-c", program, check=True).stdout.splitlines() == here
    assert len(here) == 5
    assert all(line.startswith(HERE) for line in here)


def tell_sources_of_net(tell):
    net = Net()
    with amanda.apply(Watch(lambda ctx: tell("{} {}".format(*ctx.op.source)))):
        net(X)


def test_it_keeps_no_frame_alive():
    class Big:
        pass

    def run():
        big = Big()
        gone.append(weakref.ref(big))
        net(X)

    gone, kept, net = [], [], Net()
    with amanda.apply(Watch(lambda ctx: kept.append(ctx.op))):
        run()
        gc.collect()
        assert gone[0]() is None
    assert all(operator.source for operator in kept)


def test_an_operator_that_is_kept_tells_it_when_the_model_is_gone():
    kept, net = [], Net()
    with amanda.apply(Watch(lambda ctx: kept.append(ctx.op))):
        net(X)
    del net
    assert linecache.getline(*kept[2].source).strip() == "x = x.abs()"


@pytest.mark.parametrize("type", ["abs", "linear"])
def test_errors_name_it(type):
    with pytest.raises(amanda.RoutineError) as caught, amanda.apply(fail(type, KeyError())):
        Net()(X)
    line = {"abs": "x = x.abs()", "linear": "x = self.stem(x)  # a module of torch's"}[type]
    assert linecache.getline(*caught.value.source).strip() == line
    assert f"{type}' ({HERE}:{caught.value.source.line}): KeyError" in str(caught.value)


def test_an_insertion_that_makes_no_sense_names_it():
    tool = Watch(lambda ctx: ctx.insert_before_op(print, inputs=[7]), "abs")
    said = rf"'abs' \({HERE}:\d+\): inputs=7"
    with pytest.raises(amanda.ActionError, match=said), amanda.apply(tool):
        X.abs()
