"""Two tools change what an operator or module returns: steer adds to it, patch replaces it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import amanda
import numpy as np

from amanda_tools.activations import read_tensors
from amanda_tools.formats import Saving
from amanda_tools.place import source_text

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    Array: TypeAlias = np.ndarray[Any, Any]


@dataclass
class Changed:
    """A changed output is the first one of an operator or module.

    Attributes:
        id, type, scope: the operator, or the module as one.
        source: file and line of the program's code that runs it; None if nobody can tell.
        tokens: at which places along the second axis; None for all.
    """

    id: str
    type: str
    scope: str
    source: str | None
    tokens: list[int] | None


class Change(Saving[Changed], amanda.Tool):
    """This is a base of tools that change the first output of one operator or module.

    Args:
        operator: the operator's id.
        module: the module's path.
        tokens: at which places along the second axis, negative ones counted from the end; all by
            default. A call that has no such place, as a later step of a generation, is left as it
            is.
        out: a file to write when the scope is left, a row for each operator or module that is
            changed, as JSON or CSV by its ending.

    Raises:
        OSError: the file cannot be written.
        ValueError: not exactly one of operator and module is named, or the name of the file ends in
            something else.
    """

    row_type = Changed
    rows_name = "changed"

    def __init__(
        self,
        operator: str | None,
        module: str | None,
        tokens: Sequence[int] | None,
        out: str | os.PathLike[str] | None,
    ) -> None:
        super().__init__()
        self.save_to(out)
        if (operator is None) == (module is None):
            raise ValueError(f"{self.name}: name an operator or a module, and not both")
        self.place = str(module if operator is None else operator)
        self.tokens = None if tokens is None else list(tokens)
        self._met: set[str] = set()
        self._changed: dict[str, Changed] = {}
        if operator is None:
            self.add_inst_for_module(self._insert, modules=[self.place], require_outputs=True)
        else:
            scopes = [self.place.rpartition("/")[0]]
            self.add_inst_for_op(self._look, scopes=scopes, require_outputs=True)

    def insert(self, ctx: amanda.OpContext) -> None:
        """Insert what changes the output."""
        raise NotImplementedError

    def rows(self) -> list[Changed]:
        """List what is changed, in the order in which it first ran: one row a call of a module."""
        return list(self._changed.values())

    def found(self) -> str:
        """Tell how many outputs are changed, and where."""
        return f"{len(self._changed):,} outputs changed at {self.place!r}"

    def report(self) -> str:
        """Tell how many outputs are changed, and in which file that is written."""
        return self.and_saved(f"{type(self).__name__.lower()}: {self.found()}")

    def on_exit(self) -> None:
        """Say so if the place did not run."""
        super().on_exit()
        if not self._changed:
            near = f"; there ran {', '.join(sorted(self._met)[:8])}" if self._met else ""
            warnings.warn(
                f"{self.name}: {self.place!r} did not run, and nothing was changed{near}; "
                "`amanda ops` lists what does",
                amanda.AmandaWarning,
                stacklevel=2,
            )

    def _look(self, ctx: amanda.OpContext) -> None:
        self._met.add(ctx.op.id)
        if ctx.op.id == self.place:
            self._insert(ctx)

    def _insert(self, ctx: amanda.OpContext) -> None:
        op = ctx.op
        self._changed[op.id] = Changed(op.id, op.type, op.scope, source_text(op), self.tokens)
        self.insert(ctx)

    def fitting(self, ctx: amanda.OpContext, values: Array) -> Array:
        """Return values in the type of the output, or in single precision if NumPy lacks it.

        Raises:
            UnsupportedError: that type has no such values, as integers have no fractions.
        """
        dtype = ctx.describe(ctx.outputs[0]).dtype
        lacks = "float" in dtype and dtype not in ("float16", "float32", "float64")
        held = "float32" if lacks else dtype
        if not np.can_cast(values.dtype, held, "same_kind"):
            raise amanda.UnsupportedError(
                f"{self.name}: {ctx.op.named} gives {dtype}, which cannot hold the {values.dtype} "
                "to put there; name an operator or module that gives such numbers, or cast them"
            )
        return values.astype(held)

    def at_tokens(self, xp: Any, output: Any, change: Callable[[Any, Any], Any]) -> Any:
        """Return the output with a change at the chosen places.

        ``change`` is given a part of the output, and the slice of the second axis that it is.
        """
        if self.tokens is None:
            return change(output, slice(None))
        for token in self.tokens:
            at = slice(token, None if token == -1 else token + 1)
            after = output[:, :0] if token == -1 else output[:, at.stop :]
            parts = [output[:, :token], change(output[:, at], at), after]
            output = xp.concat(parts, axis=1)
        return output


class Steer(Change):
    """Adds a vector to what an operator or module returns, as in activation addition (Turner et
    al., 2023).

    Args:
        vector: what to add: of the size of the last axis, or of any shape that fits; or the name of
            a file (.npy) that holds it.
        operator: id of the operator whose first output is changed.
        module: path of the module whose first output is changed.
        tokens: the places along the second axis; all by default. See :class:`Change`.
        scale: what the vector is multiplied by.
        out: a file to write when the scope is left, a row for each operator or module that is
            changed, as JSON or CSV by its ending.

    Raises:
        OSError: a file cannot be read, or written.
        ValueError: not exactly one of operator and module is named, or the name of the file to
            write ends in something else.
    """

    def __init__(
        self,
        vector: ArrayLike | str,
        operator: str | None = None,
        module: str | None = None,
        tokens: Sequence[int] | None = None,
        scale: float = 1.0,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(operator, module, tokens, out)
        is_path = isinstance(vector, (str, os.PathLike))
        self._vector = np.asarray(np.load(vector) if is_path else vector) * scale  # type: ignore[arg-type]

    def insert(self, ctx: amanda.OpContext) -> None:
        """Insert the addition."""
        vector = ctx.variable("vector", self.fitting(ctx, self._vector))
        ctx.insert_after_op(self._steered, outputs=[0], pure=True, xp=ctx.xp, vector=vector)

    def _steered(self, output: Any, xp: Any, vector: Any) -> Any:
        added = xp.astype(vector, output.dtype)
        return self.at_tokens(xp, output, lambda part, at: part + added)


class Patch(Change):
    """Puts what another run returned where an operator or module returns its own: activation
    patching, or causal tracing (Meng et al., NeurIPS 2022).

    What to put is what :class:`Activations` captured at the same place, there or in a file, or an
    array. One that has the shape of the output is put place by place; any other is broadcast.

    Args:
        values: the array; or several by the names of their places, as ``captures()`` gives them; or
            the name of a file (.npz, .safetensors) of these.
        operator: id of the operator whose first output is changed.
        module: path of the module whose first output is changed.
        tokens: the places along the second axis; all by default. See :class:`Change`.
        out: a file to write when the scope is left, a row for each operator or module that is
            changed, as JSON or CSV by its ending.

    Raises:
        LookupError: the values have none for that place.
        OSError: a file cannot be read, or written.
        ValueError: not exactly one of operator and module is named, or the name of the file to
            write ends in something else.
    """

    def __init__(
        self,
        values: ArrayLike | Mapping[str, ArrayLike] | str,
        operator: str | None = None,
        module: str | None = None,
        tokens: Sequence[int] | None = None,
        out: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(operator, module, tokens, out)
        found: Any = values
        if isinstance(values, (str, os.PathLike)):
            found = read_tensors(values)
        if isinstance(found, Mapping):
            if self.place not in found:
                known = ", ".join(sorted(found)[:8])
                raise LookupError(f"Patch: there is no value for {self.place!r}, but for {known}")
            found = found[self.place]
        self._values = np.array(found)

    def insert(self, ctx: amanda.OpContext) -> None:
        """Insert what puts the values there."""
        values = ctx.variable("values", self.fitting(ctx, self._values))
        ctx.insert_after_op(self._patched, outputs=[0], xp=ctx.xp, values=values)

    def _patched(self, output: Any, xp: Any, values: Any) -> Any:
        cast = xp.astype(values, output.dtype)
        whole = tuple(values.shape)[1:] == tuple(output.shape)[1:]

        def put(part: Any, at: slice) -> Any:
            taken = cast[:, at] if whole and self.tokens is not None else cast
            if 0 in part.shape:
                return part
            _check_fit(taken, part)
            return xp.broadcast_to(taken, part.shape)

        return self.at_tokens(xp, output, put)


def _check_fit(values: Any, output: Any) -> None:
    given, there = tuple(values.shape), tuple(output.shape)
    ends = zip(reversed(given), reversed(there), strict=False)
    if len(given) > len(there) or any(size not in (1, other) for size, other in ends):
        raise ValueError(
            f"values of shape {given} do not fit what is replaced there, of shape {there}; give "
            "those of a run whose inputs have the same shapes, or of one example for all"
        )
