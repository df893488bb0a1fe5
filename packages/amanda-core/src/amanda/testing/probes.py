"""Tests on any backend instrument with these small tools.

=============================================  ===================================================
:class:`Watch`                                 asks a function of the test about operators
:class:`Record`, :class:`Count`                notes which operators run; counts how often
:class:`Describe`                              notes their attributes and names of inputs
:class:`Observe`                               looks at everything, touches nothing
:class:`Edges`                                 notes which operators make which inputs
:class:`Insert`                                inserts one routine, at one point or at several
:func:`before`, :func:`after`, :func:`replace` insert one before, after or in place of operators
:func:`scale`, :class:`Mask`                   multiply results; multiply weights
:func:`fail`                                   raises an error before operators
:func:`under`, :func:`recorded`                run a function under tools; tell what ran in it
:class:`InsertAt`, :class:`Executions`         are for the suite: they name operators by layers
=============================================  ===================================================

Where a probe takes operator types, one is given as a string, several as a list, and None means all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest

import amanda

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda.driving import Producers
    from amanda.testing.adapter import Adapter

    Types = str | Sequence[str] | None

_T = TypeVar("_T")

host_and_pure = pytest.mark.parametrize("pure", [False, True], ids=["host", "pure"])

FORWARD = ("insert_before_op", "insert_after_op")
# All that a tool can do at an operator.
INSERTIONS = (
    *FORWARD,
    "insert_before_backward_op",
    "insert_after_backward_op",
    "insert_on_grad_outputs",
    "insert_on_grad_inputs",
)
REPLACING = ("replace_op", "replace_backward_op")


def nothing(*tensors: Any):  # type: ignore[no-untyped-def]
    """Return nothing, which a driver cannot know beforehand, since this is not annotated."""


def same(*tensors: Any) -> Any:
    """Return what is given, which nobody can tell from a routine that returns nothing."""
    return tensors


class Watch(amanda.Tool):
    """This tool calls an analysis routine for operators of some types, and notes their ids.

    Args:
        analyze: the analysis routine.
        ops: types of operators.
        backward: ask about backward operators.
        gradient: ask about gradients of operators as a whole.
        require_outputs: ask when the results are known.
        scopes: globs of the operators' scopes.
        **options: of the tool, as its ``namespace``.

    Attributes:
        analyzed: the operators' ids, one for each call.
    """

    def __init__(
        self,
        analyze: Callable[[amanda.OpContext], object],
        ops: Types = None,
        *,
        backward: bool = False,
        gradient: bool = False,
        require_outputs: bool = False,
        scopes: Types = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.analyzed: list[str] = []
        self._analyze = analyze
        types, globs = _listed(ops), _listed(scopes)
        if gradient:
            self.add_inst_for_gradient(self.look, ops=types, scopes=globs)
        else:
            self.add_inst_for_op(self.look, backward, require_outputs, ops=types, scopes=globs)

    def look(self, ctx: amanda.OpContext) -> None:
        """Note the operator, and call the analysis routine."""
        self.analyzed.append(ctx.op.id)
        self._analyze(ctx)


class Record(amanda.Tool):
    """This tool notes which operators are analyzed and which run.

    Args:
        ops: types of operators.
        at: where it inserts what notes an execution.
        **options: of the tool, as its ``namespace``.

    Attributes:
        analyzed: ids, one for each analysis.
        ran: ids, one for each execution.
        types: types, one for each execution.
    """

    def __init__(self, ops: Types = None, at: str = "insert_before_op", **options: Any) -> None:
        super().__init__(**options)
        self.analyzed: list[str] = []
        self.ran: list[str] = []
        self.types: list[str] = []
        self._at = at
        self.add_inst_for_op(self.analyze, ops=_listed(ops))

    def analyze(self, ctx: amanda.OpContext) -> None:
        """Note the operator, and insert what notes its executions."""
        self.analyzed.append(ctx.op.id)
        getattr(ctx, self._at)(self.note, id=ctx.op.id, type=ctx.op.type)

    def note(self, *tensors: Any, id: str, type: str) -> None:
        """Note an execution."""
        self.ran.append(id)
        self.types.append(type)


class Count(amanda.Tool):
    """This tool counts executions, by a routine of which no driver knows that it returns nothing.

    Args:
        ops: types of operators.
        **options: of the tool, as its ``namespace``.

    Attributes:
        counts: by id, how often an operator has run since it was analyzed.
    """

    def __init__(self, ops: Types = None, **options: Any) -> None:
        super().__init__(**options)
        self.counts: dict[str, int] = {}
        self.add_inst_for_op(self.analyze, ops=_listed(ops))

    def analyze(self, ctx: amanda.OpContext) -> None:
        """Begin to count the executions of an operator."""
        self.counts[ctx.op.id] = 0
        ctx.insert_before_op(self.bump, id=ctx.op.id)

    def bump(self, *tensors: Any, id: str):  # type: ignore[no-untyped-def]
        """Count an execution."""
        self.counts[id] += 1


class Describe(amanda.Tool):
    """This tool notes the attributes of operators, and the names of their inputs.

    Attributes:
        attrs: by type, the attributes of the operator analyzed last.
        names: by type, its names of inputs.
    """

    def __init__(self, ops: Types = None, **options: Any) -> None:
        super().__init__(**options)
        self.attrs: dict[str, dict[str, Any]] = {}
        self.names: dict[str, list[str]] = {}
        self.add_inst_for_op(self.analyze, ops=_listed(ops))

    def analyze(self, ctx: amanda.OpContext) -> None:
        """Note an operator's attributes and names."""
        self.attrs[ctx.op.type] = dict(ctx.attrs)
        self.names[ctx.op.type] = list(ctx.input_names)


