"""How an operator takes its arguments: which are tensors, which are written to, what it returns."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Signature:
    """Names and kinds of the arguments of one operator.

    Attributes:
        written: positions of the arguments that the operator writes its results to.
        out: names of the keyword arguments that it writes its results to (``out=``).
        returns: how many tensors it returns; None for a list, or when that is not known.
        writes: whether it writes to any of its arguments.
        is_view: whether what it returns shares memory with an argument that it does not write to.
        repeatable: whether running it twice does no more than running it once.
    """

    written: tuple[int, ...] = ()
    out: tuple[str, ...] = ()
    writes = False
    is_view = False
    repeatable = True
    returns: int | None = None

    def __init__(self, names: Sequence[str], variadic: bool = False) -> None:
        self.names = names
        self.variadic = variadic

    def tensors(self, args: Args, kwargs: Kwargs) -> list[Tensor]:
        """The tensors among the arguments, lists flattened, destinations (``out=``) left out."""
        found: list[Tensor] = []
        for value in args:
            if isinstance(value, Tensor):
                found.append(value)
            elif type(value) in (list, tuple):
                found += [element for element in value if isinstance(element, Tensor)]
        for name, value in kwargs.items():
            if name in self.out:
                continue
            if isinstance(value, Tensor):
                found.append(value)
            elif type(value) in (list, tuple):
                found += [element for element in value if isinstance(element, Tensor)]
        return found

    def with_tensors(
        self, args: Args, kwargs: Kwargs, tensors: Sequence[Any]
    ) -> tuple[Args, Kwargs]:
        """The arguments with other tensors in the places that :meth:`tensors` found."""
        rest = iter(tensors)
        return (
            tuple(_refill(value, rest) for value in args),
            {k: v if k in self.out else _refill(v, rest) for k, v in kwargs.items()},
        )

    def destinations(self, args: Args, kwargs: Kwargs) -> list[Tensor]:
        """The tensors that the results are written to, in the order of the results."""
        values = [args[i] for i in self.written] + [kwargs[n] for n in self.out if n in kwargs]
        return outputs_of(values)

    def with_copies(self, args: Args) -> Args:
        """The arguments, with copies of those that are written to."""
        return tuple(_copies(a) if i in self.written else a for i, a in enumerate(args))

    def input_names(self, args: Args, kwargs: Kwargs) -> list[str]:
        """Names of the tensors that :meth:`tensors` finds; ``name[i]`` for elements of a list."""
        names: list[str] = []
        for name, value in self._named(args, kwargs):
            if name in self.out:
                continue
            if isinstance(value, Tensor):
                names.append(name)
            elif type(value) in (list, tuple):
                names += [f"{name}[{i}]" for i, e in enumerate(value) if isinstance(e, Tensor)]
        return names

    def attrs(self, args: Args, kwargs: Kwargs) -> Kwargs:
        """The arguments that are no tensors, by name; absent tensors as None."""
        return {
            name: value
            for name, value in self._named(args, kwargs)
            if not isinstance(value, Tensor)
            and not (type(value) in (list, tuple) and any(isinstance(e, Tensor) for e in value))
        }

    def _named(self, args: Args, kwargs: Kwargs) -> Iterator[tuple[str, Any]]:
        fixed = len(self.names) - self.variadic
        yield from zip(self.names[:fixed], args, strict=False)
        if self.variadic:
            yield self.names[-1], args[fixed:]
        yield from kwargs.items()


class OperatorSignature(Signature):
    """The signature of an operator of the dispatcher, from its schema."""

    def __init__(self, overload: Any) -> None:
        schema = overload._schema
        super().__init__([argument.name for argument in schema.arguments])
        writes = [
            argument.alias_info is not None and argument.alias_info.is_write
            for argument in schema.arguments
        ]
        returned = [r.alias_info is not None and r.alias_info.is_write for r in schema.returns]
        if all(returned):  # else what is written is state, such as running means
            pairs = list(enumerate(zip(schema.arguments, writes, strict=True)))
            self.written = tuple(i for i, (a, write) in pairs if write and not a.kwarg_only)
            self.out = tuple(a.name for _, (a, write) in pairs if write and a.kwarg_only)
        self.writes = any(writes)
        tensors = [
            i
            for i, argument in enumerate(schema.arguments)
            if "Tensor" in str(argument.type) and not argument.kwarg_only
        ]
        named = any("Tensor" in str(a.type) for a in schema.arguments if a.kwarg_only)
        # Where to look for tensors, when that can be said by position.
        self._places = None if named else tuple(tensors)
        kinds = [str(r.type) for r in schema.returns]
        self.returns = len(kinds) if all(kind == "Tensor" for kind in kinds) else None
        self.is_view = any(r.alias_info and not r.alias_info.is_write for r in schema.returns)
        self.repeatable = not any(writes) and not _draws(overload)
        self._defaults = {
            argument.name: argument.default_value
            for argument in schema.arguments
            if argument.has_default_value()
        }

    def tensors(self, args: Args, kwargs: Kwargs) -> list[Tensor]:
        """The tensors among the arguments, lists flattened, destinations (``out=``) left out."""
        if self._places is None:
            return super().tensors(args, kwargs)
        found: list[Tensor] = []
        count = len(args)
        for i in self._places:
            if i >= count:
                break
            value = args[i]
            if isinstance(value, Tensor):
                found.append(value)
            elif type(value) is list:
                found += [element for element in value if isinstance(element, Tensor)]
        return found

    def attrs(self, args: Args, kwargs: Kwargs) -> Kwargs:
        """The arguments that are no tensors, by name, with the schema's defaults filled in."""
        given = {name for name, _ in self._named(args, kwargs)}
        absent = {
            name: value
            for name, value in self._defaults.items()
            if name not in given and name not in self.out
        }
        attrs = super().attrs(args, kwargs) | absent
        return {name: attrs[name] for name in self.names if name in attrs}


class FunctionSignature(Signature):
    """The signature of a custom autograd Function, from its ``forward``."""

    def __init__(self, function: Any) -> None:
        parameters = list(inspect.signature(function.forward).parameters.values())
        if function.setup_context is _default_setup_context():
            parameters = parameters[1:]  # forward(ctx, ...)
        names = [parameter.name for parameter in parameters]
        variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
        super().__init__(names, variadic)


def outputs_of(result: Any) -> list[Tensor]:
    """The tensors that an operator returned, lists flattened."""
    if isinstance(result, Tensor):
        return [result]
    found: list[Tensor] = []
    if isinstance(result, (list, tuple)):
        for element in result:
            found += outputs_of(element)
    return found


def with_outputs(result: Any, tensors: Sequence[Tensor]) -> Any:
    """What an operator returned, with other tensors in it."""
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


def _copies(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else [tensor.clone() for tensor in value]


def _draws(overload: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in overload.tags


def _default_setup_context() -> Any:
    return torch.autograd.function._SingleLevelFunction.setup_context
