"""Pretrained TensorFlow models as their packages carry them."""

from pathlib import Path

import amanda
import amanda_tensorflow  # noqa: F401
import basic_pitch
import numpy as np
import pytest
import tensorflow as tf
from amanda.testing.probes import Count, Watch, scale
from mtcnn.stages import StageONet, StagePNet, StageRNet

v1 = tf.compat.v1
NMP = Path(basic_pitch.__file__).parent / "saved_models" / "icassp_2022" / "nmp"


def shapes_of_weights(shapes):
    """A tool that notes them, by the id of the convolution."""

    def analyze(ctx):
        if ctx.weight_index is not None:
            shapes[ctx.op.id] = ctx.value(ctx.weight_index).shape

    return Watch(analyze, "Conv2D")


def without(layer):
    """A tool that makes the convolution of one layer return zeros."""
    return scale("Conv2D", 0, pure=True, where=lambda operator: operator.scope.endswith(layer))


class TestBasicPitch:
    """A SavedModel whose whole network is in functions that the graph calls."""

    @pytest.fixture
    def run(self):
        with tf.Graph().as_default(), v1.Session() as session:
            signature = v1.saved_model.load(session, ["serve"], str(NMP)).signature_def[
                "serving_default"
            ]
            fetches = {name: info.name for name, info in signature.outputs.items()}
            (feed,) = [info.name for info in signature.inputs.values()]
            audio = np.random.default_rng(0).normal(size=(1, 43844, 1)).astype(np.float32)
            yield lambda: session.run(fetches, {feed: audio})

    def test_its_convolutions_are_counted(self, run):
        plain = run()
        count, shapes = Count("Conv2D"), {}
        with amanda.apply(count, shapes_of_weights(shapes)):
            observed = run()
            run()
        assert set(count.counts.values()) == {2}
        assert len(count.counts) == 32
        assert shapes["model_1/conv2d_2/Conv2D"] == (7, 7, 1, 32)
        assert {name: a.tobytes() for name, a in observed.items()} == {
            name: a.tobytes() for name, a in plain.items()
        }

    def test_they_are_instrumented(self, run):
        plain = run()
        with amanda.apply(without("contours-reduced")):
            changed = run()
        assert np.ptp(changed["contour"]) < 1e-6 < np.ptp(plain["contour"])
        assert run()["contour"].tobytes() == plain["contour"].tobytes()


class TestMTCNN:
    """The three networks of MTCNN, with the weights that the package carries."""

    @pytest.mark.parametrize(
        ("stage", "size", "convolutions"),
        [(StagePNet, 12, 5), (StageRNet, 24, 3), (StageONet, 48, 4)],
    )
    def test_observing_changes_no_bit(self, stage, size, convolutions):
        model = stage().model
        x = np.random.default_rng(0).normal(size=(2, size, size, 3)).astype(np.float32)
        plain = model.predict_on_batch(x)
        count, shapes = Count("Conv2D"), {}
        with amanda.apply(count, shapes_of_weights(shapes)):
            observed = model.predict_on_batch(x)
        assert [o.tobytes() for o in observed] == [p.tobytes() for p in plain]
        assert set(count.counts.values()) == {1}
        assert len(shapes) == len(count.counts) == convolutions
