"""The tables of PyTorch's models: a column for each model, a row for each way to run it."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import torch

from benchmarks.measuring import PLAIN, Spread, interleaved, plainly, reason
from benchmarks.peers.libraries import library_ways
from benchmarks.ratio_tables import AGAIN, ratio_goal, rows
from benchmarks.results import Curve, Plot
from benchmarks.torch_models import WORKLOADS
from benchmarks.torch_ways import (
    BOTH,
    DISPATCH_MODE,
    FORWARD,
    NEVER,
    ONE,
    amanda_ways,
    torch_ways,
)

if TYPE_CHECKING:
    from benchmarks.measuring import Measured, Way
    from benchmarks.results import Part
    from benchmarks.torch_models import Workload

# Ratios to be reached on a model of MiniLM's size at batch 1, and by all operators of big ones.
GOALS = {NEVER: 1.01, ONE: 1.05, BOTH: 1.4, "`flops`": 1.35, "`profile`": 1.4, "`trace`": 1.4}
DISPATCH_SHARE = 0.7
BIG = ("ResNet-50", "BERT-base")
BIG_GOAL = 1.01
FEW = (PLAIN, AGAIN, NEVER, FORWARD, BOTH, "`flops`", "`profile`", "`trace`", DISPATCH_MODE)
FEWEST = (PLAIN, AGAIN, NEVER, BOTH, DISPATCH_MODE)
# Seconds for the rounds of inference and of training, and how many rounds there are at least.
SECONDS = {
    "MiniLM batch 1": (40.0, 45.0),
    "small Transformer": (20.0, 20.0),
    "Inception": (25.0, 30.0),
    "ResNet-50": (25.0, 50.0),
    "BERT-base": (20.0, 45.0),
    "GPT-2": (20.0, 27.0),
    "MiniLM batch 32": (15.0, 20.0),
}
LEAST = 3
NOTE = (
    "Ratios to plain in the same round: median, and quartiles in brackets. *{again}* is plain "
    "measured as if it were a way of its own, and tells what differences mean nothing. *{one}* is "
    "`linear`, in convolutional networks `conv2d`, in GPT-2 `addmm`. Routines do nothing; tools "
    "and means of PyTorch are in force from before the calls until after, so what they do at their "
    "end is not in here. nnsight is asked for the output of every leaf module, captum for their "
    "activations; NNCF has a hook after every function. Models are made from configurations, with "
    "random weights; one thread computes. *-*: not measured, since a call of that model takes long."
)


def measure(part: Part, training: bool) -> None:
    """Measure all models, and put them into one table, which grows by a column at a time."""
    torch.set_num_threads(1)
    columns: dict[str, dict[str, Measured]] = {}
    for key in WORKLOADS:
        try:
            columns[key] = measured_model(part, key, training)
        except Exception as error:
            part.note(f"{described(key)}: {reason(error)}")
            continue
        show(part, columns, training)
        goals(part, key, columns[key], training)
    picture(part, columns, training)


def measured_model(part: Part, key: str, training: bool) -> dict[str, Measured]:
    """Measure one model by all its ways."""
    torch.manual_seed(0)
    workload = WORKLOADS[key]()
    gc.unfreeze()
    return interleaved(
        workload.train if training else workload.infer,
        chosen(workload, training),
        part.seconds(SECONDS[key][training]),
        least=part.rounds(LEAST),
        warmup=1 if workload.is_big else 2,
        clock=time.process_time,
    )


def picture(part: Part, columns: dict[str, dict[str, Measured]], training: bool) -> None:
    """Show the ratios of those models on which all ways are measured as bars."""
    full = {key: found for key, found in columns.items() if ONE in found}
    names = [name for name in next(iter(full.values())) if name not in (PLAIN, AGAIN)]
    curves = []
    for key, found in full.items():
        ratios = [ratio_of(found, name) for name in names]
        medians, lows, highs = (
            [getattr(one, field) for one in ratios] for field in ("median", "low", "high")
        )
        curves.append(Curve(described(key), [], medians, lows, highs))
    name = "training" if training else "inference"
    title = "A step of training in PyTorch" if training else "Inference in PyTorch"
    label = "times as long as plain, medians and quartiles (none: it failed)"
    part.plot(Plot(name, title, label, "", curves, names))


def ratio_of(found: dict[str, Measured], name: str) -> Spread:
    """The ratio of a way to plain, nothing where it failed."""
    measured = found[name]
    return Spread(0, 0, 0, 0) if measured.failure else measured.ratio(found[PLAIN])


def chosen(workload: Workload, training: bool) -> dict[str, Way]:
    """The ways for a model: all of them, or few where it is big."""
    ways = {PLAIN: plainly(), AGAIN: plainly(), **amanda_ways(workload.one)}
    ways |= torch_ways(workload.model, training)
    if workload.is_big:
        some = FEWEST if training and workload.is_huge else FEW
        return {name: way for name, way in ways.items() if name in some}
    return ways | library_ways(workload, training)


def show(part: Part, columns: dict[str, dict[str, Measured]], training: bool) -> None:
    """Put what there is into the table."""
    title = "A step of training in PyTorch" if training else "Inference in PyTorch"
    header = ["", *(described(key) for key in columns)]
    part.table(title, header, rows(columns), NOTE.format(again=AGAIN, one=ONE))


DESCRIBED = {
    "MiniLM batch 1": "MiniLM size, 1 x 10 tokens",
    "MiniLM batch 32": "MiniLM size, 32 x 10 tokens",
    "small Transformer": "small Transformer, 8 x 16 tokens",
    "Inception": "Inception-like, 1 x 64²",
    "ResNet-50": "ResNet-50, 4 x 224²",
    "BERT-base": "BERT-base size, 4 x 64 tokens",
    "GPT-2": "GPT-2 size, 1 x 64 tokens",
}


def described(key: str) -> str:
    """A model with the size of what it is run on."""
    return DESCRIBED[key]


def goals(part: Part, key: str, found: dict[str, Measured], training: bool) -> None:
    """Compare with what was to be reached."""
    what = "training step" if training else "inference"
    if key == "MiniLM batch 1":
        for name, most in GOALS.items():
            if name == BOTH and not training:
                continue
            ratio_goal(part, f"{described(key)}, {what}: {name}", found, name, most)
        dispatch_goal(part, f"{described(key)}, {what}", found)
    if key in BIG and training:
        ratio_goal(part, f"{described(key)}, {what}: {BOTH}", found, BOTH, BIG_GOAL)


def dispatch_goal(part: Part, what: str, found: dict[str, Measured]) -> None:
    """Compare what a routine at all forward operators adds with what TorchDispatchMode adds."""
    plain, ours, theirs = (found[name].rounds for name in (PLAIN, FORWARD, DISPATCH_MODE))
    shares = [(ours[n] - plain[n]) / (theirs[n] - plain[n]) for n in ours if n in theirs]
    if not shares:
        return
    share = Spread.of(shares)
    part.goal(
        f"{what}: {FORWARD}, an empty routine, as a share of what TorchDispatchMode adds",
        f"{DISPATCH_SHARE}",
        share.text(),
        share.median <= DISPATCH_SHARE,
    )
