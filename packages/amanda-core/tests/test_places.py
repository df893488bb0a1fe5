"""Operators are told apart by their places, and live as long as what they are part of."""

import gc

from amanda.driving import Ids, Operator, Operators, calling_instructions


class Model:
    pass


class Run:
    pass


def test_a_place_has_one_operator_and_another_one_the_next_number():
    operators, model = Operators("numpy"), Model()
    first = operators.at(model, "head", "add", "here", Run())
    second = operators.at(model, "head", "add", "there", Run())
    assert (first.id, second.id) == ("head/add", "head/add#2")
    assert operators.at(model, "head", "add", "here", Run()) is first


def test_a_place_that_is_passed_twice_in_a_run_has_two():
    operators, model = Operators("numpy"), Model()
    for run in (Run(), Run()):
        ids = [operators.at(model, "", "add", "loop", run).id for _ in range(2)]
        assert ids == ["add", "add#2"]


def test_a_run_within_a_run_leaves_its_turns_alone():
    operators, model, run = Operators("numpy"), Model(), Run()
    first = operators.at(model, "", "add", "loop", run)
    assert operators.at(model, "", "add", "loop", Run()) is first
    assert operators.at(model, "", "add", "loop", run).id == "add#2"


def test_outside_of_runs_it_has_one_however_often_it_is_passed():
    operators, model = Operators("numpy"), Model()
    assert operators.at(model, "", "add", "loop") is operators.at(model, "", "add", "loop")


def test_two_models_share_no_operator_and_the_id_of_a_dead_one_is_free():
    operators, model, other = Operators("numpy"), Model(), Model()
    ids = [operators.at(part, "", "add", "here", Run()).id for part in (model, other)]
    assert ids == ["add", "add#2"]
    del model
    gc.collect()
    assert operators.at(Model(), "", "add", "here", Run()).id == "add"


def test_an_operator_has_one_backward_operator():
    operators, model = Operators("numpy"), Model()
    operator = operators.at(model, "head", "add", "here", Run())
    backward = operators.backward(operator, "_backward")
    assert (backward.id, backward.type) == ("head/add_backward", "add_backward")
    assert operators.backward(operator, "_backward") is backward


def test_calling_instructions_lead_from_the_first_file_that_is_not_between():
    names = {"calling_instructions": calling_instructions}
    text = "def call(): return inner()\ndef inner(): return calling_instructions('between'.__eq__)"
    exec(compile(text, "between", "exec"), names)
    call = names["call"]

    def program():
        return [call(), call()]

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
