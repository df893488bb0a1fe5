"""Tools of another vocabulary see an operator, and insert into it, by what this translates."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amanda import ActionError, UnsupportedError
from amanda.driving import Analysis, Ask, Execution, Layouts, Point, View, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amanda import Driver, Parameter
    from amanda.driving import Action

    from amanda_contextmap.layout import Layout


@dataclass(slots=True, eq=False)
class Translation:
    """A translation is an operator in another vocabulary.

    Args:
        type: its type there.
        inputs: for each input there, the index of the backend's input that it is.
        input_names: the roles of the inputs.
        attrs: its attributes in canonical form.
        outputs: for each output there, the index of the backend's output; None for all as they are.
        input_layouts: for each input there, the layout to turn it to, None where it agrees.
        output_layouts: the same for ``outputs``, which must be given then.
    """

    type: str
    inputs: Sequence[int]
    input_names: Sequence[str]
    attrs: Mapping[str, Any]
    outputs: Sequence[int] | None = None
    input_layouts: Sequence[Layout | None] = ()
    output_layouts: Sequence[Layout | None] = ()

    @property
    def types(self) -> tuple[str, str]:
        """Return the types by which tools select it: its own, and that of its gradient."""
        return self.type, self.type + "Grad"

    def analysis(self, native: Analysis) -> Analysis:
        """Return what a tool of the vocabulary is shown in place of an analysis of the backend."""
        if native.tool.layout == "native":
            return TranslatedAnalysis(
                native, dataclasses.replace(self, input_layouts=(), output_layouts=())
            )
        return TranslatedAnalysis(native, self)


_ON_GRADIENT = {
    Point.BEFORE_BACKWARD_OP: Point.ON_GRAD_OUTPUTS,
    Point.AFTER_BACKWARD_OP: Point.ON_GRAD_INPUTS,
}
_ON_INPUTS = {Point.BEFORE_OP, Point.REPLACE_OP, Point.ON_GRAD_INPUTS}


class TranslatedAnalysis(Analysis):
    """This is an analysis by a tool that speaks another vocabulary than the backend.

    Its backward operators are gradients as a whole: ``ConvGrad`` has the roles of ``Conv``.
    """

    def __init__(self, native: Analysis, translation: Translation) -> None:
        super().__init__(
            native.driver,
            native.tool,
            native.view,
            _translated(native.execution, translation, native.driver),
            [native.parameters[i] for i in translation.inputs],
        )
        self._native = native
        self._translation = translation
        if native.view is View.BACKWARD:
            name = translation.type + "Grad"
            backward_operator = self.execution.operator.snapshot()
            backward_operator.type = backward_operator.name = name
            backward_operator.id = f"{backward_operator.id}/{name}"
            self.execution.backward_operator = backward_operator

    def value(self, index: int) -> Any:
        """Return an input as a NumPy array, in the vocabulary's layout."""
        return self._in_layout(self._native.value(self._translation.inputs[index]), index)

    def _in_layout(self, array: Any, index: int) -> Any:
        layout = _layout(self._translation.input_layouts, index)
        if layout is None:
            return array
        import numpy  # whose array it is

        return layout.to_canonical(array, numpy)

    def parameter(self, index: int) -> Parameter | None:
        """Return the parameter that an input is or comes from, as the backend has it."""
        return self._native.parameter(self._translation.inputs[index])

    def places(self, index: int) -> Any:
        """Return where elements of an input lie in its parameter, in the vocabulary's layout."""
        places = self._native.places(self._translation.inputs[index])
        return None if places is None else self._in_layout(places, index)

    def native_input(self, index: int) -> int:
        """Return which of the inputs of the backend's operator an input is."""
        return self._native.native_input(self._translation.inputs[index])

    @property
    def layouts(self) -> Layouts:
        """Tell how the inputs and outputs are turned from what the backend has."""
        return Layouts(self._translation.input_layouts, self._translation.output_layouts)

    def insert(self, action: Action) -> None:
        """Take an action, with its indices and tensors in the native layout."""
        translation = self._translation
        if action.point is Point.REPLACE_BACKWARD_OP:
            raise UnsupportedError(
                f"{action.tool.name}: {self.execution.operator.named}: a gradient as a whole "
                "cannot be replaced; insert before or after it, or register for native operators"
            )
        point = _ON_GRADIENT.get(action.point, action.point)
        places: Sequence[int] | None = translation.inputs
        layouts = returned = translation.input_layouts
        if point is Point.REPLACE_OP:
            returned = translation.output_layouts
        elif point not in _ON_INPUTS:
            places = translation.outputs
            layouts = returned = translation.output_layouts
        indices = action.indices
        if indices is None and places is not None:
            indices = tuple(range(len(places)))
        if indices is not None:
            if any(layouts) and any(i < 0 for i in indices):
                raise ActionError(
                    f"{action.tool.name}: {self.execution.operator.named}: which layout the tensor "
                    f"at {min(indices)} has is not known before the operator runs; count from the "
                    "start, or register the analysis routine with require_outputs=True"
                )
            layouts = [_layout(layouts, i) for i in indices]
            if point is not Point.REPLACE_OP:
                returned = layouts
            if places is not None:
                indices = tuple(places[i] for i in indices)
        asked, asked_layouts = self._asked(action)
        routine = action.routine
        if any(layouts) or any(returned) or any(asked_layouts):
            turn = _InLayout(layouts, returned, asked_layouts, action.original, self.driver.xp)
            routine = turn.around(routine)
        native = dataclasses.replace(
            action, point=point, routine=routine, indices=indices, whole=True, asked=asked
        )
        self._native.insert(native)

    def _asked(self, action: Action) -> tuple[tuple[Ask, ...], list[Layout | None]]:
        """Return what an action asks for of the forward side in the backend, and its layouts."""
        translation = self._translation
        asked, layouts = [], []
        for ask in action.asked:
            of_outputs = ask.what == "outputs"
            places = translation.outputs if of_outputs else translation.inputs
            known = translation.output_layouts if of_outputs else translation.input_layouts
            index = ask.index if places is None else places[ask.index]
            asked.append(Ask(ask.what, index))
            layouts.append(_layout(known, ask.index))
        return tuple(asked), layouts


