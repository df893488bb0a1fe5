"""Models of Keras by predict, by fit and in a session, under tools and TensorFlow's own means."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import keras

from benchmarks.keras_models import mobilenet, resnet50, small_transformer
from benchmarks.measuring import PLAIN, interleaved, plainly, reason
from benchmarks.ratio_tables import AGAIN, ratio_goal, rows
from benchmarks.tensorflow_ways import BOTH, FORWARD, NEVER, PURE, amanda_ways, tensorflow_ways

if TYPE_CHECKING:
    from benchmarks.measuring import Measured, Way
    from benchmarks.results import Part

MODELS = {
    "MobileNetV2": mobilenet,
    "ResNet50": resnet50,
    "small Transformer": small_transformer,
}
SECONDS = {
    "MobileNetV2": {"predict": 35.0, "fit": 25.0, "Session": 10.0},
    "ResNet50": {"predict": 30.0, "fit": 35.0, "Session": 12.0},
    "small Transformer": {"predict": 6.0, "fit": 10.0, "Session": 5.0},
}
# Each turn prepares graphs anew, which takes seconds: all ways are measured on one model alone.
ALL = ("MobileNetV2", "predict")
FEW = (PLAIN, AGAIN, NEVER, PURE, FORWARD, BOTH, "`flops`")
FEWEST = (PLAIN, AGAIN, PURE, FORWARD, BOTH)
GOALS = {PURE: 1.01, FORWARD: 1.07}
NOTE = (
    "Images of 96² in batches of 8; 12 tokens in batches of 8. *predict* is `predict_on_batch`, "
    "*fit* a step of it (`train_on_batch`), both as `tf.function` without XLA; *Session* is "
    "inference in a graph with constant weights. Ratios to plain in the same round, on the clock: "
    "median, and quartiles in brackets. The pure routine gives back the weight; host routines do "
    "nothing. The driver is imported before graphs are built. Checked numerics are those of a "
    "model that was built for them. *-*: not measured."
)


def run(part: Part) -> None:
    """Measure all models by all ways."""
    columns: dict[str, dict[str, Measured]] = {}
    for name in MODELS:
        for how, seconds in SECONDS[name].items():
            column = f"{name}, {how}"
            try:
                columns[column] = measured_model(part, name, how, seconds)
            except Exception as error:
                part.note(f"{column}: {reason(error)}")
                continue
            part.table("Keras and TensorFlow", ["", *columns], rows(columns), NOTE)
            if name == "ResNet50" and how == "predict":
                goals(part, column, columns[column])


def measured_model(part: Part, name: str, how: str, seconds: float) -> dict[str, Measured]:
    """Measure one model by one way of running it."""
    keras.utils.set_random_seed(0)
    workload = MODELS[name]()
    ways: dict[str, Way] = {PLAIN: plainly(), AGAIN: plainly()}
    ways |= amanda_ways(training=how == "fit") | tensorflow_ways(workload, how)
    if (name, how) != ALL:
        some = FEWEST if (name, how) == ("ResNet50", "fit") else FEW
        ways = {way: ways[way] for way in some if way in ways}
    gc.unfreeze()
    return interleaved(
        workload.call(how),
        ways,
        part.seconds(seconds),
        least=part.rounds(2),
        warmup=1,
        turn=0.4,
    )


def goals(part: Part, column: str, found: dict[str, Measured]) -> None:
    """Compare with what was to be reached."""
    for name, most in GOALS.items():
        ratio_goal(part, f"{column}, batch 8: {name}", found, name, most)
