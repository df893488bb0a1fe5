"""PyTorch's own samples of its operators, each computed again by ONNX as a portable tool sees it.

What is seen under an ONNX name is what ONNX says, for all arguments that PyTorch tests itself with;
the rest keeps its own name.
"""

import itertools

import amanda
import pytest
import torch
from onnx_check import Look, difference
from torch.testing._internal.common_methods_invocations import op_db

SAMPLES = 8  # of each operator and type of data
DTYPES = (torch.float32, torch.int64, torch.bool, torch.float16)


def samples(name):
    for op in (op for op in op_db if op.name == name):
        for dtype in (dtype for dtype in DTYPES if dtype in op.supported_dtypes("cpu")):
            given = op.sample_inputs("cpu", dtype, requires_grad=False)
            for sample in itertools.islice(given, SAMPLES):
                yield op, sample


NAMES = sorted({op.name for op in op_db if not op.name.startswith("jiterator")})  # of CUDA alone


@pytest.mark.parametrize("name", NAMES)
def test_samples_of(name):
    chosen, look = list(samples(name)), Look()
    for op, sample in chosen:
        torch.manual_seed(0)
        with torch.no_grad(), amanda.apply(look):  # in one scope, one place has few settings
            op(sample.input, *sample.args, **sample.kwargs)
    wrong = {}
    for operator in look.seen:
        why = difference(operator)
        if why is not None:
            wrong.setdefault(f"{operator.type}: {why}", str(operator))
    assert not wrong, "\n".join(f"{why}\n    {operator}" for why, operator in wrong.items())
