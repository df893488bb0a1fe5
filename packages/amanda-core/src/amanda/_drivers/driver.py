"""A driver makes one framework's execution mode obey the tools."""

from __future__ import annotations

import abc
import contextlib
from typing import TYPE_CHECKING, Any

from amanda._errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from amanda._contexts.action import Action
    from amanda._drivers.lent import Alike, Held, Profiler
    from amanda._drivers.tensors import Parameter, Stored, TensorInfo
    from amanda._execution.interception import ActiveEngine
    from amanda._operators.operator import Execution, Operator
    from amanda._plans.engine import Engine


class Driver(abc.ABC):
    """A driver makes one framework's execution mode obey the tools; this is the base class of all.

    Attributes:
        backend: the backend's name, which is the import name of its framework.
        vocabulary: the names it speaks for operators, inputs and attributes.
        xp: array namespace for its tensors.
        has_modules: whether it shows calls of modules to tools that look at these.
        tells_producers: whether it fills :attr:`Plan.producers`.
        active: what its threads run under, if it carries plans out by :class:`amanda.driving.Call`.
    """

    backend: str
    vocabulary: str
    has_modules = False
    tells_producers: bool = False
    active: ActiveEngine

    @property
    @abc.abstractmethod
    def xp(self) -> Any:
        """Return the array namespace (Python array API) for the backend's tensors."""

    @abc.abstractmethod
    def activate(self, engine: Engine | None) -> None:
        """From now on this thread runs under ``engine``; None for no tools at all."""

    def suspend(self) -> Any:
        """Set aside what is active in this thread, as a routine is about to open a scope.

        From now on the thread is as if it had never had tools, nor were running a routine.
        Returns what :meth:`resume` is given when the routine has ended.
        """
        return None

    def resume(self, suspended: Any, engine: Engine | None) -> None:
        """Undo :meth:`suspend`: the thread is in a routine of the scopes around it once more.

        Args:
            suspended: what :meth:`suspend` returned.
            engine: as for :meth:`activate`; what was active before unless the routine left a
                scope that it had not entered, or did not leave one that it had.
        """
        self.activate(engine)

    @abc.abstractmethod
    def value(self, tensor: Any) -> Any:
        """Return a tensor, or what :meth:`variable` gave, as a NumPy array.

        It is asked of what analysis routines see, and of what routines are given.

        Raises:
            ValueUnavailableError: it is known only at execution, or NumPy cannot hold it.
        """

    def from_numpy(self, array: Any, like: Any) -> Any:
        """Make a tensor of a NumPy array, with the type of another tensor and on its device."""
        return self.xp.astype(self.xp.asarray(array), like.dtype)

    @abc.abstractmethod
    def describe(self, tensor: Any) -> TensorInfo:
        """Tell what there is to know of a tensor beside its elements.

        It is asked about all that tools are shown or given, during analysis, in routines and
        wherever else they are kept, and reads no elements.
        """

    @abc.abstractmethod
    def variable(self, initial: Any, execution: Execution) -> Any:
        """Make state that routines may read and that a tool may ``.assign()``."""

    @abc.abstractmethod
    def incompatible_reason(self, original: Any, substitute: Any) -> str | None:
        """Tell why ``substitute`` cannot stand for ``original``; None if it can.

        ``original`` is None where there is nothing to compare with: there was no gradient, or
        the routine is differentiable, and may return any tensor.
        """

    def as_tensor(self, substitute: Any) -> Any:
        """Return what can stand for a tensor, such as an array, as one for the next routine."""
        return substitute

    # Parameters: the driver tells one step, and core follows the way

    def is_parameter_itself(self, found: Any) -> bool:
        """Tell whether something is a parameter itself, rather than read, cast or viewed of one.

        Args:
            found: a tensor, or what :meth:`read_from` gave.
        """
        return False

    def read_from(self, found: Any) -> Any:
        """Return what something was read, cast or viewed of, directly; None if it was made
        otherwise.

        That may be anything which leads to a parameter: a tensor, or a node of a graph.

        Args:
            found: a tensor, or what this gave.
        """
        return None

    def parameter_info(self, found: Any, tensor: Any) -> Parameter | None:
        """Return what tools are told of a parameter; None if it is none after all.

        Args:
            found: the parameter itself.
            tensor: what they ask about, which leads to it.
        """
        return None

    def parameter_behind(self, tensor: Any) -> Any:
        """Follow a tensor to the parameter itself that it leads to; None if it leads to none."""
        while tensor is not None and not self.is_parameter_itself(tensor):
            tensor = self.read_from(tensor)
        return tensor

    def parameter(self, tensor: Any) -> Parameter | None:
        """Tell the parameter of the model that a tensor is, or a read, cast, view or handle of.

        None if it is none of these.
        """
        found = self.parameter_behind(tensor)
        return None if found is None else self.parameter_info(found, tensor)

    def is_parameter(self, tensor: Any) -> bool:
        """Tell whether a tensor has the elements of a parameter: is a read, cast or view of one."""
        return self.parameter(tensor) is not None

    def is_looked_up(self, tensor: Any, operator: Operator) -> bool:
        """Tell whether a tensor is the handle of a parameter, of which an operator reads rows."""
        return False

    def stored(self, tensor: Any) -> Stored | None:
        """Tell where the model keeps a parameter that is being analyzed, for tools to write to it.

        None where that cannot be written to.
        """
        return None

    def at_rest(self) -> contextlib.AbstractContextManager[object]:
        """Open a block in which parameters are read and written and routines run on values."""
        return contextlib.nullcontext()

    def synchronize(self, device: str) -> None:  # noqa: B027
        """Wait until a device that runs beside the host, as :meth:`describe` names it, is done."""

    def allocated(self, device: str) -> int | None:
        """Tell how many bytes of an accelerator's memory tensors use; None for the host."""
        return None

    def gather(self, value: Any, timeout: float = 60) -> Sequence[Any] | None:
        """Bring what every process of the program gives to the first one; None in the others.

        Args:
            value: plain values, as JSON has them.
            timeout: how many seconds the first one waits; what does not come is None.

        Returns:
            the values in the order of ranks; that of this process if there is no other.
        """
        return [value]

    def profiler(self) -> Profiler:
        """Return the framework's own profiler.

        Raises:
            UnsupportedError: there is none, or it cannot be had.
        """
        raise UnsupportedError(f"the driver of {self.backend} knows no profiler; use profile")

    def hold_compiled(
        self, alike: Alike, tell: Callable[[Held], None]
    ) -> contextlib.AbstractContextManager[object]:
        """Open a block in which this thread runs compiled code, and compares it with its operators.

        Each piece of compiled code is compared at its first run there. A framework that compiles
        nothing has none.

        Args:
            alike: whether a tensor is the one that is expected.
            tell: is told of each piece.

        Raises:
            UnsupportedError: tools are active for which code runs operator by operator.
        """
        return contextlib.nullcontext()

    def purpose(self, operator: Operator) -> str:
        """Tell what an operator that is being analyzed is there for, as far as the driver can tell.

        It is ``model``, ``initialization`` of its parameters, ``data`` (loading of it), or
        ``optimizer``.
        """
        return "model"

    def computes_parameter(self, operator: Operator) -> bool:
        """Tell whether an operator that is being analyzed is of what computes a weight of others.

        Spectral normalization is such code: what it multiplies is none of a layer's work.
        """
        return False

    def is_computed_of_parameters(self, tensor: Any) -> bool:
        """Tell whether a tensor is known to be computed of parameters and constants alone.

        A product with it is one with a weight then, which the model computes.
        """
        return False

    def in_forward_mode(self) -> bool:
        """Tell whether what runs now may compute tangents too, as in a Jacobian-vector product."""
        return False

    def gives_values(self, operator: Operator) -> bool:
        """Tell whether an operator gives values, rather than memory as it was found."""
        return True

    def modules(self, operator: Operator) -> Sequence[tuple[str, str]]:
        """List the modules around an operator that is being analyzed: path and class, outermost
        first.

        Empty where the driver knows no classes; the operator's scope has the paths.
        """
        return ()

    def model(self, operator: Operator) -> object | None:
        """Return the model that an operator that is being analyzed is in, as the object that it is.

        Two models may have equal scopes, and tools that tell by module know them apart by this.
        None where the driver cannot tell, and for an operator in no model.
        """
        return None

    def to_layout(self, tensor: Any, layout: Callable[[Any], Any]) -> Any:
        """Turn a tensor for an analysis routine that speaks a vocabulary of another layout.

        Args:
            tensor: what the backend shows.
            layout: turns a tensor to that layout, by the array namespace of the backend.
        """
        return layout(tensor)

    def whole(self, gradient: Any) -> Any:
        """Return a gradient as routines see it that are given it ``whole``."""
        return gradient

    def unseen(self) -> str | None:
        """Tell why tools saw nothing of operators that ran in their scopes, and the way out.

        None if there were none of these, as far as the driver can tell.
        """
        return None

    def check_action(self, execution: Execution, action: Action) -> None:  # noqa: B027
        """Raise :class:`UnsupportedError` for an action that this backend cannot carry out.

        Args:
            execution: what the analysis routine that inserts it was shown.
            action: what it inserts.
        """

    def canonical_type(self, type: str) -> str:
        """Spell a type as ``operator.type`` does, given any name that the framework has for it."""
        return type

    def alike(self, types: Collection[str]) -> Collection[str]:
        """Return the backend's types that may be meant by those of these that it does not have.

        They are watched, so that a misspelt type can be told from one that does not run.
        """
        return ()

    def is_backward_type(self, type: str) -> bool:
        """Tell whether backward operators alone have this type, as far as its name shows."""
        return False

    def backward_names(self, type: str) -> Collection[str]:
        """List the names by which a tool may want backward operators of a type."""
        return (type,)

    def forward_types(self, types: frozenset[str]) -> frozenset[str] | None:
        """Return the types of the forward operators to intercept for a tool that wants the backward
        of ``types``, which may name forward or backward operators; None for all of them.
        """
        return None
