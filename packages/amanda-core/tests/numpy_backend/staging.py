"""Functions of the framework that are staged: run once on placeholders, and then as a graph.

The code of such a function, and of all modules that it calls, runs when it is staged and not when
it is called again, as with ``jax.jit`` and ``tf.function``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from numpy_backend.framework import Array, Tensor, Tensors, thread

Compute = Callable[..., Sequence[Array]]


class Graph:
    """What was computed while a function ran, to be computed again from other arrays.

    Its tensors are placeholders: they have the shape and dtype of what they stand for, and no
    value.
    """

    def __init__(self, inputs: Tensors) -> None:
        self._inputs = inputs
        self._steps: list[tuple[Compute, Tensors, Tensors]] = []
        self._tensors = {id(tensor): tensor for tensor in inputs}

    def __contains__(self, tensor: Tensor) -> bool:
        return id(tensor) in self._tensors

    def add(self, compute: Compute, inputs: Tensors, outputs: Tensors) -> None:
        """Have ``compute`` make the arrays of the outputs from those of the inputs."""
        self._steps.append((compute, inputs, outputs))
        self._tensors.update({id(tensor): tensor for tensor in outputs})

    def run(self, arrays: Sequence[Array], results: Tensors) -> list[Array]:
        """The arrays of some of its tensors, given those of its inputs."""
        known = dict(zip(map(id, self._inputs), arrays, strict=True))

        def value(tensor: Tensor) -> Array:
            return known[id(tensor)] if tensor in self else tensor.array

        for compute, inputs, outputs in self._steps:
            found = compute(*map(value, inputs))
            known.update(zip(map(id, outputs), found, strict=True))
        return [value(tensor) for tensor in results]


class _Known(NamedTuple):
    """A graph with its results, and what ``thread.key()`` gave when it was staged."""

    key: object
    graph: Graph
    results: Tensors


class Staged:
    """A function of named tensors, which is staged for each of their kinds and the other arguments.

    One that is called while another one is staged becomes part of that.
    """

    def __init__(self, function: Callable[..., Tensors]) -> None:
        self._function = function
        self._known: dict[Hashable, _Known] = {}

    def __call__(self, tensors: Mapping[str, Tensor], *static: Hashable) -> Tensors:
        if thread.graph is not None:
            return self._function(tensors, *static)
        kinds = ((n, t.array.shape, t.array.dtype, t.needs_gradient) for n, t in tensors.items())
        signature = (*kinds, *static)
        key, known = thread.key(), self._known.get(signature)
        if known is None or known.key is not key:
            known = self._known[signature] = _Known(key, *self._stage(tensors, static))
        arrays = known.graph.run([tensor.array for tensor in tensors.values()], known.results)
        return list(map(Tensor, arrays))

    def _stage(
        self, tensors: Mapping[str, Tensor], static: Sequence[Hashable]
    ) -> tuple[Graph, Tensors]:
        placeholders = {name: copy.copy(tensor) for name, tensor in tensors.items()}
        for placeholder in placeholders.values():
            placeholder.array = np.zeros_like(placeholder.array)
        thread.graph = graph = Graph(list(placeholders.values()))
        try:
            return graph, self._function(placeholders, *static)
        finally:
            thread.graph = None
