"""Operators are looked at in several views, and routines run at several points of them."""

from __future__ import annotations

import enum


class View(enum.Enum):
    """A view is a way in which a subscription looks at what runs."""

    FORWARD = "forward operators"
    BACKWARD = "backward operators, each by its own type"
    GRADIENT = "the gradient of an operator as a whole"
    MODULE = "modules, with their gradients"


class Point(enum.Enum):
    """A point is where a routine runs."""

    BEFORE_OP = "before_op"
    REPLACE_OP = "replace_op"
    AFTER_OP = "after_op"
    BEFORE_BACKWARD_OP = "before_backward_op"
    REPLACE_BACKWARD_OP = "replace_backward_op"
    AFTER_BACKWARD_OP = "after_backward_op"
    ON_GRAD_OUTPUTS = "on_grad_outputs"
    ON_GRAD_INPUTS = "on_grad_inputs"

    @property
    def replaces(self) -> bool:
        """Tell whether a routine there runs instead of the operator."""
        return self in (Point.REPLACE_OP, Point.REPLACE_BACKWARD_OP)


# Where routines run that an analysis inserts: before, instead (but for a gradient), and after.
_FORWARD = (Point.BEFORE_OP, Point.REPLACE_OP, Point.AFTER_OP)
_BACKWARD = (Point.BEFORE_BACKWARD_OP, Point.REPLACE_BACKWARD_OP, Point.AFTER_BACKWARD_OP)
_GRADIENT = (Point.ON_GRAD_OUTPUTS, Point.ON_GRAD_INPUTS)
POINTS = {
    View.FORWARD: _FORWARD,
    View.BACKWARD: _BACKWARD,
    View.GRADIENT: _GRADIENT,
    View.MODULE: (*_FORWARD, *_GRADIENT),
}
