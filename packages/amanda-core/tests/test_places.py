"""Operators are told apart by their places, and live as long as what they are part of."""

import gc

from amanda.driving import Operators, calling_instructions


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
