"""Operators made by hand, without any framework."""

from amanda import Operator, TensorInfo, ValueUnavailableError
from amanda.driving import Execution


class Tensor:
    """What a map may ask of a tensor; ``shape`` is None for an unknown rank."""

    def __init__(self, *shape, dtype="float32", parameter=False, value=None, ranked=True):
        self.shape = shape if ranked else None
        self.dtype = dtype
        self.parameter = parameter
        self.value = value


class Driver:
    def describe(self, tensor):
        return TensorInfo(tensor.shape, tensor.dtype, None, None)

    def is_parameter(self, tensor):
        return tensor.parameter

    def value(self, tensor):
        if tensor.value is None:
            raise ValueUnavailableError("known only when it runs")
        return tensor.value


def translated(map, type, tensors, attrs=()):
    """What a map makes of an operator, with its inputs by role."""
    operator = Operator(id=type, type=type, name=type, scope="", backend=map.vocabulary)
    names, inputs = list(tensors), list(tensors.values())
    translation = map.translate(Execution(operator, inputs, names, dict(attrs)), Driver())
    return Translated(translation, inputs)


class Translated:
    def __init__(self, translation, inputs):
        self.type = translation.type
        self.attrs = dict(translation.attrs)
        self.roles = {
            role: inputs[i]
            for role, i in zip(translation.input_names, translation.inputs, strict=True)
        }
        layouts = translation.input_layouts or [None] * len(self.roles)
        self.layouts = dict(zip(translation.input_names, layouts, strict=True))
        self.outputs = translation.outputs
        self.output_layouts = translation.output_layouts