def _translated(execution: Execution, translation: Translation, driver: Driver) -> Execution:
    """Return an execution as a tool sees it that speaks the vocabulary of the translation."""
    operator = execution.operator.snapshot()
    operator.type = translation.type

    def chosen(
        tensors: Sequence[Any] | None,
        places: Sequence[int] | None,
        layouts: Sequence[Layout | None],
    ) -> list[Any] | None:
        if tensors is None:
            return None
        found = list(tensors) if places is None else [tensors[i] for i in places]
        return [
            t
            if t is None or (layout := _layout(layouts, i)) is None
            else driver.to_layout(t, functools.partial(layout.to_canonical, xp=driver.xp))
            for i, t in enumerate(found)
        ]

    def whole(gradients: Sequence[Any] | None) -> list[Any] | None:
        if gradients is None:
            return None
        return [None if g is None else driver.whole(g) for g in gradients]

    inputs = translation.inputs, translation.input_layouts
    outputs = translation.outputs, translation.output_layouts
    grads = execution.grad_inputs
    return Execution(
        operator,
        chosen(execution.inputs, *inputs) or [],
        translation.input_names,
        translation.attrs,
        chosen(execution.outputs, *outputs),
        grad_outputs=chosen(whole(execution.grad_outputs), *outputs),
        grad_inputs=(lambda: chosen(whole(grads()), *inputs) or [])
        if callable(grads)
        else chosen(whole(grads), *inputs),
    )


def _layout(layouts: Sequence[Layout | None], index: int) -> Layout | None:
    """Return the layout of a tensor; those that are left out agree."""
    return layouts[index] if 0 <= index < len(layouts) else None


class _InLayout:
    """This turns what a routine is given, and returns, between the vocabulary and the backend.

    Args:
        given: the layouts of the tensors that it selects.
        returned: those of what it returns.
        asked: those of what it asks for, which it is given last.
        original: whether it is given the operator itself first.
        xp: array namespace for the backend's tensors.
    """

    def __init__(
        self,
        given: Sequence[Layout | None],
        returned: Sequence[Layout | None],
        asked: Sequence[Layout | None],
        original: bool,
        xp: Any,
    ) -> None:
        self._given = given
        self._returned = returned
        self._asked = asked
        self._original = original
        self._xp = xp

    def around(self, routine: Callable[..., Any]) -> Callable[..., Any]:
        """Return a routine of the vocabulary as one of the backend."""

        def adapted(*arguments: Any, **kwargs: Any) -> Any:
            tensors = list(arguments)
            first = [self._original_of(tensors.pop(0))] if self._original else []
            last = len(tensors) - len(self._asked)
            selected = self._in_layout(tensors[:last], self._given, "to_canonical")
            asked = self._in_layout(tensors[last:], self._asked, "to_canonical")
            result = routine(*first, *selected, *asked, **kwargs)
            return self._of_result(result, self._returned, "to_native")

        adapted.__qualname__ = name_of(routine)
        if "return" in (annotations := getattr(routine, "__annotations__", {})):
            adapted.__annotations__ = {"return": annotations["return"]}  # it may only observe
        return adapted

    def _original_of(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return the operator itself as a routine of the vocabulary calls it."""

        def original(*tensors: Any) -> Any:
            results = run(*self._in_layout(tensors, self._given, "to_native"))
            return self._of_result(results, self._returned, "to_canonical")

        return original

    def _of_result(self, result: Any, layouts: Sequence[Layout | None], to: str) -> Any:
        """Turn what a routine returned, or the operator: None, one tensor or several."""
        if result is None:
            return None
        single = not isinstance(result, (tuple, list))
        values = self._in_layout([result] if single else result, layouts, to)
        return values[0] if single else values

    def _in_layout(
        self, tensors: Sequence[Any], layouts: Sequence[Layout | None], to: str
    ) -> list[Any]:
        return [
            t
            if t is None or (layout := _layout(layouts, i)) is None
            else getattr(layout, to)(t, self._xp)
            for i, t in enumerate(tensors)
        ]
