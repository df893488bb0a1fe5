"""Nodes of some types are seen by tools only on request, or left alone; these are the types."""

from __future__ import annotations

# They stand for arguments or carry control flow: nothing can be put before or after them.
STRUCTURE = frozenset(
    [
        *("Placeholder", "PlaceholderWithDefault", "_Arg", "_Retval"),
        *("Enter", "RefEnter", "Exit", "RefExit", "Switch", "RefSwitch", "Merge", "RefMerge"),
        *("NextIteration", "RefNextIteration", "LoopCond", "ControlTrigger"),
    ]
)
# Plumbing of every graph: only tools that name these types see them.
OPT_IN = frozenset(
    [
        *("Const", "Identity", "IdentityN", "NoOp", "StopGradient", "PreventGradient"),
        *("VarHandleOp", "VariableV2", "Variable", "ReadVariableOp", "Assign"),
        *("AssignVariableOp", "VarIsInitializedOp", "MergeV2Checkpoints", "SaveV2", "RestoreV2"),
        *("PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf", "Case"),
        *("StatelessCase", "While", "StatelessWhile", "FakeParam"),
        *("StackV2", "StackPushV2", "StackPopV2", "EmptyTensorList", "TensorListPushBack"),
        *("TensorListPopBack", "OptionalFromValue", "OptionalGetValue", "OptionalNone"),
        *("IteratorV2", "IteratorGetNext", "HashTableV2", "CheckNumerics", "Assert"),
        # A session keeps the tensor if it is asked for what these give, and not what comes after.
        *("GetSessionHandle", "GetSessionHandleV2"),
    ]
)
# They are stateful for TensorFlow, as others write what they read, but have no effects themselves.
READING = frozenset(
    [
        *("ReadVariableOp", "VarHandleOp", "VarIsInitializedOp", "ResourceGather"),
        *("ResourceGatherNd", "VariableShape"),
    ]
)
# Of what they take they read the shape alone, which no routine changes.
SHAPE_ALONE = frozenset(
    [
        *("OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"),
        *("TensorListElementShape", "TensorListLength"),
    ]
)
