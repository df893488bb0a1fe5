"""The snippets of every README run as they stand, and do what is said of them."""

import importlib.util
import re

import amanda
import keras_process
import pages
import pytest
import test_pages
import torch

IN_THIS_PROCESS = [
    "README.md",
    "CONTRIBUTING.md",
    "packages/amanda-core/README.md",
    "packages/amanda-torch/README.md",
    "packages/amanda-contextmap/README.md",
]
TOOLS = "packages/amanda-tools/README.md"
TENSORFLOW = "packages/amanda-tensorflow/README.md"
ELSEWHERE = {
    *test_pages.HERE,
    "docs/how-to/run-under-torchrun.md",  # tests/docs
    "docs/from-published-amanda.md",  # test_published_docs.py
    "docs/looking-into-a-language-model.md",  # test_language_models.py
    "docs/training-with-tools.md",  # test_training_page.py
    "packages/amanda-contextmap/docs/writing-a-portable-tool.md",  # test_portable_docs.py
    "packages/amanda-core/docs/writing-a-driver.md",  # test_guide.py of core
    "packages/amanda-jax/README.md",  # test_readme.py beside it
}


def test_every_page_with_snippets_is_executed():
    with_snippets = {
        n for n in pages.every() if any(kind == "python" for kind, _ in pages.blocks(n))
    }
    assert with_snippets == {*IN_THIS_PROCESS, TOOLS, TENSORFLOW} | ELSEWHERE


@pytest.mark.parametrize("page", IN_THIS_PROCESS)
def test_snippets_run_one_after_the_other(page):
    pages.execute(page)


def test_the_first_tool_of_the_readme_prints_what_is_shown_but_for_random_shares():
    _, printed = pages.execute("README.md")
    found, shown, _ = printed[0]
    share = re.compile(r"\d+%")
    assert share.sub("%", found).split() == share.sub("%", shown).split()
    assert len(share.findall(found)) == 4


def test_the_tool_of_the_core_computes_with_masked_weights():
    names, _ = pages.execute("packages/amanda-core/README.md")
    model, images = names["model"], names["images"]
    with amanda.apply(names["Prune"](0.1)):
        found = model(images)
    with torch.no_grad():
        for weight in (model[0].weight, model[2].weight):
            weight *= weight.abs() > 0.1
    assert torch.equal(found, model(images))


def test_the_tool_of_the_torch_driver_computes_with_half_of_the_weights():
    names, _ = pages.execute("packages/amanda-torch/README.md")
    model, x = names["model"], torch.randn(4, 8)
    with amanda.apply(names["MaskWeights"]()):
        found = model(x)
    with torch.no_grad():
        for weight in (model[0].weight, model[2].weight):
            weight *= weight.abs() >= weight.abs().median()
    assert torch.equal(found, model(x))


def test_the_tool_of_the_context_map_is_shown_channels(capsys):
    names, _ = pages.execute("packages/amanda-contextmap/README.md")
    with amanda.apply(names["Channels"]()):
        torch.nn.Sequential(torch.nn.Conv2d(3, 7, 2), torch.nn.ReLU())(torch.ones(1, 3, 4, 4))
    assert capsys.readouterr().out == "0/conv2d has 7 channels\n"


def test_the_rules_shown_are_those_of_the_map():
    source = pages.text("packages/amanda-contextmap/src/amanda_contextmap/torch/elementwise.py")
    page = pages.text("packages/amanda-contextmap/README.md")
    entries = re.findall(r'^    "\w+": rule\(.*\),$', page, re.MULTILINE)
    assert len(entries) == 2
    assert all(entry in source for entry in entries)


def test_the_formula_of_the_contributing_guide_counts_a_product():
    names, _ = pages.execute("CONTRIBUTING.md")
    attrs = {"dimension_numbers": (((1,), (0,)), ((), ()))}
    assert names["product"].forward([(4, 3), (3, 2)], [(4, 2)], attrs) == 2 * 4 * 2 * 3


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What the names on the page of the tools stand for, and the folder that it wrote to."""
    folder = tmp_path_factory.mktemp("tools")
    without = None if importlib.util.find_spec("pandas") else "pandas"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        names, _ = pages.execute(TOOLS, without)
    return names, folder


def test_results_of_the_tools_are_data(results):
    names, folder = results
    assert names["flops"].to_dict()["total"]["params"] == 8 * 16 + 16 + 16 * 2 + 2
    written = {path.name for path in folder.iterdir()}
    assert written - {"report.html"} == {"profile.json", "trace.jsonl"}
    assert names["pruner"].totals()["zeros"] == 576
    weights = [value for key, value in names["checkpoint"].items() if key.endswith("weight")]
    assert sum(int((weight == 0).sum()) for weight in weights) == 576


def test_results_of_the_tools_go_to_pandas_and_to_a_report(results):
    pytest.importorskip("pandas")
    names, folder = results
    assert set(names["profile"].to_pandas()["type"]) >= {"linear", "relu"}
    assert (folder / "report.html").exists()


def test_the_tool_of_the_tensorflow_driver_runs(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(pages.program(TENSORFLOW))
    assert "dense/MatMul (8, 4)" in keras_process.run("tensorflow", script)


def test_what_packages_announce_is_looked_for():
    """Under the names of groups that the READMEs show."""
    texts = [pages.text(page) for page in (*IN_THIS_PROCESS, TOOLS)]
    shown = {
        group
        for t in texts
        for group in re.findall(r'^\[project\.entry-points\."(.+)"\]$', t, re.M)
    }
    sources = "".join(p.read_text("utf-8") for p in pages.ROOT.glob("packages/*/src/**/*.py"))
    assert shown == {"amanda.tools", "amanda.flops"}
    assert all(f'"{group}"' in sources for group in shown)
