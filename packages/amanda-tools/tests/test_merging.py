"""What several processes found, as one: rows, numbers over ranks, and files."""

import contextlib
import csv
import json
from dataclasses import dataclass

import amanda
import pytest
from amanda_tools import (
    Findings,
    Flops,
    Graph,
    Merged,
    NanWatch,
    Profile,
    Trace,
    gathered,
    merge_files,
)
from forks import Interpreter


@dataclass
class Row:
    id: str
    type: str
    calls: int
    time: float | None


class Found(Findings[Row]):
    row_type = Row
    merges = {"calls": "sum", "time": "mean"}

    def __init__(self, *rows):
        self._rows = rows

    def rows(self):
        return self._rows

    def totals(self):
        return {"calls": sum(row.calls for row in self._rows), "name": "all"}

    def found(self):
        return f"{len(self._rows)} rows"


class Listed(Found):
    merges = {}


ONE = Found(Row("a", "conv", 2, 10.0), Row("b", "relu", 1, None))
OTHER = Found(Row("a", "conv", 4, 30.0), Row("c", "relu", 1, 5.0))


class TestMerged:
    def test_has_the_rows_of_all_ranks_merged_as_the_tool_says(self):
        merged = Merged({0: ONE.to_dict(), 2: OTHER.to_dict()}).to_dict()
        assert merged["ranks"] == [0, 2]
        assert merged["total"] == {"calls": 8, "name": "all"}
        assert merged["operators"] == [
            {"id": "a", "type": "conv", "calls": 6, "time": 20.0},
            {"id": "b", "type": "relu", "calls": 1, "time": None},
            {"id": "c", "type": "relu", "calls": 1, "time": 5.0},
        ]

    def test_tells_the_spread_of_each_number_and_whose_it_is(self):
        rows = Merged({0: ONE.to_dict(), 2: OTHER.to_dict()}).rows()
        (time,) = (row for row in rows if (row.what, row.field) == ("a", "time"))
        assert (time.ranks, time.sum, time.mean) == (2, 40.0, 20.0)
        assert (time.least, time.least_rank, time.most, time.most_rank) == (10.0, 0, 30.0, 2)
        (only,) = (row for row in rows if (row.what, row.field) == ("c", "time"))
        assert (only.ranks, only.least_rank) == (1, 2)

    def test_tells_rows_of_one_key_in_one_process_apart(self):
        twice = Found(Row("a", "conv", 1, None), Row("a", "conv", 5, None)).to_dict()
        merged = Merged({0: twice, 1: twice}).to_dict()
        assert [row["calls"] for row in merged["operators"]] == [2, 10]

    def test_lists_the_rows_of_a_tool_that_does_not_merge(self):
        found = Listed(Row("a", "conv", 2, 10.0)).to_dict()
        merged = Merged({0: found, 1: found})
        assert [row["rank"] for row in merged.to_dict()["operators"]] == [0, 1]
        assert merged.rows() == []

    def test_refuses_what_is_not_of_one_tool(self):
        with pytest.raises(ValueError, match="several tools"):
            Merged({0: ONE.to_dict(), 1: Listed().to_dict()})
        with pytest.raises(ValueError, match="does not say how it merges"):
            Merged({0: {"operators": []}})

    @pytest.mark.parametrize("cls", [Flops, Profile, NanWatch, Graph])
    def test_says_of_tools_what_their_rows_and_totals_have(self, cls):
        fields = {*cls.row_type.__dataclass_fields__, *cls().totals()}
        assert Merged({0: cls().to_dict()}).partial is None
        assert set(cls.merges) <= fields
        assert set(cls.keys) <= fields


