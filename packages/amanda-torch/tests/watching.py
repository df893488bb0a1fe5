"""Tools that keep gradients, ids of what runs, and how much of ours is alive."""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import amanda
import torch
from amanda.testing.probes import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    Grads = list[Tensor | None]


def kept(tensors: Iterable[Tensor | None]) -> Grads:
    """Copies, which stay as they are."""
    with torch.no_grad():
        return [None if tensor is None else tensor.clone() for tensor in tensors]


class BackwardWatch(amanda.Tool):
    """Notes backward operators, each by its own type.

    Attributes:
        analyzed: ids of forward and backward operator, one pair for each analysis.
        ran: types of the backward operators, one for each execution.
        taken, given: by type of the backward operator, the gradients at each execution.
    """

    def __init__(self, ops: Iterable[str] | None = None) -> None:
        super().__init__()
        self.analyzed: list[tuple[str, str]] = []
        self.ran: list[str] = []
        self.taken: defaultdict[str, list[Grads]] = defaultdict(list)
        self.given: defaultdict[str, list[Grads]] = defaultdict(list)
        self.add_inst_for_op(self.analyze, backward=True, ops=ops)

    def analyze(self, ctx: amanda.OpContext) -> None:
        operator = ctx.backward_op
        assert operator is not None
        self.analyzed.append((ctx.op.id, operator.id))
        ctx.insert_before_backward_op(self.before, type=operator.type)
        ctx.insert_after_backward_op(self.after, type=operator.type)

    def before(self, *grads: Tensor | None, type: str) -> None:
        self.ran.append(type)
        self.taken[type].append(kept(grads))

    def after(self, *grads: Tensor | None, type: str) -> None:
        self.given[type].append(kept(grads))


class GradientWatch(amanda.Tool):
    """Notes gradients of operators as a whole.

    Attributes:
        analyzed: ids of the operators, one for each analysis.
        outputs, inputs: by id, the gradients at each backward.
        shown: by id, the input gradients that the analysis was shown.
    """

    def __init__(self, ops: Iterable[str] | None = None) -> None:
        super().__init__()
        self.analyzed: list[str] = []
        self.outputs: defaultdict[str, list[Grads]] = defaultdict(list)
        self.inputs: defaultdict[str, list[Grads]] = defaultdict(list)
        self.shown: dict[str, Grads] = {}
        self.add_inst_for_gradient(self.analyze, ops=ops)

    def analyze(self, ctx: amanda.OpContext) -> None:
        self.analyzed.append(ctx.op.id)
        self.shown[ctx.op.id] = kept(ctx.grad_inputs)
        ctx.insert_on_grad_outputs(self.note, where=self.outputs[ctx.op.id])
        ctx.insert_on_grad_inputs(self.note, where=self.inputs[ctx.op.id])

    def note(self, *grads: Tensor | None, where: list[Grads]) -> None:
        where.append(kept(grads))


def types(ids: list[str]) -> list[str]:
    """The types of the operators that have these ids."""
    return [id.rpartition("/")[2].partition("#")[0] for id in ids]


def everything() -> tuple[Record, BackwardWatch, GradientWatch]:
    """Tools that look at all operators in every way."""
    return Record(), BackwardWatch(), GradientWatch()


def ids(*runs: Callable[[], object]) -> list[list[str]]:
    """Ids of the operators that each of some functions runs, all in one scope."""
    tool, found = Record(), []
    with amanda.apply(tool):
        for run in runs:
            start = len(tool.ran)
            run()
            found.append(tool.ran[start:])
    assert len(set(tool.analyzed)) == len(tool.analyzed)
    return found


def held() -> Counter[str]:
    """How much of ours is alive: objects by their classes, and the elements of all their tables."""
    found: Counter[str] = Counter()
    reached: dict[int, object] = {}
    # asked of millions, and kept no longer than this takes, since classes go too
    ours = functools.cache(lambda kind: _is_ours(kind.__module__))
    table = functools.cache(lambda kind: issubclass(kind, TABLES))
    modules = [vars(module) for name, module in sys.modules.items() if _is_ours(name)]
    waiting = [*modules, *(it for it in gc.get_objects() if ours(type(it)))]
    while waiting:
        it = waiting.pop()
        if id(it) in reached:
            continue
        reached[id(it)] = it
        found[type(it).__name__] += 1
        if table(type(it)):
            found["elements"] += len(it)
        inner = [vars(it)] if isinstance(it, threading.local) else gc.get_referents(it)
        waiting += [part for part in inner if table(type(part)) or ours(type(part))]
    return found


TABLES = (dict, list, set, tuple, deque, WeakSet, WeakKeyDictionary, WeakValueDictionary)


def _is_ours(module: object) -> bool:
    package, _, part = str(module).partition(".")
    return package in ("amanda", "amanda_torch") and not part.startswith("testing")
