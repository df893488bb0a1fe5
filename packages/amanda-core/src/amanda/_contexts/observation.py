"""An observation is what an analysis routine sees of an operator, and the state kept for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic
from weakref import WeakKeyDictionary

from amanda._contexts.analysis import Analysis, Layouts, TensorT, as_numpy_has_it, check_present
from amanda._contexts.indices import checked_index
from amanda._contexts.roles import flowing_among, weight_among
from amanda._drivers.driver import Driver
from amanda._drivers.tensors import Parameter, TensorInfo
from amanda._errors import ActionError, AmandaError, RoutineError, ValueUnavailableError
from amanda._operators.operator import Execution, Operator
from amanda._operators.points import View
from amanda._operators.producers import InputProducers, Producers
from amanda._threads.routine import call, name_of, running_tool
from amanda._tools.tool import Tool

_LATER = "known before it runs; register the analysis routine with require_outputs=True"


class Observation(dict[str, Any], Generic[TensorT]):
    """An observation is what an analysis routine sees of an operator, and the state kept for it."""

    def __init__(self, operator: Operator, driver: Driver) -> None:
        super().__init__()
        # a snapshot: the context is kept as long as the operator lives, and must not keep it
        self._operator = operator.snapshot()
        self._driver = driver
        self._analysis: Analysis | None = None
        self._shown: dict[str | None, Operator] = {}  # by the vocabulary of who was shown it
        self._states: WeakKeyDictionary[Tool, dict[str, Any]] = WeakKeyDictionary()
        self._variables: WeakKeyDictionary[Tool, dict[str, Any]] = WeakKeyDictionary()
        self._producers: WeakKeyDictionary[Tool, InputProducers] = WeakKeyDictionary()

    # What the operator is

    @property
    def op(self) -> Operator:
        """Return the forward operator, also on the backward side.

        It is in the vocabulary of the tool whose analysis or routine asks. Outside of all routines
        it is what all tools were shown alike, or else the backend's own.
        """
        if self._analysis is not None:
            return self._analysis.execution.operator.snapshot()
        tool = running_tool()
        if tool is not None and tool.vocabulary in self._shown:
            return self._shown[tool.vocabulary]
        shown = {operator.type: operator for operator in self._shown.values()}
        return next(iter(shown.values())) if len(shown) == 1 else self._operator

    @property
    def op_id(self) -> str:
        """Return the id of the forward operator."""
        return self._operator.id

    @property
    def backward_op(self) -> Operator | None:
        """Return the backward operator; None on the forward side and for a gradient as a whole."""
        operator = self._now.execution.backward_operator
        return None if operator is None else operator.snapshot()

    @property
    def backward_op_id(self) -> str | None:
        """Return the id of the backward operator, if there is one."""
        backward_op = self.backward_op
        return None if backward_op is None else backward_op.id

    def is_forward(self) -> bool:
        """Tell whether this is the analysis of a forward operator or of a module."""
        return not self.is_backward()

    def is_backward(self) -> bool:
        """Tell whether this is the analysis of a backward operator or of a gradient as a whole."""
        return self._now.view in (View.BACKWARD, View.GRADIENT)

    # What it is given and gives

    @property
    def inputs(self) -> Sequence[TensorT]:
        """Return the tensors that the forward operator takes, in schema order, lists flattened.

        Raises:
            ValueUnavailableError: they were not kept for its backward.
        """
        return self._forward_side.inputs

    @property
    def input_names(self) -> Sequence[str]:
        """Return the schema's names of the inputs; elements of a list are ``tensors[0]`` and so on.

        Those of a module are its arguments' names, with the keys and indices that lead to what is
        in a tree: ``past_key_values.0``.
        """
        return self._now.execution.input_names

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Return the arguments that are no tensors, as Python values; absent tensors as None."""
        return self._now.execution.attrs

    @property
    def outputs(self) -> Sequence[TensorT]:
        """Return the tensors that the forward operator returned.

        Raises:
            ValueUnavailableError: it has not run yet (register with ``require_outputs=True``), or
                they were not kept for its backward.
        """
        return self._known(self._forward_side.outputs, f"its outputs are not {_LATER}")

    @property
    def output_names(self) -> Sequence[str]:
        """Tell where in what a module returned its outputs are: ``attentions.0``.

        A single one is ``output``, and those of a tuple or list ``output.0`` and so on. Empty
        before it has run, and for an operator.
        """
        return self._now.execution.output_names

    @property
    def grad_outputs(self) -> Sequence[TensorT | None]:
        """Return the gradients that come in, None where none flows; aligned with the outputs for a
        gradient as a whole, with what the backward operator takes otherwise.

        Raises:
            ValueUnavailableError: on the forward side.
        """
        return self._known(self._now.execution.grad_outputs, "its forward side has no gradients")

    @property
    def grad_inputs(self) -> Sequence[TensorT | None]:
        """Return the gradients that go out, None where none flows; aligned with the inputs for a
        gradient as a whole, with what the backward operator returns otherwise.

        Raises:
            ValueUnavailableError: on the forward side, or before a backward operator has run;
                register with ``require_outputs=True``.
        """
        execution = self._now.execution
        if callable(execution.grad_inputs):
            execution.grad_inputs = execution.grad_inputs()
        return self._known(execution.grad_inputs, f"its input gradients are not {_LATER}")

    def input(self, name: str) -> Any:
        """Return the input of that name, a list of tensors for a list or tree, None if absent.

        Raises:
            ValueUnavailableError: the operator has no input of that name.
        """
        names = list(self.input_names)
        if name in names:
            return self.inputs[names.index(name)]
        within = (f"{name}[", f"{name}.")
        elements = [t for n, t in zip(names, self.inputs, strict=True) if n.startswith(within)]
        if elements:
            return elements
        if name in self.attrs and self.attrs[name] is None:
            return None
        raise ValueUnavailableError(f"{self.op_id} has no input {name!r}; it has {names}")

    def value(self, index: int | str) -> Any:
        """Return an input, by index or name, as a NumPy array, if it is known during the analysis.

        Raises:
            ValueUnavailableError: it is known only at execution.
        """
        now = self._now
        try:
            return now.value(self._position(index))
        except ValueUnavailableError as error:
            where = f"{now.tool.name}: input {index!r} of {self.op.named}"
            raise ValueUnavailableError(f"{where}: {error}") from error

    def parameter(self, index: int | str) -> Parameter | None:
        """Tell the parameter of the model that an input is, or a read, cast, view or handle of;
        None if it is none of these."""
        return self._now.parameter(self._position(index))

    def places(self, index: int | str) -> Any:
        """Return, for each element of an input, its place in the flat parameter that it comes from.

        It is an array of NumPy, by which operators are told apart that are given several parts of
        one parameter, or one in several forms. None where the places are not known. The input is
        one of :attr:`parameters`.
        """
        return self._now.places(self._position(index))

    @property
    def layouts(self) -> Layouts:
        """Tell how what is shown is turned from what the backend has, for a tool that follows a
        tensor from one operator to another."""
        return self._now.layouts

    def producers(self, index: int | str) -> Producers:
        """Return the outputs of operators that an input, by index or name, has been so far.

        That is told across what no operator is seen of: what a framework aliases for itself, and
        the identities, calls, branches and loops of graphs. What writes to a tensor in place, or to
        a view of it, makes it too. A tool may keep what it is given: it grows where another one is
        met at a later execution.

        Raises:
            ActionError: the analysis was not registered with ``require_producers=True``.
        """
        now = self._now
        found = self._producers.get(now.tool)
        if found is None:
            raise ActionError(
                f"{now.tool.name}: what makes the inputs of {self.op.named} is not kept; register "
                "the analysis routine with require_producers=True"
            )
        return found[now.native_input(self._position(index))]

    @property
    def parameters(self) -> list[int]:
        """List the indices of the inputs that are parameters of the model, also through reads,
        casts, transposes and views of them."""
        return [i for i, is_parameter in enumerate(self._now.parameters) if is_parameter]

    @property
    def weight_index(self) -> int | None:
        """Return the first of :attr:`parameters` that is no bias; None if there is none.

        A weight that the model computes of its parameters (weight normalization) is none of them,
        and the bias beside it is not taken for it: ``inputs=["weight"]`` selects it by name. A bias
        that nothing is multiplied by ahead of it (an ``Add``) is what the operator has.
        """
        return weight_among(self.parameters, self.input_names)

    @property
    def activation(self) -> int | None:
        """Return the index of the input that flows through the operator; None for none, or several.

        It is the only input of floating-point or complex numbers that is no parameter, where a
        tensor without axes does not count beside one that has some. An operator with parameters
        may have several: the statistics of a batch normalization, the state of a recurrent layer.
        It is the one then that the schema calls ``input`` or ``X``.
        """
        parameters = self.parameters
        infos = {i: self.describe(t) for i, t in enumerate(self.inputs) if i not in parameters}
        return flowing_among(infos, self.input_names, bool(parameters))

    # What a routine may use

    def describe(self, tensor: Any) -> TensorInfo:
        """Tell shape, dtype, size in bytes and device of a tensor, not None; also in a routine."""
        check_present(tensor, "describe")
        return self._driver.describe(tensor)

    def numpy(self, tensor: Any) -> Any:
        """Return a tensor, or a :meth:`variable`, as a NumPy array; also in a routine.

        Types that NumPy lacks are cast to one of its own that has all their values: bfloat16 and
        those of 8 bits to float32, integers of 4 bits to those of 8. ``describe`` tells the
        tensor's own type.

        Raises:
            ValueUnavailableError: it has none yet, as in a graph or in a pure routine of one, or
                none that NumPy can hold.
            TypeError: it is None, as an input or a gradient that is absent.
        """
        check_present(tensor, "numpy")
        return as_numpy_has_it(self._driver.value(tensor))

    def from_numpy(self, array: Any, like: Any) -> Any:
        """Make a tensor with the values of a NumPy array, of the type and on the device of another.

        It is what a host routine may return in place of ``like``, whose :meth:`numpy` it was.
        """
        return self._driver.from_numpy(array, like)

    @property
    def driver(self) -> Driver:
        """Return the driver, which tells more of tensors and devices; also in a routine."""
        return self._driver

    @property
    def xp(self) -> Any:
        """Return the array namespace (Python array API) for tensors; also in a routine."""
        return self._driver.xp

    def state(self, tool: Tool) -> dict[str, Any]:
        """Return what a tool keeps at this operator, which no other tool gets to see by accident.

        It lives as long as the context and the tool do, and is there in routines too, on the
        forward and on the backward side.
        """
        return self._states.setdefault(tool, {})

    def variable(self, name: str, initial: Any) -> Any:
        """Return state of this tool at this operator, which routines read and it may ``.assign()``.

        The same name gives the same variable again, whatever ``initial`` then is.
        """
        now = self._now
        variables = self._variables.setdefault(now.tool, {})
        if name not in variables:
            variables[name] = now.driver.variable(initial, now.execution)
        return variables[name]

    # The engine's side

    def _producers_for(self, tool: Tool) -> InputProducers:
        return self._producers.setdefault(tool, InputProducers())

    def _ask(self, callback: Callable[[Any], None], analysis: Analysis) -> None:
        """Have an analysis routine look at what an analysis shows."""
        previous, self._analysis = self._analysis, analysis
        self._shown[analysis.tool.vocabulary] = self.op
        try:
            call(analysis.tool, callback, (self,), {})
        except AmandaError:
            raise
        except Exception as original:
            reason, where = f"{type(original).__name__}: {original}", analysis.execution.runs
            name, routine = analysis.tool.name, name_of(callback)
            raise RoutineError(reason, name, routine, where, "analysis") from original
        finally:
            self._analysis = previous

    @property
    def _now(self) -> Analysis:
        if self._analysis is None:
            raise ValueUnavailableError(
                f"the context of {self.op_id} shows tensors and takes insertions only during an "
                "analysis routine; keep what a routine needs in ctx.state(tool) or pass it along"
            )
        return self._analysis

    @property
    def _forward_side(self) -> Execution:
        if not self._now.has_forward:
            reason = "has no tensors in its backward; register it without keep_forward=False"
            raise ValueUnavailableError(f"{self.op_id} {reason}")
        return self._now.execution

    def _position(self, index: int | str) -> int:
        try:
            return checked_index(index, len(self.inputs), self.input_names, "input")
        except ActionError as error:
            raise ActionError(f"{self.op.named}: {error}") from None

    def _known(self, tensors: Sequence[Any] | None, otherwise: str) -> Sequence[Any]:
        if tensors is None:
            raise ValueUnavailableError(f"{self.op_id}: {otherwise}")
        return tensors
