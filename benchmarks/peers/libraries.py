"""Ways to run PyTorch's models under other libraries: nnsight, captum and NNCF.

Each is imported where it is used, so that one that is not installed is a row that says so.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.torch_models import first_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measuring import Call, Way
    from benchmarks.torch_models import Workload


def library_ways(workload: Workload, training: bool) -> dict[str, Way]:
    """The ways of all libraries that can do what is asked, each on a copy of the model."""
    if training:
        return {"NNCF hooks": nncf_hooks(copied(workload), training)}
    return {
        "nnsight": nnsight_trace(copied(workload)),
        "captum LayerActivation": captum_activation(copied(workload)),
        "NNCF hooks": nncf_hooks(copied(workload), training),
    }


def copied(workload: Workload) -> Workload:
    """The same with a model of its own: what some libraries wrap stays so."""
    model = copy.deepcopy(workload.model)
    return type(workload)(workload.name, model, workload.arguments, workload.one)


def leaves(workload: Workload) -> list[str]:
    """Paths of modules without modules within that run once in a call, in their order."""
    ran: list[str] = []
    handles = [
        module.register_forward_hook(lambda *_, path=path: ran.append(path))
        for path, module in workload.model.named_modules()
        if path and not list(module.children())
    ]
    workload.infer()
    for handle in handles:
        handle.remove()
    return [path for path in ran if ran.count(path) == 1]


def nnsight_trace(workload: Workload) -> Way:
    """A trace that asks for the output of every leaf module, and keeps nothing."""

    @contextlib.contextmanager
    def way(work: Call) -> Iterator[Call]:
        warnings.simplefilter("ignore")
        logging.getLogger("nnsight").setLevel(logging.ERROR)
        from nnsight import NNsight

        order = [workload.model.get_submodule(path) for path in leaves(workload)]
        traced = NNsight(workload.model)
        wrapped = {id(envoy._module): envoy for envoy in traced.modules()}
        modules = [wrapped[id(module)] for module in order]

        def call() -> None:
            with torch.no_grad(), traced.trace(*workload.arguments):
                for module in modules:  # to ask for it is what is timed
                    module.output  # noqa: B018

        yield call

    return way


def captum_activation(workload: Workload) -> Way:
    """The activations of all leaf modules, by ``LayerActivation`` on the list of them."""

    @contextlib.contextmanager
    def way(work: Call) -> Iterator[Call]:
        from captum.attr import LayerActivation

        layers = [workload.model.get_submodule(path) for path in leaves(workload)]

        def forward(*arguments: torch.Tensor) -> torch.Tensor:
            return first_of(workload.model(*arguments))

        activation = LayerActivation(forward, layers)

        def call() -> object:
            with torch.no_grad():
                return activation.attribute(workload.arguments)

        yield call

    return way


class Nothing(torch.nn.Module):
    """A hook of NNCF that gives back what it is given."""

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


def nncf_hooks(workload: Workload, training: bool) -> Way:
    """A hook that does nothing after every function that NNCF's graph of the model has."""

    @contextlib.contextmanager
    def way(work: Call) -> Iterator[Call]:
        from nncf.torch.function_hook import is_wrapped

        if not is_wrapped(workload.model):
            add_hooks(workload)
        yield workload.train if training else workload.infer

    return way


def add_hooks(workload: Workload) -> None:
    """Have a model wrapped by NNCF, with hooks."""
    from nncf.torch.function_hook import build_graph, register_post_function_hook, wrap_model

    model: Any = wrap_model(workload.model)
    with torch.no_grad():
        graph = build_graph(model, *workload.arguments)
    for _, node in graph.nodes(data=True):
        meta = node["meta"]
        if hasattr(meta, "op_name") and hasattr(meta, "func"):
            register_post_function_hook(model, meta.op_name, 0, Nothing())
