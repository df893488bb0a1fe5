"""The tool ``Record`` keeps what each operator gave, small enough to compare with another run."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import amanda
import numpy as np

from amanda_tools.charts import bars
from amanda_tools.formats import Saving, text_of
from amanda_tools.pictures import Pictured
from amanda_tools.place import source_text

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from rich.console import RenderableType

    from amanda_tools.charts import Chart

_NUMBERS = ("float", "bfloat", "complex", "int", "uint", "bool")
# The entries of a file that have all but samples, and why that is not all of the run.
_META, _PARTIAL = "recorded", "partial"


@dataclass
class Recorded:
    """This is a tensor that an operator gave at one execution.

    Attributes:
        id, type, scope: the operator, as ONNX calls it where it has a name there.
        source: file and line of the program's code that runs it, or made its node of a graph; None
            if nobody can tell.
        backend: the backend that ran it.
        direction: ``forward`` for an output, ``backward`` for the gradient of an input.
        tensor: the number of the output, or the name of the input.
        iteration: how many times the operator had run before.
        dtype, shape: of the tensor, in ONNX's layout.
        digest: of all its bytes: equal for equal tensors, and hardly ever for others.
        mean, std, least, most: of the elements that are finite; None if there are none.
        nonfinite: how many elements are not.
    """

    id: str
    type: str
    scope: str
    source: str | None
    backend: str
    direction: str
    tensor: str
    iteration: int
    dtype: str
    shape: list[int]
    digest: str
    mean: float | None
    std: float | None
    least: float | None
    most: float | None
    nonfinite: int


class Run(NamedTuple):
    """This is what was recorded of a run.

    Attributes:
        rows: the tensors, in the order in which they were given.
        samples: values of each of them: all, or as many as were to be kept, evenly spaced.
        partial: why that is not all of it; None if it is.
    """

    rows: Sequence[Recorded]
    samples: Sequence[Any]
    partial: str | None = None


class Record(Pictured[Recorded], Saving[Recorded], amanda.Tool):
    """Records what operators give: statistics, a digest, and some values of each tensor.

    Two records are compared by ``amanda compare`` or :func:`amanda_tools.compare_records`.
    Operators are named and tensors are laid out as in ONNX, so that they may be of different
    frameworks.

    Args:
        out: a file to write when the scope is left: a record to compare (.npz), or statistics
            alone, as JSON, CSV or a picture (.svg), by its ending.
        values: how many values of a tensor are kept, evenly spaced; ``all`` for all of them.
        iterations: how many executions of each operator are recorded, the first ones.
        gradients: record the gradients of what operators take, too.
        ops: types of operators; all by default.
        scopes: globs of their scopes.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else, or an option is out of range.
    """

    row_type = Recorded
    rows_name = "tensors"
    endings = (".npz", *Pictured.endings)

    def __init__(
        self,
        out: str | os.PathLike[str] | None = None,
        values: int | Literal["all"] = 1024,
        iterations: int = 10,
        gradients: bool = False,
        ops: list[str] | None = None,
        scopes: list[str] | None = None,
    ) -> None:
        super().__init__(namespace="onnx")
        if iterations < 1 or (values != "all" and values < 1):
            raise ValueError("values and iterations have to be 1 or more")
        self.save_to(out)
        self._values, self._iterations = values, iterations
        self._rows: list[Recorded] = []
        self._samples: list[Any] = []
        self._unseen: set[str] = set()
        self._lock = threading.Lock()
        self.add_inst_for_op(self._forward, ops=ops, scopes=scopes)
        if gradients:
            self.add_inst_for_gradient(self._backward, ops=ops, scopes=scopes)

    def run(self) -> Run:
        """Return what was recorded."""
        return Run(list(self._rows), list(self._samples), self.partial)

    def rows(self) -> list[Recorded]:
        """Return the tensors, in the order in which they were given."""
        return list(self._rows)

    def found(self) -> str:
        """Tell how many tensors were recorded, of how many operators."""
        operators = {row.id for row in self._rows}
        return f"{len(self._rows):,} tensors of {len(operators):,} operators"

    def charts(self) -> list[Chart]:
        """Draw the spread of each tensor's elements, at the first execution of its operator."""
        spread = {
            f"{row.id} {row.tensor}": row.std
            for row in self._rows
            if row.iteration == 0 and row.std is not None
        }
        return [bars("Standard deviation", {"std": spread})]

    def report(self) -> list[RenderableType]:
        """Tell how much was recorded, and where it is."""
        said = self.and_saved(f"record: {self.found()}")
        if self._unseen:
            said += f"; no values are known of {len(self._unseen):,} operators"
        return [said]

    def text(self, ending: str) -> str | bytes:
        """Return what was recorded, in the format of an ending."""
        return packed(self.run()) if ending == ".npz" else text_of(self, ending)

    def _forward(self, ctx: amanda.OpContext) -> None:
        ctx.insert_after_op(_Site(self, ctx, "forward", None).record)

    def _backward(self, ctx: amanda.OpContext) -> None:
        ctx.insert_on_grad_inputs(_Site(self, ctx, "backward", list(ctx.input_names)).record)

    def keep(self, site: _Site, tensors: Sequence[Any]) -> None:
        """Record what an operator gave, unless that is enough of it."""
        with self._lock:
            iteration = site.executions
            site.executions += 1
        if iteration >= self._iterations:
            return
        for index, tensor in enumerate(tensors):
            if tensor is None:
                continue
            info = site.ctx.describe(tensor)
            if not info.dtype.startswith(_NUMBERS):
                continue
            try:
                array = site.ctx.numpy(tensor)
            except amanda.ValueUnavailableError:
                self._unseen.add(site.operator.id)
                continue
            row = site.row(index, iteration, info.dtype, array)
            with self._lock:
                self._rows.append(row)
                self._samples.append(_sampled(array, self._values))


