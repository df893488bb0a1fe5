"""How an operator takes its arguments: which are tensors, which are written to, what it returns."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from amanda_torch._internals import SingleLevelFunction
from amanda_torch.settings import setting
from amanda_torch.wrapped import NUMBERS, wrapped_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amanda_torch.settings import Settings

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Signature:
    """Names and kinds of the arguments of one operator.

    Attributes:
        written: positions of the arguments that the operator writes its results to.
        out: names of the keyword arguments that it writes its results to (``out=``).
        shifting: positions of the arguments that may be more or fewer tensors, with others behind.
        writes: whether it writes its results to arguments, or may do so.
        reshapes: whether it changes the shape of what it writes to, rather than the contents.
        marks_dirty: whether it tells what it has written to only by returning it.
        returns: how many tensors it returns; None for a list of them.
        returns_tensors: whether it returns nothing but tensors.
        is_view: whether what it returns shares memory with an argument that it does not write to.
        state: positions of arguments that it may write to besides, such as running means.
        repeatable: whether running it twice does no more than running it once.
    """

    written: tuple[int, ...] = ()
    out: tuple[str, ...] = ()
    state: tuple[int, ...] = ()
    writes = False
    shifting: tuple[int, ...] = ()
    reshapes = False
    marks_dirty = False
    is_view = False
    repeatable = True
    returns: int | None = None
    returns_tensors = True

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

    def places(self, positions: Sequence[int], args: Args) -> list[int]:
        """Which of the tensors that :meth:`tensors` finds are the arguments at ``positions``."""
        places: list[int] = []
        count = 0
        for i, value in enumerate(args[: max(positions, default=-1) + 1]):
            end = count + len(outputs_of(value))
            if i in positions:
                places += range(count, end)
            count = end
        return places

    def out_tensors(self, kwargs: Kwargs) -> list[Tensor]:
        """The tensors given by ``out=``, in the order of the results."""
        return outputs_of([kwargs[name] for name in self.out if name in kwargs])

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """Tensors in the form in which the operator returns them."""
        if self.returns is None:
            return list(tensors)
        if self.returns == 0:
            return None
        return tensors[0] if self.returns == 1 else tuple(tensors)

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

    def settings(
        self, args: Args, kwargs: Kwargs, numeric: bool = False
    ) -> tuple[Settings, Sequence[str]] | None:
        """What tells operators apart outside of modules, and the names of these arguments.

        None if it takes nothing but tensors.

        Args:
            args: its arguments.
            kwargs: its keyword arguments.
            numeric: whether a number stands for a tensor among them.
        """
        given = dict(self._named(args, kwargs))
        return tuple([setting(given.get(name)) for name in self.names]), self.names

    def _named(self, args: Args, kwargs: Kwargs) -> Iterator[tuple[str, Any]]:
        fixed = len(self.names) - self.variadic
        yield from zip(self.names[:fixed], args, strict=False)
        if self.variadic:
            yield self.names[-1], args[fixed:]
        yield from kwargs.items()


# Arguments that tell no operators apart: it is the same one in training and in evaluation, and on
# every device.
_INDIFFERENT = frozenset(("train", "training", "device", "layout", "memory_format", "pin_memory"))
# Arguments that operators on batches update in training, which their schemas do not say.
_UNDECLARED = frozenset(("running_mean", "running_var"))


class OperatorSignature(Signature):
    """The signature of an operator of the dispatcher, from its schema."""

    def __init__(self, overload: Any) -> None:
        schema = overload._schema
        super().__init__([argument.name for argument in schema.arguments])
        written = [a for a in schema.arguments if a.alias_info and a.alias_info.is_write]
        changed = {a.name for a in written} | _UNDECLARED.intersection(self.names)
        # What an operator of another library does is not to be told from here.
        self.repeatable = not (changed or _draws(overload)) and overload.namespace == "aten"
        self.reshapes = torch.Tag.inplace_view in overload.tags
        if schema.returns:  # else what is written and not returned is state (running means)
            returned = [r.alias_info.before_set for r in schema.returns if r.alias_info]
            written = [a for a in written if a.alias_info.before_set in returned]
        positional = [a.name for a in written if not a.kwarg_only]
        self.written = tuple(i for i, name in enumerate(self.names) if name in positional)
        self.out = tuple(a.name for a in written if a.kwarg_only)
        state = changed.difference(positional, self.out)
        self.state = tuple(i for i, name in enumerate(self.names) if name in state)
        self.writes = bool(written or self.state)
        self.is_view = any(r.alias_info and not r.alias_info.is_write for r in schema.returns)
        kinds = [str(r.type) for r in schema.returns]
        if kinds != ["List[Tensor]"]:
            self.returns = len(kinds)
            self.returns_tensors = all(kind == "Tensor" for kind in kinds)
        tensors = [
            i
            for i, argument in enumerate(schema.arguments)
            if "Tensor" in str(argument.type) and not argument.kwarg_only
        ]
        self.shifting = tuple(i for i in tensors[:-1] if str(schema.arguments[i].type) != "Tensor")
        self._places = tuple(tensors)
        named = [
            i
            for i, a in enumerate(schema.arguments)
            if a.kwarg_only and "Tensor" in str(a.type) and a.name not in self.out
        ]
        self._names = frozenset(self.names[i] for i in named)
        told = [
            i
            for i, argument in enumerate(schema.arguments)
            if argument.name not in _INDIFFERENT and "Tensor" not in str(argument.type)
        ]
        # With the numbers that stand for tensors, and without.
        self._settings = {
            numeric: (
                tuple(i for i in chosen if not schema.arguments[i].kwarg_only),
                tuple(self.names[i] for i in chosen if schema.arguments[i].kwarg_only),
                tuple(self.names[i] for i in chosen),
            )
            for numeric, chosen in ((False, told), (True, sorted({*told, *tensors, *named})))
        }
        self._defaults = {
            argument.name: argument.default_value
            for argument in schema.arguments
            if argument.has_default_value()
        }

    def tensors(self, args: Args, kwargs: Kwargs) -> list[Tensor]:
        """The tensors among the arguments, lists flattened, destinations (``out=``) left out."""
        if self._names:
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

    def numeric(self, args: Args, kwargs: Kwargs) -> bool:
        """Whether a number stands for a tensor among the arguments."""
        count = len(args)
        for i in self._places:
            if i >= count:
                break
            value = args[i]
            if type(value) in NUMBERS or (type(value) is list and _holds_number(value)):
                return True
        return bool(self._names) and any(type(kwargs.get(name)) in NUMBERS for name in self._names)

    def wrapped(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """The arguments with tensors for the numbers that stand for some."""
        places, names = self._places, self._names
        return (
            tuple(wrapped_in(v) if i in places else v for i, v in enumerate(args)),
            {name: wrapped_in(v) if name in names else v for name, v in kwargs.items()},
        )

    def rewrapped(self, result: Any) -> Any:
        """What the operator returned, with tensors for the numbers that stand for some."""
        return wrapped_in(result) if self.returns_tensors else result

    def arrangement(self, args: Args, numeric: bool) -> tuple[int, ...]:
        """What decides where among :meth:`tensors` an argument is: optional tensors that are
        absent, and lengths of lists, where other tensors come behind; and numbers.

        Args:
            args: the positional arguments.
            numeric: what :meth:`numeric` says of them.
        """
        count = len(args)
        places = self._places if numeric else self.shifting
        return tuple([_number(args[i]) if i < count else 0 for i in places])

    def settings(
        self, args: Args, kwargs: Kwargs, numeric: bool = False
    ) -> tuple[Settings, Sequence[str]] | None:
        """What tells operators apart outside of modules, and the names of these arguments."""
        places, keywords, names = self._settings[numeric]
        if not names:
            return None
        count = len(args)
        given = [setting(args[i]) if i < count else None for i in places]
        if keywords:
            given += [setting(kwargs.get(name)) for name in keywords]
        return tuple(given), names

    def attrs(self, args: Args, kwargs: Kwargs) -> Kwargs:
        """The arguments that are no tensors, by name, with the schema's defaults filled in.

        A number that stands for a tensor is one of them.
        """
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

    writes = True
    marks_dirty = True
    repeatable = False  # it is code of the program, which may do anything

    def __init__(self, function: Any) -> None:
        parameters = list(inspect.signature(function.forward).parameters.values())
        if function.setup_context is _default_setup_context():
            parameters = parameters[1:]  # forward(ctx, ...)
        names = [parameter.name for parameter in parameters]
        variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
        super().__init__(names, variadic)

    def result(self, tensors: Sequence[Tensor]) -> Any:
        """Tensors in the form in which most functions return them."""
        return tensors[0] if len(tensors) == 1 else tuple(tensors)


def _number(value: Any) -> int:
    """How many tensors an argument is."""
    if type(value) in (list, tuple):
        return sum(isinstance(element, Tensor) for element in value)
    return int(isinstance(value, Tensor))


def _holds_number(values: Sequence[Any]) -> bool:
    return any(type(value) in NUMBERS for value in values)


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


def _draws(overload: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in overload.tags


def _default_setup_context() -> Any:
    return SingleLevelFunction.setup_context
