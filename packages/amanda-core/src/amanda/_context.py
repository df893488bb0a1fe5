"""The context: what an analysis routine sees of an operator, and where it says what to insert."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from amanda._action import Action, Point, checked_indices, checked_options, name_of
from amanda._errors import ActionError, UnsupportedError, ValueUnavailableError
from amanda._tool import View

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from amanda._analysis import Analysis, Execution
    from amanda._driver import Driver
    from amanda._operator import Operator
    from amanda._tool import Tool


class OpContext(dict[str, "Any"]):
    """An operator as its analysis routines see it.

    It is also a dict, which lives as long as the operator within the outermost scope and is
    shared by all tools and by the forward and backward side: a place for what one routine
    leaves for another. What is one tool's own belongs into :meth:`state`. The tensors can be
    looked at only during an analysis routine, so that nothing keeps them alive.
    """

    __slots__ = ("_analysis", "_driver", "_operator", "_states", "_variables")

    def __init__(self, operator: Operator, driver: Driver) -> None:
        super().__init__()
        # a record: the context is kept for as long as the operator lives, and must not keep it
        self._operator = operator.record()
        self._driver = driver
        self._analysis: Analysis | None = None
        self._states: WeakKeyDictionary[Tool, dict[str, Any]] = WeakKeyDictionary()
        self._variables: WeakKeyDictionary[Tool, dict[str, Any]] = WeakKeyDictionary()

    # What the operator is

    @property
    def op(self) -> Operator:
        """The forward operator, also on the backward side."""
        if self._analysis is not None:
            return self._analysis.execution.operator.record()
        return self._operator

    @property
    def op_id(self) -> str:
        """Id of the forward operator."""
        return self._operator.id

    @property
    def backward_op(self) -> Operator | None:
        """The backward operator; None on the forward side and for a gradient as a whole."""
        backward_operator = self._now.execution.backward_operator
        return None if backward_operator is None else backward_operator.record()

    @property
    def backward_op_id(self) -> str | None:
        """Id of the backward operator, if there is one."""
        backward_op = self.backward_op
        return None if backward_op is None else backward_op.id

    def is_forward(self) -> bool:
        """Whether this is the analysis of a forward operator."""
        return self._now.view is View.FORWARD

    def is_backward(self) -> bool:
        """Whether this is the analysis of a backward operator or of a gradient as a whole."""
        return self._now.view is not View.FORWARD

    # What it is given and gives

    @property
    def inputs(self) -> Sequence[Any]:
        """The tensors that the forward operator is given, in schema order, lists flattened."""
        return self._now.execution.inputs

    @property
    def input_names(self) -> Sequence[str]:
        """The schema's names of the inputs; elements of a list are ``tensors[0]`` and so on."""
        return self._now.execution.input_names

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The arguments that are no tensors, as plain Python values; absent tensors as None."""
        return self._now.execution.attrs

    @property
    def outputs(self) -> Sequence[Any]:
        """The tensors that the forward operator returned.

        Raises:
            ValueUnavailableError: it has not run yet; register with ``require_outputs=True``.
        """
        return self._known(
            self._now.execution.outputs,
            "the outputs of {} are not known before it runs; register the analysis routine with "
            "require_outputs=True",
        )

    @property
    def grad_outputs(self) -> Sequence[Any]:
        """Gradients that come in, None where none flows; aligned with the outputs for a gradient
        as a whole, with what the backward operator takes otherwise.

        Raises:
            ValueUnavailableError: on the forward side.
        """
        return self._known(
            self._now.execution.grad_outputs, "the forward side of {} has no gradients"
        )

    @property
    def grad_inputs(self) -> Sequence[Any]:
        """Gradients that go out, None where none flows; aligned with the inputs for a gradient as
        a whole, with what the backward operator returns otherwise.

        Raises:
            ValueUnavailableError: on the forward side, or before a backward operator has run;
                register with ``require_outputs=True``.
        """
        execution = self._now.execution
        if callable(execution.grad_inputs):
            execution.grad_inputs = execution.grad_inputs()
        return self._known(
            execution.grad_inputs,
            "the input gradients of {} are not known before it runs; register the analysis "
            "routine with require_outputs=True",
        )

    def input(self, name: str) -> Any:
        """The input of that name, a list of tensors for a list, None for one that is absent.

        Raises:
            ValueUnavailableError: the operator has no input of that name.
        """
        names = list(self.input_names)
        if name in names:
            return self.inputs[names.index(name)]
        elements = [t for n, t in zip(names, self.inputs, strict=True) if n.startswith(name + "[")]
        if elements:
            return elements
        if name in self.attrs and self.attrs[name] is None:
            return None
        raise ValueUnavailableError(f"{self.op_id} has no input {name!r}; it has {names}")

    def value(self, index: int | str) -> Any:
        """The input of that index or name as a NumPy array, if it is known during the analysis.

        Raises:
            ValueUnavailableError: it is known only at execution.
        """
        chosen = checked_indices(
            [index], len(self.inputs), self.input_names, what="input", where=self.op_id
        )
        (position,) = chosen or ()
        return self._now.value(position)

    @property
    def parameters(self) -> list[int]:
        """Indices of the inputs that are parameters of the model, also through reads, casts,
        transposes and views of them."""
        return [i for i, is_parameter in enumerate(self._now.parameters) if is_parameter]

    @property
    def weight_index(self) -> int | None:
        """The first of :attr:`parameters`; None if there are none."""
        return next(iter(self.parameters), None)

    @property
    def weight(self) -> int | None:
        """The name that :attr:`weight_index` had."""
        return self.weight_index

    # What a routine may use

    @property
    def xp(self) -> Any:
        """Array namespace (Python array API) for the backend's tensors; also in a routine."""
        return self._driver.xp

    def state(self, tool: Tool) -> dict[str, Any]:
        """What a tool keeps at this operator, which no other tool gets to see by accident.

        It lives as long as the context and the tool do, and is there in routines too, on the
        forward and on the backward side.
        """
        return self._states.setdefault(tool, {})

    def variable(self, name: str, initial: Any) -> Any:
        """State of this tool at this operator, which routines read and the tool may ``.assign()``.

        The same name gives the same variable again, whatever ``initial`` then is.
        """
        now = self._now
        variables = self._variables.setdefault(now.tool, {})
        if name not in variables:
            variables[name] = now.driver.variable(initial, now.execution)
        return variables[name]

    # What to insert

    def insert_before_op(
        self,
        routine: Callable[..., Any],
        inputs: Iterable[int | str] | None = None,
        *,
        pure: bool = False,
        differentiable: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*inputs, **kwargs)`` before each execution; what it returns replaces them.

        Args:
            routine: returns None, one tensor, or as many as it was given. If it is annotated
                ``-> None`` it is held to that, and the driver may spare what substituting takes.
                It is given the program's own tensors: to change one, return another.
            inputs: which inputs it is given, by index or by name, all of them by default.
            pure: it is a pure tensor function, which a graph backend may compile.
            differentiable: gradients flow through it, rather than straight to what it replaced.
            **kwargs: passed on to the routine.
        """
        self._insert(Point.BEFORE_OP, routine, inputs, "inputs", pure, differentiable, kwargs)

    def insert_after_op(
        self,
        routine: Callable[..., Any],
        outputs: Iterable[int] | None = None,
        *,
        pure: bool = False,
        differentiable: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*outputs, **kwargs)`` after each execution; see ``insert_before_op``."""
        self._insert(Point.AFTER_OP, routine, outputs, "outputs", pure, differentiable, kwargs)

    def replace_op(
        self,
        routine: Callable[..., Any],
        inputs: Iterable[int | str] | None = None,
        *,
        pure: bool = False,
        differentiable: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*inputs, **kwargs)`` instead of the operator; it returns the outputs.

        The gradient stays that of the original operator unless ``differentiable``.
        """
        self._insert(Point.REPLACE_OP, routine, inputs, "inputs", pure, differentiable, kwargs)

    def insert_before_backward_op(
        self,
        routine: Callable[..., Any],
        grad_outputs: Iterable[int] | None = None,
        *,
        pure: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*grad_outputs, **kwargs)`` before each run of the backward operator."""
        point = Point.BEFORE_BACKWARD_OP
        self._insert(point, routine, grad_outputs, "grad_outputs", pure, False, kwargs)

    def insert_after_backward_op(
        self,
        routine: Callable[..., Any],
        grad_inputs: Iterable[int] | None = None,
        *,
        pure: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*grad_inputs, **kwargs)`` after each run of the backward operator."""
        point = Point.AFTER_BACKWARD_OP
        self._insert(point, routine, grad_inputs, "grad_inputs", pure, False, kwargs)

    def replace_backward_op(
        self,
        routine: Callable[..., Any],
        grad_outputs: Iterable[int] | None = None,
        *,
        pure: bool = False,
        **kwargs: Any,
    ) -> None:
        """Have ``routine(*grad_outputs, **kwargs)`` give what the backward operator returns."""
        point = Point.REPLACE_BACKWARD_OP
        self._insert(point, routine, grad_outputs, "grad_outputs", pure, False, kwargs)

    def insert_on_grad_outputs(
        self,
        routine: Callable[..., Any],
        outputs: Iterable[int] | None = None,
        *,
        pure: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*grads, **kwargs)`` on the gradients of the operator's outputs."""
        self._insert(Point.ON_GRAD_OUTPUTS, routine, outputs, "outputs", pure, False, kwargs)

    def insert_on_grad_inputs(
        self,
        routine: Callable[..., Any],
        inputs: Iterable[int | str] | None = None,
        *,
        pure: bool = False,
        **kwargs: Any,
    ) -> None:
        """Run ``routine(*grads, **kwargs)`` on the operator's gradients of its inputs."""
        self._insert(Point.ON_GRAD_INPUTS, routine, inputs, "inputs", pure, False, kwargs)

    # The names of the published system

    def get_op(self) -> Operator:
        """Same as :attr:`op`."""
        return self.op

    def get_op_id(self) -> str:
        """Same as :attr:`op_id`."""
        return self.op_id

    def get_backward_op(self) -> Operator | None:
        """Same as :attr:`backward_op`."""
        return self.backward_op

    def get_backward_op_id(self) -> str | None:
        """Same as :attr:`backward_op_id`."""
        return self.backward_op_id

    def get_inputs(self) -> Sequence[Any]:
        """Same as :attr:`inputs`."""
        return self.inputs

    def get_outputs(self) -> Sequence[Any]:
        """Same as :attr:`outputs`."""
        return self.outputs

    def get_grad_outputs(self) -> Sequence[Any]:
        """Same as :attr:`grad_outputs`."""
        return self.grad_outputs

    def get_grad_inputs(self) -> Sequence[Any]:
        """Same as :attr:`grad_inputs`."""
        return self.grad_inputs

    # The engine's side

    @property
    def _now(self) -> Analysis:
        if self._analysis is None:
            raise ValueUnavailableError(
                f"the context of {self.op_id} shows tensors and takes insertions only during an "
                "analysis routine; keep what a routine needs in ctx.state(tool) or pass it along"
            )
        return self._analysis

    def _known(self, tensors: Sequence[Any] | None, otherwise: str) -> Sequence[Any]:
        if tensors is None:
            raise ValueUnavailableError(otherwise.format(self.op_id))
        return tensors

    def _insert(
        self,
        point: Point,
        routine: Callable[..., Any],
        indices: Iterable[int | str] | None,
        what: str,
        pure: bool,
        differentiable: bool,
        kwargs: Mapping[str, Any],
    ) -> None:
        now = self._now
        where = f"{now.tool.name}: {name_of(routine)} at {point.value} of {self.op_id!r}"
        if not callable(routine):
            raise ActionError(f"{where}: the routine is not callable")
        allowed = _POINTS[now.view]
        if point not in allowed:
            raise UnsupportedError(
                f"{where}: an analysis of {now.view.value} inserts at "
                f"{', '.join(p.value for p in allowed)}; {_WAY_OUT[point]}"
            )
        count = _count(now.execution, point)
        names = now.execution.input_names if what == "inputs" else ()
        chosen = checked_indices(indices, count, names, what=what, where=where)
        if kwargs:
            checked_options(routine, kwargs, (what, "pure", "differentiable"), where=where)
        action = Action(point, routine, now.tool, chosen, kwargs, pure, differentiable)
        now.insert(action)


