"""Index lists and what routines return, apart from any backend."""

from typing import Any

import pytest
from amanda import ActionError, Operator, RoutineError, Tool
from amanda._contexts.indices import checked_indices
from amanda.driving import Action, Point
from hypothesis import given, settings
from hypothesis import strategies as st

OPERATOR = Operator(id="a/conv2d", type="conv2d", name="conv2d", scope="a", backend="test")
TOOL = Tool()


def anything_goes(original, substitute):
    return None


def action(routine, indices=None, point=Point.BEFORE_OP, **options):
    return Action(point, routine, TOOL, indices, **options)


def run(actions, tensors, incompatible_reason=anything_goes):
    for action in actions:
        tensors = action.run(tensors, tensors, OPERATOR, incompatible_reason)
    return tensors


class TestIndices:
    def check(self, indices, count):
        return checked_indices(indices, count, (), "inputs")

    def test_none_is_all(self):
        assert self.check(None, 3) is None

    @settings(deadline=None)
    @given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.permutations(range(n)))))
    def test_any_order_is_kept(self, count_and_indices):
        count, indices = count_and_indices
        assert self.check(indices, count) == tuple(indices)

    @settings(deadline=None)
    @given(st.integers(1, 9), st.data())
    def test_negative_ones_count_from_the_end(self, count, data):
        index = data.draw(st.integers(-count, -1))
        assert self.check([index], count) == (range(count)[index],)

    @settings(deadline=None)
    @given(st.integers(0, 9), st.integers())
    def test_those_out_of_range_are_refused(self, count, index):
        if -count <= index < count:
            assert self.check([index], count) == (range(count)[index],)
        else:
            with pytest.raises(ActionError, match=rf"inputs={index} is out of range"):
                self.check([index], count)

    @settings(deadline=None)
    @given(st.integers(1, 9), st.data())
    def test_the_same_tensor_twice_is_refused(self, count, data):
        index = data.draw(st.integers(0, count - 1))
        for again in (index, index - count):
            with pytest.raises(ActionError, match="given twice"):
                self.check([index, again], count)

    @pytest.mark.parametrize("index", [1.0, None, (0,)])
    def test_those_that_are_no_integers_are_refused(self, index):
        with pytest.raises(ActionError, match="is not an integer"):
            self.check([index], 2)

    def test_a_name_stands_for_its_index(self):
        assert checked_indices(["weight", 0], 2, ["input", "weight"], "inputs") == (1, 0)

    def test_a_name_that_is_not_known_is_refused(self):
        with pytest.raises(ActionError, match="is none of"):
            checked_indices(["weigth"], 1, ["weight"], "inputs")

    def test_a_name_where_there_are_none_is_refused(self):
        with pytest.raises(ActionError, match="has to be an index"):
            self.check(["weight"], 2)

    def test_what_is_no_list_is_refused(self):
        with pytest.raises(ActionError, match=r"write inputs=\[0\]"):
            self.check(0, 2)

    def test_they_are_taken_on_trust_while_the_number_is_not_known(self):
        assert self.check([5, -1], None) == (5, -1)


