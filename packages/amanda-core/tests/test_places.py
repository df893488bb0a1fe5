"""Operators are told apart by their places, and live as long as what they are part of."""

import gc
import sys
import types

from amanda.driving import Ids, Operator, Operators, Source, calling_instructions


class Model:
    pass


class Run:
    pass


def met(part=None, run=None):
    """Two operators of a model, called at two places, in the order in which they are met."""
    return [OPERATORS.at(part, "head", "add", run), OPERATORS.at(part, "head", "add", run)]


def ids(found):
    return [operator.id for operator in found]


OPERATORS = Operators("numpy", ["json"])


def test_a_place_has_one_operator_and_another_one_the_next_number():
    model = Model()
    first = met(model, Run())
    assert ids(first) == ["head/add", "head/add#2"]
    assert met(model, Run()) == first


def test_a_place_that_is_passed_twice_in_a_run_has_two():
    model = Model()
    for run in (Run(), Run()):
        assert ids(met(model, run) + met(model, run)) == [
            *("head/add", "head/add#2", "head/add#3", "head/add#4")
        ]


def test_a_run_within_a_run_leaves_its_turns_alone():
    model, run = Model(), Run()
    first = met(model, run)
    assert met(model, Run()) == first
    assert ids(met(model, run)) == ["head/add#3", "head/add#4"]


def test_outside_of_runs_it_has_one_however_often_it_is_passed():
    model = Model()
    assert met(model) == met(model)


def test_two_models_share_no_operator_and_the_id_of_a_dead_one_is_free():
    model, other = Model(), Model()
    assert ids(met(model)) == ["head/add", "head/add#2"]
    assert ids(met(other)) == ["head/add#3", "head/add#4"]
    del model
    gc.collect()
    third = Model()
    assert ids(met(third)) == ["head/add", "head/add#2"]


def test_an_operator_tells_the_line_that_calls_it():
    model = Model()
    first, second = met(model)
    assert first.source == second.source == Source(__file__, met.__code__.co_firstlineno + 2)


def test_an_operator_has_one_backward_operator():
    model = Model()
    operator, _ = met(model)
    backward = OPERATORS.backward(operator, "_backward")
    assert (backward.id, backward.type) == ("head/add_backward", "add_backward")
    assert OPERATORS.backward(operator, "_backward") is backward


def test_calling_instructions_lead_through_the_modules_that_are_not_the_programs(monkeypatch):
    framework = types.ModuleType("framework")
    framework.__file__ = "framework.py"
    monkeypatch.setitem(sys.modules, "framework", framework)
    framework.calling_instructions = calling_instructions
    text = "def call(): return inner()\ndef inner(): return calling_instructions(['framework'])"
    exec(compile(text, framework.__file__, "exec"), vars(framework))

    def program():
        return [framework.call(), framework.call()]

    first, second = program()
    assert [code.co_name for code, _ in first] == ["inner", "call", "program"]
    assert first[:-1] == second[:-1]
    assert first[-1] != second[-1]


class TestIds:
    def operators(self, ids, *stems):
        found = []
        for stem in stems:
            id = ids.free(stem)
            found.append(Operator(id=id, type="add", name=id, scope="", backend="numpy"))
            ids.give(id, found[-1])
        return found

    def test_have_the_lowest_number_that_is_free(self):
        ids = Ids()
        first, second, third, other = self.operators(ids, "add", "add", "add", "mul")
        assert [o.id for o in (first, second, third, other)] == ["add", "add#2", "add#3", "mul"]
        del second
        assert ids.free("add") == "add#2"
        del first
        assert ids.free("add") == "add"
        again = self.operators(ids, "add", "add", "add")
        assert [operator.id for operator in again] == ["add", "add#2", "add#4"]
        assert third.id in ids

    def test_from_a_number_on_and_beside_those_that_others_have(self):
        ids = Ids()
        assert ids.free("add", first=2) == "add#2"
        assert ids.free("add", taken={"add", "add#2"}) == "add#3"

    def test_that_are_given_in_any_order_are_taken(self):
        ids, operators = Ids(), []
        for id in ("add#2", "add#3"):
            operators.append(Operator(id=id, type="add", name=id, scope="", backend="numpy"))
            ids.give(id, operators[-1])
        assert ids.free("add") == "add"
        operators += self.operators(ids, "add")
        assert ids.free("add") == "add#4"


class Notebook(types.ModuleType):
    """What IPython is, as far as it is asked for the names of cells."""

    def get_ipython(self):
        return types.SimpleNamespace(compile=self)

    def format_code_name(self, name):
        return ("Cell", "In[3]") if name == "/tmp/ipykernel_12/345.py" else None


def test_a_line_in_a_notebook_is_told_by_its_cell(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", Notebook("IPython"))
    assert str(Source("/tmp/ipykernel_12/345.py", 7)) == "In[3]:7"
    assert str(Source("model.py", 7)) == "model.py:7"


def test_a_line_is_told_by_its_file_where_ipython_is_imported_and_does_not_run(monkeypatch):
    notebook = Notebook("IPython")
    notebook.get_ipython = lambda: None
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    assert str(Source("/tmp/ipykernel_12/345.py", 7)) == "/tmp/ipykernel_12/345.py:7"
