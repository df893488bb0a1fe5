"""What "Writing a portable tool" shows is what happens."""

import amanda
import keras_process
import pages
import pytest
import torch

PAGE = "packages/amanda-contextmap/docs/writing-a-portable-tool.md"
BLOCKS = pages.blocks(PAGE)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_the_first_program_prints_what_is_shown(backend, tmp_path):
    _, (_, output), *_ = BLOCKS
    script = tmp_path / "prune.py"
    script.write_text(pages.program(PAGE))  # what follows the first program only defines tools
    assert keras_process.run(backend, script) == output


def test_its_tool_has_fewer_than_thirty_lines():
    tool = BLOCKS[0][1].partition("class Prune")[2].partition("\n\n\n")[0]
    assert len(tool.splitlines()) < 30


@pytest.fixture
def later():
    """The tools that the page defines after its first program."""
    names = {"amanda": amanda}
    for language, block in BLOCKS[2:]:
        if language == "python":
            exec(block, names)
    return names


def test_its_tool_for_gradients_clips_those_of_weights(later):
    conv, x = torch.nn.Conv2d(2, 3, 2), torch.arange(18.0).reshape(1, 2, 3, 3)

    def gradient():
        conv.zero_grad()
        conv(x).mean().backward()
        return conv.weight.grad.clone()

    plain = gradient()
    assert plain.max() > 1
    with amanda.apply(later["Clip"]()):
        assert torch.equal(gradient(), plain.clamp(-1, 1))
    assert torch.equal(gradient(), plain)


def test_its_published_way_counts_layers(later):
    tool = later["CountLayers"]()
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    with amanda.apply(tool):
        model(torch.ones(1, 2))
    assert tool.count == 2
