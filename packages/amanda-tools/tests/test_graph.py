"""Graphs of operators: what they can be asked, and how they are written."""

import csv
import json
import re
import xml.etree.ElementTree as ET

import amanda
import pytest
import torch
from amanda_tools import Edge, Graph, Network, Node
from torch import nn


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.a(x)
        z = (y + self.b(y)).view(2, 4)
        return z.relu()


def graph_of(model, x, times=1, **options):
    tool = Graph(**options)
    with amanda.apply(tool):
        for _ in range(times):
            model(x)
    return tool


@pytest.fixture(scope="module")
def residual():
    return graph_of(Residual(), torch.ones(2, 4))


class TestAsking:
    def test_which_operator_made_an_input(self, residual):
        edge = residual.producer("add", "other")
        assert (edge.producer, edge.output, edge.input) == ("b/linear", 0, 1)
        assert (edge.shape, edge.dtype) == ([2, 4], "float32")
        assert residual.producer("a/linear") is None
        assert residual.predecessors("add") == ["a/linear", "b/linear"]

    def test_which_operators_use_an_output(self, residual):
        assert [(e.consumer, e.name) for e in residual.consumers("a/linear", 0)] == [
            *(("b/linear", "input"), ("add", "self")),
        ]
        assert residual.consumers("a/linear", 1) == []
        assert residual.successors("view") == ["relu"]

    def test_several_producers_of_one_input(self):
        def model(x):
            x = x.exp()
            x[0].zero_()
            return x.sin()

        graph = graph_of(model, torch.ones(2, 2))
        assert {e.producer for e in graph.producers("sin", 0)} == {"exp", "zero_"}
        with pytest.raises(ValueError, match=r"'zero_', 'exp'.*producers\(\)"):
            graph.producer("sin")

    def test_an_operator_that_there_is_not(self, residual):
        with pytest.raises(LookupError, match="did you mean 'a/linear'"):
            residual.producers("a/linaer")

    def test_by_the_context_in_a_tool_that_depends_on_it(self):
        class Asking(amanda.Tool):
            def __init__(self):
                super().__init__(namespace="onnx")
                self.graph = Graph(namespace="onnx")
                self.depends_on(self.graph)
                self.add_inst_for_op(self.analyze, ops=["Relu"])
                self.found = []

            def analyze(self, ctx):
                ctx.insert_after_op(lambda y: self.found.append(self.graph.predecessors(ctx)))

        tool = Asking()
        with amanda.apply(tool):
            Residual()(torch.ones(2, 4))
        assert tool.found == [["view"]]
        assert tool.graph.nodes["view"].type == "Reshape"

    def test_past_views_and_casts(self, residual):
        assert residual.without().predecessors("relu") == ["add"]
        assert residual.without(["add"]).predecessors("view") == ["a/linear", "b/linear"]

    def test_what_is_no_part_of_the_model_is_left_out(self):
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

        def train(x):
            model(x).sum().backward()
            optimizer.step()

        graph = graph_of(train, torch.ones(2, 4), times=2)
        linear, total = graph.nodes.values()
        assert (linear.type, total.type) == ("linear", "sum")
        assert linear.parameters == [1, 2]


class TestExport:
    def test_to_networkx(self, residual):
        networkx = pytest.importorskip("networkx")
        graph = residual.to_networkx()
        assert set(networkx.ancestors(graph, "relu")) == {"a/linear", "b/linear", "add", "view"}
        assert graph.nodes["view"]["type"] == "view"
        assert [data["input"] for *_, data in graph.in_edges("add", data=True)] == [0, 1]

    def test_to_dot_with_modules_as_clusters(self, residual):
        text = residual.to_dot()
        assert '"b/linear" -> "add" [label="2x4"];' in text
        assert re.search(r'subgraph "cluster_a" \{\s+label="a";\s+"a/linear"', text)

    def test_names_that_need_quotes(self):
        network = Network({'a"b\\': Node('a"b\\', "<&>", "é")}, [])
        assert '"a\\"b\\\\" [label="<&>"];' in network.to_dot()
        assert ET.fromstring(network.to_svg()) is not None

    def test_a_picture_has_all_operators_below_what_they_take(self, residual):
        place = _places(residual)
        assert place.keys() == residual.nodes.keys()
        assert all(place[e.producer] < place[e.consumer] for e in residual.edges)

    def test_a_picture_of_a_loop_has_what_closes_it_dashed(self):
        nodes = {id: Node(id, "Op", "") for id in "abcd"}
        links = ["ab", "bc", "cb", "cd", "ad", "dd"]
        network = Network(nodes, [Edge(p, 0, c, 0) for p, c in links])
        assert list(_places(network).values()) == sorted(_places(network).values())
        assert network.to_svg().count('class="back"') == 1

    def test_nothing_is_a_picture_too(self):
        assert ET.fromstring(Network({}, []).to_svg()).findall(".//*") != []

    @pytest.mark.parametrize("ending", [".svg", ".dot", ".json", ".csv"])
    def test_goes_by_the_ending_of_the_file(self, tmp_path, ending, residual):
        path = tmp_path / f"graph{ending}"
        graph_of(Residual(), torch.ones(2, 4), out=path)
        text = path.read_text()
        if ending == ".json":
            found = json.loads(text)
            assert [n["id"] for n in found["nodes"]] == list(residual.nodes)
            assert [e["producer"] for e in found["edges"]] == [e.producer for e in residual.edges]
        elif ending == ".csv":
            rows = list(csv.DictReader(text.splitlines()))
            assert [row["producer"] for row in rows] == [e.producer for e in residual.edges]
        else:
            assert text == getattr(residual, f"to_{ending[1:]}")()

    def test_without_plumbing(self, tmp_path):
        graph_of(Residual(), torch.ones(2, 4), out=tmp_path / "graph.dot", plumbing=False)
        assert '"add" -> "relu"' in (tmp_path / "graph.dot").read_text()

    def test_another_ending_is_refused(self):
        with pytest.raises(ValueError, match=r"\.svg, \.dot, \.json or \.csv"):
            Graph("graph.png")


def test_of_a_script(tmp_path, in_process):
    script = "import torch\ntorch.ones(2).exp().sin()\n"
    (tmp_path / "script.py").write_text(script)
    tool = "amanda_tools.graph:Graph:out=g.dot"
    code, _, err = in_process(tmp_path, "run", "--tool", tool, "script.py")
    assert code == 0, err
    assert "graph: 3 operators, 2 edges" in err
    assert '"exp" -> "sin"' in (tmp_path / "g.dot").read_text()


def _places(network):
    """How far down each operator is."""
    groups = ET.fromstring(network.to_svg()).iter("{http://www.w3.org/2000/svg}g")
    return {g[0].text: float(g[1].get("y")) for g in groups}


def test_what_was_ended_early_says_so_in_whatever_it_is_written_as(tmp_path):
    def stopped(x):
        x.exp().sin()
        raise KeyboardInterrupt

    tools = [Graph(tmp_path / f"graph{end}", plumbing=False) for end in Graph.endings]
    with pytest.raises(KeyboardInterrupt), amanda.apply(*tools):
        stopped(torch.ones(2))
    said = "ended by KeyboardInterrupt"
    assert json.loads((tmp_path / "graph.json").read_text())["partial"] == said
    assert tools[0].to_dict()["partial"] == said
    for end in (".svg", ".dot"):
        assert f"partial: {said}" in (tmp_path / f"graph{end}").read_text()
    assert f"partial: {said}" in repr(tools[0])
