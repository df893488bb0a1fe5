"""Some operators are run by torch's own Python functions, which do the same at half the cost.

Such a function parses arguments without boxing them. For most operators that parser gets from what
a kernel is given to the same overload with the same arguments. For some it does not, or not with
all arguments, and so those that may be run that way are listed; a test holds the list to PyTorch's
samples of its operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amanda_torch._internals import BINDINGS

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES = """
abs acos add.Tensor addcdiv addcmul addmm argmax argmin asin atan atan2 baddbmm bmm ceil cos cosh
dot elu erf erfc exp expm1 floor gelu glu hardsigmoid hardswish hardtanh isfinite isnan leaky_relu
lerp.Scalar linear log log10 log1p log2 log_sigmoid logical_not matmul maximum minimum mish mm
mul.Tensor mv neg pow.Tensor_Tensor reciprocal relu relu6 round rsqrt selu sigmoid sign silu sin
sinh softplus sqrt square sub.Tensor div.Tensor tan tanh tril triu trunc where.self eq.Tensor
ge.Tensor ge.Scalar gt.Tensor le.Tensor lt.Tensor ne.Tensor masked_fill.Scalar masked_fill.Tensor
all all.dim amax amin any any.dim cumsum log_softmax.int logsumexp max max.dim mean mean.dim min
min.dim prod sort softmax.int sum sum.dim_IntList topk clone expand expand_as flatten.using_ints
flip gather index_select narrow permute repeat repeat_interleave.self_int reshape roll select.int
squeeze squeeze.dim t transpose.int unflatten.int unfold unsqueeze view view_as chunk split.Tensor
unbind.int adaptive_avg_pool1d adaptive_avg_pool2d avg_pool1d avg_pool2d batch_norm constant_pad_nd
conv1d conv2d conv3d conv_transpose1d conv_transpose2d.input dropout embedding group_norm
instance_norm layer_norm max_pool1d max_pool2d pad pixel_shuffle rms_norm
scaled_dot_product_attention add_.Tensor copy_ div_.Tensor exp_ fill_.Scalar masked_fill_.Scalar
mul_.Tensor neg_ sigmoid_ sqrt_ sub_.Tensor tanh_ zero_ clamp clamp_ clamp_min clamp_max contiguous
pow.Tensor_Scalar relu_ type_as
"""

SAME = frozenset(f"aten::{name}" for name in _NAMES.split())
"""Full names of the overloads for which that holds."""


def binding_of(name: str) -> Callable[..., Any] | None:
    """Return torch's Python function for an overload; None if it is not known to run the same."""
    if name not in SAME:
        return None
    base = name.removeprefix("aten::").partition(".")[0]
    found = (getattr(owner, base) for owner in BINDINGS if hasattr(owner, base))
    return next(found, None)
