"""S7 on PyTorch's own samples of its operators: under tools that look, the bits are the same.

What runs plainly runs under every combination of tools, with and without gradients. A part of the
operators is tried by default, all of them with ``AMANDA_OPERATORS=all`` (``nox -s operators``).
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import warnings
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import FORWARD, Insert, nothing
from amanda_tools import Flops
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Samples of one operator and type of numbers.
SAMPLES = 2
DTYPES = (torch.float32, torch.int64, torch.complex64, torch.bool)
# What they return is whatever lay in memory.
UNSET = frozenset(
    ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
)
# Operators that are computed with numbers, and others of many kinds.
DEFAULT = frozenset(
    (
        "__rpow__",
        "cdist",
        "gt",
        "index_put",
        "linalg.det",
        "masked_fill",
        "mean",
        "multinomial",
        "nanquantile",
        "nn.functional.cross_entropy",
        "nn.functional.huber_loss",
        "remainder",
        "where",
    )
)


def look(ops: str | list[str] | None = None, **options: Any) -> amanda.Tool:
    """Looks at what goes into operators and what comes out."""
    return Insert(FORWARD, ops, nothing, **options)


TOOLS: dict[str, Callable[[], list[amanda.Tool]]] = {
    "flops": lambda: [Flops()],
    "all, and some": lambda: [look(), look("mm")],
    "portable": lambda: [look(["Conv", "Gemm"], namespace="onnx")],
    "what converts": lambda: [look("to")],
}


@functools.cache
def operators() -> dict[str, Any]:
    """All operators that PyTorch has samples of, by name; to import these takes a second."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.full_name: op for op in op_db}


NAMES = sorted(operators() if os.environ.get("AMANDA_OPERATORS") else DEFAULT)


def seed(number: int) -> None:
    """Begin the sequences that samples and operators draw from, but not those of devices."""
    random.seed(number)
    torch.default_generator.manual_seed(number)


def samples(operator: Any, gradients: bool) -> Iterator[Any]:
    """Arguments of an operator, of the types that it takes."""
    dtypes = [dtype for dtype in DTYPES if operator.supports_dtype(dtype, "cpu")]
    for dtype in dtypes[: 1 if gradients else 2]:
        seed(0)
        wanting = gradients and (dtype.is_floating_point or dtype.is_complex)
        # What the operator's own method adds reads all of the stack, for every sample.
        found = operator.sample_inputs_func(operator, "cpu", dtype, wanting)
        yield from itertools.islice(found, SAMPLES)


def run(operator: Any, sample: Any, gradients: bool) -> list[Any]:
    """What an operator gives for copies of its arguments, and their gradients."""

    def fresh(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return value.detach().clone().requires_grad_(value.requires_grad)

    seed(1)
    given, args, kwargs = tree_map(fresh, (sample.input, sample.args, sample.kwargs))
    with torch.set_grad_enabled(gradients):
        results = tree_leaves(operator(given, *args, **kwargs))
        losses = [
            (r.values() if r.layout is torch.sparse_coo else r).abs().sum()
            for r in results
            if isinstance(r, Tensor) and r.requires_grad
        ]
        leaves = [t for t in tree_leaves((given, args, kwargs)) if isinstance(t, Tensor)]
        wanting = [t for t in leaves if t.requires_grad]
        if losses and wanting:
            results += torch.autograd.grad(losses, wanting, allow_unused=True)
    return results


def same(first: Any, second: Any) -> bool:
    """Whether two results are of one kind and the same to the bit, not-a-numbers included."""
    if not isinstance(first, Tensor):
        return bool(first == second or (first != first and second != second))
    kinds = [(type(t), t.dtype, t.shape, t.layout, t.requires_grad) for t in (first, second)]
    if kinds[0] != kinds[1]:
        return False
    if first.is_nested:
        pairs: Any = zip(first.unbind(), second.unbind(), strict=True)
    elif first.layout is not torch.strided:
        pairs = [(first.to_dense(), second.to_dense())]
    else:
        pairs = [(first, second)]
    return all(torch.allclose(a, b, rtol=0, atol=0, equal_nan=True) for a, b in pairs)


def differences(operator: Any, tools: Callable[[], list[amanda.Tool]], gradients: bool) -> set[int]:
    """The samples for which an operator gives something else, or an error, under tools."""
    found = set()
    for number, sample in enumerate(samples(operator, gradients)):
        try:
            plain, again = run(operator, sample, gradients), run(operator, sample, gradients)
        except (RuntimeError, TypeError, ValueError, NotImplementedError, AssertionError):
            continue  # it does not run plainly either; an assertion is how those of CUDA say so
        with amanda.apply(*tools()):
            observed = run(operator, sample, gradients)
        repeatable = operator.name not in UNSET and all(map(same, plain, again))
        if len(plain) != len(observed) or (repeatable and not all(map(same, plain, observed))):
            found.add(number)
    return found


@pytest.mark.parametrize("gradients", [True, False], ids=["with gradients", "without"])
@pytest.mark.parametrize("tools", TOOLS.values(), ids=TOOLS)
@pytest.mark.parametrize("name", NAMES)
def test_an_operator_gives_the_same_under_tools_that_look(
    name: str, tools: Callable[[], list[amanda.Tool]], gradients: bool
) -> None:
    operator = operators()[name]
    if gradients and not operator.supports_autograd:
        pytest.skip("it has no gradient")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert differences(operator, tools, gradients) == set()
