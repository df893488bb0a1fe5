"""Tools see each autograd node as a backward operator, with the forward operator that made it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch
from amanda import AmandaWarning, UnsupportedError
from amanda.driving import NOTHING

from amanda_torch._internals import is_hidden_batch
from amanda_torch.backward.later_passes import exchanged, flows
from amanda_torch.backward.rows import in_rows, whole
from amanda_torch.tensors.straight import is_ours, straight_through
from amanda_torch.tensors.substitutes import incompatible_gradient
from amanda_torch.thread import is_unwatched, local
from amanda_torch.unshown import unshown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from amanda import Operator
    from amanda.driving import Action, Engine, Execution, Forward, Plan
    from torch import Tensor
    from torch.autograd.graph import Node

    from amanda_torch.places.numbering import Numbering

    Grads = Sequence[Tensor | None]


def made_since(number: int, node: Node | None) -> bool:
    """Tell whether an autograd node was made after ``sequence_number()`` gave ``number``."""
    # What accumulates the gradient of a leaf carries the largest number there is.
    return node is not None and number <= node._sequence_nr() < 2**63


def warn_of_earlier(outputs: Sequence[Tensor]) -> None:
    """Warn once, as a backward begins, that tools see nothing of what ran before their scope."""
    thread = local.thread
    engine, began = thread.engine, thread.began
    made_by = (getattr(each, "grad_fn", None) for each in outputs)  # a GradientEdge has none
    nodes = [node for node in made_by if node is not None]
    if engine is None or not nodes or any(made_since(began, node) for node in nodes):
        return
    if engine.wants_backward or engine.wants_gradients:
        thread.began = 0
        warnings.warn(
            f"tools do not see the backward pass of {nodes[0].name()} and what is before it, since "
            "that ran before their scope was opened; run the forward pass in the scope, too",
            AmandaWarning,
            stacklevel=5,
        )


def nodes_made_since(number: int, ends: Sequence[Node | None]) -> list[Node]:
    """List the autograd nodes that an operator made, from its outputs back to its inputs.

    Args:
        number: what ``sequence_number()`` gave before it ran.
        ends: what made the operator's outputs, taken after it ran.
    """
    nodes: dict[Node, None] = {}
    queue = list(ends)
    for node in queue:
        if node is not None and node not in nodes and made_since(number, node):
            nodes[node] = None
            queue += [next_node for next_node, _ in node.next_functions]
    return list(nodes)


def watch_backward(
    engine: Engine,
    numbering: Numbering,
    operator: Operator,
    outputs: Sequence[Tensor],
    ends: Sequence[Node | None],
    number: int,
    shown: Callable[..., Execution],
) -> None:
    """Have the tools see the backward operators of an operator that has just run."""
    counts: dict[str, int] = {}
    for node in nodes_made_since(number, ends):
        if is_ours(node):
            continue
        type = node.name().rpartition("::")[2]
        count = counts[type] = counts.get(type, 0) + 1
        backward_operator = numbering.backward_operator(operator, type, count)
        plan = engine.plan(backward_operator)
        if plan is not None and plan.is_noop:
            continue
        execution = None
        if plan is None or plan.pending:
            execution = _execution(shown, outputs, engine.keeps_forward(operator))
            execution.backward_operator = backward_operator
        _Hooks(engine, operator, backward_operator, plan, execution).attach(node)


def _execution(shown: Callable[..., Execution], outputs: Sequence[Tensor], kept: bool) -> Execution:
    """Make an execution for analysis in its backward.

    Args:
        shown: makes it of the outputs.
        outputs: what the operator returned.
        kept: whether it holds the tensors of the forward side; those that autograd does not save
            are held by nobody else.
    """
    with unshown():
        execution = shown([t.detach() for t in outputs] if kept else ())
        execution.inputs = [t.detach() for t in execution.inputs] if kept else ()
    return execution


class _Hooks:
    """These hook one autograd node. They keep nothing that has a graph: that would be a cycle."""

    def __init__(
        self,
        engine: Engine,
        operator: Operator,
        backward_operator: Operator,
        plan: Plan | None,
        execution: Execution | None,
    ) -> None:
        self._engine = engine
        self._operator = operator
        self._backward_operator = backward_operator
        self._plan = plan
        self._execution = execution

    def attach(self, node: Node) -> None:
        """Register what the plan needs."""
        if self._plan is None or self._plan.before:
            node.register_prehook(self._before)
        node.register_hook(self._after)

    def _before(self, grad_outputs: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...] | None:
        if not flows(grad_outputs) or not is_active(self._engine):
            return None
        if self._plan is None:
            assert self._execution is not None
            self._execution.grad_outputs = grad_outputs
            self._plan = self._engine.backward_plan(self._execution)
            if not self._plan.pending:
                self._execution = None  # its gradients may have a graph
        passed = run_on_gradients(
            self._engine, self._plan.before, grad_outputs, self._backward_operator
        )
        return None if passed is grad_outputs else tuple(passed)

    def _after(
        self, grad_inputs: tuple[Tensor | None, ...], grad_outputs: tuple[Tensor | None, ...]
    ) -> tuple[Tensor | None, ...] | None:
        plan, engine = self._plan, self._engine
        if plan is None or not flows(grad_outputs) or not is_active(engine):
            return None
        if plan.pending:
            plan = self._plan = self._completed(plan, grad_inputs, grad_outputs)
        self._execution = None
        grads: Grads = grad_inputs
        if plan.replace is not None and engine.live((plan.replace,)):
            action, operator = plan.replace, self._backward_operator
            grads = _constant(
                lambda: engine.run(
                    (action,), grad_outputs, operator, incompatible_gradient, grad_inputs
                ),
                grads,
                (action,),
                operator,
            )
        grads = run_on_gradients(engine, plan.after, grads, self._backward_operator)
        return None if grads is grad_inputs else tuple(grads)

    def _completed(self, plan: Plan, grad_inputs: Grads, grad_outputs: Grads) -> Plan:
        """Return the plan with what pending analyses decide, now that the operator has run."""
        assert self._execution is not None
        self._execution.grad_outputs = grad_outputs
        self._execution.grad_inputs = grad_inputs
        completed = self._engine.complete(plan, self._execution)
        if completed.before != plan.before:
            raise UnsupportedError(
                f"{self._backward_operator.named}: an analysis with require_outputs=True inserted "
                "before a backward operator, which has run and cannot be run a second time; "
                "insert after it or instead of it, or analyze without outputs"
            )
        return completed


def run_on_gradients(
    engine: Engine,
    actions: tuple[Action, ...],
    grads: Grads,
    operator: Operator,
    forward: Forward = NOTHING,
    own: Grads | None = None,
) -> Grads:
    """Run routines on gradients, of those tools that are still active.

    ``forward`` has what they ask for of the forward side. Where the gradients contain more than the
    operator's ``own``, these are what routines are given and replace.
    """
    actions = engine.live(actions)
    if not actions:
        return grads

    def run() -> Grads:
        passed = grads if own is None else own
        for action in actions:
            given = [whole(g) for g in passed] if action.whole else passed
            result = action.call(given, operator, forward)
            if result is not None:
                after = action.substituted(result, given, operator, incompatible_gradient)
                passed = [
                    old if new is shown else in_rows(new, old)
                    for old, shown, new in zip(passed, given, after, strict=True)
                ]
        return passed if own is None else exchanged(grads, own, passed)

    return _constant(run, grads, actions, operator)


def _constant(
    run: Callable[[], Grads], grads: Grads, actions: Sequence[Action], operator: Operator
) -> Grads:
    """Return what takes the place of gradients; it is not differentiated when they are."""
    if not torch.is_grad_enabled():  # nor are they, as in most passes
        return run()
    with torch.no_grad():
        passed = run()
    if passed is grads:
        return passed
    _refuse_hidden(actions, operator, grads)
    both = [i for i, g in enumerate(grads) if g is not None and passed[i] is not None]
    bound = straight_through([grads[i] for i in both], [passed[i] for i in both])  # type: ignore[misc]
    result = list(passed)
    for i, tensor in zip(both, bound, strict=True):
        result[i] = tensor
    return result


def _refuse_hidden(actions: Sequence[Action], operator: Operator, grads: Grads) -> None:
    """Refuse substitutes for gradients of which nobody can reach the graph.

    Raises:
        UnsupportedError: some are whole batches that autograd has made by itself.
    """
    if any(grad is not None and is_hidden_batch(grad) for grad in grads):
        tools = ", ".join(dict.fromkeys(type(action.tool).__name__ for action in actions))
        raise UnsupportedError(
            f"{operator.named}: {tools} substitutes a gradient in the backward pass of a batch "
            "(vectorize=True or is_grads_batched=True) that is differentiated again "
            "(create_graph=True), and no gradient can pass straight through that; leave out one "
            "of the two, or use torch.func.jacrev"
        )


def is_active(engine: Engine) -> bool:
    """Tell whether tools see a backward that runs now."""
    return not is_unwatched() and reaches(engine)


def reaches(engine: Engine) -> bool:
    """Tell whether tools have a say in a backward that runs now.

    They have none when it runs after their scope, nor when the thread that runs it has no active
    tools (``amanda.disabled()``), nor in a scope of a routine at which others are active; a thread
    that autograd started for the backward has never had any.
    """
    thread = local.thread
    if not engine.open or (thread.engine is None and thread.known):
        return False
    around = thread.around
    while around is not None:
        if around.session() is engine.contexts:
            return False
        around = around.around
    return True
