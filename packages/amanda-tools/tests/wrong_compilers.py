"""Compilers that compute some operators otherwise."""

import torch


def wrong_at(name, by=1.01, if_alone=False):
    """A compiler that scales what operators of that name give.

    Args:
        name: of a function or method that the program calls.
        by: the factor.
        if_alone: only where what goes in is read by nothing else, as those that fuse operators do.
    """

    def is_meant(node):
        called = getattr(node.target, "__name__", node.target)
        return called == name and (not if_alone or alone(node))

    def compile(module, inputs):
        return scaled(module, by, is_meant)

    return compile


def wrong_gradient(name):
    """A compiler that scales what operators of ``aten`` give in a backward pass."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    def wrong(module, inputs):
        of_name = f"aten.{name}."
        return make_boxed_func(
            scaled(module, 1.01, lambda node: str(node.target).startswith(of_name))
        )

    def right(module, inputs):
        return make_boxed_func(scaled(module, 1, lambda node: False))

    return aot_autograd(fw_compiler=right, bw_compiler=wrong)


def scaled(module, by, choose):
    for node in filter(choose, list(module.graph.nodes)):
        with module.graph.inserting_after(node):
            product = module.graph.call_function(torch.mul, (node, by))
        node.replace_all_uses_with(product)
        product.args = (node, by)
    module.recompile()

    def run(*args):
        return module.forward(*args)

    return run


def alone(node):
    return all(len(given.users) == 1 for given in node.all_input_nodes)
