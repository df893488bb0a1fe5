"""Pretrained TensorFlow models as their packages carry them."""

from pathlib import Path

import amanda
import amanda_tensorflow  # noqa: F401
import basic_pitch
import numpy as np
import pytest
import tensorflow as tf
from mtcnn.stages import StageONet, StagePNet, StageRNet

v1 = tf.compat.v1
RANDOM = np.random.default_rng(0)
NMP = Path(basic_pitch.__file__).parent / "saved_models" / "icassp_2022" / "nmp"


class Count(amanda.Tool):
    """Counts the executions of convolutions."""

    def __init__(self):
        super().__init__()
        self.counts = {}
        self.weights = {}
        self.add_inst_for_op(self.analyze, ops=["Conv2D"])

    def analyze(self, ctx):
        self.counts[ctx.op_id] = 0
        if ctx.weight_index is not None:
            self.weights[ctx.op_id] = ctx.value(ctx.weight_index).shape
        ctx.insert_before_op(self.bump, id=ctx.op_id)

    def bump(self, *tensors, id):
        self.counts[id] += 1


def without(layer):
    """A tool that makes the convolution of one layer return zeros."""

    def analyze(ctx):
        if ctx.op.scope.endswith(layer):
            ctx.insert_after_op(lambda y: y * 0, pure=True)

    tool = amanda.Tool()
    tool.add_inst_for_op(analyze, ops=["Conv2D"])
    return tool


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
            audio = RANDOM.normal(size=(1, 43844, 1)).astype(np.float32)
            yield lambda: session.run(fetches, {feed: audio})

    def test_its_convolutions_are_counted(self, run):
        plain = run()
        count = Count()
        with amanda.apply(count):
            observed = run()
            run()
        assert set(count.counts.values()) == {2}
        assert len(count.counts) == 32
        assert count.weights["model_1/conv2d_2/Conv2D"] == (7, 7, 1, 32)
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
        x = RANDOM.normal(size=(2, size, size, 3)).astype(np.float32)
        plain = model.predict(x, verbose=0)
        count = Count()
        with amanda.apply(count):
            observed = model.predict(x, verbose=0)
        assert [o.tobytes() for o in observed] == [p.tobytes() for p in plain]
        assert set(count.counts.values()) == {1}
        assert len(count.weights) == len(count.counts) == convolutions
