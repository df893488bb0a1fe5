"""Elements of tensors, on any backend, and arguments of operators may be finite or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import amanda
import numpy as np

from amanda_tools.tables import shape_text

if TYPE_CHECKING:
    from amanda import OpContext, TensorInfo

FINITE, INF, NAN = range(3)  # the worse, the larger
_FLOATS = ("float", "bfloat", "complex")


def is_float(ctx: OpContext, tensor: Any) -> bool:
    """Tell whether a tensor is one of floating-point or complex numbers."""
    return tensor is not None and ctx.describe(tensor).dtype.startswith(_FLOATS)


def worst_number(value: Any) -> int:
    """Return the worst of the numbers in an operator's attributes, of FINITE, INF and NAN."""
    if isinstance(value, (float, complex)):
        return _worst_of(np.asarray(value))
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return max(map(worst_number, value), default=FINITE)
    return FINITE


class Look:
    """A look is at the tensors of one execution.

    Attributes:
        unseen: why a tensor could not be looked at; None if all could.
    """

    def __init__(self, ctx: OpContext) -> None:
        self._ctx = ctx
        self.unseen: str | None = None

    def worst(self, tensor: Any) -> int:
        """Return the worst of a tensor's elements, of FINITE, INF and NAN."""
        if tensor is None:
            return FINITE
        info = self._ctx.describe(tensor)
        if not info.dtype.startswith(_FLOATS) or info.nbytes == 0:
            return FINITE
        if not self._is_accelerated(info):
            array = self._array(tensor)
            return FINITE if array is None else _worst_of(array)
        if not self._is_plain(info):
            return FINITE
        xp = self._ctx.xp  # where the tensor is, since to copy it would take longer
        if bool(xp.all(xp.isfinite(tensor))):
            return FINITE
        return NAN if bool(xp.any(xp.isnan(tensor))) else INF

    def count(self, tensor: Any, kind: int) -> int:
        """Count the elements of a tensor that are NaN, or infinite."""
        array = None if not is_float(self._ctx, tensor) else self._array(tensor)
        if array is None:
            return 0
        return int((np.isnan(array) if kind == NAN else np.isinf(array)).sum())

    def ranges(self, names: Sequence[str], tensors: Sequence[Any]) -> list[str]:
        """Tell in a few words what each tensor holds; those without names go by their place."""
        named = list(names) or [f"grad {i}" for i in range(len(tensors))]
        pairs = zip(named, tensors, strict=True)
        return [f"{name} {self._range(tensor)}" for name, tensor in pairs if tensor is not None]

    def _range(self, tensor: Any) -> str:
        info = self._ctx.describe(tensor)
        text = f"{info.dtype}[{shape_text(info.shape or ())}]"
        array = self._array(tensor) if info.dtype.startswith(_FLOATS) else None
        if array is None or not array.size or array.dtype.kind == "c":
            return text
        finite = array[np.isfinite(array)]
        bad = array.size - finite.size
        held = f"{finite.min():.4g} to {finite.max():.4g}" if finite.size else ""
        others = f"{bad:,} not finite" if bad else ""
        return f"{text} {', '.join(filter(None, (held, others)))}"

    def _is_accelerated(self, info: TensorInfo) -> bool:
        return info.device is not None and self._ctx.driver.allocated(info.device) is not None

    def _is_plain(self, info: TensorInfo) -> bool:
        if info.mapped or not info.is_dense:
            self.unseen = (
                "vmap gives no sample a value" if info.mapped else "its tensors are sparse"
            )
        return self.unseen is None

    def _array(self, tensor: Any) -> Any:
        """Return a tensor's elements as an array; None if they cannot be told."""
        try:
            return self._ctx.numpy(tensor)
        except amanda.ValueUnavailableError as error:
            self.unseen = str(error)
            return None


def _worst_of(array: Any) -> int:
    if array.dtype.kind not in "fc":
        return FINITE
    if np.isfinite(array).all():
        return FINITE
    return NAN if np.isnan(array).any() else INF
