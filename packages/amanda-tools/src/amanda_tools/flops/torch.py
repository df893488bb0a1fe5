"""These formulas for PyTorch's operators count what ``torch.utils.flop_counter`` counts.

An operator that is made of others (``einsum``, ``lstm``, ``scaled_dot_product_attention``) needs
no formula: what runs inside of it is counted. Those that have one here are the contractions, and
the fused kernels that nobody can look into. Types are base names of ``aten``.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from amanda_tools.flops.table import Table

if TYPE_CHECKING:
    from amanda_tools.flops.table import Attrs, Flows, Shapes


TABLE = Table(
    views="""
        _conj _neg_view _reshape_alias adjoint as_strided broadcast_to chunk conj diagonal dsplit
        expand expand_as hsplit imag linalg_diagonal matrix_H mH moveaxis movedim mT narrow numpy_T
        permute positive real resolve_conj resolve_neg select slice split split_with_sizes squeeze
        squeeze_ swapaxes swapdims t t_ tensor_split transpose transpose_ unbind unflatten unfold
        unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_ view view_as
        view_as_complex view_as_real vsplit
    """,
    copies="""
        _to_copy _unsafe_index _unsafe_view arange block_diag cat channel_shuffle clone
        column_stack concat concatenate constant_pad_nd contiguous copy copy_ diag diag_embed
        dstack embedding eye fill fill_ flatten flip fliplr flipud full full_like gather hstack
        im2col index index_copy index_copy_ index_fill index_fill_ index_put index_put_
        index_select masked_fill masked_fill_ masked_scatter masked_scatter_ masked_select meshgrid
        new_full new_ones new_zeros ones ones_like pad pixel_shuffle pixel_unshuffle ravel
        reflection_pad1d reflection_pad2d reflection_pad3d repeat repeat_interleave
        replication_pad1d replication_pad2d replication_pad3d reshape reshape_as roll rot90
        row_stack scatter scatter_ select_scatter slice_scatter stack take take_along_dim tile to
        tril tril_ triu triu_ type_as vstack where zero_ zeros zeros_like
    """,
    leaves="""
        _log_softmax _softmax abs adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d add
        add_ addcdiv addcdiv_ addcmul addcmul_ all alpha_dropout amax amin any argmax
        argmin argsort avg_pool1d avg_pool2d avg_pool3d batch_norm bernoulli bernoulli_
        binary_cross_entropy binary_cross_entropy_with_logits bitwise_and bitwise_not
        bitwise_or ceil celu clamp clamp_ clamp_max clamp_min cos cross_entropy_loss cummax
        cumprod cumsum div div_ dropout dropout_ elu elu_ eq erf exp exp_ expm1
        feature_dropout floor floor_divide ge gelu glu group_norm gt hardsigmoid
        hardsigmoid_ hardswish hardswish_ hardtanh hardtanh_ huber_loss instance_norm
        isfinite isinf isnan kl_div l1_loss layer_norm le leaky_relu leaky_relu_ lerp lerp_
        linalg_vector_norm log log1p log2 log_sigmoid log_softmax logical_and logical_not
        logical_or logsumexp lt max max_pool1d max_pool2d max_pool3d maximum mean min
        minimum mish mse_loss mul mul_ multinomial nan_to_num native_batch_norm
        native_dropout native_group_norm native_layer_norm ne neg nll_loss nll_loss_nd norm
        normal_ one_hot pow prelu prod rand rand_like randint randn randn_like reciprocal
        relu relu6 relu_ remainder rms_norm round rsqrt rsub selu sigmoid sigmoid_ sign
        silu silu_ sin smooth_l1_loss softmax softplus sort sqrt square std sub sub_ sum
        tanh tanh_ threshold topk true_divide uniform_ upsample_bicubic2d
        upsample_bilinear2d upsample_nearest2d var var_mean
    """,
)
formula = TABLE.formula


@formula(
    "mm", "bmm", "matmul", "linear", "mv", "dot", "vdot", "_int_mm", "_scaled_mm", operands=(0, 1)
)
def product(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Each element of the output sums over the last dimension of the first operand."""
    return 2 * prod(outputs[0]) * inputs[0][-1]


