"""The dispatcher's schemas tell how its operators take their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from amanda_torch.operators.settings import setting
from amanda_torch.operators.signature import Signature
from amanda_torch.operators.wrapped import NUMBERS, wrapped_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda_torch.operators.settings import Settings
    from amanda_torch.operators.signature import Args, Kwargs

# Arguments that tell no operators apart: it is the same one in training and in evaluation, and on
# every device.
_INDIFFERENT = frozenset(("train", "training", "device", "layout", "memory_format", "pin_memory"))
# Arguments that operators on batches update in training, which their schemas do not say.
_UNDECLARED = frozenset(("running_mean", "running_var"))


class OperatorSignature(Signature):
    """This is the signature of an operator of the dispatcher.

    Attributes:
        types_tell: whether the types of the positional arguments tell where tensors are: none are
            in lists or given by name.
    """

    def __init__(self, overload: Any) -> None:
        schema = overload._schema
        super().__init__([argument.name for argument in schema.arguments])
        self._defaults = {
            a.name: a.default_value for a in schema.arguments if a.has_default_value()
        }
        self._read_writes(overload)
        self._read_results(schema)
        self._read_tensors(schema)
        self._read_settings(schema)

    def _read_writes(self, overload: Any) -> None:
        """Read from the schema where it writes."""
        schema = overload._schema
        written = [a for a in schema.arguments if a.alias_info and a.alias_info.is_write]
        changed = {a.name for a in written} | _UNDECLARED.intersection(self.names)
        draws = torch.Tag.nondeterministic_seeded in overload.tags
        # What an operator of another library does is not to be told from here.
        own = overload.namespace == "aten"
        self.draws = draws and own
        self.repeatable_on_copies = not draws and own
        self.repeatable = self.repeatable_on_copies and not changed
        self.reshapes = torch.Tag.inplace_view in overload.tags
        if schema.returns:  # else what is written and not returned is state (running means)
            returned = [r.alias_info.before_set for r in schema.returns if r.alias_info]
            written = [a for a in written if a.alias_info.before_set in returned]
        positional = {a.name for a in written if not a.kwarg_only}
        self.written = self._positions(positional)
        self.out = tuple(a.name for a in written if a.kwarg_only)
        self.state = self._positions(changed.difference(positional, self.out))
        self.writes = bool(written or self.state)

    def _read_results(self, schema: Any) -> None:
        """Read from the schema what it returns."""
        self.is_view = any(r.alias_info and not r.alias_info.is_write for r in schema.returns)
        kinds = [str(r.type) for r in schema.returns]
        self.has_gradient = self.writes or any("Tensor" in kind for kind in kinds)
        if kinds != ["List[Tensor]"]:
            self.returns = len(kinds)
            self.returns_tensors = all(kind == "Tensor" for kind in kinds)

    def _read_tensors(self, schema: Any) -> None:
        """Read from the schema which arguments are tensors."""
        tensors = [a for a in schema.arguments if "Tensor" in str(a.type)]
        named = [a.name for a in tensors if a.kwarg_only and a.name not in self.out]
        positional = [a for a in tensors if not a.kwarg_only]
        self.tensor_places = self._positions({a.name for a in positional})
        self._by_name = frozenset(named)
        shifting = {a.name for a in positional[:-1] if str(a.type) != "Tensor"}
        self.shifting = self._positions(shifting)
        self.types_tell = not named and not any("List" in str(a.type) for a in positional)

    def _read_settings(self, schema: Any) -> None:
        """Read what tells operators apart: with the numbers that stand for tensors, and without."""
        by_name = {a.name for a in schema.arguments if a.kwarg_only}
        tensors = {a.name for a in schema.arguments if "Tensor" in str(a.type)}
        told = set(self.names) - _INDIFFERENT - tensors
        numbers = tensors.difference(self.out)
        self._settings = {
            numeric: (
                self._positions(chosen - by_name),
                tuple(name for name in self.names if name in chosen & by_name),
                tuple(name for name in self.names if name in chosen),
            )
            for numeric, chosen in ((False, told), (True, told | numbers))
        }

    def _positions(self, names: set[str]) -> tuple[int, ...]:
        return tuple(i for i, name in enumerate(self.names) if name in names)

    def tensors(self, args: Args, kwargs: Kwargs) -> list[Tensor]:
        """List the tensors among the arguments, lists flattened; no destinations (``out=``)."""
        if self._by_name:
            return super().tensors(args, kwargs)
        found: list[Tensor] = []
        count = len(args)
        for i in self.tensor_places:
            if i >= count:
                break
            value = args[i]
            if isinstance(value, Tensor):
                found.append(value)
            elif type(value) is list:
                found += [element for element in value if isinstance(element, Tensor)]
        return found

    def numeric(self, args: Args, kwargs: Kwargs) -> bool:
        """Tell whether a number stands for a tensor among the arguments."""
        count = len(args)
        for i in self.tensor_places:
            if i >= count:
                break
            value = args[i]
            if type(value) in NUMBERS or (type(value) is list and _holds_number(value)):
                return True
        return bool(self._by_name) and any(
            type(kwargs.get(name)) in NUMBERS for name in self._by_name
        )

    def wrapped(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Return the arguments with tensors for the numbers that stand for some."""
        places, names = self.tensor_places, self._by_name
        return (
            tuple(wrapped_in(v) if i in places else v for i, v in enumerate(args)),
            {name: wrapped_in(v) if name in names else v for name, v in kwargs.items()},
        )

    def rewrapped(self, result: Any) -> Any:
        """Return what the operator returned, with tensors for the numbers that stand for some."""
        return wrapped_in(result) if self.returns_tensors else result

    def arrangement(self, args: Args, numeric: bool) -> tuple[int, ...]:
        """Return what decides where among :meth:`tensors` an argument is: optional tensors that are
        absent, and lengths of lists, where other tensors come behind; and numbers.

        Args:
            args: the positional arguments.
            numeric: what :meth:`numeric` says of them.
        """
        count = len(args)
        places = self.tensor_places if numeric else self.shifting
        return tuple([_number(args[i]) if i < count else 0 for i in places])

    def settings(
        self, args: Args, kwargs: Kwargs, numeric: bool = False
    ) -> tuple[Settings, Sequence[str]] | None:
        """Return what tells operators apart outside of modules, and these arguments' names."""
        places, keywords, names = self._settings[numeric]
        if not names:
            return None
        count = len(args)
        given = [setting(args[i]) if i < count else None for i in places]
        if keywords:
            given += [setting(kwargs.get(name)) for name in keywords]
        return tuple(given), names

    def attrs(self, args: Args, kwargs: Kwargs) -> Kwargs:
        """Return by name the arguments that are no tensors, with the schema's defaults in place.

        A number that stands for a tensor is one of them.
        """
        given = {name for name, _ in self.named(args, kwargs)}
        absent = {
            name: value
            for name, value in self._defaults.items()
            if name not in given and name not in self.out
        }
        attrs = super().attrs(args, kwargs) | absent
        return {name: attrs[name] for name in self.names if name in attrs}


def _number(value: Any) -> int:
    """Count how many tensors an argument is."""
    if type(value) in (list, tuple):
        return sum(isinstance(element, Tensor) for element in value)
    return int(isinstance(value, Tensor))


def _holds_number(values: Sequence[Any]) -> bool:
    return any(type(value) in NUMBERS for value in values)
