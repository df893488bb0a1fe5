"""These tests of S4 compare the ids of operators."""

from __future__ import annotations

import functools
import inspect
import json
import linecache
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import amanda
from amanda.testing.models import X, perceptron
from amanda.testing.probes import Executions, Watch
from amanda.testing.program import Program

if TYPE_CHECKING:
    from collections.abc import Collection

    import pytest

    from amanda.testing.adapter import Adapter, Model

TWICE = Program("""
    a = act/relu(x)
    b = act/relu(a)
    y = join/add(a, b)
""")
BRANCH = Program("""
    a = first/relu(x)
    a = extra/relu(a) if deep
    y = last/relu(a)
""")


def types_here(adapter: Adapter) -> list[str]:
    """List the types of the operators that the models of these tests have."""
    return [adapter.types[kind] for kind in ("matmul", "sigmoid", "relu", "add")]


def ids_of_a_perceptron(adapter: Adapter) -> list[str]:
    """Build and run a perceptron, and list the ids of its operators."""
    executions = Executions()
    model = perceptron(adapter)
    with amanda.apply(executions.tool(types_here(adapter))):
        model.gradients(["w1"], {"x": X})
    return executions.ids


class Identity:
    """S4, no two operators have one id, nor one operator two: ``docs/semantics.md#s4-identity``."""

    adapter: Adapter

    def ids(self, model: Model, switches: Collection[str] = ()) -> list[str]:
        """List the ids of a model's operators, in the order in which they run in one forward."""
        executions = Executions()
        with amanda.apply(executions.tool(types_here(self.adapter))):
            model.forward({"x": X}, switches)
        return executions.ids

    def test_the_source_of_an_operator_is_the_line_of_the_program(self) -> None:
        """An adapter's model runs the program, so that the line is in a file of its class."""
        types = types_here(self.adapter)
        model = perceptron(self.adapter)
        sources: dict[str, amanda.Source | None] = {}

        def analyze(ctx: amanda.OpContext) -> None:
            assert ctx.op.source == sources.setdefault(ctx.op.id, ctx.op.source)

        with amanda.apply(Watch(analyze, types), Watch(analyze, types, gradient=True)):
            model.gradients(["w1"], {"x": X})
        assert len(sources) == 3
        files = {inspect.getfile(cls) for cls in type(model).__mro__[:-2]}  # no ABC, no object
        for source in sources.values():
            assert source is not None
            assert source.file in files
            assert linecache.getline(*source).strip()

    def test_an_id_is_scope_and_type(self) -> None:
        adapter = self.adapter
        seen = []
        executions = Executions()
        types = types_here(adapter)

        def analyze(ctx: amanda.OpContext) -> None:
            ctx.insert_before_op(executions.note, id=ctx.op.id)
            seen.append(ctx.op)

        tool = amanda.Tool()
        tool.add_inst_for_op(analyze, ops=types)
        with amanda.apply(tool):
            perceptron(adapter).forward({"x": X})

        operators = {operator.id: operator for operator in seen}
        layers = [adapter.layer(operators[id]) for id in executions.ids]
        assert layers == ["hidden", "act", "head"]
        for id, kind in zip(executions.ids, ["matmul", "sigmoid", "matmul"], strict=True):
            operator = operators[id]
            assert operator.type == adapter.types[kind]
            bare = id.split("#")[0]
            assert bare == f"{operator.scope.split('#')[0]}/{operator.type}"

    def test_every_iteration_has_the_same_ids(self) -> None:
        model = perceptron(self.adapter)
        executions = Executions()
        with amanda.apply(executions.tool(types_here(self.adapter))):
            for _ in range(3):
                model.forward({"x": X})
        once = executions.ids[:3]
        assert len(set(once)) == 3
        assert executions.ids == once * 3

    def test_another_batch_size_has_the_same_ids(self) -> None:
        model = perceptron(self.adapter)
        executions = Executions()
        with amanda.apply(executions.tool(types_here(self.adapter))):
            model.forward({"x": X})
            model.forward({"x": X[:1]})
        assert len(set(executions.ids)) == 3
        assert executions.ids[:3] == executions.ids[3:]

    def test_train_and_eval_have_the_same_ids(self) -> None:
        model = perceptron(self.adapter)
        model.train(True)
        training = self.ids(model)
        assert len(set(training)) == 3
        model.train(False)
        assert self.ids(model) == training

    def test_forward_alone_and_with_gradients_have_the_same_ids(self) -> None:
        model = perceptron(self.adapter)
        executions = Executions()
        with amanda.apply(executions.tool(types_here(self.adapter))):
            model.gradients(["x", "w1"], {"x": X})
        assert len(set(executions.ids)) == 3
        assert self.ids(model) == executions.ids

    def test_two_scopes_give_the_same_ids(self) -> None:
        model = perceptron(self.adapter)
        ids = self.ids(model)
        assert len(set(ids)) == 3
        assert self.ids(model) == ids

    def test_what_other_types_a_tool_wants_makes_no_difference(self) -> None:
        model = perceptron(self.adapter)
        executions = Executions()
        with amanda.apply(executions.tool([self.adapter.types["matmul"]])):
            model.forward({"x": X})
        hidden, _, head = self.ids(model)
        assert executions.ids == [hidden, head]

    def test_two_copies_of_a_model_do_not_collide(self) -> None:
        one, other = perceptron(self.adapter), perceptron(self.adapter)
        ids = self.ids(one)
        others = self.ids(other)
        assert len({*ids, *others}) == 6
        assert self.ids(one) == ids
        assert self.ids(other) == others

    def test_a_layer_that_is_called_twice_gives_two_operators(self) -> None:
        model = self.adapter.build(TWICE, {})
        ids = self.ids(model)
        assert len(set(ids)) == 3
        assert self.ids(model) == ids

    def test_a_branch_does_not_shift_the_ids_of_others(self) -> None:
        model = self.adapter.build(BRANCH, {})
        shallow = self.ids(model)
        deep = self.ids(model, ["deep"])
        assert len(shallow) == 2
        assert [id for id in deep if id in shallow] == shallow
        (extra,) = set(deep) - set(shallow)
        assert "extra" in extra
        assert self.ids(model) == shallow
        assert self.ids(model, ["deep"]) == deep

    def test_a_branch_taken_every_other_step_in_one_scope(self) -> None:
        model = self.adapter.build(BRANCH, {})
        executions = Executions()
        with amanda.apply(executions.tool(types_here(self.adapter))):
            for switches in ([], ["deep"], [], ["deep"]):
                model.forward({"x": X}, switches)
        half = executions.ids[:5]
        assert len(set(half)) == 3
        assert executions.ids == half * 2

    def test_ids_are_the_same_in_another_process(self, request: pytest.FixtureRequest) -> None:
        cls = type(self.adapter)
        file = inspect.getfile(cls)
        here = {type(getattr(item.cls, "adapter", None)) for item in _of_classes_beside(request)}
        names = sorted(other.__name__ for other in here if other.__module__ == cls.__module__)
        one, other = (_ids_in_another_process(file, *names, hash_seed=seed) for seed in ("1", "2"))
        assert len(set(one[cls.__name__])) == 3
        assert one[cls.__name__] == other[cls.__name__]


