"""Drivers tell of tensors, of the parameters that they come from, and where these are kept."""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from amanda._operators.operator import Operator


T = TypeVar("T")


class Reference(weakref.ref[T]):
    """A reference is weak, and known to be of somebody who only tells objects apart.

    A framework may refuse to change what others refer to weakly; a driver sees to it that it does
    so for other references alone.
    """

    __slots__ = ()


class TensorInfo(NamedTuple):
    """A tensor's info is what there is to know of it beside its elements.

    Attributes:
        shape: a size is None where it is not known yet, as in a graph, or not one number, as that
            of the ragged dimension of a nested tensor. None where not even their number is known.
        dtype: as every framework spells it: ``float32``, ``bool``, ``complex64``.
        nbytes: the size of the elements that are stored; None where it is not known.
        device: as the framework names it: ``cpu``, ``cuda:0``; None where it is not known.
        is_dense: whether it stores an element for each place of its shape, as a sparse tensor
            does not.
        requires_grad: whether the framework will compute a gradient through it, as far as it shows.
        mapped: within a function that is mapped over tensors (``vmap``), the sizes of the
            dimensions that its code does not see, each behind the level of the mapping. They are
            not in ``shape``; ``nbytes`` is of the whole.
    """

    shape: tuple[int | None, ...] | None
    dtype: str
    nbytes: int | None
    device: str | None
    is_dense: bool = True
    requires_grad: bool = False
    mapped: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """A parameter of a model is told by what the framework keeps of it.

    Attributes:
        source: what the framework keeps of it as long as the model lives: the same object whenever
            an operator is given the parameter, and no other one's. It can be referred to weakly,
            by a :class:`Reference`.
        info: its shape, dtype, size and device.
        trainable: whether it is meant to be trained; None where the framework does not tell.
    """

    source: Any
    info: TensorInfo
    trainable: bool | None


class Stored(abc.ABC):
    """This tells what part of which parameter of a model an operator is given, and writes to it.

    It does not keep the parameter alive.
    """

    @abc.abstractmethod
    def source(self, model: Any) -> Any:
        """Return the parameter, as ``Parameter.source`` has it, if ``model`` has it; else None."""

    @abc.abstractmethod
    def read(self, model: Any) -> Any:
        """Return what the operator is given, as a tensor of its own.

        Raises:
            UnsupportedError: it is not known how that comes from the parameter.
        """

    @abc.abstractmethod
    def write(self, model: Any, tensor: Any) -> Callable[[], object]:
        """Have the parameter hold what :meth:`read` then gives again, as far as it can.

        Elements of which it gives that already stay as they are: where the operator is given them
        in a lower type, the parameter keeps their digits.

        Returns:
            What has the parameter hold again what it did, when it is called.
        """

    def taken_elsewhere(self, model: Any, seen: Sequence[Operator]) -> str | None:
        """Name what takes the parameter too, beside operators of the model that a tool has seen.

        Args:
            model: what has the parameter.
            seen: all operators that are given a part of it and that the tool has seen.

        Returns:
            An operator, or a part of the model; None if none is known to.
        """
        return None

    def places(self) -> Any:
        """Return, for each element that the operator is given, its place in the flat parameter.

        It is an array of NumPy, or None where these places are not known.
        """
        return None
