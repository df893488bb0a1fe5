"""Holds operators, as a portable tool sees them, to ONNX's own reference implementation."""

import amanda
import numpy as np
from amanda_contextmap.schema import mismatch
from amanda_contextmap.testing import assert_in_schema, reference

# What they compute is drawn, or depends on the machine.
RANDOM = {"Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike"}

# The evaluator computes these in half precision all through, frameworks in single.
HALF = {"LogSoftmax", "RMSNormalization"}

TOLERANCES = {"float16": 5e-3, "bfloat16": 5e-2, "float32": 1e-4, "complex64": 1e-4}


class Operator:
    """One execution of an operator in the words of ONNX, its tensors as arrays."""

    def __init__(self, ctx):
        self.id, self.type, self.scope = ctx.op.id, ctx.op.type, ctx.op.scope
        self.roles, self.attrs = list(ctx.input_names), dict(ctx.attrs)
        self.weight = ctx.weight_index
        self.inputs = None if self.roles else []
        self.outputs = None

    def before(self, *inputs) -> None:
        self.inputs = [array(tensor) for tensor in inputs]

    def after(self, *outputs) -> None:
        self.outputs = [array(tensor) for tensor in outputs]

    def __str__(self):
        given = ", ".join(
            f"{role}: {getattr(value, 'dtype', '?')}{list(getattr(value, 'shape', '?'))}"
            for role, value in zip(self.roles, self.inputs or [], strict=False)
        )
        return f"{self.type}({given}) {self.attrs}"


class Look(amanda.Tool):
    """Keeps every operator as it ran first, all tensors as arrays."""

    def __init__(self):
        super().__init__(namespace="onnx")
        self.seen = []
        self.add_inst_for_op(self.analyze)

    def analyze(self, ctx):
        operator = Operator(ctx)
        self.seen.append(operator)
        if operator.roles:
            ctx.insert_before_op(operator.before)
        ctx.insert_after_op(operator.after)


def array(tensor):
    """A tensor of any backend as an array; None for one that NumPy cannot hold."""
    if hasattr(tensor, "detach"):
        tensor = tensor.detach()
    try:
        return np.array(tensor.resolve_conj() if hasattr(tensor, "resolve_conj") else tensor)
    except (TypeError, RuntimeError, NotImplementedError, ValueError):
        return None


def difference(operator):
    """Why an operator is not what ONNX says, None where it is or cannot be held to it."""
    if "::" in operator.type or operator.inputs is None or operator.outputs is None:
        return None
    assert_in_schema(operator.type, operator.roles, operator.attrs)
    tensors = [*operator.inputs, *operator.outputs]
    if any(value is None for value in tensors) or operator.type in RANDOM:
        return None
    if operator.type == "Dropout" and operator.attrs["training_mode"]:
        return None
    dtypes = zip(operator.roles, (str(value.dtype) for value in operator.inputs), strict=True)
    unfit = mismatch(operator.type, dtypes, operator.attrs)
    if unfit is not None:
        return unfit
    try:
        roles, inputs = completed(operator)
        outputs = 1 if operator.type == "BatchNormalization" else len(operator.outputs)
        expected = reference(operator.type, roles, inputs, operator.attrs, outputs)
    except Exception as error:
        if evaluator_fault(operator, error):
            return None
        return f"the evaluator: {type(error).__name__}: {error}"
    for number, (wanted, found) in enumerate(zip(expected, operator.outputs, strict=False)):
        why = unlike(np.asarray(wanted), found, tolerance(operator))
        if why and not evaluator_fault(operator, None):
            return f"output {number}: {why}"
    return None


def completed(operator):
    """Inputs with those that ONNX wants and frameworks do without."""
    roles, inputs = list(operator.roles), list(operator.inputs)
    if not inputs:
        return roles, inputs
    x, axis = inputs[0], operator.attrs.get("axis")
    channels = x.shape[1:2]
    absent = {
        "BatchNormalization": {"scale": channels, "B": channels},
        "GroupNormalization": {"scale": channels, "bias": channels},
        "InstanceNormalization": {"scale": channels, "B": channels},
        "LayerNormalization": {"Scale": x.shape[axis:] if axis is not None else ()},
        "RMSNormalization": {"scale": x.shape[axis:] if axis is not None else ()},
    }.get(operator.type, {})
    if operator.type == "BatchNormalization" and operator.attrs["training_mode"]:
        absent |= {"input_mean": channels, "input_var": channels}
        for role in ("input_mean", "input_var"):
            if role in roles and not inputs[roles.index(role)].size:  # TensorFlow's in training
                del inputs[roles.index(role)], roles[roles.index(role)]
    for role, shape in absent.items():
        if role not in roles:
            fill = np.zeros if role in ("B", "bias", "input_mean") else np.ones
            roles.append(role)
            inputs.append(fill(shape, x.dtype))
    return roles, inputs


def tolerance(operator):
    kinds = [str(value.dtype) for value in (*operator.inputs, *operator.outputs)]
    return max((TOLERANCES.get(kind, 1e-6) for kind in kinds), default=1e-6)


def unlike(wanted, found, tolerance):
    """How two arrays differ, None if they are close."""
    if wanted.shape != found.shape:
        return f"shape {wanted.shape} in ONNX, {found.shape} in the framework"
    if wanted.dtype != found.dtype:
        return f"{wanted.dtype} in ONNX, {found.dtype} in the framework"
    if wanted.dtype.kind not in "fiubc":
        return None if (wanted == found).all() else "other values"
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, b = wanted.astype(kind), found.astype(kind)
    finite = np.abs(b[np.isfinite(b)])
    scale = max(1.0, finite.max()) if finite.size else 1.0
    with np.errstate(invalid="ignore"):
        close = np.isclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    return None if close.all() else f"{1 - close.mean():.0%} of the values differ"


def evaluator_fault(operator, error):
    """Whether the reference implementation is known to be wrong here, and not the map."""
    attrs, inputs = operator.attrs, operator.inputs
    if any(value.dtype == np.float16 for value in inputs) and operator.type in HALF:
        return True
    pads = attrs.get("pads") or [0]
    match operator.type:
        case "GlobalMaxPool":
            return inputs[0].ndim != 4
        case "MaxPool" | "AveragePool":
            half = len(pads) // 2
            return pads[:half] != pads[half:]
        case "ConvTranspose":
            return attrs.get("group", 1) != 1
        case "Pad":
            return any(pad < 0 for pad in pads)
        case "GatherElements":
            data, indices = inputs
            return data.shape != indices.shape
        case "Pow":
            return error is not None and "negative integer powers" in str(error)
        case "LRN":  # it goes over the batch where it should go over the channels
            return inputs[0].shape[0] != inputs[0].shape[1]
        case "Unique":
            return not attrs["sorted"]
        case "ReduceLogSumExp":
            return inputs[0].ndim == 0
        case "BatchNormalization":
            return inputs[0].size == 0
        case "RNN":
            return "Relu" in attrs.get("activations", ())
        case "Transpose":
            return attrs["perm"] == []
        case "Resize":  # factors that are no powers of two give other pixels at ties
            return attrs["mode"] == "nearest" and "scales" in attrs
    return False
