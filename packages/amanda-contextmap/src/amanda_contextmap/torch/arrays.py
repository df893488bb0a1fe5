"""These operators move elements about: shapes, axes, parts of tensors, indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_contextmap.layout import MATRIX, Expanded, stacked
from amanda_contextmap.rule import axes, axis, constant, rule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from amanda_contextmap.layout import Layout
    from amanda_contextmap.native import Native
    from amanda_contextmap.rule import Rule


# Shapes


def _flattened(op: Native) -> list[int]:
    """Return the shape that flattens; a zero in it leaves a size as it is."""
    first, last = op.axis("start_dim", "self"), op.axis("end_dim", "self")
    return [0] * first + [-1] + op.sizes("self", slice(last + 1, None))


def _unflattened(op: Native) -> list[int]:
    dim = op.axis("dim", "self")
    return [0] * dim + list(op.value("sizes")) + op.sizes("self", slice(dim + 1, None))


def _to_matrix(op: Native) -> bool:
    """Tell whether it flattens to two axes."""
    return op.axis("start_dim", "self") == 1 and op.axis("end_dim", "self") == op.rank("self") - 1


def _expanded(op: Native) -> list[int]:
    """Return the shape that expands; a one in it leaves a size as it is, as in broadcasting."""
    return [1 if size == -1 else size for size in op.value("size")]


def _ones(op: Native) -> list[int]:
    """List all axes of size one."""
    return [i for i, size in enumerate(op.sizes("self")) if size == 1]


def _ones_among(op: Native) -> list[int]:
    """List those of the given axes that have size one; for the others ONNX has an error."""
    return [i for i in op.axes("dim", "self") if op.size("self", i) == 1]


def _inserted(op: Native) -> list[int]:
    dim: int = op.value("dim")
    return [dim + op.rank("self") + 1 if dim < 0 else dim]


def _for_each_axis(name: str) -> Callable[[Native], bool]:
    """Make the condition that a list has one element for each axis, and so adds none."""
    return lambda op: len(op.value(name)) == op.rank("self")


# Axes


def _swapped(first: str, second: str) -> Callable[[Native], list[int]]:
    def perm(op: Native) -> list[int]:
        order = list(range(op.rank("self")))
        i, j = op.axis(first, "self"), op.axis(second, "self")
        if not order:  # a number
            return order
        order[i], order[j] = order[j], order[i]
        return order

    return perm


def _moved(op: Native) -> list[int]:
    sources, destinations = op.axes("source", "self"), op.axes("destination", "self")
    order = [i for i in range(op.rank("self")) if i not in sources]
    for destination, source in sorted(zip(destinations, sources, strict=True)):
        order.insert(destination, source)
    return order


def _matrix_transposed(op: Native) -> list[int]:
    order = list(range(op.rank("self")))
    return [*order[:-2], *order[:-3:-1]]


def _reversed(op: Native) -> list[int]:
    return list(range(op.rank("self")))[::-1]


_SWAPPED = rule("Transpose", "data=self", perm=_swapped("dim0", "dim1"))
_MOVED = rule("Transpose", "data=self", perm=_moved)


# Parts of tensors

_END = 2**63 - 1  # past the end of any axis


def _slice(op: Native) -> Mapping[str, Any]:
    start, end = op.value("start"), op.value("end")
    return {
        "starts": [0 if start is None else start],
        "ends": [_END if end is None else end],
        "axes": op.axes("dim", "self"),
        "steps": [op.value("step")],
    }


def _narrow(op: Native) -> Mapping[str, Any]:
    dim, start = op.axis("dim", "self"), op.value("start")
    start = start + op.size("self", dim) if start < 0 else start
    return {
        "starts": [start],
        "ends": [start + op.value("length")],
        "axes": [dim],
        "steps": [1],
    }


def _split(op: Native) -> Mapping[str, Any]:
    """Return parts of one size, of which the last may be smaller, or of the sizes given."""
    sizes, dim = op.value("split_size"), op.axis("dim", "self")
    if isinstance(sizes, int):
        return _parts(dim, op.size("self", dim), sizes)
    return {"axis": dim, "split": list(sizes)}


def _chunks(op: Native) -> Mapping[str, Any]:
    dim = op.axis("dim", "self")
    size = op.size("self", dim)
    return _parts(dim, size, -(-size // op.value("chunks")))


def _parts(axis: int, size: int, part: int) -> Mapping[str, Any]:
    rest = size % part
    return {"axis": axis, "split": [part] * (size // part) + ([rest] if rest else [])}


def _pads(name: str) -> Callable[[Native], list[int]]:
    """Return the paddings as ONNX lists them; PyTorch lists pairs, from the last axis on."""

    def pads(op: Native) -> list[int]:
        given = op.value(name)
        before, after = [0] * op.rank("self"), [0] * op.rank("self")
        for i in range(len(given) // 2):
            before[-1 - i], after[-1 - i] = given[2 * i], given[2 * i + 1]
        return before + after

    return pads


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
_REFLECTED = rule("Pad", "data=self", pads=_pads("padding"), mode=constant("reflect"))
_REPLICATED = rule("Pad", "data=self", pads=_pads("padding"), mode=constant("edge"))


# Indices


_REDUCTIONS = {"add": "add", "sum": "add", "multiply": "mul", "prod": "mul"}
_REDUCTIONS |= {"amax": "max", "amin": "min"}


def _scattered(reduction: str, own: str | None = None) -> Rule:
    """Return the rule of a scattering whose reduction is told, or else is its ``own``."""

    def holds(op: Native) -> bool:
        told = op.get("reduce")
        named = own if told is None else _REDUCTIONS.get(told)
        return (
            op.has("src")
            and op.rank("self") > 0
            and named == reduction
            and op.get("include_self", True)
        )

    return rule(
        "ScatterElements",
        "data=self indices=index updates=src",
        when=holds,
        axis=axis("dim", "self"),
        reduction=constant(reduction),
    )


def _put_along_first(accumulate: bool) -> Callable[[Native], bool]:
    """Make the condition of ``x[i] = values``, with one tensor of numbers along the first axis."""

    def holds(op: Native) -> bool:
        return (
            len(op.places("indices")) == 1 == len(op.places("indices[0]"))
            and op.dtype("indices[0]") == "int64"
            and op.value("accumulate") is accumulate
            and op.shape("values") == op.shape("indices[0]") + op.shape("self")[1:]
            and not op.get("unsafe")
        )

    return holds


def _told(op: Native) -> bool:
    """Tell whether the number of classes is told, rather than found in the data."""
    return bool(op.value("num_classes") >= 0)


def _indexed_along(axis: int) -> Callable[[Native], bool]:
    """Make the condition that it indexes by one tensor of numbers along an axis: ``x[:, i]``."""
    name = f"indices[{axis}]"
    return lambda op: (
        len(op.places("indices")) == 1 == len(op.places(name))
        and (op.dtype(name) in ("int64", "int32"))
    )


def _of_one_rank(op: Native) -> bool:
    """Tell whether ranks agree; PyTorch passes over a tensor of shape (0,) among others."""
    return len({op.rank("tensors", i) for i in range(len(op.places("tensors")))}) == 1


_CONCAT = rule("Concat", "inputs=tensors", when=_of_one_rank, axis=axis("dim", "tensors"))
_SPLIT = rule("Split", "input=self", _split)
_SIZES = rule("Reshape", "data=self shape=size", when=lambda op: op.has("size"))


def _stacked(op: Native) -> tuple[int, Layout]:
    return stacked(op.value("dim"), op.rank("tensors"))


TABLE: dict[str, Rule | tuple[Rule, ...]] = {
    # shapes
    "view": _SIZES,
    "_unsafe_view": _SIZES,
    "reshape": rule("Reshape", "data=self shape=shape"),
    "view_as": rule("Reshape", "data=self", shape=lambda op: op.sizes("other")),
    "reshape_as": rule("Reshape", "data=self", shape=lambda op: op.sizes("other")),
    "flatten": (
        rule("Flatten", "input=self", when=_to_matrix, axis=1),
        rule("Reshape", "data=self", shape=_flattened),
    ),
    "ravel": rule("Reshape", "data=self", shape=[-1]),
    "unflatten": rule("Reshape", "data=self", shape=_unflattened),
    "squeeze": (
        rule("Squeeze", "data=self", when=lambda op: op.has("dim"), axes=_ones_among),
        rule("Squeeze", "data=self", axes=_ones),
    ),
    "unsqueeze": rule("Unsqueeze", "data=self", axes=_inserted),
    "expand": rule("Expand", "input=self", shape=_expanded),
    "broadcast_to": rule("Expand", "input=self", shape=_expanded),
    "expand_as": rule("Expand", "input=self", shape=lambda op: op.sizes("other")),
    "repeat": rule("Tile", "input=self repeats=repeats", when=_for_each_axis("repeats")),
    "tile": rule("Tile", "input=self repeats=dims", when=_for_each_axis("dims")),
    # axes
    "t": rule("Transpose", "data=self", perm=_reversed),
    "numpy_T": rule("Transpose", "data=self", perm=_reversed),
    "mT": rule("Transpose", "data=self", perm=_matrix_transposed),
    "transpose": _SWAPPED,
    "swapdims": _SWAPPED,
    "swapaxes": rule("Transpose", "data=self", perm=_swapped("axis0", "axis1")),
    "permute": rule("Transpose", "data=self", perm=axes("dims", "self")),
    "movedim": _MOVED,
    "moveaxis": _MOVED,
    # parts
    "cat": _CONCAT,
    "stack": rule(
        "Concat",
        "inputs=tensors",
        layouts={"inputs": lambda op: _stacked(op)[1]},
        axis=lambda op: _stacked(op)[0],
    ),
    "concat": _CONCAT,
    "concatenate": _CONCAT,
    "split": _SPLIT,
    "unsafe_split": _SPLIT,
    "split_with_sizes": rule("Split", "input=self split=split_sizes", axis=axis("dim", "self")),
    "chunk": rule("Split", "input=self", _chunks),
    "slice": rule("Slice", "data=self", _slice),
    "narrow": rule("Slice", "data=self", _narrow),
    "select": rule("Gather", "data=self indices=index", axis=axis("dim", "self")),
    "pad": rule(
        "Pad",
        "data=self constant_value=value",
        pads=_pads("pad"),
        mode=lambda op: _PAD_MODES[op.value("mode")],
    ),
    "constant_pad_nd": rule(
        "Pad", "data=self constant_value=value", pads=_pads("pad"), mode=constant("constant")
    ),
    **{f"reflection_pad{n}d": _REFLECTED for n in (1, 2, 3)},
    **{f"replication_pad{n}d": _REPLICATED for n in (1, 2, 3)},
    "triu": rule("Trilu", "input=self k=diagonal", upper=1),
    "tril": rule("Trilu", "input=self k=diagonal", upper=0),
    # indices
    "index_select": rule(
        "Gather",
        "data=self indices=index",
        when=lambda op: op.rank("self") > 0 and op.rank("index") == 1,
        axis=axis("dim", "self"),
    ),
    "index": tuple(
        rule("Gather", f"data=self indices=indices[{axis}]", when=_indexed_along(axis), axis=axis)
        for axis in range(4)
    ),
    "gather": rule(
        "GatherElements",
        "data=self indices=index",
        when=lambda op: op.rank("self") > 0,
        axis=axis("dim", "self"),
    ),
    "scatter": tuple(_scattered(how, own="none") for how in ("none", "add", "mul")),
    "scatter_add": _scattered("add", own="add"),
    "scatter_reduce": tuple(map(_scattered, ("add", "mul", "max", "min"))),
    "index_put": tuple(
        rule(
            "ScatterND",
            "data=self indices=indices[0] updates=values",
            when=_put_along_first(accumulate),
            layouts={"indices": Expanded(-1)},
            reduction=constant("add" if accumulate else "none"),
        )
        for accumulate in (False, True)
    ),
    "one_hot": rule(
        "OneHot", "indices=self depth=num_classes", when=_told, values=lambda op: [0, 1], axis=-1
    ),
    "nonzero": rule("NonZero", "X=self", outputs="Y", layouts={"Y": MATRIX}),
    "_unique2": rule(
        "Unique",
        "X=self",
        outputs="Y",
        when=lambda op: bool(op.value("sorted")),
        ignores="return_inverse return_counts",  # further outputs, which are hidden
        sorted=1,
    ),
}
