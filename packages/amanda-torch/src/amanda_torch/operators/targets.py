"""A kernel stands in front of a target, which is given its arguments in few forms."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from amanda_torch._internals import count_function_modes, takes_numbers
from amanda_torch.frames import not_a_call_site
from amanda_torch.operators.bindings import binding_of
from amanda_torch.operators.composed import composition, is_whole
from amanda_torch.operators.resuming import past_us
from amanda_torch.operators.schema import OperatorSignature
from amanda_torch.overrides import overridden

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda_torch.operators.signature import Args, Kwargs, Signature

    Run = Callable[..., Any]

# Types of arguments that hold no tensors but by their own type, nor have a say in how they are
# passed on, as subclasses of tensors have.
_PLAIN = frozenset(
    (
        *(Tensor, torch.nn.Parameter, torch.Generator),
        *(type(None), bool, int, float, complex, str, list, tuple),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    )
)


class Form:
    """A form is one way in which an operator is given its arguments.

    Attributes:
        type: the operator's type.
        key: tells it apart from others at its place: with other tensors among its inputs it is
            another operator.
        signature: its signature.
        run: runs it, from the start.
        resume: runs it past our kernel, so that what it is made of may arrive at our kernels.
        numeric: whether numbers stand for tensors among the arguments.
        from_python: whether it is called by Python, and not by the dispatcher.
        is_whole: whether PyTorch transforms and differentiates it as one.
        places: positions of the tensors, where nothing but positional arguments is one, none of a
            subclass; else None.
        pick: takes the tensors from the positional arguments where they have places; else None.
    """

    def __init__(
        self,
        type: str,
        key: object,
        signature: Signature,
        run: Run,
        resume: Run,
        numeric: bool = False,
        places: tuple[int, ...] | None = None,
        from_python: bool = False,
        is_whole: bool = False,
    ) -> None:
        self.type = type
        self.key = key
        self.signature = signature
        self.run = overridden(run) if from_python else run
        self.resume = overridden(resume) if from_python else resume
        self.from_python = from_python
        self.is_whole = is_whole
        self.numeric = numeric
        self.places = places
        self.pick = None if places is None else _pick(places)

    def tensors(self, args: Args, kwargs: Kwargs) -> Sequence[Tensor]:
        """List the tensors among the arguments; see :meth:`Signature.tensors`."""
        return self.signature.tensors(args, kwargs) if self.pick is None else self.pick(args)

    def with_tensors(
        self, args: Args, kwargs: Kwargs, tensors: Sequence[Tensor]
    ) -> tuple[Args, Kwargs]:
        """Return the arguments with other tensors in the places that :meth:`tensors` found."""
        if self.places is None:
            return self.signature.with_tensors(args, kwargs, tensors)
        given = list(args)
        for i, tensor in zip(self.places, tensors, strict=True):
            given[i] = tensor
        return tuple(given), kwargs

    def form(self, args: Args, kwargs: Kwargs) -> Form:
        """Return this form: what has one form alone is its own target."""
        return self

    def guard(self, args: Args) -> Callable[[Args], bool]:
        """Return what tells whether other arguments are in this form; it may be unable to tell."""
        return _never if self.places is None else _guard(args, self.signature.tensor_places)


def _pick(places: tuple[int, ...]) -> Callable[[Args], Sequence[Tensor]]:
    start = places[0] if places else 0
    end = start + len(places)
    together = places == tuple(range(start, end))
    return itemgetter(slice(start, end)) if together else itemgetter(*places)


def _guard(args: Args, places: Sequence[int]) -> Callable[[Args], bool]:
    """Return what tells whether the types of other arguments' tensors are those of these."""
    count = len(args)
    found = [(i, type(args[i])) for i in places if i < count]
    if not 1 <= len(found) <= 3:
        types = tuple(map(type, args))
        return lambda args: tuple(map(type, args)) == types
    (a, of_a), (b, of_b), (c, of_c) = (*found, found[-1], found[-1])[:3]
    if len(found) == 1:
        return lambda args: len(args) == count and type(args[a]) is of_a
    return lambda args: (
        len(args) == count
        and type(args[a]) is of_a
        and type(args[b]) is of_b
        and type(args[c]) is of_c
    )


def _never(args: Args) -> bool:
    return False


class Target:
    """A target is an overload that a kernel stands in front of."""

    def __init__(self, type: str, name: str) -> None:
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        operator = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")
        self._type = type
        self._signature = OperatorSignature(operator)
        self._run = operator._op
        self._binding = binding_of(name)
        self._resume = composition(operator, past_us(name, operator))
        self._is_whole = is_whole(name)
        self._takes_numbers = namespace == "aten" and takes_numbers(packet)
        self._forms: dict[tuple[object, ...], Form] = {}
        self._by_types: dict[tuple[Any, ...], Form] = {}

    def form(self, args: Args, kwargs: Kwargs) -> Form:
        """Return the form of an execution; mostly the types of the positional arguments tell."""
        types = tuple(map(type, args))
        form = self._by_types.get(types)
        if form is not None and not count_function_modes():
            return form
        signature = self._signature
        numeric = signature.numeric(args, kwargs)
        key: object = self._type
        if numeric or signature.shifting:
            key = self._type, signature.arrangement(args, numeric)
        if not signature.types_tell or not _PLAIN.issuperset(types) or count_function_modes():
            return self._form(key, numeric, None)
        count = len(args)
        places = tuple(
            i for i in signature.tensor_places if i < count and isinstance(args[i], Tensor)
        )
        form = self._by_types[types] = self._form(key, numeric, places)
        return form

    def _form(self, key: object, numeric: bool, places: tuple[int, ...] | None) -> Form:
        known = self._forms.get((key, places))
        if known is None:
            run, resume = self._run, self._resume
            if numeric:
                run, resume = self._on_numbers()
            elif places is not None and self._binding is not None:
                run = self._binding
            whole = self._is_whole
            known = Form(
                self._type, key, self._signature, run, resume, numeric, places, is_whole=whole
            )
            self._forms[key, places] = known
        return known

    def _on_numbers(self) -> tuple[Run, Run]:
        """Return what runs and resumes it where numbers stand for tensors."""
        signature, run, resume = self._signature, self._run, self._resume
        takes_them = self._takes_numbers

        @not_a_call_site
        def run_numbers(*args: Any, **kwargs: Any) -> Any:
            if not takes_them:
                args, kwargs = signature.wrapped(args, kwargs)
            return signature.rewrapped(run(*args, **kwargs))

        @not_a_call_site
        def resume_numbers(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = signature.wrapped(args, kwargs)
            return signature.rewrapped(resume(*args, **kwargs))

        return run_numbers, resume_numbers


Forms: TypeAlias = Form | Target
"""What tells the form of an execution."""
