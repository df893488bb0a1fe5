"""The command, with a tool that prunes."""

import json

import keras_process


def test_it_writes_what_was_pruned(tmp_path):
    script, out = tmp_path / "script.py", tmp_path / "layers.json"
    script.write_text("import torch\ntorch.nn.Linear(4, 2)(torch.ones(1, 4))\n")
    tool = f"amanda_tools.pruning:MagnitudePruning:sparsity=0.25,granularity=element,out={out}"
    done = keras_process.command("torch", "run", "--tool", tool, script, check=True)
    assert "2 of 8 elements pruned (25.0%)" in done.stderr
    found = json.loads(out.read_text())
    assert found["total"] == {"elements": 8, "zeros": 2, "sparsity": 0.25}
    (layer,) = found["layers"]
    assert (layer["type"], layer["shape"], layer["zeros"]) == ("Gemm", [2, 4], 2)
