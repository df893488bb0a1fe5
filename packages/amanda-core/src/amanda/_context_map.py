"""Context maps: what translates a backend's vocabulary into another one, ahead of the tools.

A tool that speaks ``onnx`` runs unchanged on every backend whose vocabulary a map translates.
Maps announce themselves by an entry point in the group ``amanda.context_maps`` whose name is
``<backend's vocabulary>:<other vocabulary>``, e.g. ``torch:onnx``, and whose value is a
:class:`ContextMap`; they are loaded when a tool first needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from amanda._action import Action, Point, name_of
from amanda._analysis import Analysis, Execution
from amanda._errors import ActionError, MissingContextMapError, UnsupportedError
from amanda._installed import entry_points_of
from amanda._tool import View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amanda._composite import Composite, Graph
    from amanda._driver import Driver
    from amanda._tool import Tool


class Layout(Protocol):
    """How a tensor is seen in another order of its axes.

    Both turn a tensor of the backend, by its array namespace, and both are differentiable.
    """

    def to_canonical(self, tensor: Any, xp: Any) -> Any:
        """The tensor as the vocabulary has it."""

    def to_native(self, tensor: Any, xp: Any) -> Any:
        """A tensor of the vocabulary as the backend has it."""


class ContextMap(Protocol):
    """Translates one backend's vocabulary into another one."""

    def native_types(self, types: frozenset[str]) -> frozenset[str] | None:
        """Types of the backend that may be one of ``types`` in this map's vocabulary.

        None when that cannot be said, and all operators must be looked at.
        """

    def types(self) -> frozenset[str]:
        """The types of this map's vocabulary that an operator of the backend may be.

        A map may lack this; nothing is then guessed of misspelt ones.
        """

    def translate(self, execution: Execution, driver: Driver) -> Translation:
        """What an execution is in this map's vocabulary.

        Args:
            execution: as the backend shows it, on its forward side.
            driver: the backend's driver, which tells parameters and known values.
        """

    def composites(self, graph: Graph, driver: Driver) -> Sequence[Composite]:
        """What is one operator here and several in a graph of the backend.

        No operator is a part of two. A map may lack this, and knows of none then.
        """


class Translation:
    """An operator in another vocabulary.

    Args:
        type: its type there.
        inputs: for each input there, the index of the backend's input that it is.
        input_names: the roles of the inputs.
        attrs: its attributes in canonical form.
        outputs: for each output there, the index of the backend's output; None for all as they are.
        input_layouts: for each input there, the layout to turn it to, None where it agrees.
        output_layouts: the same for ``outputs``, which must be given then.
    """

    __slots__ = (
        "attrs",
        "input_layouts",
        "input_names",
        "inputs",
        "output_layouts",
        "outputs",
        "type",
    )

    def __init__(
        self,
        type: str,
        inputs: Sequence[int],
        input_names: Sequence[str],
        attrs: Mapping[str, Any],
        outputs: Sequence[int] | None = None,
        input_layouts: Sequence[Layout | None] = (),
        output_layouts: Sequence[Layout | None] = (),
    ) -> None:
        self.type = type
        self.inputs = inputs
        self.input_names = input_names
        self.attrs = attrs
        self.outputs = outputs
        self.input_layouts = input_layouts
        self.output_layouts = output_layouts

    def without_layouts(self) -> Translation:
        """The same, with all tensors as the backend has them."""
        return Translation(self.type, self.inputs, self.input_names, self.attrs, self.outputs)


_ON_GRADIENT = {
    Point.BEFORE_BACKWARD_OP: Point.ON_GRAD_OUTPUTS,
    Point.AFTER_BACKWARD_OP: Point.ON_GRAD_INPUTS,
}
_ON_INPUTS = {Point.BEFORE_OP, Point.REPLACE_OP, Point.ON_GRAD_INPUTS}


