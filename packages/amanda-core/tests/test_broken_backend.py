"""The conformance suite tells drivers that do not do what they must: no test of it passes when the
routine that it is about did not run."""

import contextlib
import re
from pathlib import Path

import pytest
from amanda.testing import Loops
from forks import Interpreter

# What holds without a driver that does anything.
IDLE = {
    "test_without_tools_they_are_the_references",
    "test_without_tools_second_derivatives_are_the_references",
    "test_a_missing_context_map_names_the_package",
    "test_a_portable_tool_leaves_this_backend_alone_if_nothing_translates_it",
    "test_a_portable_tool_that_nothing_translates_for_either_is_refused",
    "test_a_namespace_that_is_misspelt_is_refused",
    "test_a_tool_that_wants_modules_is_refused_where_there_are_none",
    "test_looking_at_them_changes_nothing",
}
# What is about analysis routines alone.
DEAF = IDLE | {
    *("test_the_operator", "test_inputs_by_position_and_by_name"),
    *(
        "test_attributes_are_plain_values",
        "test_the_value_of_a_parameter_is_known_unless_it_is_staged",
    ),
    *("test_the_value_of_an_activation", "test_the_weight_is_the_input_that_is_a_parameter"),
    *("test_outputs_are_shown_when_they_are_required", "test_all_outputs_of_an_operator_are_shown"),
    "test_input_gradients_are_shown_when_they_are_required",
    "test_a_context_shows_tensors_only_during_analysis",
    "test_two_tools_have_variables_of_their_own",
    "test_an_exception_in_an_analysis_routine",
    *("test_an_index_that_makes_no_sense", "test_one_that_there_is_not_is_refused"),
    "test_an_insertion_that_the_analysis_cannot_make",
    "test_gradients_are_not_to_be_seen_from_the_forward_side",
    *("test_a_tool_for_another_backend_sees_nothing", "test_a_tool_for_this_backend_sees_it"),
    "test_an_operator_is_analyzed_once_in_a_scope[without]",
    "test_a_gradient_is_analyzed_once_in_a_scope",
    "test_outputs_that_are_required_do_not_change_that",
    "test_every_scope_analyzes_anew",
    "test_all_inputs_that_are_parameters_have_their_indices",
    "test_coming_back_from_a_nested_scope_finds_what_was_decided",
    "test_disabling_for_a_while_forgets_nothing",
    *("test_invalidate_asks_that_tool_alone_again", "test_invalidate_asks_about_gradients_again"),
    "test_clear_cache_asks_all_tools_again",
    "test_without_the_cache_every_execution_asks",
    "test_switching_the_cache_off_and_on_in_a_scope",
    "test_tools_share_the_context_also_in_a_nested_scope",
    "test_a_new_scope_begins_with_empty_contexts",
    "test_the_context_counts_them",
    "test_backward_and_forward_share_the_context",
    "test_a_replacement_of_two_tools_is_refused",
    *("test_a_context_shows_none", "test_its_output_is_shown_when_it_is_required"),
    "test_a_value_that_is_not_known_is_an_error_that_breaks_nothing",
    "test_of_what_is_analyzed_what_is_not_known_is_none",
    "test_a_parameter_is_told_from_what_is_none",
    "test_a_parameter_has_a_source_of_its_own_that_stays_the_same",
    "test_an_operator_of_a_model_is_there_for_that",
    "test_a_glob_restricts_a_tool_to_scopes_of_the_model",
    "test_the_activation_is_the_one_input_that_is_no_parameter",
    "test_what_chooses_is_no_activation",
    "test_a_tensor_without_a_value_gives_no_array",
    "test_the_source_of_an_operator_is_the_line_of_the_program",
    "test_published_entries_are_what_the_context_shows",
    "test_a_tool_may_have_a_namespace_of_its_own",
}


@pytest.fixture(scope="module")
def interpreter():
    with contextlib.closing(Interpreter("hypothesis", "numpy", "pytest")) as interpreter:
        yield interpreter


def test_what_a_framework_lacks_is_skipped_for_its_reason(interpreter):
    done = run_with(interpreter, "lacking", "-rs")
    tests = [name for name in vars(Loops) if name.startswith("test_")]
    skipped = re.findall(r"^SKIPPED \[(\d+)\] .*: Loops: it runs no loops$", done, re.MULTILINE)
    assert sum(map(int, skipped)) >= len(tests)
    assert "failed" not in done


@pytest.mark.parametrize(("driver", "allowed"), [("idle", IDLE), ("deaf", DEAF)])
def test_only_what_needs_no_routine_passes_without_one(interpreter, driver, allowed):
    done = run_with(interpreter, driver, "-rp")
    passed = set(re.findall(r"^PASSED \S+::(test_.*)$", done, re.MULTILINE))
    assert passed, done
    bare = {name.partition("[")[0] for name in passed - allowed}
    assert bare <= allowed
    assert re.search(r"\d+ failed", done)


def run_with(interpreter, driver, report):
    """What pytest prints of the suite when the backend has this driver."""
    command = ["-m", "pytest", "broken_backend.py", "-q", report, "-p", "no:cacheprovider"]
    environment = {"AMANDA_TEST_DRIVER": driver}
    return interpreter.run(
        *command, "--tb=no", cwd=Path(__file__).parent, environment=environment
    ).stdout
