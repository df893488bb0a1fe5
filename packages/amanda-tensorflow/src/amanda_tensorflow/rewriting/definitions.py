"""Rewritten functions are defined here, and registered where they are called."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from amanda_tensorflow._internals import (
    atomic_function,
    attributes,
    context,
    function_def_to_graph,
    ops,
)
from amanda_tensorflow.graph.called_functions import rename_function
from amanda_tensorflow.rewriting.compiled import keep_compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.rewriting.rewriter import Rewriter


def definitions_of(rewriter: Rewriter) -> list[Any]:
    """List FunctionDefs of all that a rewriter has made, those that are called first.

    The last one is that of the outermost frame, if that is a function.
    """
    definitions = []
    for name, stage in rewriter.nodes.functions.items():
        assert stage.pure is not None
        if rewriter.nodes.arguments.by_value:
            definitions += [stage.pure.definition_by_value(name), *stage.pure.called_functions()]
        else:
            definitions.append(stage.pure.definition(name))
    return definitions + edited(rewriter.root, rewriter.nodes.serial)


def edited(root: Frame, serial: int, purpose: str = "amanda") -> list[Any]:
    """Define all edited frames under new names, which tell what they are for."""
    definitions = keep_compiled(root, serial)

    def define(frame: Frame) -> str:
        for call, children in frame.children.items():
            node = frame.body.nodes.get(call)
            for child in children:
                if child.edited and node is not None:
                    old = child.definition.signature.name
                    rename_function(node, child.attr, old, define(child))
            if node is not None and any(child.host for child in children):
                node.attr.pop(attributes.XLA_COMPILE, None)
        if frame.definition is None:
            return ""
        name = f"{frame.definition.signature.name}__{purpose}_{serial}_{len(definitions)}"
        without = (attributes.XLA_COMPILE,) if frame.host else ()
        definitions.append(frame.body.to_function(name, without))
        return name

    define(root)
    return definitions


def register(definitions: Sequence[Any], owner: object) -> str:
    """Register functions with the runtime while an object lives, and return the last one's name."""
    runtime = context.context()
    for definition in definitions:
        runtime.add_function_def(definition)
    names = [definition.signature.name for definition in definitions]
    weakref.finalize(owner, _remove, names)
    return str(names[-1])


def _remove(names: Sequence[str]) -> None:
    runtime = context.context()
    for name in names:
        if runtime.has_function(name):
            runtime.remove_function(name)


def for_graphs(definitions: Sequence[Any], original: Any) -> Any:
    """Make an AtomicFunction of the last definition, to be called while a graph is built.

    Args:
        definitions: that of a rewritten function, after those that it calls.
        original: the AtomicFunction that was rewritten.
    """
    with ops.Graph().as_default() as library:
        for child in original.children:
            library._add_function_recursive(child)
        for definition in definitions:
            graph = function_def_to_graph.function_def_to_graph(definition)
            for tensor, known in zip(
                graph.inputs, original.function_type.flat_inputs, strict=False
            ):
                if definition is definitions[-1]:
                    tensor.set_shape(known.shape)
            function = atomic_function.from_func_graph(
                definition.signature.name, graph, definition.attr
            )
            library._add_function(function)
    return function
