"""A vocabulary that has a ``Gate`` for what backends compute by several operators."""

import dataclasses

import amanda


class Renamed:
    """An operator under another name, with all that belongs to it."""

    def __init__(self, type):
        self.type, self.types = type, {type}

    def analysis(self, native):
        operator = native.execution.operator.snapshot()
        operator.type = self.type
        native.execution = dataclasses.replace(native.execution, operator=operator)
        return native


class Tool(amanda.Tool):
    """Notes what it sees, and inserts at gates, or natively at one type."""

    def __init__(self, namespace="gates", ops=("Gate",), gradient=None, **insertions):
        super().__init__(namespace=namespace)
        self.insertions, self.on_gradient = insertions, gradient
        self.seen, self.ids, self.names = [], [], []
        self.add_inst_for_op(self.look)
        self.add_inst_for_op(self.analyze, ops=list(ops))
        self.add_inst_for_gradient(self.analyze_gradient, ops=list(ops))

    def look(self, ctx):
        self.seen.append(ctx.op.type)
        self.ids.append(ctx.op.id)
        self.names.append(list(ctx.input_names))

    def analyze(self, ctx):
        for kind, (routine, options) in self.insertions.items():
            getattr(ctx, kind)(routine, **options)

    def analyze_gradient(self, ctx):
        if self.on_gradient is not None:
            routine, options = self.on_gradient
            ctx.insert_on_grad_inputs(routine, **options)