class TestFiles:
    def test_of_findings_become_one(self, tmp_path, toy):
        for rank, times in enumerate((1, 3)):
            tool = Flops()
            with amanda.apply(tool):
                for _ in range(times):
                    toy.forward("a/conv", 10)
            (tmp_path / f"f.rank{rank}.json").write_text(json.dumps(tool.to_dict()))
        paths = [str(tmp_path / f"f.rank{rank}.json") for rank in (1, 0)]
        merged = merge_files(paths, tmp_path / "all.json")
        assert json.loads((tmp_path / "all.json").read_text()) == merged.to_dict()
        assert merged.to_dict()["operators"][0]["calls"] == 4
        merge_files(paths, tmp_path / "all.csv")
        with (tmp_path / "all.csv").open(newline="") as file:
            (calls,) = (
                row
                for row in csv.DictReader(file)
                if (row["what"], row["field"]) == ("a/conv model", "calls")
            )
        assert (calls["most"], calls["most_rank"]) == ("3", "1")
        with pytest.raises(ValueError, match="CSV does not say how it merges"):
            merge_files([str(tmp_path / "all.csv")])

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("null\n", "nothing was written to it"),
            ("{", "not complete JSON"),
            ("[1, 2]", "does not say how it merges"),
            ('{"operators": []}', "does not say how it merges"),
        ],
    )
    def test_that_cannot_be_merged_are_named(self, tmp_path, text, message):
        (tmp_path / "f.rank1.json").write_text(text)
        (tmp_path / "f.rank0.json").write_text(json.dumps(ONE.to_dict()))
        paths = [str(tmp_path / f"f.rank{rank}.json") for rank in (0, 1)]
        with pytest.raises(ValueError, match=rf"f\.rank1\.json: .*{message}"):
            merge_files(paths)

    def test_of_traces_become_one_with_ranks(self, tmp_path, toy):
        for rank in (0, 1):
            trace = Trace(tmp_path / f"t.rank{rank}.jsonl")
            chrome = Profile(tmp_path / f"p.rank{rank}.json")
            with amanda.apply(trace, chrome):
                toy.forward("a/conv", 10)
        paths = [str(tmp_path / f"t.rank{rank}.jsonl") for rank in (0, 1)]
        said = merge_files(paths, tmp_path / "t.jsonl")
        assert said.startswith("2 rows of 2 ranks in ")
        rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
        assert [(row["rank"], row["id"]) for row in rows] == [(0, "a/conv"), (1, "a/conv")]

        merge_files([p.replace("t.rank", "p.rank")[:-1] for p in paths], tmp_path / "p.json")
        events = json.loads((tmp_path / "p.json").read_text())
        named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
        assert named == ["rank 0", "rank 1"]
        assert {event["pid"] for event in events} == {0, 1}

    def test_are_refused_where_they_are_of_one_rank_or_of_two_kinds(self, tmp_path, toy):
        with amanda.apply(Trace(tmp_path / "t.rank0.jsonl")):
            toy.forward("a/conv", 10)
        for name in ("f.rank0.json", "f.rank1.json"):
            (tmp_path / name).write_text(json.dumps(ONE.to_dict()))
        trace, one, other = (
            str(tmp_path / name) for name in ("t.rank0.jsonl", "f.rank0.json", "f.rank1.json")
        )
        with pytest.raises(ValueError, match="both of rank 0"):
            merge_files([trace, one])
        with pytest.raises(ValueError, match="some of them are traces"):
            merge_files([trace, other])
        with pytest.raises(ValueError, match="name it by --out"):
            merge_files([trace])
        with pytest.raises(ValueError, match="is one of the files to merge"):
            merge_files([one, other], one)

    def test_are_merged_by_the_command(self, tmp_path, in_process):
        for rank, found in enumerate((ONE, OTHER)):
            (tmp_path / f"f.rank{rank}.json").write_text(json.dumps(found.to_dict()))
        code, out, _ = in_process(tmp_path, "merge", "f.rank0.json", "f.rank1.json")
        assert code == 0
        assert [line.split() for line in out.splitlines() if line.startswith(" total")] == [
            ["total", "calls", "8", "4", "3", "0", "5", "1"]
        ]
        code, _, err = in_process(tmp_path, "merge", "f.rank0.json", "nothing.json")
        assert (code, err.count("\n")) == (2, 1)


TRAIN = """
import sys
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
rank = distributed.get_rank()
for wrap in (DistributedDataParallel, fully_shard):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    options = {"mesh": init_device_mesh("cpu", (2,))} if wrap is fully_shard else {}
    wrap(model, **options)(torch.randn(2 * (rank + 1), 8)).sum().backward()
distributed.destroy_process_group()
"""


def test_processes_of_a_group_report_at_the_first_one_and_write_a_file_each(tmp_path):
    """As ``torchrun`` starts them, with both ways to share a model, and no group by the end."""
    (tmp_path / "train.py").write_text(TRAIN)
    keeper = store_of_torchrun()
    command = ["-m", "amanda_tools", "run", "--tool", "flops:out=f.json", "train.py"]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(keeper.port)}
    shared |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1"}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in (0, 1)]
    with contextlib.closing(Interpreter("amanda_tools.command", "torch.distributed.fsdp")) as forks:
        processes = [
            forks.start(*command, cwd=tmp_path, environment={**shared, **rank}) for rank in ranks
        ]
        first, second = (process.communicate()[1] for process in processes)
    assert [process.returncode for process in processes] == [0, 0], first + second
    assert second == ""
    # Rank 0 has 2 samples for each model, rank 1 has 4: 2 x 8 x 16 + 2 x 16 x 4 FLOPs for each.
    totals = [line.split() for line in first.splitlines() if line.startswith(" total ")]
    assert ["total", "forward", "4,608", "2,304", "1,536", "0", "3,072", "1"] in totals
    merged = merge_files([str(tmp_path / f"f.rank{rank}.json") for rank in (0, 1)]).to_dict()
    assert merged["total"]["forward"] == 2 * 6 * 2 * (8 * 16 + 16 * 4)
    linear = [row for row in merged["operators"] if row["type"] == "linear"]
    assert [row["calls"] for row in linear] == [2, 2, 2, 2]
    del keeper


def store_of_torchrun():
    from torch.distributed import TCPStore

    return TCPStore("localhost", 0, is_master=True, wait_for_workers=False)  # any free port


def test_one_process_gathers_nothing():
    assert gathered([Flops()]) == []