class Edges(amanda.Tool):
    """This tool notes what makes the inputs of operators."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._inputs: list[tuple[str, str, Producers]] = []
        self.add_inst_for_op(self._look, require_producers=True)

    def _look(self, ctx: amanda.OpContext) -> None:
        for index, name in enumerate(ctx.input_names):
            self._inputs.append((ctx.op.id, name, ctx.producers(index)))

    @property
    def edges(self) -> set[str]:
        """Return all edges, as ``producer:output > consumer.input``; output 0 is left out."""
        return {
            f"{p.operator.id}{f':{p.output}' if p.output else ''} > {id}.{name}"
            for id, name, producers in self._inputs
            for p in producers
        }


class Insert(amanda.Tool):
    """This tool inserts one routine at operators.

    Args:
        insertion: a method of the context, e.g. ``insert_before_op``, or several of them.
        ops: types of operators; of forward or backward operators.
        routine: what is inserted.
        where: which operators of those types it is for; all of them if it is not given.
        namespace: the vocabulary of the tool.
        **options: passed on to the insertion.

    Attributes:
        analyzed: ids of the operators that it was asked about, one for each analysis.
    """

    def __init__(
        self,
        insertion: str | Sequence[str],
        ops: Types,
        routine: Callable[..., Any],
        *,
        where: Callable[[amanda.Operator], bool] | None = None,
        namespace: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(namespace=namespace)
        self.analyzed: list[str] = []
        self._routine = routine
        self._where = where
        self._options = options
        chosen = [insertion] if isinstance(insertion, str) else insertion
        backward = [name for name in chosen if "backward" in name]
        gradient = [name for name in chosen if "on_grad" in name]
        forward = [name for name in chosen if name not in backward + gradient]
        if forward:
            self.add_inst_for_op(self._inserting(forward), ops=_listed(ops))
        if backward:
            self.add_inst_for_op(self._inserting(backward), backward=True, ops=_listed(ops))
        if gradient:
            self.add_inst_for_gradient(self._inserting(gradient), ops=_listed(ops))

    def _inserting(self, insertions: Sequence[str]) -> Callable[[amanda.OpContext], None]:
        def analyze(ctx: amanda.OpContext) -> None:
            self.analyzed.append(ctx.op.id)
            if self._where is None or self._where(ctx.op):
                for insertion in insertions:
                    getattr(ctx, insertion)(self._routine, **self._options)

        return analyze


class Observe(Insert):
    """This tool looks at operators in every way there is, and touches nothing."""

    def __init__(self, ops: Types = None, **options: Any) -> None:
        super().__init__(INSERTIONS, ops, nothing, **options)
        self.add_inst_for_op(self.look, require_outputs=True, ops=_listed(ops))

    def look(self, ctx: amanda.OpContext) -> None:
        """Look at the outputs."""
        assert ctx.outputs is not None


def before(ops: Types, routine: Callable[..., Any], **options: Any) -> Insert:
    """Return a tool that runs a routine before operators."""
    return Insert("insert_before_op", ops, routine, **options)


def after(ops: Types, routine: Callable[..., Any], **options: Any) -> Insert:
    """Return a tool that runs a routine after operators."""
    return Insert("insert_after_op", ops, routine, **options)


def replace(ops: Types, routine: Callable[..., Any], **options: Any) -> Insert:
    """Return a tool that runs a routine in place of operators."""
    return Insert("replace_op", ops, routine, **options)


def scale(ops: Types, factor: Any, **options: Any) -> Insert:
    """Return a tool that multiplies the result of operators that have one."""
    return after(ops, lambda result: result * factor, **options)


def fail(ops: Types, error: Exception, **options: Any) -> Insert:
    """Return a tool that raises an error before operators."""

    def raises(*tensors: Any) -> None:
        raise error

    return before(ops, raises, **options)


class Mask(amanda.Tool):
    """This tool multiplies the weights of operators that have one.

    Args:
        ops: types of operators.
        mask: the factor; a number, or whatever the backend multiplies its tensors by.
        **options: passed on to the insertion.
    """

    def __init__(self, ops: Types, mask: Any, **options: Any) -> None:
        super().__init__()
        self._mask = mask
        self._options = options
        self.add_inst_for_op(self.analyze, ops=_listed(ops))

    def analyze(self, ctx: amanda.OpContext) -> None:
        """Insert :meth:`multiply` at an operator that has a weight."""
        if ctx.weight_index is not None:
            ctx.insert_before_op(self.multiply, inputs=[ctx.weight_index], **self._options)

    def multiply(self, weight: Any) -> Any:
        """Multiply a weight by the mask."""
        return weight * self._mask


def under(tools: amanda.Tool | Sequence[amanda.Tool], run: Callable[[], _T]) -> _T:
    """Call a function with tools active, and return what it returns."""
    with amanda.apply(*([tools] if isinstance(tools, amanda.Tool) else tools)):
        return run()


def recorded(run: Callable[[], object], *ops: str) -> list[str]:
    """List the types of the operators that run in a function, in order."""
    tool = Record(ops or None)
    under(tool, run)
    return tool.types


def _listed(ops: Types) -> Sequence[str] | None:
    return [ops] if isinstance(ops, str) else ops


class InsertAt(Insert):
    """This tool inserts one routine at steps of one kind; at those of one layer if it is given.

    Args:
        adapter: tells in which layer an operator is.
        insertion: a method of the context, e.g. ``insert_before_op``.
        routine: what is inserted.
        kind: the kind of steps, as in :mod:`amanda.testing.program`.
        layer: the layer, or None for all of them.
        **options: passed on to the insertion.
    """

    def __init__(
        self,
        adapter: Adapter,
        insertion: str,
        routine: Callable[..., Any],
        kind: str,
        layer: str | None = None,
        **options: Any,
    ) -> None:
        def is_there(operator: amanda.Operator) -> bool:
            return layer is None or adapter.layer(operator) == layer

        super().__init__(insertion, adapter.types[kind], routine, where=is_there, **options)


class Executions:
    """This notes at which operators its routine runs, in order, and touches nothing."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def tool(self, ops: Sequence[str] | None = None, **options: Any) -> Watch:
        """Return a tool that inserts :meth:`note` before operators of these types."""
        return Watch(lambda ctx: ctx.insert_before_op(self.note, id=ctx.op.id), ops, **options)

    def note(self, *tensors: Any, id: str) -> None:
        """Note the operator."""
        self.ids.append(id)
