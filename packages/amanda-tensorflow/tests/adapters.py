"""How the conformance suite drives TensorFlow: by tf.function and by Session.run."""

import gc

import amanda_tensorflow  # noqa: F401  # before modules decorate their calls
import keras
import tensorflow as tf
from amanda.testing import Adapter, Model, run_step

OPERATIONS = {
    "matmul": tf.matmul,
    "add": tf.add,
    "multiply": tf.multiply,
    "relu": tf.nn.relu,
    "sigmoid": tf.sigmoid,
    "select": tf.where,
    "unstack": lambda value: tf.unstack(value, num=2),
    "range": lambda: tf.constant([0.0, 1.0, 2.0]),
}


def call(step, operands):
    with tf.name_scope(step.layer):
        results = OPERATIONS[step.kind](*operands)
    return results if isinstance(results, list) else [results]


def loop(times, body, value):
    _, value = tf.while_loop(
        lambda turn, value: turn < times,
        lambda turn, value: (turn + 1, body(value)),
        (tf.constant(0), value),
    )
    return value


def loop_with_gradients_to_come(times, body, value):
    """A loop in a graph that runs before gradients are added, which TensorFlow wants to know."""
    tf.compat.v1.experimental.output_all_intermediates(True)
    try:
        return loop(times, body, value)
    finally:
        tf.compat.v1.experimental.output_all_intermediates(None)


class Act(keras.layers.Layer):
    def call(self, x):
        return tf.sigmoid(x)


class Body(keras.layers.Layer):
    def __init__(self, w, act):
        super().__init__(name="body")
        self.w = w
        self.act = act

    def call(self, x, shift):
        total = tf.matmul(x, self.w) + shift
        return {"sum": total, "twice": [self.act(self.act(total))]}


class Net(keras.layers.Layer):
    def __init__(self, w):
        super().__init__(name="net")
        self.body = Body(w, Act(name="act"))

    def call(self, x, shift):
        found = self.body(x, shift=shift)
        return found["twice"][0] * found["sum"]


def modules():
    """The same classes, of modules that open their name scopes."""

    class Act(tf.Module):
        @tf.Module.with_name_scope
        def __call__(self, x):
            return tf.sigmoid(x)

    class Body(tf.Module):
        def __init__(self, w):
            super().__init__()
            self.w = w
            with self.name_scope:
                self.act = Act()

        @tf.Module.with_name_scope
        def __call__(self, x, shift):
            total = tf.matmul(x, self.w) + shift
            return {"sum": total, "twice": [self.act(self.act(total))]}

    class Net(tf.Module):
        def __init__(self, w):
            super().__init__()
            with self.name_scope:
                self.body = Body(w)

        @tf.Module.with_name_scope
        def __call__(self, x, shift):
            found = self.body(x, shift=shift)
            return found["twice"][0] * found["sum"]

    return Net


class Nested:
    """A program that calls the nested modules of the suite.

    Args:
        make: the class of the outermost one.
    """

    switches = ()

    def __init__(self, make):
        self._make = make
        self._net = None

    def run(self, call, values, switches=(), loop=None):
        if self._net is None:
            self._net = self._make(values["w"])
        return self._net(values["x"], values["shift"])


class TensorFlowAdapter(Adapter):
    backend = "tensorflow"
    vocabulary = "tensorflow"
    types = {
        "matmul": "MatMul",
        "add": "AddV2",
        "multiply": "Mul",
        "relu": "Relu",
        "sigmoid": "Sigmoid",
        "select": "SelectV2",
        "unstack": "Unpack",
        "range": "Const",
    }
    input_names = {"matmul": ("a", "b"), "unstack": ("value",)}
    attrs = {
        "matmul": {"transpose_a": False, "transpose_b": False},
        "unstack": {"num": 2, "axis": 0},
    }
    eager = False
    differentiable = False
    none_for_unneeded_inputs = False
    none_for_unused_outputs = False
    one_in_loop = True

    def tensor(self, array):
        return tf.constant(array)

    def array(self, tensor):
        return tensor.numpy()


