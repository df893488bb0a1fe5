"""Carrying out plans in what is staged: run once on placeholders, and from then on as a program."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any

from amanda._action import Action
from amanda._call import Call, Tensors
from amanda._engine import Engine
from amanda._errors import AmandaError, UnsupportedError
from amanda._forward import Ask, Forward
from amanda._operator import Operator


class StagedCall(Call):
    """One execution of an operator, which may be one on placeholders while a function is staged.

    Pure routines are called then, and become part of what is staged. All others are called back by
    it at each of its executions.
    """

    @abc.abstractmethod
    def is_staged(self, tensors: Tensors) -> bool:
        """Whether a routine that is given these tensors has to wait until what is staged runs."""

    @abc.abstractmethod
    def call_back(self, call: Callable[..., Tensors], given: Tensors, like: Tensors) -> Tensors:
        """Have what is staged call a function at each of its executions.

        Args:
            call: takes what the placeholders ``given`` stand for, and gives what those in ``like``
                do. It runs the code of tools, and raises their errors; where the runtime loses
                one, :meth:`raise_failure` has it.
            given: the placeholders that it is called with.
            like: what its results are like; empty if nothing that is computed may wait for it.

        Returns:
            placeholders for its results.
        """

    def run_action(
        self, action: Action, given: Tensors, like: Tensors, operator: Operator, forward: Forward
    ) -> Tensors:
        """Run the routine of an action, now or at each execution of what is staged."""
        asked = action.asks(given, forward)
        placed = (*given, *like, *asked.values())
        tensors = [tensor for tensor in placed if tensor is not None]
        if action.pure or not self.is_staged(tensors):
            return super().run_action(action, given, like, operator, forward)
        if action.differentiable:
            raise self.refused(action, operator, "differentiated in what is staged")

        wanted = [] if action.observes else [tensor for tensor in like if tensor is not None]
        call = functools.partial(self._called_back, action, given, like, operator, tuple(asked))
        results = iter(self.call_back(call, tensors, wanted))
        return like if action.observes else [t if t is None else next(results) for t in like]

    def _called_back(
        self,
        action: Action,
        given: Tensors,
        like: Tensors,
        operator: Operator,
        asks: tuple[Ask, ...],
        *tensors: Any,
    ) -> Tensors:
        """Run a routine on what placeholders stand for, in an execution of what was staged."""
        rest = iter(tensors)
        now_given = [None if placeholder is None else next(rest) for placeholder in given]
        now_like = [None if placeholder is None else next(rest) for placeholder in like]
        forward = Forward.of(dict(zip(asks, rest, strict=True)), self.run)
        try:
            found = super().run_action(action, now_given, now_like, operator, forward)
            for placeholder, result in zip(like, found, strict=True):
                if placeholder is None and result is not None:
                    reason = "gave a gradient where none flowed when this was staged"
                    raise action.error(reason, operator)
        except AmandaError as error:
            self.engine.failure = error
            raise
        return [] if action.observes else [result for result in found if result is not None]

    @staticmethod
    def raise_failure(engine: Engine) -> None:
        """Raise the error of a routine that was called back, once; nothing if there is none."""
        failure, engine.failure = engine.failure, None
        if failure is not None:
            raise failure from failure.__cause__

    def refused(self, action: Action, operator: Operator, what: str) -> UnsupportedError:
        """The error for a host routine with which something cannot be done."""
        return UnsupportedError(
            f"{action.tool.name}: a routine of {operator.named} cannot be {what}, since it runs on "
            "the host; insert it with pure=True if it is a function of tensors"
        )
