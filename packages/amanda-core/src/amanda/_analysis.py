"""Analysis: what a driver shows of an execution, and one call of a routine that looks at it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from amanda._action import Action
    from amanda._driver import Driver
    from amanda._operator import Operator
    from amanda._tool import Tool, View


@dataclass(slots=True, eq=False, repr=False)
class Execution:
    """What a driver shows of one execution for analysis; all tensors are the backend's own.

    ``grad_inputs`` may be a function: it is called if a routine asks, when the backend can only
    tell by computing them.
    """

    operator: Operator
    inputs: Sequence[Any]
    input_names: Sequence[str] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[Any] | None = None
    backward_operator: Operator | None = None
    grad_outputs: Sequence[Any] | None = None
    grad_inputs: Sequence[Any] | Callable[[], Sequence[Any]] | None = None


@dataclass(slots=True, eq=False, repr=False)
class Analysis:
    """One call of one analysis routine: what it may look at, and what it has inserted so far.

    ``parameters`` says of each input whether it is a parameter of the model.
    """

    driver: Driver
    tool: Tool
    view: View
    execution: Execution
    parameters: Sequence[bool]
    actions: list[Action] = field(default_factory=list, init=False)

    def value(self, index: int) -> Any:
        """An input as a NumPy array."""
        return self.driver.value(self.execution.inputs[index])

    def insert(self, action: Action) -> None:
        """Take an action; its indices are those of ``execution``."""
        self.driver.check_action(self.execution, action)
        self.actions.append(action)
