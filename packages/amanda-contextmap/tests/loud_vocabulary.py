"""A vocabulary that names the NumPy backend's operators otherwise, in another order and layout.

``MATMUL`` has its weight first, as (out, in); ``UNSTACK`` has its second output first.
"""

from amanda_contextmap import ContextMap, Translation


class Transposed:
    def to_canonical(self, tensor, xp):
        return xp.matrix_transpose(tensor)

    def to_native(self, tensor, xp):
        return xp.matrix_transpose(tensor)


class Loud(ContextMap):
    def native_types(self, types):
        return frozenset(type.lower() for type in types)

    def translate(self, execution, driver):
        type = execution.operator.type
        if type == "matmul":
            layouts = (Transposed(), None)
            return Translation("MATMUL", (1, 0), ("W", "X"), {"LOUD": True}, None, layouts)
        if type == "unstack":
            return Translation("UNSTACK", (0,), ("X",), {}, outputs=(1, 0))
        inputs = range(len(execution.inputs))
        return Translation(type.upper(), inputs, execution.input_names, execution.attrs)


context_map = Loud()
