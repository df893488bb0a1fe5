"""Carrying out plans in what is staged: run once on placeholders, and from then on as a program."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from amanda._action import Action
from amanda._call import Call, Tensors
from amanda._errors import UnsupportedError
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
                do. It runs the code of tools, and raises their errors.
            given: the placeholders that it is called with.
            like: what its results are like; empty if nothing that is computed may wait for it.

        Returns:
            placeholders for its results.
        """

    def run_action(
        self, action: Action, given: Tensors, like: Tensors, operator: Operator
    ) -> Tensors:
        """Run the routine of an action, now or at each execution of what is staged."""
        tensors = [tensor for tensor in (*given, *like) if tensor is not None]
        if action.pure or not self.is_staged(tensors):
            return super().run_action(action, given, like, operator)
        if action.differentiable:
            raise self.refused(action, operator, "differentiated in what is staged")

        run = super().run_action

        def call(*tensors: Any) -> Tensors:
            rest = iter(tensors)
            now_given, now_like = (
                [None if placeholder is None else next(rest) for placeholder in placeholders]
                for placeholders in (given, like)
            )
            found = run(action, now_given, now_like, operator)
            for placeholder, result in zip(like, found, strict=True):
                if placeholder is None and result is not None:
                    raise action.error(
                        "gave a gradient where none flowed when this was staged", operator
                    )
            return [] if action.observes else [result for result in found if result is not None]

        if action.observes:
            self.call_back(call, tensors, [])
            return like
        results = iter(self.call_back(call, tensors, [t for t in like if t is not None]))
        return [None if placeholder is None else next(results) for placeholder in like]

    def refused(self, action: Action, operator: Operator, what: str) -> UnsupportedError:
        """The error for a host routine with which something cannot be done."""
        return UnsupportedError(
            f"{action.tool.name}: a routine of {operator.id!r} cannot be {what}, since it runs on "
            "the host; insert it with pure=True if it is a function of tensors"
        )
