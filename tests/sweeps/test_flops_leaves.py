"""Inside of operators that `flops` does not look into, nothing runs that it counts.

They are tried on PyTorch's own samples of its operators.
"""

import contextlib
import itertools

import amanda
import pytest
import torch
from amanda_tools.flops.registry import tables
from torch.testing._internal.common_methods_invocations import op_db

SAMPLES = 8  # of each operator
NAMES = sorted({op.name for op in op_db if not op.name.startswith("jiterator")})  # of CUDA alone


class Outer(amanda.Tool):
    """Knows which operator of the program is running."""

    def __init__(self):
        super().__init__()
        self.running = None
        self.add_inst_for_op(self.analyze)

    def analyze(self, ctx):
        ctx.insert_before_op(self.run, inputs=[], running=ctx.op.type)
        ctx.insert_after_op(self.run, outputs=[], running=None)

    def run(self, running):
        self.running = running


class Inner(amanda.Tool):
    """Collects what is counted in an operator of another type."""

    def __init__(self, outer):
        super().__init__()
        self.outer = outer
        self.found = set()
        self.add_inst_for_op(self.analyze, ops=sorted(tables()["torch"].formulas))

    def analyze(self, ctx):
        ctx.insert_before_op(self.run, inputs=[], type=ctx.op.type)

    def run(self, type):
        if self.outer.running not in (None, type):
            self.found.add((self.outer.running, type))


@pytest.mark.parametrize("name", NAMES)
def test_samples_of(name):
    outer = Outer()
    inner = Inner(outer)
    for op in (op for op in op_db if op.name == name):
        dtype = torch.float32 if torch.float32 in op.supported_dtypes("cpu") else torch.int64
        if dtype not in op.supported_dtypes("cpu"):
            continue
        needs = op.supports_autograd and dtype is torch.float32
        for sample in itertools.islice(op.sample_inputs("cpu", dtype, needs), SAMPLES):
            outer.running = None
            # some samples are there to fail
            with contextlib.suppress(RuntimeError), amanda.apply(outer, inner):
                op(sample.input, *sample.args, **sample.kwargs)
    closed = tables()["torch"].closed
    assert [(leaf, part) for leaf, part in sorted(inner.found) if leaf in closed] == []


def test_something_is_found_inside_of_other_operators():
    outer = Outer()
    inner = Inner(outer)
    with amanda.apply(outer, inner):
        torch.einsum("ij,jk", torch.ones(2, 3), torch.ones(3, 4))
    assert ("einsum", "bmm") in inner.found
