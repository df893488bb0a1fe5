"""The context of an operator is where an analysis routine says what to insert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, overload

from amanda._contexts.analysis import TensorT
from amanda._contexts.indices import Indices
from amanda._contexts.inserting import Routine, insert
from amanda._contexts.published import PublishedMethods
from amanda._operators.points import Point

if TYPE_CHECKING:
    from collections.abc import Callable

    # What type checkers are shown, so that they tell a misspelt option of an insertion from a
    # keyword argument of its routine: P is what a routine takes behind one, two or three tensors.
    # Options have to stand ahead of *args for that; they are taken by keyword alone.
    P = ParamSpec("P")
    One = Callable[Concatenate[Any, P], Any]
    Two = Callable[Concatenate[Any, Any, P], Any]
    Three = Callable[Concatenate[Any, Any, Any, P], Any]


class OpContext(PublishedMethods[TensorT]):
    """The context shows an operator to its analysis routines, and takes what they insert.

    It is also a dict, which lives as long as the operator within the outermost scope and is
    shared by all tools and by the forward and backward side: a place for what one routine
    leaves for another. What is one tool's own belongs into :meth:`state`. The tensors can be
    looked at only during an analysis routine, so that nothing keeps them alive.

    Every insertion takes a routine, and the indices or names of the tensors that it is given, all
    of them by default. It returns None, one tensor, or as many as it was given; one annotated
    ``-> None`` is held to that, and the driver may spare what substituting takes. It is given the
    program's own tensors: to change one, it returns another. Keyword arguments are passed on to
    it, but for these options:

    - ``pure``: it is a pure tensor function, which a graph backend may compile.
    - ``differentiable``: gradients flow through it, and to what it asks for, rather than straight
      to what it replaced.
    - ``with_inputs``: inputs that it is given after the others, and does not replace, as the
      operator was given them: with what routines before it have returned, and ahead of what it
      writes to them. Before the operator they are as the routine before left them.
    - ``with_given``: the same, as the program gives them, ahead of any routine.
    - ``with_outputs``: outputs as the operator itself gave them, ahead of any routine. What is
      asked for of the forward side in a backward pass is held as long as the graph.
    """

    # fmt: off

    @overload
    def insert_before_op(
        self, routine: Routine, inputs: Indices = None, *,
        with_inputs: Indices = (), with_given: Indices = (),
        pure: bool = False, differentiable: bool = False,
    ) -> None: ...
    @overload
    def insert_before_op(
        self, routine: One[P], inputs: Indices = None,
        with_inputs: Indices = (), with_given: Indices = (),
        pure: bool = False, differentiable: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def insert_before_op(
        self, routine: Two[P], inputs: Indices = None,
        with_inputs: Indices = (), with_given: Indices = (),
        pure: bool = False, differentiable: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def insert_before_op(
        self, routine: Three[P], inputs: Indices = None,
        with_inputs: Indices = (), with_given: Indices = (),
        pure: bool = False, differentiable: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    def insert_before_op(  # type: ignore[misc]
        self, routine: Routine, inputs: Indices = None, *,
        with_inputs: Indices = (), with_given: Indices = (),
        pure: bool = False, differentiable: bool = False, **kwargs: Any,
    ) -> None:
        """Run ``routine(*inputs, *asked, **kwargs)`` before each execution, to replace inputs."""
        asked = {"inputs": with_inputs, "given": with_given}
        insert(self._now, Point.BEFORE_OP, routine, inputs, kwargs, pure, differentiable, asked)

    @overload
    def insert_after_op(
        self, routine: Routine, outputs: Indices = None, *,
        with_inputs: Indices = (), with_given: Indices = (),
        pure: bool = False, differentiable: bool = False,
    ) -> None: ...
    @overload
    def insert_after_op(
        self, routine: One[P], outputs: Indices = None,
        with_inputs: Indices = (), with_given: Indices = (),
        pure: bool = False, differentiable: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def insert_after_op(
        self, routine: Two[P], outputs: Indices = None,
        with_inputs: Indices = (), with_given: Indices = (),
        pure: bool = False, differentiable: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def insert_after_op(
        self, routine: Three[P], outputs: Indices = None,
        with_inputs: Indices = (), with_given: Indices = (),
        pure: bool = False, differentiable: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    def insert_after_op(  # type: ignore[misc]
        self, routine: Routine, outputs: Indices = None, *,
        with_inputs: Indices = (), with_given: Indices = (),
        pure: bool = False, differentiable: bool = False, **kwargs: Any,
    ) -> None:
        """Run ``routine(*outputs, *asked, **kwargs)`` after each execution, to replace outputs."""
        asked = {"inputs": with_inputs, "given": with_given}
        insert(self._now, Point.AFTER_OP, routine, outputs, kwargs, pure, differentiable, asked)

    @overload
    def replace_op(
        self, routine: Routine, inputs: Indices = None, *,
        original: bool = False, pure: bool = False, differentiable: bool = False,
    ) -> None: ...
    @overload
    def replace_op(
        self, routine: One[P], inputs: Indices = None,
        original: bool = False, pure: bool = False, differentiable: bool = False,
        *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def replace_op(
        self, routine: Two[P], inputs: Indices = None,
        original: bool = False, pure: bool = False, differentiable: bool = False,
        *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def replace_op(
        self, routine: Three[P], inputs: Indices = None,
        original: bool = False, pure: bool = False, differentiable: bool = False,
        *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    def replace_op(  # type: ignore[misc]
        self, routine: Routine, inputs: Indices = None, *,
        original: bool = False, pure: bool = False, differentiable: bool = False, **kwargs: Any,
    ) -> None:
        """Run ``routine(*inputs, **kwargs)`` instead of the operator; it returns the outputs.

        The gradient stays that of the original operator unless ``differentiable``.

        With ``original=True`` it is called as ``routine(original, *inputs, **kwargs)``, and
        ``original`` runs the operator itself on as many tensors as the routine is given. It returns
        the output, or a tuple of several. A routine that is differentiated is so through it.
        """
        point = Point.REPLACE_OP
        insert(self._now, point, routine, inputs, kwargs, pure, differentiable, original=original)

    @overload
    def insert_before_backward_op(
        self, routine: Routine, grad_outputs: Indices = None, *,
        pure: bool = False,
    ) -> None: ...
    @overload
    def insert_before_backward_op(
        self, routine: One[P], grad_outputs: Indices = None,
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def insert_before_backward_op(
        self, routine: Two[P], grad_outputs: Indices = None,
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def insert_before_backward_op(
        self, routine: Three[P], grad_outputs: Indices = None,
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    def insert_before_backward_op(  # type: ignore[misc]
        self, routine: Routine, grad_outputs: Indices = None, *, pure: bool = False, **kwargs: Any
    ) -> None:
        """Run ``routine(*grad_outputs, **kwargs)`` before each run of the backward operator."""
        insert(self._now, Point.BEFORE_BACKWARD_OP, routine, grad_outputs, kwargs, pure)

    @overload
    def insert_after_backward_op(
        self, routine: Routine, grad_inputs: Indices = None, *,
        pure: bool = False,
    ) -> None: ...
    @overload
    def insert_after_backward_op(
        self, routine: One[P], grad_inputs: Indices = None,
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def insert_after_backward_op(
        self, routine: Two[P], grad_inputs: Indices = None,
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def insert_after_backward_op(
        self, routine: Three[P], grad_inputs: Indices = None,
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    def insert_after_backward_op(  # type: ignore[misc]
        self, routine: Routine, grad_inputs: Indices = None, *, pure: bool = False, **kwargs: Any
    ) -> None:
        """Run ``routine(*grad_inputs, **kwargs)`` after each run of the backward operator."""
        insert(self._now, Point.AFTER_BACKWARD_OP, routine, grad_inputs, kwargs, pure)

    @overload
    def replace_backward_op(
        self, routine: Routine, grad_outputs: Indices = None, *,
        pure: bool = False,
    ) -> None: ...
    @overload
    def replace_backward_op(
        self, routine: One[P], grad_outputs: Indices = None,
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def replace_backward_op(
        self, routine: Two[P], grad_outputs: Indices = None,
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def replace_backward_op(
        self, routine: Three[P], grad_outputs: Indices = None,
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    def replace_backward_op(  # type: ignore[misc]
        self, routine: Routine, grad_outputs: Indices = None, *, pure: bool = False, **kwargs: Any
    ) -> None:
        """Have ``routine(*grad_outputs, **kwargs)`` give what the backward operator returns."""
        insert(self._now, Point.REPLACE_BACKWARD_OP, routine, grad_outputs, kwargs, pure)

    @overload
    def insert_on_grad_outputs(
        self, routine: Routine, outputs: Indices = None, *,
        with_inputs: Indices = (), with_given: Indices = (), with_outputs: Indices = (),
        pure: bool = False,
    ) -> None: ...
    @overload
    def insert_on_grad_outputs(
        self, routine: One[P], outputs: Indices = None,
        with_inputs: Indices = (), with_given: Indices = (), with_outputs: Indices = (),
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def insert_on_grad_outputs(
        self, routine: Two[P], outputs: Indices = None,
        with_inputs: Indices = (), with_given: Indices = (), with_outputs: Indices = (),
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def insert_on_grad_outputs(
        self, routine: Three[P], outputs: Indices = None,
        with_inputs: Indices = (), with_given: Indices = (), with_outputs: Indices = (),
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    def insert_on_grad_outputs(  # type: ignore[misc]
        self, routine: Routine, outputs: Indices = None, *,
        with_inputs: Indices = (), with_given: Indices = (), with_outputs: Indices = (),
        pure: bool = False, **kwargs: Any,
    ) -> None:
        """Run ``routine(*grads, *asked, **kwargs)`` on the gradients of the operator's outputs."""
        asked = {"inputs": with_inputs, "given": with_given, "outputs": with_outputs}
        insert(self._now, Point.ON_GRAD_OUTPUTS, routine, outputs, kwargs, pure, asked=asked)

    @overload
    def insert_on_grad_inputs(
        self, routine: Routine, inputs: Indices = None, *,
        with_inputs: Indices = (), with_given: Indices = (), with_outputs: Indices = (),
        pure: bool = False,
    ) -> None: ...
    @overload
    def insert_on_grad_inputs(
        self, routine: One[P], inputs: Indices = None,
        with_inputs: Indices = (), with_given: Indices = (), with_outputs: Indices = (),
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def insert_on_grad_inputs(
        self, routine: Two[P], inputs: Indices = None,
        with_inputs: Indices = (), with_given: Indices = (), with_outputs: Indices = (),
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def insert_on_grad_inputs(
        self, routine: Three[P], inputs: Indices = None,
        with_inputs: Indices = (), with_given: Indices = (), with_outputs: Indices = (),
        pure: bool = False, *args: P.args, **kwargs: P.kwargs,
    ) -> None: ...
    def insert_on_grad_inputs(  # type: ignore[misc]
        self, routine: Routine, inputs: Indices = None, *,
        with_inputs: Indices = (), with_given: Indices = (), with_outputs: Indices = (),
        pure: bool = False, **kwargs: Any,
    ) -> None:
        """Run ``routine(*grads, *asked, **kwargs)`` on the operator's gradients of its inputs."""
        asked = {"inputs": with_inputs, "given": with_given, "outputs": with_outputs}
        insert(self._now, Point.ON_GRAD_INPUTS, routine, inputs, kwargs, pure, asked=asked)
