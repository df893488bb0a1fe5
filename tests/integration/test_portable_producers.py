"""What makes an input, in the portable vocabulary, of the same function on both backends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import amanda
import tensorflow as tf
import torch
from amanda.testing.probes import Edges

if TYPE_CHECKING:
    from collections.abc import Callable


def edges(run: Callable[[], object]) -> set[str]:
    tool = Edges(namespace="onnx")
    with amanda.apply(tool):
        run()
    return {re.sub(r"#\d+", "", edge) for edge in tool.edges}  # other tests have such ids too


def test_are_told_on_pytorch() -> None:
    def residual(x: torch.Tensor) -> torch.Tensor:
        y = torch.exp(x)
        left, right = (y + torch.sin(y)).chunk(2, 1)
        return torch.cat([right, left, y], 1)

    found = edges(lambda: residual(torch.ones(2, 4)))
    assert found >= {"exp > sin.input", "exp > add.A", "sin > add.B"}
    assert found >= {"chunk:1 > cat.inputs[0]", "chunk > cat.inputs[1]", "exp > cat.inputs[2]"}


def test_are_told_on_tensorflow() -> None:
    @tf.function
    def residual(x: tf.Tensor) -> tf.Tensor:
        y = tf.exp(x)
        left, right = tf.split(y + tf.sin(y), 2, 1)
        return tf.concat([right, left, y], 1)

    found = edges(lambda: residual(tf.ones((2, 4))))
    assert found >= {"Exp > Sin.input", "Exp > AddV2.A", "Sin > AddV2.B"}
    assert found >= {"Split:1 > ConcatV2.inputs[0]", "Exp > ConcatV2.inputs[2]"}
