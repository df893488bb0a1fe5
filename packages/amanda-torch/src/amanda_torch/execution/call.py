"""A call holds what one execution of an operator was given, and runs the operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from amanda import AmandaError
from amanda.driving import Execution

from amanda_torch.frames import not_a_call_site
from amanda_torch.operators.composed import is_derived_here
from amanda_torch.operators.signature import outputs_of
from amanda_torch.thread import intercept, local
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda import Operator
    from amanda.driving import Action, Engine
    from torch import Tensor

    from amanda_torch.operators.signature import Args, Kwargs
    from amanda_torch.operators.targets import Form
    from amanda_torch.places.identity import Identity

    # Carries out the plan that it is made of, at one execution: it is given the active tools, the
    # operator, and its arguments. It keeps none of these, since it is kept as long as they live.
    Strategy = Callable[[Engine, Operator, Args, Kwargs], Any]

# What an operator raises that cannot take what it is given.
OPERATOR_ERRORS = (RuntimeError, TypeError, ValueError, LookupError)


@not_a_call_site
def run_inside(inner: Engine | None, form: Form, args: Args, kwargs: Kwargs) -> Any:
    """Run an operator itself; the tools of ``inner`` see what it is made of."""
    if inner is None:
        return form.run(*args, **kwargs)
    if form.is_whole and is_derived_here():
        return form.run(*args, **kwargs)
    thread = local.thread
    outer, thread.engine = thread.engine, inner
    intercept(True)
    try:
        return form.resume(*args, **kwargs)
    finally:
        intercept(False)
        if thread.engine is inner:  # else a routine has left a scope, or left one open
            thread.engine = outer


@not_a_call_site
@dataclass(slots=True, eq=False)
class Call:
    """A call is one execution of an operator.

    Attributes:
        engine: the active tools.
        identity: knows the operator.
        operator: the operator.
        form: the form in which it is given its arguments.
        args: what the program gives it.
        kwargs: the same, by name.
    """

    engine: Engine
    identity: Identity
    operator: Operator
    form: Form
    args: Args
    kwargs: Kwargs

    def inputs(self) -> Sequence[Tensor]:
        """List the tensors that the program gives it."""
        return self.form.tensors(self.args, self.kwargs)

    def run(self, inner: Engine | None, tensors: Sequence[Tensor] | None = None) -> Any:
        """Run the operator itself, on other tensors if any are given."""
        args, kwargs = self.args, self.kwargs
        if tensors is not None:
            args, kwargs = self.form.with_tensors(args, kwargs, tensors)
        return run_inside(inner, self.form, args, kwargs)

    def has_generator(self) -> bool:
        """Tell whether the program gives it what random numbers are drawn from."""
        return any(isinstance(v, torch.Generator) for v in (*self.args, *self.kwargs.values()))

    def run_with_gradient(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run it on other tensors for the driver to see how it is differentiated."""
        args, kwargs = self.form.with_tensors(self.args, self.kwargs, tensors)
        return outputs_of(self.form.run(*args, **kwargs))

    def run_to_see(self) -> Sequence[Tensor]:
        """Run it for the tools to see what it gives; no mode nor profiler counts or keeps this."""
        with torch.no_grad(), unshown():
            return outputs_of(self.form.run(*self.args, **self.kwargs))

    def shown(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor] | None = None,
        output_names: Sequence[str] = (),
    ) -> Execution:
        """Return the execution as analysis routines see it."""
        signature, operator = self.form.signature, self.operator
        names = signature.input_names(self.args, self.kwargs)
        attrs = self.identity.settled(signature.attrs(self.args, self.kwargs), operator)
        return Execution(operator, inputs, names, attrs, outputs, output_names=output_names)

    def blame(self, error: Exception, actions: Sequence[Action]) -> None:
        """Name the routines that substituted something that the operator cannot take.

        It is no fault of theirs if the operator cannot take what the program gave either.

        Args:
            error: what the operator raised.
            actions: what has substituted something.
        """
        if isinstance(error, (AmandaError, torch.OutOfMemoryError)) or not actions:
            return
        if not self._refuses():
            reason = f"the operator cannot take what was substituted: {error}"
            raise actions[-1].error(reason, self.operator) from error

    def _refuses(self) -> bool:
        form = self.form
        if not form.signature.repeatable_on_copies or form.signature.out_tensors(self.kwargs):
            return False  # it is not to be run just to see
        copies = [tensor.detach().clone() for tensor in self.inputs()]
        args, kwargs = form.with_tensors(self.args, self.kwargs, copies)
        try:
            with torch.no_grad():
                form.run(*args, **kwargs)
        except OPERATOR_ERRORS:
            return True
        return False
