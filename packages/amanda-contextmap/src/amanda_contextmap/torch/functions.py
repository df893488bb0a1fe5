"""ONNX has one operator for these Python functions of several, of PyTorch and of Keras on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_contextmap.layout import Permute
from amanda_contextmap.rule import rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Rule

FUNCTIONS: Mapping[str, str] = {
    "softsign": "torch.nn.functional.softsign",
    "batch_normalization": "keras.src.backend.torch.nn.batch_normalization",
}
"""They are found wherever they are called by the module that has them."""


_OF_CHANNELS = ("scale", "offset", "mean", "variance")


def _by_channel(op: Native) -> bool:
    """Tell whether all that is normalized by has one number for each channel."""
    axis = op.axis("axis", "x")
    channels = [op.size("x", axis)]
    return axis > 0 and all(op.sizes(name) == channels for name in _OF_CHANNELS if op.places(name))


def _channels_second(op: Native) -> Layout | None:
    axis = op.axis("axis", "x")
    return None if axis == 1 else Permute(axis, 1)


TABLE: dict[str, Rule | tuple[Rule, ...]] = {
    "softsign": rule("Softsign", "input=input"),
    "batch_normalization": rule(
        "BatchNormalization",
        "X=x scale=scale B=offset input_mean=mean input_var=variance",
        outputs="Y",
        layouts={"X": _channels_second, "Y": _channels_second},
        when=_by_channel,
        ignores="axis",  # by which its channels are seen second
        epsilon="epsilon",
        training_mode=0,
    ),
}
