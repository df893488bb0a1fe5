"""Small tools."""

import amanda


class Insert(amanda.Tool):
    """Inserts one routine at every operator of some types."""

    def __init__(self, ops, insertion, routine, **options):
        super().__init__()
        self.ids = []
        self._insert = lambda ctx: getattr(ctx, insertion)(routine, **options)
        if "on_grad" in insertion:
            self.add_inst_for_gradient(self.analyze, ops=ops)
        else:
            self.add_inst_for_op(self.analyze, backward="backward" in insertion, ops=ops)

    def analyze(self, ctx):
        self.ids.append(ctx.op_id)
        self._insert(ctx)


class Count(amanda.Tool):
    """Counts the executions of operators of some types."""

    def __init__(self, ops=None):
        super().__init__()
        self.counts = {}
        self.add_inst_for_op(self.analyze, ops=ops)

    def analyze(self, ctx):
        self.counts[ctx.op_id] = 0
        ctx.insert_before_op(self.bump, id=ctx.op_id)

    def bump(self, *tensors, id):
        self.counts[id] += 1


def times(factor, ops=("MatMul",), pure=False):
    """Multiplies the outputs of operators."""
    return Insert(list(ops), "insert_after_op", lambda y: y * factor, pure=pure)