_POINTS = {
    View.FORWARD: (Point.BEFORE_OP, Point.REPLACE_OP, Point.AFTER_OP),
    View.BACKWARD: (
        Point.BEFORE_BACKWARD_OP,
        Point.REPLACE_BACKWARD_OP,
        Point.AFTER_BACKWARD_OP,
    ),
    View.GRADIENT: (Point.ON_GRAD_OUTPUTS, Point.ON_GRAD_INPUTS),
}
_WAY_OUT = {
    point: f"register the analysis routine with {registration}"
    for view, registration in (
        (View.FORWARD, "add_inst_for_op"),
        (View.BACKWARD, "add_inst_for_op(backward=True)"),
        (View.GRADIENT, "add_inst_for_gradient"),
    )
    for point in _POINTS[view]
}


def _count(execution: Execution, point: Point) -> int | None:
    """How many tensors a routine at ``point`` may select from, None while it is not known."""
    tensors: Any
    if point in (Point.BEFORE_OP, Point.REPLACE_OP, Point.ON_GRAD_INPUTS):
        tensors = execution.inputs
    elif point is Point.AFTER_OP:
        tensors = execution.outputs
    elif point in (Point.ON_GRAD_OUTPUTS, Point.BEFORE_BACKWARD_OP, Point.REPLACE_BACKWARD_OP):
        tensors = execution.grad_outputs
    else:
        tensors = execution.grad_inputs
        if callable(tensors):  # of a gradient as a whole
            tensors = execution.inputs
    return None if tensors is None else len(tensors)
