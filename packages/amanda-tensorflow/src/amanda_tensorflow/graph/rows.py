"""TensorFlow may have some rows of a gradient alone (``IndexedSlices``), as of an embedding.

Tools that speak TensorFlow's vocabulary are given the rows, the others the whole gradient, as they
are on backends that have no rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from amanda_tensorflow._internals import tensor_util
from amanda_tensorflow.notes import notes_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Rows(NamedTuple):
    """This says which tensors at a point belong to a gradient of which there are only some rows.

    Attributes:
        indices: position of the indices of the rows.
        shape: position of the shape of the whole.
        number: of all rows, None where only the shape tells.
    """

    indices: int
    shape: int
    number: int | None


def with_rows(
    graph: Any, gradients: Sequence[str | None]
) -> tuple[list[str | None], dict[int, tuple[int, int]]]:
    """List gradients, followed by the indices and shapes of those that are rows.

    Args:
        graph: the graph that they are in.
        gradients: their names; None where none flows.

    Returns:
        The names of all, and for each gradient that is rows, the positions of the indices and of
        the shape among them.
    """
    noted = notes_of(graph).rows
    names, places = list(gradients), {}
    for position, gradient in enumerate(gradients):
        if gradient in noted:
            places[position] = len(names), len(names) + 1
            names += noted[gradient]
    return names, places


def shown_whole(gradient: Any) -> Any:
    """Make a symbolic tensor with the shape and type of the whole of a gradient."""
    found = notes_of(gradient.graph).rows.get(gradient.name)
    if found is None:
        return gradient
    shape = tf.TensorShape([None]).concatenate(gradient.shape[1:])
    if found[1] is not None:
        told = gradient.graph.get_tensor_by_name(found[1])
        shape = shape.merge_with(tensor_util.constant_value_as_shape(told))
    with tf.Graph().as_default():
        return tf.compat.v1.placeholder(gradient.dtype.base_dtype, shape)


class State:
    """This holds the tensors at one point while routines run, each as routines have left it so far.

    Args:
        given: tensors by position.
        count: how many of the positions routines know of.
        rows: which tensors are gradients of which there are some rows.
    """

    def __init__(self, given: Mapping[int, Any], count: int, rows: Mapping[int, Rows]) -> None:
        self._given = given
        self._rows = rows
        self._now = [given.get(position) for position in range(count)]
        self._whole: dict[int, Any] = {}
        self._complete: set[int] = set()  # where routines left the whole

    def shown(self, whole: bool) -> list[Any]:
        """List the tensors as a routine is given them."""
        if not whole:
            return list(self._now)
        for position in self._rows.keys() - self._whole.keys():
            self._whole[position] = self._summed(position)
        return [self._whole.get(i, tensor) for i, tensor in enumerate(self._now)]

    def replace(self, before: Sequence[Any], after: Sequence[Any], whole: bool) -> None:
        """Take what a routine has left of what it was shown."""
        for position, (old, new) in enumerate(zip(before, after, strict=True)):
            if new is old:
                continue
            self._now[position] = new
            if whole and position in self._rows:
                self._complete.add(position)
            self._whole.pop(position, None)
            if position in self._complete:
                self._whole[position] = new

    def result(self, position: int) -> Any:
        """Return what is left of a tensor, or of the indices of one that is rows."""
        if position < len(self._now):
            return self._now[position]
        of = next(i for i, rows in self._rows.items() if rows.indices == position)
        indices = self._given[position]
        if of not in self._complete:
            return indices
        return tf.range(self._number(of), dtype=indices.dtype)

    def _summed(self, position: int) -> Any:
        indices = self._given[self._rows[position].indices]
        return tf.math.unsorted_segment_sum(self._now[position], indices, self._number(position))

    def _number(self, position: int) -> Any:
        """Return the number of all rows."""
        rows = self._rows[position]
        if rows.number is not None:
            return tf.constant(rows.number, self._given[rows.indices].dtype)
        return tf.cast(self._given[rows.shape][0], self._given[rows.indices].dtype)
