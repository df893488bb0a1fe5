"""Operators that torch's own Python functions run: the same overload, with the same arguments."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import amanda
import pytest
import torch
from amanda.testing.probes import Observe
from amanda_torch._internals import set_key_included
from amanda_torch.operators.bindings import SAME, binding_of
from amanda_torch.thread import KEY, KEY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = 12
X = torch.arange(6.0).reshape(2, 3)
# What those samples do not run.
PROGRAMS = [
    lambda: X.clamp(0, 1),
    lambda: X.clone().clamp_(0, 1),
    lambda: X.clamp_min(0.5),
    lambda: X.clamp_max(0.5),
    lambda: X.t().contiguous(),
    lambda: X.pow(2),
    lambda: X.clone().relu_(),
    lambda: X.type_as(X.double()),
]


class Reached(Exception):
    """A kernel was reached while a binding was tried."""


class Trial:
    """Kernels in front of operators, which try a binding before the operator runs."""

    def __init__(self) -> None:
        self.trying = False
        self.reached: tuple[str, Any, Any] | None = None
        self.counts: dict[str, int] = defaultdict(int)
        self.others: dict[str, str] = {}

    def kernel(self, name: str) -> Any:
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        operator = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
        binding = binding_of(name)

        def run(*args: Any, **kwargs: Any) -> Any:
            if self.trying:
                self.reached = name, args, kwargs
                raise Reached
            set_key_included(KEY, False)
            try:
                if binding is not None and all(map(is_plain, args)):
                    self.compare(name, binding, args, kwargs)
                return operator._op(*args, **kwargs)
            finally:
                set_key_included(KEY, True)

        return run

    def compare(self, name: str, binding: Any, args: Any, kwargs: Any) -> None:
        self.trying, self.reached = True, None
        set_key_included(KEY, True)
        try:
            binding(*args, **kwargs)
        except Reached:
            pass
        except Exception as error:
            self.others[name] = repr(error)
        finally:
            self.trying = False
            set_key_included(KEY, False)
        self.counts[name] += 1
        if self.reached is None or not equal(self.reached, (name, args, kwargs)):
            self.others[name] = f"{(args, kwargs)} reaches {self.reached}"


def is_plain(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or type(value) in (torch.Tensor, torch.nn.Parameter)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return one is other
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict):
        return equal(sorted(one.items()), sorted(other.items()))
    return bool(one == other or one != one)


def bases() -> set[str]:
    return {name.removeprefix("aten::").partition(".")[0] for name in SAME}


def run_samples(info: Any) -> None:
    """Run an operator, and that of its name that writes in place, on its samples."""
    functions = [info.op]
    if info.inplace_variant is not None:
        functions.append(info.inplace_variant)
    # Not by its ``sample_inputs``, which looks through the whole stack and seeds before each.
    samples = info.sample_inputs_func(info, "cpu", torch.float32, requires_grad=False)
    for sample in itertools.islice(samples, SAMPLES):
        for function in functions:
            given = sample.input
            if function is info.inplace_variant and isinstance(given, torch.Tensor):
                given = given.clone()
            set_key_included(KEY, True)
            with contextlib.suppress(Exception):  # some samples are not for the variant in place
                function(given, *sample.args, **sample.kwargs)
            set_key_included(KEY, False)


@pytest.fixture(scope="module")
def trial() -> Iterator[Trial]:
    """PyTorch's own samples of these operators."""
    from torch.testing._internal.common_methods_invocations import op_db  # which takes seconds

    with amanda.apply(Observe(["kron"])):
        pass  # Amanda's kernels of other operators are gone, which these would shadow for ever
    trial, library = Trial(), torch.library.Library("aten", "IMPL", KEY_NAME)
    names = bases()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in SAME:
            library.impl(name.removeprefix("aten::"), trial.kernel(name))
        for info in op_db:
            base = info.name.rpartition(".")[2]
            if not names.isdisjoint((base, f"{base}_", info.aten_name, f"{info.aten_name}_")):
                run_samples(info)
        for program in PROGRAMS:
            set_key_included(KEY, True)
            program()
            set_key_included(KEY, False)
    yield trial
    library._destroy()


def test_every_listed_overload_has_a_binding() -> None:
    assert [name for name in sorted(SAME) if binding_of(name) is None] == []


def test_a_binding_reaches_the_overload_with_what_it_was_given(trial: Trial) -> None:
    assert trial.others == {}


def test_every_listed_overload_was_tried(trial: Trial) -> None:
    assert sorted(SAME - set(trial.counts)) == []


def test_an_overload_that_a_binding_may_miss_is_none_of_them() -> None:
    missed = ["conv2d.padding", "std", "var", "to.dtype", "cross_entropy_loss", "mse_loss"]
    assert [binding_of(f"aten::{name}") for name in missed] == [None] * len(missed)
