"""A backend whose tensors are numbers, for the engine to be looked at without one."""

import numpy as np
from amanda import Driver, Operator, TensorInfo, Tool
from amanda._threads.active import Active, Scope
from amanda.driving import ByOperator, Engine, Execution


class FakeDriver(Driver):
    backend = vocabulary = "fake"
    xp = None

    def activate(self, engine):
        pass

    def value(self, tensor):
        return np.asarray(tensor)

    def describe(self, tensor):
        return TensorInfo((), type(tensor).__name__, None, None)

    def variable(self, initial, execution):
        return [initial]

    def incompatible_reason(self, original, substitute):
        return None


class Noting(Tool):
    """Notes what it is asked about and inserts itself before the operator."""

    def __init__(self, ops=None, **options):
        super().__init__()
        self.asked = []
        self.add_inst_for_op(self.analyze, ops=ops, **options)

    def analyze(self, ctx):
        self.asked.append(ctx.backward_op_id or ctx.op_id)


def operator(type="conv2d", scope="a", **options):
    id = f"{scope}/{type}"
    return Operator(id=id, type=type, name=id, scope=scope, backend="fake", **options)


def execution(of, inputs=(1, 2), names=("input", "weight"), **known):
    return Execution(of, inputs, names, **known)


def engine(*tools, driver=None, scope=None):
    """The engine for tools that a scope has made active."""
    scope = scope or Scope()
    subscriptions = [s for tool in tools for s in tool.subscriptions]
    active = Active(dict.fromkeys(tools, scope), scope, ByOperator())
    return Engine(driver or FakeDriver(), subscriptions, active)
