"""Sizes of tensors are integers to portable routines, also with v2 behavior off."""

import textwrap

import keras_process
import pytest

PROGRAM = """
    import amanda, numpy as np, tensorflow as tf
    from amanda.testing.probes import Watch
    from tensorflow.compat import v1
    v1.disable_v2_behavior()
    weight = v1.get_variable("weight", [2, 2, 3, 4])
    x = v1.placeholder(tf.float32, [None, 5, 5, 3])
    y = tf.nn.conv2d(x, weight, 1, "SAME")
    seen = []

    def look(x, w):
        seen.append([*x.shape, *w.shape])

    def analyze(ctx):
        ctx.insert_before_op(look, inputs=ctx.input_names[:2], pure={pure})

    with v1.Session() as session:
        session.run(weight.initializer)
        with amanda.apply(Watch(analyze, {type!r}, namespace={namespace!r})):
            session.run(y, {{x: np.ones((2, 5, 5, 3))}})
    (sizes,) = seen
    kinds = sorted({{type(size).__name__ for size in sizes}})
    print(*kinds, [getattr(size, "value", size) for size in sizes])
    print(type(x.shape[1]).__name__)
"""


@pytest.fixture
def ran(tmp_path):
    """Runs the program, and gives the lines that it printed."""

    def run(**options):
        script = tmp_path / "program.py"
        script.write_text(textwrap.dedent(PROGRAM).format(**options))
        return keras_process.run("tensorflow", script).splitlines()

    return run


@pytest.mark.parametrize(("pure", "batch"), [(False, 2), (True, None)])
def test_of_a_portable_tool(ran, pure, batch):
    kinds = sorted({type(batch).__name__, "int"})
    seen, program = ran(type="Conv", namespace="onnx", pure=pure)
    assert seen == " ".join(kinds) + f" [{batch}, 3, 5, 5, 4, 3, 2, 2]"
    assert program == "Dimension"


def test_of_a_native_tool_they_are_as_the_program_has_them(ran):
    seen, _ = ran(type="Conv2D", namespace=None, pure=False)
    assert seen == "Dimension [2, 5, 5, 3, 2, 2, 3, 4]"
