"""A path is extracted from the scores of one pass back along the graph, example by example."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import amanda
import numpy as np

from amanda_tools.effective_path.synapses import RULES, Ran

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from amanda.driving import Layouts

    from amanda_tools.effective_path.synapses import Array, Carried
    from amanda_tools.graph import Network

    # An operator, how many of its outputs are on the path, and which of their addends.
    Layer = tuple[amanda.Operator, int, Array]


_ELEMENTWISE = frozenset(["Add", "Sub", "Mul", "Div"])
_LAYERS = frozenset(
    ["Conv", "Gemm", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"]
)
_UNCHANGED = frozenset(["Cast", "Identity"])  # what they give is what they take
_SUMS = _LAYERS | {"ReduceMax", "ReduceMean", "ReduceSum", "Add", "Sub"}


@dataclass
class Execution:
    """This is what is known of an operator at all its executions.

    Attributes:
        operator, attrs, layouts: as its analysis shows them.
        data: the indices of its inputs that may flow through it.
        inputs: how many inputs there are.
    """

    operator: amanda.Operator
    attrs: Mapping[str, Any]
    layouts: Layouts
    data: Sequence[int]
    inputs: int

    @property
    def whole(self) -> bool:
        """Tell whether the values of the inputs' elements matter, and not their shapes alone."""
        return self.operator.type in _SUMS

    @property
    def alike(self) -> bool:
        """Tell whether elements flow through it to the same places, from any of its inputs."""
        return self.operator.type in _ELEMENTWISE

    def kept(self, ctx: amanda.OpContext, tensor: Any, whole: bool) -> Array:
        """Return a copy of a tensor, or an array of its shape that takes no room."""
        if whole:
            return np.array(ctx.numpy(tensor))
        return np.broadcast_to(np.zeros((), bool), tuple(map(int, tensor.shape)))

    def canonical(self, output: int, mask: Array) -> Array:
        """Return a mask of an output in the tool's layout, without the axis of examples."""
        whole: Array = _turned(self.layouts.outputs, output, mask, "to_canonical")[0]
        return whole

    def native(self, input: int, mask: Array) -> Array:
        """Return a mask of an input in the backend's layout, with an axis of examples."""
        return _turned(self.layouts.inputs, input, mask[None], "to_native")

    def error(self, why: str) -> amanda.UnsupportedError:
        """Make the error for an operator through which no path can be followed."""
        return _error(self.operator.named, why)


