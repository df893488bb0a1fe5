"""Analysis: what a driver shows of an execution, and one call of a routine that looks at it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from amanda._action import Action
    from amanda._driver import Driver
    from amanda._operator import Operator
    from amanda._tool import Tool, View


class Execution:
    """What a driver shows of one execution for analysis; all tensors are the backend's own.

    ``grad_inputs`` may be a function: it is called if a routine asks, when the backend can only
    tell by computing them.
    """

    __slots__ = (
        "attrs",
        "backward_operator",
        "grad_inputs",
        "grad_outputs",
        "input_names",
        "inputs",
        "operator",
        "outputs",
    )

    def __init__(
        self,
        operator: Operator,
        inputs: Sequence[Any],
        input_names: Sequence[str] = (),
        attrs: Mapping[str, Any] | None = None,
        outputs: Sequence[Any] | None = None,
        backward_operator: Operator | None = None,
        grad_outputs: Sequence[Any] | None = None,
        grad_inputs: Sequence[Any] | Callable[[], Sequence[Any]] | None = None,
    ) -> None:
        self.operator = operator
        self.inputs = inputs
        self.input_names = input_names
        self.attrs: Mapping[str, Any] = {} if attrs is None else attrs
        self.outputs = outputs
        self.backward_operator = backward_operator
        self.grad_outputs = grad_outputs
        self.grad_inputs = grad_inputs


class Analysis:
    """One call of one analysis routine: what it may look at, and what it has inserted so far."""

    __slots__ = ("actions", "driver", "execution", "parameters", "tool", "view")

    def __init__(
        self,
        driver: Driver,
        tool: Tool,
        view: View,
        execution: Execution,
        parameters: Sequence[bool],
    ) -> None:
        self.driver = driver
        self.tool = tool
        self.view = view
        self.execution = execution
        self.parameters = parameters  # which of the inputs are parameters of the model
        self.actions: list[Action] = []

    def value(self, index: int) -> Any:
        """An input as a NumPy array."""
        return self.driver.value(self.execution.inputs[index])

    def insert(self, action: Action) -> None:
        """Take an action; its indices are those of ``execution``."""
        self.driver.check_action(self.execution.operator, action)
        self.actions.append(action)