class _Site:
    """A site is an operator in one direction, forward or backward, with the routine there."""

    def __init__(
        self, tool: Record, ctx: amanda.OpContext, direction: str, names: Sequence[str] | None
    ) -> None:
        self.tool = tool
        self.ctx = ctx
        self.operator = ctx.op
        self.direction = direction
        self.names = names
        self.source = source_text(ctx.op)
        self.executions = 0

    def record(self, *tensors: Any) -> None:
        self.tool.keep(self, tensors)

    def row(self, index: int, iteration: int, dtype: str, array: Any) -> Recorded:
        operator = self.operator
        tensor = str(index) if self.names is None else self.names[index]
        mean, std, least, most, nonfinite = _statistics(array)
        return Recorded(
            id=operator.id,
            type=operator.type,
            scope=operator.scope,
            source=self.source,
            backend=operator.backend,
            direction=self.direction,
            tensor=tensor,
            iteration=iteration,
            dtype=dtype,
            shape=list(array.shape),
            digest=_digest(array),
            mean=mean,
            std=std,
            least=least,
            most=most,
            nonfinite=nonfinite,
        )


def packed(run: Run) -> bytes:
    """Return a run as the bytes of a file that :func:`unpacked` reads."""
    arrays = {f"{index}": sample for index, sample in enumerate(run.samples)}
    arrays[_META] = np.frombuffer(json.dumps([asdict(row) for row in run.rows]).encode(), np.uint8)
    if run.partial is not None:
        arrays[_PARTIAL] = np.frombuffer(run.partial.encode(), np.uint8)
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def unpacked(path: str | os.PathLike[str]) -> Run:
    """Return the run that was recorded in a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no record.
    """
    data = Path(path).read_bytes()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            rows = [Recorded(**row) for row in json.loads(file[_META].tobytes())]
            samples = [file[str(index)] for index in range(len(rows))]
            partial = file[_PARTIAL].tobytes().decode() if _PARTIAL in file else None
            return Run(rows, samples, partial)
    except (KeyError, TypeError, AttributeError, ValueError, EOFError) as error:
        raise ValueError(f"{path} is no record; --tool record:out=run.npz makes one") from error


def positions(size: int, values: int | Literal["all"]) -> Any:
    """Choose the places in a flat tensor of which values are kept, by its size alone."""
    if values == "all" or size <= values:
        return np.arange(size)
    return np.linspace(0, size - 1, values).astype(np.int64)


def _sampled(array: Any, values: int | Literal["all"]) -> Any:
    return array.reshape(-1)[positions(array.size, values)]


def _digest(array: Any) -> str:
    return hashlib.blake2b(np.ascontiguousarray(array).data, digest_size=12).hexdigest()


def _statistics(array: Any) -> tuple[float | None, float | None, float | None, float | None, int]:
    """Return mean, standard deviation, least and most of what is finite, and how much is not."""
    finite = np.isfinite(array)
    numbers = np.abs(array) if array.dtype.kind == "c" else array
    numbers = numbers[finite].astype(np.float64)
    if not numbers.size:
        return None, None, None, None, int(array.size)
    return (
        *(float(numbers.mean()), float(numbers.std())),
        *(float(numbers.min()), float(numbers.max()), int(array.size - numbers.size)),
    )
