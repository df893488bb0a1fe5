"""The edges of real architectures, against what the frameworks themselves know of them."""

import amanda
import keras
import pytest
import small_keras
import tensorflow as tf
import torch
from amanda_tools import Graph
from plain_models import DenseNet

# What no tool sees of a graph.
UNSEEN = {"Identity", "ReadVariableOp", "Placeholder", "Const", "StopGradient", "NoOp"}


def numbered(graph):
    """The edges with the operators by their numbers."""
    numbers = {id: number for number, id in enumerate(graph.nodes)}
    return {(numbers[e.producer], e.output, numbers[e.consumer], e.input) for e in graph.edges}


def test_of_a_convolutional_net_are_those_of_torch_fx():
    model = DenseNet().eval()
    graph, x = Graph(), torch.randn(2, 3, 32, 32)
    with amanda.apply(graph):
        model(x)
    nodes = [n for n in torch.fx.symbolic_trace(model).graph.nodes if n.op.startswith("call")]
    numbers = {node: number for number, node in enumerate(nodes)}
    assert len(nodes) == len(graph.nodes) > 30
    assert {(producer, consumer) for producer, _, consumer, _ in numbered(graph)} == {
        (numbers[taken], numbers[node])
        for node in nodes
        for taken in node.all_input_nodes
        if taken in numbers
    }


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="of graphs of TensorFlow")
def test_of_a_keras_model_are_those_of_its_graph():
    model, x = small_keras.transformer()
    call = tf.function(lambda x: model(x, training=False))
    graph = Graph()
    with amanda.apply(graph):
        call(x)
    operations = [
        operation
        for operation in call.get_concrete_function(x).graph.get_operations()
        if operation.type not in UNSEEN
    ]
    numbers = {operation.name: number for number, operation in enumerate(operations)}
    assert [operation.type for operation in operations] == [n.type for n in graph.nodes.values()]
    edges = set()
    for operation in operations:
        for index, tensor in enumerate(operation.inputs):
            while tensor.op.type in ("Identity", "StopGradient"):
                tensor = tensor.op.inputs[0]
            if tensor.op.name in numbers:
                consumer = numbers[operation.name]
                edges.add((numbers[tensor.op.name], tensor.value_index, consumer, index))
    assert numbered(graph) == edges
    assert len(edges) > 50


def test_of_a_loop_past_the_lists_that_carry_its_tensors():
    call = tf.function(lambda x: tf.cos(tf.map_fn(tf.sin, tf.exp(x))))
    graph = Graph()
    with amanda.apply(graph):
        call(tf.ones((3, 2)))
    (sin,) = (id for id, node in graph.nodes.items() if node.type == "Sin")
    shown = graph.without()
    assert [shown.nodes[id].type for id in shown.predecessors(sin)] == ["Exp"]
    assert [shown.nodes[id].type for id in shown.successors(sin)] == ["Cos"]