@formula("addmm", "addmm_", "baddbmm", "baddbmm_", "addmv", "addmv_", operands=(1, 2))
def added_product(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """The product of two matrices is added to the first input; that addition is not counted."""
    return 2 * prod(outputs[0]) * inputs[1][-1]


@formula("addbmm", "addbmm_", operands=(1, 2))
def added_sum_of_products(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """The products of (b, m, k) by (b, k, n) are summed over the batch."""
    return 2 * prod(inputs[1]) * inputs[2][-1]


@formula("_grouped_mm", operands=(0, 1))
def grouped_product(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Groups of rows or columns are multiplied, as in a mixture of experts.

    Two matrices are split along the dimension that is summed over: each group has a share of it.
    """
    left, right = inputs[:2]
    if len(left) == len(right) == 2:
        return 2 * prod(left) * right[-1]
    return 2 * prod(outputs[0]) * left[-1]


@formula(
    "conv1d", "conv2d", "conv3d", "_convolution_mode", "cudnn_convolution", "mkldnn_convolution",
    "_slow_conv2d_forward", operands=(0, 1),
)  # fmt: skip
def convolution(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Each element of the output sums over a window of the channels of its group.

    Windows that reach into the padding count in full.
    """
    return 2 * prod(outputs[0]) * prod(inputs[1][1:])


@formula("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", operands=(0, 1))
def transposed_convolution(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Each element of the input adds to a window of the channels of its group."""
    return 2 * prod(inputs[0]) * prod(inputs[1][1:])


@formula("convolution", "_convolution", "convolution_overrideable", operands=(0, 1))
def any_convolution(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """The convolution is plain or transposed."""
    kind = transposed_convolution if attrs["transposed"] else convolution
    return kind.forward(inputs, outputs, attrs)


@formula("conv_tbc", operands=(0, 1))
def convolution_of_sequence(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """The input is (time, batch, channels), the weight (window, channels in, channels out)."""
    return 2 * prod(outputs[0]) * prod(inputs[1][:2])


@formula(
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable", operands=(0, 1, 2),
)  # fmt: skip
def attention(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Scores and their product with the values count; a mask, also a causal one, saves nothing."""
    query, key, value = inputs[:3]
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


@attention.gradient
def attention_gradient(inputs: Shapes, outputs: Shapes, attrs: Attrs, flows: Flows) -> int:
    """Fused kernels compute the scores again, and then all gradients, wanted or not."""
    query, key, value = inputs[:3]
    return 2 * prod(query[:-1]) * key[-2] * (3 * query[-1] + 2 * value[-1]) * any(flows[:3])


@formula("_euclidean_dist", operands=(0, 1))
def distances(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """The points, to which their squared norms and ones are appended, are multiplied."""
    return 2 * prod(outputs[0]) * (inputs[0][-1] + 2)


@distances.gradient
def distances_gradient(inputs: Shapes, outputs: Shapes, attrs: Attrs, flows: Flows) -> int:
    """Both gradients are computed, wanted or not."""
    return 4 * prod(outputs[0]) * inputs[0][-1]


@formula("bilinear", operands=(0, 1, 2))
def bilinear(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """The first input is multiplied with the weight, and that with the second input."""
    _, right, (out, left, _) = inputs[:3]
    return 2 * prod(right) * out * (left + 1)


@bilinear.gradient
def bilinear_gradient(inputs: Shapes, outputs: Shapes, attrs: Attrs, flows: Flows) -> int:
    """Each gradient takes two products, in the order in which ATen's ``_trilinear`` takes them."""
    _, _, (out, left, right) = inputs[:3]
    whole = out * left * right
    samples = prod(outputs[0][:-1])
    products = (whole + left * right, whole + out * right, whole + out * left)
    return 2 * samples * sum(n for n, flow in zip(products, flows, strict=False) if flow)


@formula("mkldnn_rnn_layer", operands=(0, 1, 2))
def recurrent_layer(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Each step multiplies input and state with the weights of all gates."""
    steps = prod(inputs[0][:-1])
    return 2 * steps * (prod(inputs[1]) + prod(inputs[2]))


@recurrent_layer.gradient
def recurrent_layer_gradient(inputs: Shapes, outputs: Shapes, attrs: Attrs, flows: Flows) -> int:
    """The kernel computes all gradients, wanted or not."""
    return 2 * recurrent_layer.forward(inputs, outputs, attrs)


@formula("_cudnn_rnn", operands=(0,))
def recurrent_layers(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Each step multiplies with each weight matrix."""
    sequence, *rest = inputs
    return 2 * prod(sequence[:-1]) * sum(prod(shape) for shape in rest if len(shape) == 2)


@recurrent_layers.gradient
def recurrent_layers_gradient(inputs: Shapes, outputs: Shapes, attrs: Attrs, flows: Flows) -> int:
    """The kernel computes the gradients of the inputs always, of the weights if any is wanted."""
    weights = any(f for s, f in zip(inputs[1:], flows[1:], strict=True) if len(s) == 2)
    return recurrent_layers.forward(inputs, outputs, attrs) * (1 + weights)


@formula("_native_multi_head_attention", operands=(0,))
def attention_module(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Attention and its projections count: ``nn.MultiheadAttention``'s fast path for inference."""
    query, key, _, into, _, out = inputs[:6]
    width = query[-1]
    projections = prod(query) * (width + out[0]) + prod(key) * (into[0] - width)
    return 2 * (projections + 2 * prod(query) * key[-2])


@formula("_transformer_encoder_layer_fwd", operands=(0,))
def encoder_layer(inputs: Shapes, outputs: Shapes, attrs: Attrs) -> int:
    """Attention and the two layers behind it count: ``nn.TransformerEncoderLayer``'s fast path."""
    source, matrices = inputs[0], inputs[1:13:2]
    products = sum(prod(shape) for shape in matrices if len(shape) == 2)
    return 2 * (prod(source[:-1]) * products + 2 * prod(source) * source[-2])