@dataclass
class Pass:
    """A pass has its executions in order, with their inputs and outputs."""

    ran: dict[str, tuple[Execution, Sequence[Array], Sequence[Array]]] = field(default_factory=dict)

    def __contains__(self, id: str) -> bool:
        return id in self.ran

    def add(self, execution: Execution, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Take note of an execution."""
        self.ran[execution.operator.id] = execution, inputs, outputs

    def paths(
        self, network: Network, scores: str | None, share: float, outside: Collection[str]
    ) -> tuple[int, Iterator[tuple[int, Sequence[Layer]]]]:
        """Return the number of examples, and for each its class and the layers on its path.

        Args:
            network: what flows from where to where.
            scores: id of the operator that gives the scores; None for the last linear layer.
            share: of a neuron's value that its synapses have to give.
            outside: ids of operators that are in no model, as far as anybody can tell.

        Raises:
            UnsupportedError: there are no scores, or the path leads to an operator that has no
                rule.
        """
        if self._prepares(scores, outside):
            return 0, iter(())
        first = self._scores(network, scores)
        (values,) = self.ran[first][2]
        if values.ndim != 2:
            raise self.ran[first][0].error(
                f"its output of shape {values.shape} is no (examples, classes)"
            )
        ends = () if first in outside else outside

        def path(example: int, label: int) -> tuple[int, Sequence[Layer]]:
            start = np.zeros((1, values.shape[1]), bool)
            start[0, label] = True
            return label, list(self._layers(network, first, start, example, share, ends))

        labels = map(int, values.argmax(axis=1))
        return len(values), itertools.starmap(path, enumerate(labels))

    def _prepares(self, scores: str | None, outside: Collection[str]) -> bool:
        """Tell whether nothing of a model ran: data, or the weights, were made ready."""
        types = {ran.operator.type for ran, *_ in self.ran.values()}
        return scores not in self.ran and self.ran.keys() <= set(outside) and not types & _LAYERS

    def _scores(self, network: Network, named: str | None) -> str:
        """Return the id of the operator that gives the scores of the classes."""
        if named is not None:
            if named not in self.ran:
                raise amanda.UnsupportedError(
                    f"EffectivePath: the scores {named!r} were not given in this pass, which has "
                    f"{', '.join(self.ran)}"
                )
            return named
        linear = [id for id, (ran, *_) in self.ran.items() if ran.operator.type == "Gemm"]
        if not linear:
            raise amanda.UnsupportedError(
                "EffectivePath: no linear layer ran that could give the scores of classes; name "
                "the operator that does by scores="
            )
        last = following = linear[-1]
        while len(after := network.consumers(following)) == 1:
            following = after[0].consumer
            if following not in self.ran:
                break
            execution = self.ran[following][0]
            if execution.operator.type == "Add" and len(execution.data) == 1:
                last = following
            elif execution.operator.type not in _UNCHANGED:
                break
        return last

    def _layers(
        self,
        network: Network,
        first: str,
        start: Array,
        example: int,
        share: float,
        ends: Collection[str],
    ) -> Iterator[Layer]:
        active: dict[tuple[str, int], Array] = {(first, 0): start}
        ahead = False  # whether this operator ran before the scores were given, or gives them
        for id, (execution, inputs, outputs) in reversed(self.ran.items()):
            ahead = ahead or id == first
            found = [active.pop((id, index), None) for index in range(len(outputs))]
            is_layer = ahead and execution.operator.type in _LAYERS  # listed off the path too
            if id in ends or not (is_layer or any(mask is not None for mask in found)):
                continue
            masks = [
                np.zeros(output.shape[1:], bool)
                if mask is None
                else execution.canonical(index, mask)
                for index, (mask, output) in enumerate(zip(found, outputs, strict=True))
            ]
            carried = self._carried(execution, inputs, outputs, masks, example, share)
            if carried.synapses is not None:
                neurons = sum(int(mask.sum()) for mask in masks)
                yield execution.operator, neurons, carried.synapses
            for index, mask in carried.inputs.items():
                if mask.any():
                    self._pass_on(network, execution, index, mask, active)
        for id, _ in active:
            if id not in self.ran and id not in ends and network.predecessors(id):
                raise _error(f"{id!r} ({network.nodes[id].type})", "it has no rule for that type")

    def _carried(
        self,
        execution: Execution,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        masks: Sequence[Array],
        example: int,
        share: float,
    ) -> Carried:
        """Tell what carries the active outputs of an execution, by the rule for its type."""
        data = [i for i in execution.data if inputs[i].shape[:1] == outputs[0].shape[:1]]
        if execution.alike:  # what has fewer axes is a constant or a statistic
            data = [i for i in data if inputs[i].ndim == outputs[0].ndim]
        elif not data:
            raise execution.error("its first axis is not that of examples all along")
        ran = Ran(
            [x[example] if i in data else x for i, x in enumerate(inputs)],
            [y.shape[1:] for y in outputs],
            execution.attrs,
            data,
        )
        try:
            carried = RULES[execution.operator.type](ran, masks, share)
        except (ValueError, LookupError, TypeError) as error:
            raise execution.error(str(error)) from error
        if not carried.inputs:
            raise execution.error("none of its inputs has the shape of its output")
        return carried

    def _pass_on(
        self,
        network: Network,
        execution: Execution,
        index: int,
        mask: Array,
        active: dict[tuple[str, int], Array],
    ) -> None:
        """Have what makes an input be active where the input is."""
        native = execution.native(index, mask)
        edges = network.producers(execution.operator, index)
        # in other passes other operators made it, as in training a normalization spelled out
        for edge in [edge for edge in edges if edge.producer in self.ran] or edges:
            made = edge.producer, edge.output
            before = active.get(made)
            if before is not None and before.shape != native.shape:
                raise execution.error(f"its input {edge.name} is a part of what {made[0]!r} gives")
            active[made] = native if before is None else before | native


def _turned(layouts: Sequence[Any], index: int, mask: Array, to: str) -> Array:
    """Return a mask in another layout."""
    layout = layouts[index] if index < len(layouts) else None
    return mask if layout is None else np.asarray(getattr(layout, to)(mask, np), bool)


def _error(operator: str, why: str) -> amanda.UnsupportedError:
    return amanda.UnsupportedError(
        f"EffectivePath: the path cannot be followed through {operator}: {why}; take a model of "
        "convolutions, linear layers, pooling, normalization, activation functions, additions and "
        "concatenations, or name scores ahead of it"
    )
