"""A signature tells which arguments are tensors, which are written to, and what is returned."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from torch import Tensor

from amanda_torch._internals import SingleLevelFunction
from amanda_torch.operators.settings import setting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amanda_torch.operators.settings import Settings

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Signature:
    """A signature tells the names and kinds of the arguments of one operator.

    Attributes:
        tensor_places: positions of the arguments that are declared as tensors, or as lists of them.
        written: positions of the arguments that the operator writes its results to.
        out: names of the keyword arguments that it writes its results to (``out=``).
        shifting: positions of the arguments that may be more or fewer tensors, with others behind.
        writes: whether it writes its results to arguments, or may do so.
        reshapes: whether it changes the shape of what it writes to, rather than the contents.
        marks_dirty: whether it tells what it has written to only by returning it.
        returns: how many tensors it returns; None for a list of them.
        returns_tensors: whether it returns nothing but tensors.
        has_gradient: whether it gives tensors, to which a gradient may come.
        is_view: whether what it returns shares memory with an argument that it does not write to.
        state: positions of arguments that it may write to besides, such as running means.
        repeatable: whether running it twice does no more than running it once.
        repeatable_on_copies: whether that is so where the other run is on copies of its tensors.
        draws: whether it does no more than that, but draws random numbers.
        opaque: whether it is code of the program, which may write to anything that it is given.

    Args:
        names: those of its arguments, in their order.
        variadic: whether the last of these stands for all further positional arguments.
    """

    tensor_places: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    out: tuple[str, ...] = ()
    state: tuple[int, ...] = ()
    writes = False
    shifting: tuple[int, ...] = ()
    reshapes = False
    marks_dirty = False
    has_gradient = True
    is_view = False
    repeatable = repeatable_on_copies = True
    draws = False
    opaque = False
    returns: int | None = None
    returns_tensors = True

    def __init__(self, names: Sequence[str], variadic: bool = False) -> None:
        self.names = names
        self.variadic = variadic

    def tensors(self, args: Args, kwargs: Kwargs) -> list[Tensor]:
        """List the tensors among the arguments, lists flattened; no destinations (``out=``)."""
        found: list[Tensor] = []
        given = (*args, *(v for k, v in kwargs.items() if k not in self.out)) if kwargs else args
        for value in given:
            if isinstance(value, Tensor):
                found.append(value)
            elif type(value) in (list, tuple):
                found += [element for element in value if isinstance(element, Tensor)]
        return found

    def with_tensors(
        self, args: Args, kwargs: Kwargs, tensors: Sequence[Any]
    ) -> tuple[Args, Kwargs]:
        """Return the arguments with other tensors in the places that :meth:`tensors` found."""
        rest = iter(tensors)
        return (
            tuple(_refill(value, rest) for value in args),
            {k: v if k in self.out else _refill(v, rest) for k, v in kwargs.items()},
        )

    def places(self, positions: Sequence[int], args: Args) -> list[int]:
        """List which of the tensors that :meth:`tensors` finds are arguments at ``positions``."""
        places: list[int] = []
        count = 0
        for i, value in enumerate(args[: max(positions, default=-1) + 1]):
            end = count + len(outputs_of(value))
            if i in positions:
                places += range(count, end)
            count = end
        return places

    def out_tensors(self, kwargs: Kwargs) -> list[Tensor]:
        """List the tensors given by ``out=``, in the order of the results."""
        return outputs_of([kwargs[name] for name in self.out if name in kwargs])

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """Return tensors in the form in which the operator returns them."""
        if self.returns is None:
            return list(tensors)
        if self.returns == 0:
            return None
        return tensors[0] if self.returns == 1 else tuple(tensors)

    @property
    def can_be_bounded(self) -> bool:
        """Tell whether a boundary may lie around it, which views do not stay linked through."""
        return not (self.is_view or self.reshapes)

    @property
    def outputs_of(self) -> Callable[[Any], list[Tensor]]:
        """List the tensors that it returned, lists flattened."""
        return outputs_of

    def output_names(self, result: Any) -> list[str]:
        """List what these are called; schemas have no names for them."""
        return []

    def with_outputs(self, result: Any, tensors: Sequence[Tensor]) -> Any:
        """Return what it returned, with other tensors in it."""
        return with_outputs(result, tensors)

    def input_names(self, args: Args, kwargs: Kwargs) -> list[str]:
        """List the names of what :meth:`tensors` finds; ``name[i]`` for elements of a list."""
        names: list[str] = []
        for name, value in self.named(args, kwargs):
            if name in self.out:
                continue
            if isinstance(value, Tensor):
                names.append(name)
            elif type(value) in (list, tuple):
                names += [f"{name}[{i}]" for i, e in enumerate(value) if isinstance(e, Tensor)]
        return names

    def attrs(self, args: Args, kwargs: Kwargs) -> Kwargs:
        """Return the arguments that are no tensors, by name; absent tensors as None."""
        return {
            name: value
            for name, value in self.named(args, kwargs)
            if not isinstance(value, Tensor)
            and not (type(value) in (list, tuple) and any(isinstance(e, Tensor) for e in value))
        }

    def settings(
        self, args: Args, kwargs: Kwargs, numeric: bool = False
    ) -> tuple[Settings, Sequence[str]] | None:
        """Return what tells operators apart outside of modules, and these arguments' names.

        None if it takes nothing but tensors.

        Args:
            args: its arguments.
            kwargs: its keyword arguments.
            numeric: whether a number stands for a tensor among them.
        """
        given = dict(self.named(args, kwargs))
        return tuple([setting(given.get(name)) for name in self.names]), self.names

    def named(self, args: Args, kwargs: Kwargs) -> Iterator[tuple[str, Any]]:
        """Return the arguments with their names."""
        fixed = len(self.names) - self.variadic
        yield from zip(self.names[:fixed], args, strict=False)
        if self.variadic:
            yield self.names[-1], args[fixed:]
        yield from kwargs.items()


class FunctionSignature(Signature):
    """This is the signature of a custom autograd Function, from its ``forward``."""

    writes = True
    marks_dirty = True
    repeatable = repeatable_on_copies = False  # it is code of the program, which may do anything
    opaque = True

    def __init__(self, function: Any) -> None:
        parameters = list(inspect.signature(function.forward).parameters.values())
        if function.setup_context is _default_setup_context():
            parameters = parameters[1:]  # forward(ctx, ...)
        names = [parameter.name for parameter in parameters]
        variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
        super().__init__(names, variadic)

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """Return tensors in the form in which most functions return them."""
        return tensors[0] if len(tensors) == 1 else tuple(tensors)


def outputs_of(result: Any) -> list[Tensor]:
    """List the tensors that an operator returned, lists flattened."""
    if isinstance(result, Tensor):
        return [result]
    found: list[Tensor] = []
    if isinstance(result, (list, tuple)):
        for element in result:
            found += outputs_of(element)
    return found


def with_outputs(result: Any, tensors: Sequence[Tensor]) -> Any:
    """Return what an operator returned, with other tensors in it."""
    return _refill(result, iter(tensors))


def _refill(value: Any, rest: Iterator[Any]) -> Any:
    if isinstance(value, Tensor):
        return next(rest)
    if type(value) in (list, tuple):
        return type(value)(_refill(element, rest) for element in value)
    if isinstance(value, tuple):  # a named tuple or struct sequence
        fill: Callable[..., Any] = getattr(type(value), "_make", type(value))
        return fill([_refill(element, rest) for element in value])
    return value


def _default_setup_context() -> Any:
    return SingleLevelFunction.setup_context
