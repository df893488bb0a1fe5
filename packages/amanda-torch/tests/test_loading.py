"""Loading the driver changes of PyTorch only what has to last longer than a scope."""

import textwrap

PROGRAM = """
    import sys
    import torch

    def held():
        modules = [m for name, m in sys.modules.items() if name.partition(".")[0] == "torch"]
        classes = {c for m in modules for c in vars(m).values() if isinstance(c, type)}
        return {
            (owner, name): value
            for owner in [*modules, *classes]
            for name, value in vars(owner).items()
        }

    before = held()
    import amanda_torch.driver
    after = held()
    for (owner, name), value in before.items():
        if after[owner, name] is not value:
            print(f"{owner.__name__}.{name}")
"""


def test_that_is_where_swapped_tensors_are_looked_for_references(interpreter):
    found = interpreter.run("-c", textwrap.dedent(PROGRAM), check=True).stdout
    assert found.split() == ["torch.utils.weakref"]
