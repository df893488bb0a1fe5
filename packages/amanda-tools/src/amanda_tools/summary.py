"""The tool ``Summary`` tells a model module by module, with shapes, parameters, FLOPs, memory."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import amanda

from amanda_tools.flops import Flops
from amanda_tools.flops.counter import elements_of
from amanda_tools.formats import Saving
from amanda_tools.numbering import Numbering
from amanda_tools.place import Place, labels
from amanda_tools.report import count
from amanda_tools.summary_table import SummaryTable

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from amanda_tools.flops.counter import Counted
    from amanda_tools.place import Model


@dataclass
class ModuleSummary:
    """This is one module, with all that is in it.

    Attributes:
        model: the model that it is in: its class, with ``#2`` for the second one of it.
        path: where it is there, ``encoder.layer.0``; empty for the model as a whole.
        type: its class, or its name where the driver knows no classes.
        depth: how many modules it is in.
        input_shape: of the first tensor that it is given. None if there is none, and for a size
            that a graph does not know. Where the driver sees no call of it, of the first tensor
            with dimensions, parameters left out, that its operators are given.
        output_shape: of the first tensor that it gives, or else that its last operator gives.
        params: elements of the parameters that operators in it are given, each parameter once.
        trainable: those of them that are not known to be kept as they are.
        param_bytes: the size of the parameters.
        output_bytes: the size of what its operators give, as far as it is known; what views give
            counts as well.
        flops: of the first pass: of the first execution of each operator in it.
        macs: multiply-adds of the first pass.
    """

    model: str
    path: str
    type: str
    depth: int
    input_shape: list[int | None] | None
    output_shape: list[int | None] | None
    params: int
    trainable: int
    param_bytes: int
    output_bytes: int
    flops: int
    macs: int


class _Parameter(NamedTuple):
    """This is what is kept of a parameter when the model is gone."""

    elements: int
    nbytes: int
    trainable: bool

    @classmethod
    def of(cls, parameter: amanda.Parameter) -> _Parameter:
        """Take from a parameter what there is to keep."""
        nbytes = parameter.info.nbytes or 0
        return cls(elements_of(parameter), nbytes, parameter.trainable is not False)


class _Shapes(NamedTuple):
    """These are shapes of the first tensor that a module is given, and the first that it gives."""

    given: list[int | None] | None
    gave: list[int | None] | None


class _Module:
    """This is what was seen of a module."""

    def __init__(self, model: Model | None, path: str, type: str, depth: int) -> None:
        self.model = model
        self.path = path
        self.type = type
        self.depth = depth
        self.shapes = _Shapes(None, None)
        self.output_bytes = 0
        self.parameters: dict[int, _Parameter] = {}
        self.counted: list[Counted] = []


class Summary(Saving[ModuleSummary], amanda.Tool):
    """Tells classes, shapes, parameters, FLOPs and memory of a model, module by module.

    Everything comes from the operators that run in modules, or in name scopes; where there are
    none, from all. A parameter that no operator is given is not counted, and a module that runs no
    operator has no row. Optimizers, data loading and initialization are left out. Where operators
    run several times, shapes, memory and FLOPs are those of the first pass. Several models have a
    tree each, as far as the driver tells them apart.

    Args:
        out: a file to write when the scope is left, a row for each module, as JSON (with totals)
            or CSV by its ending.
        depth: levels of modules in the table; files have all.
        exact: show whole numbers rather than three digits.

    Raises:
        OSError: it cannot be written there.
        ValueError: its name ends in something else, or ``depth`` is negative.
    """

    row_type = ModuleSummary
    rows_name = "modules"
    units = MappingProxyType({"param_bytes": "bytes", "output_bytes": "bytes"})

    def __init__(
        self, out: str | os.PathLike[str] | None = None, depth: int = 3, exact: bool = False
    ) -> None:
        if depth < 0:
            raise ValueError(f"depth is {depth}, and has to be 0 or more")
        super().__init__()
        self.save_to(out)
        self._depth = depth
        self._exact = exact
        self._modules: dict[tuple[Model | None, str], _Module] = {}
        self._outside = _Module(None, "", "model", 0)  # what runs in no module
        self._called: dict[tuple[Model | None, str], _Shapes] = {}
        self._met: set[Place] = set()
        self._completed: set[Place] = set()
        self._numbers = Numbering()
        self.depends_on(Flops)
        self.add_inst_for_op(self._meet)
        self.add_inst_for_op(self._complete, require_outputs=True)
        self.add_inst_for_module(self._call, require_outputs=True, optional=True)

    def rows(self) -> list[ModuleSummary]:
        """Return the modules, each ahead of those in it, one model after the other."""
        called = labels(model for model, _ in self._modules)
        return [
            ModuleSummary(
                model="model" if module.model is None else called[module.model],
                path=module.path,
                type=module.type,
                depth=module.depth,
                input_shape=shapes.given,
                output_shape=shapes.gave,
                **_numbers([module]),
            )
            for module in self._in_order()
            for shapes in [self._called.get((module.model, module.path), module.shapes)]
        ]

    def totals(self) -> Mapping[str, Any]:
        """Return the numbers of all models together; a parameter that they share counts once."""
        wholes = [module for module in self._in_order() if not module.depth]
        return _numbers(wholes) if wholes else {}

    def found(self) -> str:
        """Tell the numbers of modules, parameters and FLOPs."""
        total = self.totals()
        shown = str if self._exact else count
        return (
            f"{len(self._modules):,} modules, {shown(total.get('params', 0))} parameters, "
            f"{shown(total.get('flops', 0))} FLOPs"
        )

    def report(self) -> SummaryTable | str:
        """Show the table."""
        rows = [row for row in self.rows() if row.depth <= self._depth]
        return (
            SummaryTable(rows, self.totals(), exact=self._exact)
            if rows
            else "summary: no operator ran"
        )

    # Analysis

    def _call(self, ctx: amanda.OpContext) -> None:
        """Take note, after a module's first call, of what it was given, and gave back."""
        place = Place.at(ctx)
        key = place.model, ".".join(place.modules)
        if key not in self._called:
            given, gave = _described(ctx, ctx.inputs), _described(ctx, ctx.outputs)
            self._called[key] = _Shapes(_first(given), _first(gave))

    def _meet(self, ctx: amanda.OpContext) -> None:
        """Take note, before an operator runs, of what it is given."""
        place = Place.at(ctx)
        if place.purpose != "model" or place in self._met:  # in another scope, or analyzed anew
            return
        self._met.add(place)
        parameters = {
            index: parameter
            for index, tensor in enumerate(ctx.inputs)
            if tensor is not None and (parameter := ctx.parameter(index)) is not None
        }
        given = [t for index, t in enumerate(ctx.inputs) if index not in parameters]
        shape = _first(info for info in _described(ctx, given) if info.shape)
        counted = self.dependency(Flops).next_execution(place)
        for module in self._around(ctx, place):
            module.counted.append(counted)
            module.shapes = _Shapes(module.shapes.given or shape, module.shapes.gave)
            for parameter in parameters.values():
                module.parameters[self._numbers.of(parameter.source)] = _Parameter.of(parameter)

    def _complete(self, ctx: amanda.OpContext) -> None:
        """Take note, after it ran, of what it gave, as do modules around it if it is their last."""
        place = Place.at(ctx)
        if place not in self._met or place in self._completed:
            return
        self._completed.add(place)
        described = _described(ctx, ctx.outputs)
        shape = _first(described)
        for module in self._around(ctx, place):
            module.shapes = _Shapes(module.shapes.given, shape)
            module.output_bytes += sum(info.nbytes or 0 for info in described)

    def _around(self, ctx: amanda.OpContext, place: Place) -> Iterator[_Module]:
        """Return the modules around an operator, the model as a whole first."""
        classes = {path.replace("/", "."): cls for path, cls in ctx.driver.modules(ctx.op)}
        if place.model is None and not place.modules:
            yield self._outside
            return
        paths = ["", *itertools.accumulate(place.modules, "{}.{}".format)]
        for depth, path in enumerate(paths):
            key = place.model, path
            if key not in self._modules:
                whole = "model" if place.model is None else place.model.type
                name = place.modules[depth - 1] if depth else whole
                self._modules[key] = _Module(place.model, path, classes.get(path, name), depth)
            yield self._modules[key]

    def _in_order(self) -> Iterator[_Module]:
        """Give each module ahead of those in it, and these in the order in which they first ran."""
        if not self._modules:
            yield from [self._outside] if self._outside.counted else []
            return
        inside: dict[tuple[Model | None, str], list[_Module]] = {}
        for module in self._modules.values():
            if module.depth:
                around = module.model, module.path.rpartition(".")[0]
                inside.setdefault(around, []).append(module)
        waiting = [module for module in self._modules.values() if not module.depth][::-1]
        while waiting:
            module = waiting.pop()
            yield module
            waiting += reversed(inside.get((module.model, module.path), []))


def _described(ctx: amanda.OpContext, tensors: Sequence[Any]) -> list[amanda.TensorInfo]:
    """Describe tensors, but for those that are absent."""
    return [ctx.describe(tensor) for tensor in tensors if tensor is not None]


def _first(infos: Iterable[amanda.TensorInfo]) -> list[int | None] | None:
    """Return the shape of the first tensor of which it is known."""
    return next((list(info.shape) for info in infos if info.shape is not None), None)


def _numbers(modules: Sequence[_Module]) -> dict[str, int]:
    """Add up numbers of modules none of which is in another one."""
    shared = {key: value for module in modules for key, value in module.parameters.items()}
    parameters = shared.values()
    counted = [counted for module in modules for counted in module.counted]
    return {
        "params": sum(p.elements for p in parameters),
        "trainable": sum(p.elements for p in parameters if p.trainable),
        "param_bytes": sum(p.nbytes for p in parameters),
        "output_bytes": sum(module.output_bytes for module in modules),
        "flops": sum(each.forward for each in counted),
        "macs": sum(each.macs for each in counted),
    }