class FunctionModel(Model):
    """Runs as a tf.function, with a tape around it."""

    def __init__(self, program, parameters):
        self._program = program
        variables = {name: tf.Variable(array) for name, array in parameters.items()}
        self._variables = variables
        self._training = False

        @tf.function
        def run(inputs, switches, training):
            return program.run(call, {**variables, **inputs}, switches, loop)

        self._run = run

    def _call(self, inputs, switches):
        return self._run(inputs, tuple(switches), self._training)

    def forward(self, inputs, switches=()):
        return self._call(self._tensors(inputs), switches).numpy()

    def gradients(self, wrt, inputs, switches=()):
        tensors = self._tensors(inputs)
        sources = [{**self._variables, **tensors}[name] for name in wrt]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for source in sources:
                tape.watch(source)
            output = self._call(tensors, switches)
        return self._arrays(wrt, tape.gradient(output, sources, unconnected_gradients="zero"))

    def second_gradients(self, of, wrt, inputs):
        tensors = self._tensors(inputs)
        values = {**self._variables, **tensors}
        sources = [values[name] for name in wrt]
        with tf.GradientTape(watch_accessed_variables=False) as outer:
            for source in (values[of], *sources):
                outer.watch(source)
            with tf.GradientTape(watch_accessed_variables=False) as inner:
                inner.watch(values[of])
                output = self._call(tensors, ())
            first = inner.gradient(output, values[of])
        return self._arrays(wrt, outer.gradient(first, sources, unconnected_gradients="zero"))

    def train(self, mode):
        self._training = mode

    def parameter(self, name):
        return self._variables[name].numpy()

    def holding_parameters(self):
        return list(self._variables.values())

    @staticmethod
    def _tensors(inputs):
        return {name: tf.constant(array) for name, array in inputs.items()}

    @staticmethod
    def _arrays(names, gradients):
        return {name: g.numpy() for name, g in zip(names, gradients, strict=True)}


class StepModel(FunctionModel):
    """Runs as a tf.function that holds the tape, as a training step does."""

    def __init__(self, program, parameters):
        super().__init__(program, parameters)
        variables = self._variables

        @tf.function
        def step(inputs, wrt, switches, training):
            values = {**variables, **inputs}
            sources = [values[name] for name in wrt]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                for source in sources:
                    tape.watch(source)
                output = program.run(call, values, switches, loop)
            return tape.gradient(output, sources, unconnected_gradients="zero")

        @tf.function
        def second(of, wrt, inputs):
            values = {**variables, **inputs}
            sources = [values[name] for name in wrt]
            with tf.GradientTape(watch_accessed_variables=False) as outer:
                for source in (values[of], *sources):
                    outer.watch(source)
                with tf.GradientTape(watch_accessed_variables=False) as inner:
                    inner.watch(values[of])
                    output = program.run(call, values, (), loop)
                first = inner.gradient(output, values[of])
            return outer.gradient(first, sources, unconnected_gradients="zero")

        self._step = step
        self._second = second

    def gradients(self, wrt, inputs, switches=()):
        tensors = self._tensors(inputs)
        gradients = self._step(tensors, tuple(wrt), tuple(switches), self._training)
        return self._arrays(wrt, gradients)

    def second_gradients(self, of, wrt, inputs):
        return self._arrays(wrt, self._second(of, tuple(wrt), self._tensors(inputs)))