def _of_classes_beside(request: pytest.FixtureRequest) -> list[Any]:
    """List the tests in classes of the file of the test that asks."""
    beside: list[Any] = [item for item in request.session.items if item.path == request.path]
    return [item for item in beside if getattr(item, "cls", None) is not None]


@functools.cache
def _ids_in_another_process(file: str, *names: str, hash_seed: str) -> dict[str, list[str]]:
    """Run a perceptron of each adapter in one other process, and list the ids by adapter.

    Those of one file share the process, since many frameworks take seconds to import.
    """
    program = (
        "import gc, importlib.util, json, os, sys\n"
        "from amanda.testing.identity import ids_of_a_perceptron\n"
        "spec = importlib.util.spec_from_file_location('adapter_module', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "sys.modules['adapter_module'] = module\n"
        "gc.disable()\n"  # it would look through the framework time and again
        "spec.loader.exec_module(module)\n"
        "gc.freeze()\n"
        "gc.enable()\n"
        "ids = {}\n"
        "for name in sys.argv[2:]:\n"
        "    ids[name] = ids_of_a_perceptron(getattr(module, name)())\n"
        "    gc.collect()\n"
        "print('ids:' + json.dumps(ids), flush=True)\n"
        "os._exit(0)\n"  # ahead of taking the framework apart, which takes long
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    output = subprocess.run(
        [sys.executable, "-c", program, file, *names],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    (line,) = (line for line in output.splitlines() if line.startswith("ids:"))
    found: dict[str, list[str]] = json.loads(line.removeprefix("ids:"))
    return found
