"""The tool that does nothing, which every table measures."""

from __future__ import annotations

import amanda


class Empty(amanda.Tool):
    """Wants some operator types, all by default, and inserts a routine that does nothing.

    Args:
        ops: the types.
        insert: whether it inserts anything.
        backward: whether it wants backward operators too.
    """

    def __init__(
        self, ops: list[str] | None = None, insert: bool = True, backward: bool = False
    ) -> None:
        super().__init__()
        self.insert = insert
        self.add_inst_for_op(self.analyze, ops=ops)
        if backward:
            self.add_inst_for_op(self.analyze_backward, ops=ops, backward=True, keep_forward=False)

    def analyze(self, ctx: amanda.OpContext) -> None:
        if self.insert:
            ctx.insert_before_op(self.nothing)

    def analyze_backward(self, ctx: amanda.OpContext) -> None:
        if self.insert:
            ctx.insert_before_backward_op(self.nothing)

    def nothing(self, *tensors: object) -> None:
        pass
