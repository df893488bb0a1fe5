"""Parts of PyTorch that a program imports while tools are active are treated as those before.

All of it runs in one process of its own, where nothing has imported them yet.
"""

import json
import textwrap

import pytest

PROGRAM = """
    import json, sys
    import torch, amanda

    compile = torch.compile  # as a library holds it that imports it from torch
    late = "torch._dynamo", "torch.nn.attention.flex_attention"
    found = {"early": [name for name in late if name in sys.modules]}

    class Negate(amanda.Tool):
        def __init__(self):
            super().__init__()
            self.types = []
            self.add_inst_for_op(self.analyze)

        def analyze(self, ctx):
            self.types.append(ctx.op.type)
            if ctx.op.type == "mul":
                ctx.insert_after_op(lambda y: -y, outputs=[0])

    def double(x):
        return torch.mul(x, 2.0)

    x = torch.tensor([1.0, 2.0])
    with amanda.apply(Negate()):
        compiled = compile(double, backend="eager")
        found["compiled"] = [compiled(x).tolist() for _ in range(2)]
    found["afterwards"] = compiled(x).tolist()

    def attend():
        from torch.nn.attention.flex_attention import flex_attention
        torch.manual_seed(0)
        query, key, value = torch.randn(3, 1, 2, 8, 4)
        return flex_attention(query, key, value, lambda score, *place: score * 2.0)

    for name in ("late", "later"):
        with amanda.apply(tool := Negate()):
            result = attend()
        found[name] = [tool.types, result.tolist()]

    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(interpreter):
    return json.loads(interpreter.run("-c", textwrap.dedent(PROGRAM), check=True).stdout)


def test_nothing_of_it_was_imported_before(found):
    assert found["early"] == []


def test_what_is_compiled_runs_as_it_is_written_if_the_compiler_is_imported_late(found):
    assert found["compiled"] == [[-2.0, -4.0], [-2.0, -4.0]]
    assert found["afterwards"] == [2.0, 4.0]


def test_operators_that_take_functions_are_seen_alike_the_first_time_and_the_second(found):
    assert found["late"] == found["later"]
    assert "mul" in found["late"][0]