class TranslatedAnalysis(Analysis):
    """An analysis by a tool that speaks another vocabulary than the backend.

    Its backward operators are gradients as a whole: ``ConvGrad`` has the roles of ``Conv``.
    """

    __slots__ = ("_native", "_translation")

    def __init__(
        self,
        driver: Driver,
        tool: Tool,
        view: View,
        execution: Execution,
        parameters: Sequence[bool],
        translation: Translation,
    ) -> None:
        if tool.layout == "native":
            translation = translation.without_layouts()
        super().__init__(
            driver,
            tool,
            view,
            _translated(execution, translation, driver),
            [parameters[i] for i in translation.inputs],
        )
        self._native = execution
        self._translation = translation
        if view is View.BACKWARD:
            name = translation.type + "Grad"
            backward_operator = self.execution.operator.record()
            backward_operator.type = backward_operator.name = name
            backward_operator.id = f"{backward_operator.id}/{name}"
            self.execution.backward_operator = backward_operator

    def value(self, index: int) -> Any:
        """An input as a NumPy array, in the vocabulary's layout."""
        array = self.driver.value(self._native.inputs[self._translation.inputs[index]])
        layout = _layout(self._translation.input_layouts, index)
        if layout is None:
            return array
        import numpy  # whose array it is

        return layout.to_canonical(array, numpy)

    def insert(self, action: Action) -> None:
        """Take an action, with its indices and tensors turned to what the backend has."""
        translation = self._translation
        if action.point is Point.REPLACE_BACKWARD_OP:
            raise UnsupportedError(
                f"{action.tool.name}: {self.execution.operator.id}: a gradient as a whole cannot "
                "be replaced; insert before or after it, or register for the native operators"
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
                    f"{action.tool.name}: {self.execution.operator.id}: which layout the tensor at "
                    f"{min(indices)} has is not known before the operator runs; count from the "
                    "start, or register the analysis routine with require_outputs=True"
                )
            layouts = [_layout(layouts, i) for i in indices]
            if point is not Point.REPLACE_OP:
                returned = layouts
            if places is not None:
                indices = tuple(places[i] for i in indices)
        routine = action.routine
        if any(layouts) or any(returned):
            routine = _turning(routine, layouts, returned, self.driver.xp)
        kwargs, pure, differentiable = action.kwargs, action.pure, action.differentiable
        native = Action(point, routine, self.tool, indices, kwargs, pure, differentiable)
        self.driver.check_action(self._native.operator, native)
        self.actions.append(native)


def _translated(execution: Execution, translation: Translation, driver: Driver) -> Execution:
    """An execution as a tool sees it that speaks the vocabulary of the translation."""
    operator = execution.operator.record()
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
            t if t is None or (layout := _layout(layouts, i)) is None else driver.turned(t, layout)
            for i, t in enumerate(found)
        ]

    inputs = translation.inputs, translation.input_layouts
    outputs = translation.outputs, translation.output_layouts
    grads = execution.grad_inputs
    return Execution(
        operator,
        chosen(execution.inputs, *inputs) or [],
        translation.input_names,
        translation.attrs,
        chosen(execution.outputs, *outputs),
        None,
        chosen(execution.grad_outputs, *outputs),
        (lambda: chosen(grads(), *inputs) or []) if callable(grads) else chosen(grads, *inputs),
    )


def _layout(layouts: Sequence[Layout | None], index: int) -> Layout | None:
    """That of a tensor; those that are left out agree."""
    return layouts[index] if 0 <= index < len(layouts) else None


def _turning(
    routine: Callable[..., Any],
    given: Sequence[Layout | None],
    returned: Sequence[Layout | None],
    xp: Any,
) -> Callable[..., Any]:
    """A routine that is given, and returns, tensors in the backend's layout."""

    def turning(*tensors: Any, **kwargs: Any) -> Any:
        result = routine(
            *(
                t
                if t is None or (layout := _layout(given, i)) is None
                else layout.to_canonical(t, xp)
                for i, t in enumerate(tensors)
            ),
            **kwargs,
        )
        if result is None:
            return None
        single = not isinstance(result, (tuple, list))
        values = [
            v if v is None or (layout := _layout(returned, i)) is None else layout.to_native(v, xp)
            for i, v in enumerate([result] if single else result)
        ]
        return values[0] if single else values

    turning.__qualname__ = name_of(routine)
    if "return" in (annotations := getattr(routine, "__annotations__", {})):
        turning.__annotations__ = {"return": annotations["return"]}  # it may only observe
    return turning


_maps: dict[tuple[str, str], ContextMap | str] = {}


def context_map(backend: str, vocabulary: str) -> ContextMap:
    """The map from a backend's vocabulary to another one.

    Raises:
        MissingContextMapError: none is installed, or it cannot be loaded.
    """
    key = backend, vocabulary
    if key not in _maps:
        _maps[key] = _found(backend, vocabulary)
    found = _maps[key]
    if isinstance(found, str):
        raise MissingContextMapError(found)
    return found


def _found(backend: str, vocabulary: str) -> ContextMap | str:
    """The map that a package announces, or why there is none."""
    name = f"{backend}:{vocabulary}"
    for entry in (e for e in entry_points_of("amanda.context_maps") if e.name == name):
        try:
            return entry.load()  # type: ignore[no-any-return]
        except Exception as error:
            return f"the context map {name} cannot be loaded: {type(error).__name__}: {error}"
    return (
        f"nothing here translates {backend!r} into {vocabulary!r}; python -m pip install "
        f"amanda-contextmap, or a package that announces the context map {name}"
    )
