"""A toy framework: operators that only take time, and the driver that makes it obey tools."""

import contextlib

import amanda
from amanda.driving import Execution


class Tensor:
    """Has a shape and a dtype, and takes ``slowness`` nanoseconds to tell its shape."""

    def __init__(self, toy, shape, dtype="float32"):
        self.toy = toy
        self._shape = shape
        self.dtype = dtype

    @property
    def shape(self):
        self.toy.now += self.toy.slowness
        return self._shape


class Toy(amanda.Driver):
    """Runs operators by their ids; ``now`` is the time in nanoseconds."""

    backend = vocabulary = "toy"
    xp = None

    def __init__(self):
        self.now = 0
        self.slowness = 0
        self.engine = None
        self.operators = {}
        self.models = {}  # of operators, by id

    def forward(self, id, time, inside=(), shape=(2, 3)):
        """Run an operator for ``time`` nanoseconds, with what is ``inside`` it on top of that."""
        operator = self._operator(id)
        tensors = [Tensor(self, shape)]
        with self._under(self.engine, operator, tensors):
            self._work(time, inside)

    def backward(self, id, time, inside=()):
        """Run the backward operator of the operator ``id``."""
        operator, backward_operator = self._operator(id), self._operator(f"{id}Backward")
        tensors = [Tensor(self, (2, 3)), None]
        execution = Execution(
            operator, tensors, backward_operator=backward_operator, grad_outputs=tensors
        )
        engine = self.engine
        plan = engine.backward_plan(execution)
        engine.run(plan.before, tensors, backward_operator)
        self._work(time, inside)
        engine.run(plan.after, tensors, backward_operator)

    def _operator(self, id):
        scope, _, type = id.rpartition("/")
        if id not in self.operators:
            self.operators[id] = amanda.Operator(
                id=id,
                type=type.partition("#")[0],
                name=type,
                scope=scope,
                backend="toy",
                locate=lambda: amanda.Source(f"{scope}.py", 12),
            )
        return self.operators[id]

    @contextlib.contextmanager
    def _under(self, engine, operator, tensors):
        if engine is None:
            yield
            return
        execution = Execution(operator, tensors, [f"x{i}" for i in range(len(tensors))])
        plan = engine.plan(operator) or engine.analyze(execution)
        engine.run(plan.before, tensors, operator)
        yield
        engine.run(plan.after, tensors, operator)

    def _work(self, time, inside):
        self.now += time
        for run in inside:
            run()

    def activate(self, engine):
        self.engine = engine

    def model(self, operator):
        return self.models.get(operator.id)

    def value(self, tensor):
        raise NotImplementedError

    def describe(self, tensor):
        return amanda.TensorInfo(tensor.shape, tensor.dtype, None, "toy")

    def variable(self, initial, execution):
        raise NotImplementedError

    def incompatible_reason(self, original, substitute):
        return None