class TestRoutines:
    def test_without_any_the_tensors_are_themselves(self):
        tensors = [1, 2]
        assert run([], tensors) is tensors
        assert run([action(lambda a, b: None)], tensors) is tensors

    def test_what_is_given_is_not_changed(self):
        tensors = [1, 2]
        assert run([action(lambda a, b: (b, a))], tensors) == [2, 1]
        assert tensors == [1, 2]

    @settings(deadline=None)
    @given(
        st.lists(st.integers(), min_size=1, max_size=6).flatmap(
            lambda tensors: st.tuples(
                st.just(tensors), st.permutations(range(len(tensors))), st.booleans()
            )
        ),
        st.data(),
    )
    def test_each_selected_tensor_is_replaced_by_its_own(self, described, data):
        tensors, order, as_list = described
        chosen = order[: data.draw(st.integers(1, len(order)))]
        kept = data.draw(st.sets(st.sampled_from(chosen)))

        def routine(*selected):
            assert list(selected) == [tensors[i] for i in chosen]
            values = (None if i in kept else ("new", i) for i in chosen)
            return list(values) if as_list else tuple(values)

        result = run([action(routine, tuple(chosen))], tensors)
        assert result == [
            ("new", i) if i in chosen and i not in kept else tensor
            for i, tensor in enumerate(tensors)
        ]

    def test_one_sees_what_the_one_before_returned(self):
        double = action(lambda a: a * 2, (0,))
        increment = action(lambda a: a + 1, (0,))
        assert run([double, increment], [5]) == [11]
        assert run([increment, double], [5]) == [12]

    def test_keyword_arguments_are_passed_on(self):
        assert run([action(lambda a, by: a * by, kwargs={"by": 3})], [2]) == [6]

    def test_none_among_the_tensors_is_passed_as_it_is(self):
        assert run([action(lambda a, b: (a is None, b))], [None, 1]) == [True, 1]

    @settings(deadline=None)
    @given(st.integers(1, 5), st.integers(0, 6))
    def test_the_number_returned_must_be_that_of_those_selected(self, expected, given):
        returned = action(lambda *tensors: (0,) * given)
        if expected == given:
            assert run([returned], [1] * expected) == [0] * expected
        else:
            with pytest.raises(RoutineError, match=rf"expected {expected} .* got {given}$"):
                run([returned], [1] * expected)

    def test_a_selection_beyond_those_there_are(self):
        with pytest.raises(RoutineError, match=r"selects tensors \[1\], this execution has 1"):
            run([action(print, (1,))], [0])

    def test_an_incompatible_substitute_is_named_in_full(self):
        def refuse(original, substitute):
            return f"returned {substitute} for {original}"

        def routine(a):
            return 7

        with pytest.raises(RoutineError) as caught:
            run([action(routine)], [5], refuse)
        assert str(caught.value) == (
            "Tool: TestRoutines.test_an_incompatible_substitute_is_named_in_full.<locals>.routine "
            "at before_op of operator 'a/conv2d': returned 7 for 5"
        )
        assert caught.value.tool == "Tool"
        assert caught.value.operator_id == "a/conv2d"
        assert caught.value.point == "before_op"

    def test_an_exception_is_the_cause_of_the_error(self):
        with pytest.raises(RoutineError, match="ZeroDivisionError: ") as caught:
            run([action(lambda a: a / 0)], [5])
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    def test_an_interrupt_is_not_an_error_of_the_routine(self):
        def interrupted(a):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run([action(interrupted)], [5])


class TestObservers:
    """Routines that say by their annotation that they substitute nothing."""

    def observe(self, *tensors) -> None:
        pass

    def test_are_told_by_their_annotation(self):
        def unannotated(*tensors):
            pass

        def quoted(*tensors) -> "None":
            pass

        assert action(self.observe).observes
        assert action(quoted).observes
        assert not action(unannotated).observes

    @pytest.mark.parametrize(
        ("annotation", "always"),
        [
            (float, True),
            ("Tensor", True),
            (tuple[int, float], True),
            (None, False),
            ("None", False),
            (float | None, False),
            ("Optional[Tensor]", False),
            (Any, False),
            (object, False),
        ],
    )
    def test_others_tell_whether_they_return_something_each_time(self, annotation, always):
        def routine(tensor): ...

        routine.__annotations__["return"] = annotation
        assert action(routine).always_returns is always
        assert not action(lambda tensor: tensor).always_returns

    def test_are_held_to_it(self):
        def liar(tensor) -> None:
            return tensor

        with pytest.raises(RoutineError, match="annotated to return None"):
            run([action(liar)], [1])


class TestReplacement:
    def replace(self, routine, indices=None, incompatible_reason=anything_goes):
        replacement = action(routine, indices, Point.REPLACE_OP)
        return replacement.run([2, 3], ["original"], OPERATOR, incompatible_reason)

    def test_it_is_given_inputs_and_gives_outputs(self):
        assert self.replace(lambda a, b: a * b) == [6]
        assert self.replace(lambda b: b, (1,)) == [3]

    def test_it_is_held_to_the_number_of_outputs(self):
        with pytest.raises(RoutineError, match=r"replace_op .* expected 1 tensor .* got 2"):
            self.replace(lambda a, b: (a, b))

    def test_it_is_held_to_what_can_stand_for_the_outputs(self):
        with pytest.raises(RoutineError, match="6 is not original"):
            self.replace(
                lambda a, b: a * b, incompatible_reason=lambda old, new: f"{new} is not {old}"
            )