class SessionModel(Model):
    """Runs as a graph of version 1, with symbolic gradients."""

    def __init__(self, program, parameters, use_resource):
        self._program = program
        self._use_resource = use_resource
        self._parameters = parameters
        self._graph = tf.Graph()
        self._output = None
        self._gradients = {}
        self._training = False
        with self._graph.as_default():
            self._variables = {
                name: tf.compat.v1.get_variable(name, initializer=array, use_resource=use_resource)
                for name, array in parameters.items()
            }
            self._session = tf.compat.v1.Session(graph=self._graph)
            self._session.run(tf.compat.v1.global_variables_initializer())

    def __del__(self):
        self._session.close()

    def forward(self, inputs, switches=()):
        return self._session.run(self._build(inputs), self._feeds(inputs, switches))

    def gradients(self, wrt, inputs, switches=()):
        output = self._build(inputs)
        fetches = [self._derived(output, wrt), output]
        arrays, _ = self._session.run(fetches, self._feeds(inputs, switches))
        return dict(zip(wrt, arrays, strict=True))

    def second_gradients(self, of, wrt, inputs):
        (first,) = self._derived(self._build(inputs), [of])
        arrays = self._session.run(self._derived(first, wrt), self._feeds(inputs, ()))
        return dict(zip(wrt, arrays, strict=True))

    def _derived(self, output, wrt):
        """Gradients of the sum of a tensor of the graph, which are made once."""
        key = output.name, *wrt
        if key not in self._gradients:
            values = {**self._variables, **self._placeholders}
            with self._graph.as_default():
                self._gradients[key] = tf.gradients(
                    output, [values[name] for name in wrt], unconnected_gradients="zero"
                )
        return self._gradients[key]

    def train(self, mode):
        self._training = mode

    def parameter(self, name):
        return self._session.run(self._variables[name])

    def holding_parameters(self):
        return self._session

    def _build(self, inputs):
        if self._output is None:
            with self._graph.as_default():
                self._placeholders = {
                    name: tf.compat.v1.placeholder(array.dtype, [None, *array.shape[1:]])
                    for name, array in inputs.items()
                }
                self._switches = {
                    name: tf.compat.v1.placeholder_with_default(False, ())
                    for name in self._program.switches
                }
                self._output = self._run({**self._variables, **self._placeholders})
        return self._output

    def _run(self, values):
        for step in self._program.steps:
            values.update(zip(step.results, self._step(step, values), strict=True))
        return values[self._program.output]

    def _step(self, step, values):
        operands = [values[name] for name in step.operands]
        if step.switch is None:
            return run_step(call, step, operands, loop_with_gradients_to_come)
        unchanged = [values[name] for name in step.results]
        return tf.cond(self._switches[step.switch], lambda: call(step, operands), lambda: unchanged)

    def _feeds(self, inputs, switches):
        return {
            **{self._placeholders[name]: array for name, array in inputs.items()},
            **{self._switches[name]: True for name in switches},
        }


class NestedInASession(SessionModel):
    """Nested modules in a graph of version 1."""

    def _run(self, values):
        return self._program.run(call, values)


class FunctionAdapter(TensorFlowAdapter):
    def build(self, program, parameters):
        return FunctionModel(program, parameters)

    def nested(self, parameters):
        return FunctionModel(Nested(modules()), parameters)


class StepAdapter(TensorFlowAdapter):
    none_for_unneeded_inputs = True

    def build(self, program, parameters):
        return StepModel(program, parameters)

    def nested(self, parameters):
        gc.collect()  # lost layers of Keras are cycles, and have their ids until then
        return StepModel(Nested(Net), parameters)


class SessionAdapter(TensorFlowAdapter):
    none_for_unneeded_inputs = True

    def build(self, program, parameters):
        return SessionModel(program, parameters, use_resource=True)

    def nested(self, parameters):
        gc.collect()  # a lost graph is a cycle, and has its ids until then
        return NestedInASession(Nested(modules()), parameters, use_resource=True)


class ReferenceVariablesAdapter(TensorFlowAdapter):
    none_for_unneeded_inputs = True

    def build(self, program, parameters):
        return SessionModel(program, parameters, use_resource=False)

    def nested(self, parameters):
        gc.collect()
        return NestedInASession(Nested(modules()), parameters, use_resource=False)
