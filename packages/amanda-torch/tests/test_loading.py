"""Loading the driver changes nothing of PyTorch: that begins with the first scope."""

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
    print([(owner, name) for (owner, name), v in before.items() if after[owner, name] is not v])
"""


def test_everything_in_it_is_what_it_was(interpreter):
    assert interpreter.run("-c", textwrap.dedent(PROGRAM), check=True).stdout == "[]\n"
