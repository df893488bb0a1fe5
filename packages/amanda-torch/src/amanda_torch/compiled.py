"""Compiled code is compared with its operators: what ``torch.compile`` captured runs both ways.

Fused operators have no results of their own. So the code is compiled again as far as some operator,
by the same compiler, and has what later operators read for its results; the first operator with
which these differ is looked for by halving.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from amanda import Operator, UnsupportedError
from amanda.driving import Held, Source, numbered
from torch import Tensor

from amanda_torch._internals import compiler_settings, output_graph, tree_leaves
from amanda_torch.operators.types import canonical_type
from amanda_torch.tensors.values import value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from amanda.driving import Alike
    from torch.fx import GraphModule, Node

    Compiler = Callable[..., Callable[..., Any]]

_RUNNING = ("call_function", "call_method", "call_module")
_SEED = 0
# Operators of Python that torch calls otherwise; one that writes to its first operand has an i.
_CALLED = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder"}
_IN_PLACE = frozenset(f"i{name}" for name in ("add", "mul", "sub", "truediv", "pow", "matmul"))


class _Thread(threading.local):
    holds = False  # compiled code to its operators


_thread = _Thread()


class _Difference(NamedTuple):
    """These are the two tensors that were compared last, and whether they differ."""

    differs: bool
    direction: str
    dtype: str
    expected: Any
    found: Any


@contextlib.contextmanager
def holding(alike: Alike, tell: Callable[[Held], None]) -> Iterator[None]:
    """Open a block in which what this thread compiles is compared, each piece at its first run.

    What was compiled before is compiled anew, and so it is afterwards.

    Args:
        alike: whether a tensor is the one that is expected.
        tell: is told of each piece.
    """
    if _thread.holds:
        raise UnsupportedError("two tools hold compiled code to its operators; apply one alone")
    graphs: Any = output_graph()
    plain, thread = graphs.call_user_compiler, threading.get_ident()
    busy = False  # with what is compiled to find an operator

    @functools.wraps(plain)
    def call_user_compiler(graph: Any, module: GraphModule, inputs: Any) -> Any:
        if busy or threading.get_ident() != thread:
            return plain(graph, module, inputs)
        compiler = graph.compiler_fn

        @functools.wraps(compiler, updated=())
        def compile(module: GraphModule, *args: Any, **options: Any) -> Callable[..., Any]:
            code = _Code(module, functools.partial(compiler, **options), alike)
            compiled = compiler(module, *args, **options)
            return functools.wraps(compiled, updated=())(functools.partial(run, code, compiled))

        graph.compiler_fn = compile
        try:
            return plain(graph, module, inputs)
        finally:
            graph.compiler_fn = compiler

    def run(code: _Code, compiled: Callable[..., Any], *args: Any) -> Any:
        nonlocal busy
        if not code.held and not busy:
            busy = code.held = True
            try:
                tell(code.hold(compiled, args))
            finally:
                busy = False
        return compiled(*args)

    torch.compiler.reset()
    graphs.call_user_compiler, _thread.holds = call_user_compiler, True
    try:
        with compiler_settings().patch(fallback_random=True):
            yield
    finally:
        graphs.call_user_compiler, _thread.holds = plain, False
        torch.compiler.reset()


def check_not_held() -> None:
    """Refuse tools for which compiled code would have to run as it is written.

    Raises:
        UnsupportedError: this thread compares compiled code with its operators.
    """
    if _thread.holds:
        raise UnsupportedError(
            "while compiled code is held to its operators, it runs as it is compiled, and other "
            "tools would have it run operator by operator; apply them in another scope"
        )


class _Code:
    """This is what was captured of a program, to be compiled.

    Args:
        module: the capture, which a compiler may change.
        compiler: compiles it.
        alike: whether a tensor is the one that is expected.
    """

    def __init__(self, module: GraphModule, compiler: Compiler, alike: Alike) -> None:
        self.held = False
        self._module = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
        self._compiler = compiler
        self._alike = alike
        self._nodes = [node for node in self._module.graph.nodes if node.op in _RUNNING]

    def hold(self, compiled: Callable[..., Any], args: Sequence[Any]) -> Held:
        """Run both on copies of the arguments, and find the first operator that differs."""
        nodes = self._nodes
        last = self._difference(self._module, compiled, args)
        least, most = 0, len(nodes) - 1
        while last.differs and least < most:
            middle = (least + most) // 2
            part = self._as_far_as(nodes[middle])
            compiled = torch.compile(part, backend=self._compiler, dynamic=False)
            try:
                found = self._difference(part, compiled, args)
            except Exception as error:
                raise UnsupportedError(
                    f"code differs as it is compiled, and its compiler fails as far as "
                    f"{self._operator(middle).named}, so that the first operator that differs "
                    f"cannot be found: {type(error).__name__}: {error}"
                ) from error
            if found.differs:
                last, most = found, middle
            else:
                least = middle + 1
        return Held(self._operator(most), len(nodes), *last)

    def _as_far_as(self, last: Node) -> GraphModule:
        """Return the part up to an operator; it gives what later ones read, and its own result."""
        graph = torch.fx.Graph()
        made: dict[Node, Node] = {}
        rest = iter(self._module.graph.nodes)
        for node in rest:
            made[node] = graph.node_copy(node, made.__getitem__)
            if node is last:
                break
        read = {given for node in rest for given in node.all_input_nodes}
        live = [node for node in made if node is last or (node in read and node.op in _RUNNING)]
        graph.output(tuple(made[node] for node in live))
        return torch.fx.GraphModule(self._module, graph)

    def _difference(
        self, eager: Callable[..., Any], compiled: Callable[..., Any], args: Sequence[Any]
    ) -> _Difference:
        """Find the first difference of what both give and write, and of its gradients."""
        (one, gradients), (other, others) = (_results(run, args) for run in (eager, compiled))
        found = None
        for direction, pairs in (("forward", (one, other)), ("backward", (gradients, others))):
            for expected, given in zip(*pairs, strict=True):
                dtype = str(expected.dtype).removeprefix("torch.")
                arrays = value(expected), value(given)
                differs = not self._alike(*arrays, dtype)
                found = _Difference(differs, direction, dtype, *arrays)
                if differs:
                    return found
        return found or _Difference(False, "forward", "", None, None)

    def _operator(self, index: int) -> Operator:
        """Return an operator as tools are shown it where it runs by itself."""
        node = self._nodes[index]
        scope, type = _place(node)
        number = sum(_place(each) == (scope, type) for each in self._nodes[: index + 1])
        id = numbered(f"{scope}/{type}" if scope else type, number)
        source = _source(node)
        return Operator(
            id=id, type=type, name=node.name, scope=scope, backend="torch", locate=lambda: source
        )


def _results(run: Callable[..., Any], args: Sequence[Any]) -> tuple[list[Tensor], list[Tensor]]:
    """Return what a function gives and writes for copies of its arguments, and its gradients."""
    copies = [_copied(arg) if isinstance(arg, Tensor) else arg for arg in args]
    tensors = [arg for arg in copies if isinstance(arg, Tensor)]
    with torch.random.fork_rng():
        torch.manual_seed(_SEED)
        given = [each for each in tree_leaves(run(*copies)) if isinstance(each, Tensor)]
        drawn = [torch.randn_like(each) for each in given if each.dtype.is_floating_point]
    written = [tensor.detach().clone() for tensor in tensors]
    results = [result.detach() for result in given] + written
    leaves = [tensor for tensor in tensors if tensor.requires_grad and tensor.is_leaf]
    floats = [each for each in given if each.dtype.is_floating_point]
    ways = [(each, up) for each, up in zip(floats, drawn, strict=True) if each.requires_grad]
    if not ways or not leaves:
        return results, [torch.zeros_like(leaf) for leaf in leaves]
    outputs, upstream = zip(*ways, strict=True)
    found = torch.autograd.grad(
        outputs, leaves, upstream, materialize_grads=True, allow_unused=True
    )
    return results, list(found)


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _place(node: Node) -> tuple[str, str]:
    """Return the scope and the type of an operator."""
    if node.op == "call_function":
        name = getattr(node.target, "__name__", str(node.target))
    else:
        name = str(node.target)
    if node.op == "call_function" and name in _IN_PLACE:
        name = f"{name[1:]}_"
    type = canonical_type(name)
    bare = type.rstrip("_")
    stack = node.meta.get("nn_module_stack") or {}
    path = str(list(stack.values())[-1][0]) if stack else ""
    path = re.sub(r"^[A-Z]\['[^']*'\]\.?", "", path)  # the name of the model in the program
    path = re.sub(r"\._modules\['([^']*)'\]|\['?([^'\]]*)'?\]", r".\1\2", path)
    return path.strip("."), _CALLED.get(bare, bare) + type[len(bare) :]


def _source(node: Node) -> Source | None:
    """Return the line of the program that runs an operator, the innermost that the capture has."""
    trace = node.meta.get("stack_trace") or ""
    lines = re.findall(r'^ *File "(.*)", line ([0-9]+), in ', trace, re.MULTILINE)
    return Source(lines[-1][0], int(lines[-1][1])) if lines else None
