"""FLOPs of single operators, by hand and against PyTorch's own counter."""

from math import prod

import amanda
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from amanda_tools.flops import Flops
from amanda_tools.flops.registry import tables
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import (
    FlopCounterMode,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

# Each example opens a scope around many operators, and is counted twice by PyTorch.
UNTIMED = settings(deadline=None, max_examples=40)


def tensor(*shape, **options):
    return torch.ones(*shape, requires_grad=True, **options)


def total(run):
    """What is counted while an operator runs and its gradient flows, if it has one."""
    flops = Flops()
    with amanda.apply(flops):
        output = run()
        if output.requires_grad:
            output.sum().backward()
    return flops.total()


def counted(run):
    """FLOPs forward and backward."""
    found = total(run)
    return found.forward, found.backward


def by_torch(run):
    """The same by PyTorch's counter."""
    with FlopCounterMode(display=False) as forward:
        output = run()
    with FlopCounterMode(display=False) as backward:
        output.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


BY_HAND = {
    # products of matrices: two for each multiply-add, the same again for each operand's gradient
    "mm": (lambda: tensor(2, 3).mm(tensor(3, 5)), 60, 120),
    "bmm": (lambda: tensor(4, 2, 3).bmm(tensor(4, 3, 5)), 240, 480),
    "addmm": (lambda: torch.addmm(tensor(5), tensor(2, 3), tensor(3, 5)), 60, 120),
    "addmm_": (lambda: tensor(2, 5).clone().addmm_(tensor(2, 3), tensor(3, 5)), 60, 120),
    "baddbmm": (lambda: torch.baddbmm(tensor(5), tensor(4, 2, 3), tensor(4, 3, 5)), 240, 480),
    "addbmm": (lambda: torch.addbmm(tensor(5), tensor(4, 2, 3), tensor(4, 3, 5)), 240, 480),
    "addmv": (lambda: torch.addmv(tensor(2), tensor(2, 3), tensor(3)), 12, 24),
    "mv": (lambda: tensor(2, 3).mv(tensor(3)), 12, 24),
    "dot": (lambda: tensor(3).dot(tensor(3)), 6, 12),
    "vdot": (lambda: tensor(3).vdot(tensor(3)), 6, 12),
    "linear": (lambda: F.linear(tensor(7, 2, 3), tensor(5, 3), tensor(5)), 420, 840),
    "linear of a vector": (lambda: F.linear(tensor(3), tensor(5, 3)), 30, 60),
    "linear with a vector": (lambda: F.linear(tensor(7, 3), tensor(3)), 42, 84),
    "operator": (lambda: tensor(2, 3) @ tensor(3, 5), 60, 120),
    "matmul that broadcasts": (lambda: tensor(4, 1, 2, 3) @ tensor(6, 3, 5), 1440, 2880),
    "chain": (
        lambda: torch.linalg.multi_dot([tensor(2, 3), tensor(3, 5), tensor(5, 1)]),
        2 * (3 * 5 + 2 * 3),
        4 * (3 * 5 + 2 * 3),
    ),
    "einsum": (lambda: torch.einsum("bij,jk->bik", tensor(4, 2, 3), tensor(3, 5)), 240, 480),
    "einsum of three": (
        lambda: torch.einsum("ij,jk,kl->il", tensor(2, 3), tensor(3, 5), tensor(5, 4)),
        2 * (2 * 3 * 5 + 2 * 5 * 4),
        4 * (2 * 3 * 5 + 2 * 5 * 4),
    ),
    "tensordot": (
        lambda: torch.tensordot(tensor(2, 3, 4), tensor(4, 3, 5), [[1, 2], [1, 0]]),
        240,
        480,
    ),
    "inner": (lambda: torch.inner(tensor(2, 3), tensor(5, 3)), 60, 120),
    # x W y: first x W, then that times y
    "bilinear": (
        lambda: F.bilinear(tensor(6, 2), tensor(6, 3), tensor(5, 2, 3)),
        2 * 6 * (5 * 2 * 3 + 5 * 3),
        2 * 6 * ((5 * 2 * 3 + 2 * 3) + (5 * 2 * 3 + 5 * 2) + (5 * 2 * 3 + 5 * 3)),
    ),
    # the squared norms and ones are two more columns
    "cdist": (lambda: torch.cdist(tensor(30, 3), tensor(40, 3)), 2 * 1200 * 5, 4 * 1200 * 3),
    # convolutions: outputs times window times input channels of a group
    "conv1d": (lambda: F.conv1d(tensor(2, 3, 9), tensor(4, 3, 5)), 1200, 2400),
    "conv2d": (lambda: F.conv2d(tensor(2, 3, 9, 8), tensor(4, 3, 3, 2)), 14112, 28224),
    "conv3d": (lambda: F.conv3d(tensor(1, 2, 4, 4, 4), tensor(3, 2, 3, 3, 3)), 2592, 5184),
    "strides": (lambda: F.conv2d(tensor(1, 1, 9, 9), tensor(1, 1, 3, 3), stride=2), 288, 576),
    "dilation": (lambda: F.conv2d(tensor(1, 1, 9, 9), tensor(1, 1, 3, 3), dilation=2), 450, 900),
    "padding": (lambda: F.conv2d(tensor(1, 1, 4, 4), tensor(1, 1, 3, 3), padding="same"), 288, 576),
    "unbatched": (lambda: F.conv2d(tensor(3, 9, 8), tensor(4, 3, 3, 2)), 7056, 14112),
    "bias": (lambda: F.conv1d(tensor(2, 3, 9), tensor(4, 3, 5), tensor(4)), 1200, 2400),
    "conv_transpose1d": (lambda: F.conv_transpose1d(tensor(2, 3, 9), tensor(3, 4, 5)), 2160, 4320),
    "conv_transpose2d": (
        lambda: F.conv_transpose2d(tensor(1, 3, 5, 5), tensor(3, 4, 2, 2), stride=2),
        2 * 3 * 25 * 4 * 4,
        4 * 3 * 25 * 4 * 4,
    ),
    "conv_transpose3d": (
        lambda: F.conv_transpose3d(tensor(1, 2, 3, 3, 3), tensor(2, 3, 2, 2, 2)),
        2592,
        5184,
    ),
    "convolution": (
        lambda: torch.convolution(
            tensor(1, 3, 5, 5), tensor(3, 4, 2, 2), None, [2, 2], [0, 0], [1, 1], True, [0, 0], 1
        ),
        2400,
        4800,
    ),
    "conv_tbc": (lambda: torch.conv_tbc(tensor(6, 2, 3), tensor(5, 3, 4), tensor(4)), 480, 960),
    # the gradients see the channels of a group too, which PyTorch's counter forgets
    "grouped": (lambda: F.conv2d(tensor(1, 4, 3, 3), tensor(6, 2, 3, 3), groups=2), 216, 432),
    "depthwise": (lambda: F.conv1d(tensor(1, 4, 3), tensor(4, 1, 3), groups=4), 24, 48),
    "depthwise with a multiplier": (
        lambda: F.conv2d(tensor(2, 3, 5, 5), tensor(6, 1, 3, 3), groups=3),
        2 * (2 * 6 * 3 * 3) * 9,
        4 * (2 * 6 * 3 * 3) * 9,
    ),
    "grouped transposed": (
        lambda: F.conv_transpose1d(tensor(1, 4, 3), tensor(4, 1, 3), groups=2),
        72,
        144,
    ),
    # recurrent cells: input and state times the weights of all gates
    "lstm_cell": (lambda: nn.LSTMCell(3, 4)(tensor(2, 3))[0], 2 * 2 * 16 * 7, 2 * 2 * 16 * 10),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_flops_are_those_by_hand(name):
    run, forward, backward = BY_HAND[name]
    assert counted(run) == (forward, backward)


@pytest.mark.parametrize("name", BY_HAND)
def test_every_flop_is_half_a_multiply_add(name):
    found = total(BY_HAND[name][0])
    assert found.macs * 2 == found.forward


class TestProducts:
    @UNTIMED
    @given(
        left=st.lists(st.integers(1, 4), max_size=3),
        right=st.lists(st.integers(1, 4), max_size=3),
        m=st.integers(1, 5),
        k=st.integers(0, 5),
        n=st.integers(1, 5),
        data=st.data(),
    )
    def test_of_any_ranks_cost_two_for_each_multiply_add(self, left, right, m, k, n, data):
        for i in range(1, min(len(left), len(right)) + 1):  # batch dimensions that broadcast
            if left[-i] != right[-i]:
                data.draw(st.sampled_from([left, right]))[-i] = 1
        a = tensor(k) if not left and data.draw(st.booleans()) else tensor(*left, m, k)
        b = tensor(k) if not right and data.draw(st.booleans()) else tensor(*right, k, n)
        work = 2 * k * prod((a @ b).shape)
        assert counted(lambda: a @ b) == (work, 2 * work)
        if min(a.ndim, b.ndim) > 1:  # PyTorch's counter does not know products with vectors
            assert by_torch(lambda: a @ b) == (work, 2 * work)

    def test_of_sparse_matrices_are_not_guessed(self):
        found = total(lambda: torch.eye(3).to_sparse() @ torch.ones(3, 3))
        assert found.forward == 0
        assert found.uncounted["matmul"] == 1

    def test_of_nested_tensors_are_not_guessed(self):
        rows = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)], layout=torch.jagged)
        found = total(lambda: F.linear(rows, torch.ones(5, 4)))
        assert found.forward == 0
        assert found.uncounted["linear"] == 1

    def test_of_groups_share_the_rows(self):
        rows = torch.ones(24, 16, dtype=torch.bfloat16)
        experts = torch.ones(3, 16, 8, dtype=torch.bfloat16)
        ends = torch.tensor([8, 8, 24], dtype=torch.int32)
        assert counted(lambda: F.grouped_mm(rows, experts, offs=ends)) == (2 * 24 * 16 * 8, 0)

    def test_of_groups_share_the_sum(self):
        left = torch.ones(16, 24, dtype=torch.bfloat16)
        right = torch.ones(24, 8, dtype=torch.bfloat16)
        ends = torch.tensor([8, 8, 24], dtype=torch.int32)
        assert counted(lambda: F.grouped_mm(left, right, offs=ends)) == (2 * 16 * 24 * 8, 0)

    @pytest.mark.parametrize(
        "equation", ["ij,jk->ik", "ij,j->i", "bij,bjk,k->bi", "i,i->", "ii,ij->j"]
    )
    def test_by_einsum_are_those_inside_of_it(self, equation):
        operands = [tensor(*(3 for _ in s)) for s in equation.partition("->")[0].split(",")]
        assert counted(lambda: torch.einsum(equation, operands)) == by_torch(
            lambda: torch.einsum(equation, operands)
        )

    def test_without_a_sum_are_none(self):
        found = total(lambda: torch.einsum("i,j->ij", tensor(2), tensor(3)))
        assert found.flops == 0
        assert found.uncounted["einsum"] == 1


class TestConvolutions:
    @UNTIMED
    @given(
        dims=st.integers(1, 3),
        batch=st.integers(1, 3),
        groups=st.integers(1, 3),
        channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
        window=st.integers(1, 3),
        stride=st.integers(1, 2),
        padding=st.integers(0, 1),
        dilation=st.integers(1, 2),
        transposed=st.booleans(),
        needs=st.sampled_from([(True, True), (True, False), (False, True)]),
    )
    def test_cost_what_the_flop_counter_says_of_the_groups_one_by_one(
        self, dims, batch, groups, channels, window, stride, padding, dilation, transposed, needs
    ):
        inside, outside = channels
        image = torch.ones(batch, inside * groups, *[6] * dims, requires_grad=needs[0])
        shape = (inside * groups, outside) if transposed else (outside * groups, inside)
        weight = torch.ones(*shape, *[window] * dims, requires_grad=needs[1])
        function = getattr(F, f"conv_transpose{dims}d" if transposed else f"conv{dims}d")
        options = {"stride": stride, "padding": padding, "dilation": dilation}

        def run():
            return function(image, weight, None, **options, groups=groups)

        def one_by_one():
            """The counter's own number for a gradient in groups is wrong: it takes the gradient
            of the weight for that of a convolution of all channels with all."""
            parts = zip(image.chunk(groups, 1), weight.chunk(groups, 0), strict=True)
            return torch.cat([function(*part, None, **options) for part in parts], 1)

        torch.testing.assert_close(run(), one_by_one())
        assert counted(run) == by_torch(one_by_one)


class TestAttention:
    @UNTIMED
    @given(
        batch=st.integers(1, 3),
        heads=st.sampled_from([(1, 1), (4, 4), (4, 2)]),
        lengths=st.tuples(st.integers(1, 5), st.integers(1, 5)),
        masking=st.sampled_from(["none", "causal", "mask"]),
        needs=st.tuples(*[st.booleans()] * 3).filter(any),
    )
    def test_by_products_costs_what_they_do(self, batch, heads, lengths, masking, needs):
        sizes = [(heads[0], lengths[0]), (heads[1], lengths[1]), (heads[1], lengths[1])]
        tensors = [
            torch.ones(batch, *size, 8, requires_grad=need)
            for size, need in zip(sizes, needs, strict=True)
        ]
        options = {
            "is_causal": masking == "causal",
            "attn_mask": torch.ones(*lengths, dtype=torch.bool) if masking == "mask" else None,
            "enable_gqa": heads[0] != heads[1],
        }

        def run():
            with sdpa_kernel(SDPBackend.MATH):
                return F.scaled_dot_product_attention(*tensors, **options)

        assert counted(run) == by_torch(run)

    @pytest.mark.parametrize("needs", [(True, True, True), (True, False, False)])
    def test_by_a_fused_kernel_computes_the_scores_twice_and_all_gradients(self, needs):
        query, key, value = (
            torch.ones(2, 4, length, 8, requires_grad=need)
            for length, need in zip((5, 7, 7), needs, strict=True)
        )

        def run():
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return F.scaled_dot_product_attention(query, key, value)

        product = 2 * 2 * 4 * 5 * 7 * 8
        assert counted(run) == (2 * product, 5 * product)
        assert sdpa_flop_count(query.shape, key.shape, value.shape) == 2 * product
        assert 5 * product == sdpa_backward_flop_count(
            run().shape, query.shape, key.shape, value.shape
        )

    @pytest.mark.parametrize("kernel", ["flash", "efficient", "cudnn"])
    def test_by_the_kernels_of_an_accelerator_costs_what_the_flop_counter_says(self, kernel):
        operator = getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}_attention")
        query, key, value = (torch.ones(2, 4, n, 8, device="meta") for n in (5, 7, 7))
        rest = () if kernel == "flash" else (None, kernel == "cudnn")

        def run():
            return operator(query, key, value, *rest)[0]

        with FlopCounterMode(display=False) as counter:
            run()
        assert counted(run) == (counter.get_total_flops(), 0)

    def test_counts_for_the_operator_that_the_program_calls(self):
        flops = Flops()
        with amanda.apply(flops):
            F.scaled_dot_product_attention(*[torch.ones(1, 2, 3, 8)] * 3)
        assert flops.by_type()["scaled_dot_product_attention"].forward == 4 * 2 * 3 * 3 * 8

    def test_in_an_encoder_layer_costs_the_same_on_the_fast_path(self):
        layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, batch_first=True).eval()
        x = torch.ones(2, 5, 8)
        with torch.no_grad():
            fast = total(lambda: layer(x))
        assert "_transformer_encoder_layer_fwd" not in fast.uncounted
        assert fast.forward == by_torch(lambda: layer(x))[0] + 4 * 2 * 5 * 5 * 8

    def test_in_a_module_costs_the_same_on_the_fast_path(self):
        module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
        x = torch.ones(2, 5, 8)
        with torch.no_grad():
            fast = counted(lambda: module(x, x, x)[0])
        assert fast[0] == by_torch(lambda: module(x, x, x)[0])[0]


class TestRecurrentLayers:
    @UNTIMED
    @given(
        kind=st.sampled_from([nn.LSTM, nn.GRU, nn.RNN]),
        steps=st.integers(1, 3),
        batch=st.integers(1, 3),
        layers=st.integers(1, 2),
        bidirectional=st.booleans(),
        bias=st.booleans(),
        batch_first=st.booleans(),
        packed=st.booleans(),
        needs_input=st.booleans(),
        frozen=st.sampled_from([None, "weight_ih_l0", "weight_hh_l0"]),
    )
    def test_cost_what_the_flop_counter_says(
        self, kind, steps, batch, layers, bidirectional, bias, batch_first, packed, needs_input,
        frozen,
    ):  # fmt: skip
        # in double precision, for which there is no fused kernel
        module = kind(
            3, 4, layers, bias=bias, batch_first=batch_first, bidirectional=bidirectional,
            dtype=torch.float64,
        )  # fmt: skip
        if frozen:
            module.get_parameter(frozen).requires_grad_(False)
        x = tensor(*((batch, steps) if batch_first else (steps, batch)), 3, dtype=torch.float64)
        x.requires_grad_(needs_input)

        def run():
            if not packed:
                return module(x)[0]
            lengths = [max(1, steps - i) for i in range(batch)]
            return module(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first))[0].data

        assert counted(run) == by_torch(run)

    def test_in_a_fused_kernel_cost_the_products_of_all_steps(self):
        lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True)
        forward = 2 * 5 * 2 * (2 * 16 * (3 + 4) + 2 * 16 * (8 + 4))
        assert counted(lambda: lstm(torch.ones(5, 2, 3))[0]) == (forward, 2 * forward)

    @pytest.mark.parametrize("trained", [True, False])
    def test_in_the_kernel_of_an_accelerator_cost_the_same(self, trained):
        steps, batch, size = 5, 2, 4
        shapes = [(16, 3), (16, 4), (16,), (16,), (16, 4), (16, 4), (16,), (16,)]
        weights = [torch.ones(shape, device="meta") for shape in shapes]
        x, state = torch.ones(steps, batch, 3, device="meta"), torch.ones(2, batch, size).to("meta")

        def run():
            return torch.ops.aten._cudnn_rnn(
                x, weights, 4, None, state, state, 2, size, 0, 2, False, 0.0, True, False, [], None
            )[0]

        forward = 2 * steps * batch * 16 * (3 + 4 + 4 + 4)
        assert counted(run) == (forward, 0)
        inputs = [tuple(x.shape), *shapes, *[tuple(state.shape)] * 2]
        flows = [True, *[trained] * len(shapes), False, False]
        kernel = tables()["torch"].formulas["_cudnn_rnn"]
        assert kernel.backward(inputs, (), {}, flows) == forward * (2 if trained else 1)


class TestEverySpelling:
    @pytest.mark.parametrize(
        "run",
        [
            lambda x, w: torch.mm(x, w),
            lambda x, w: x.mm(w),
            lambda x, w: x @ w,
            lambda x, w: torch.ops.aten.mm(x, w),
            lambda x, w: torch.mm(x, w, out=torch.empty(2, 5)),
            lambda x, w: torch.matmul(x, w),
            lambda x, w: F.linear(x, w.t()),
        ],
    )
    def test_costs_the_same(self, run):
        assert counted(lambda: run(torch.ones(2, 3), torch.ones(3, 5))) == (60, 0)

    def test_in_torchscript_costs_the_same(self):
        script = torch.jit.script(nn.Sequential(nn.Linear(3, 5), nn.ReLU()))
        assert counted(lambda: script(tensor(2, 3))) == (60, 120)

    def test_in_a_compiled_model_costs_the_same(self):
        compiled = torch.compile(nn.Sequential(nn.Linear(3, 5), nn.ReLU()))
        assert counted(lambda: compiled(tensor(2, 3))) == (60, 120)

    def test_under_autocast_costs_the_same(self):
        with torch.autocast("cpu", torch.bfloat16):
            assert counted(lambda: F.linear(tensor(2, 3), tensor(5, 3))) == (60, 120)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
    def test_in_any_dtype_costs_the_same(self, dtype):
        with torch.no_grad():
            assert counted(lambda: tensor(2, 3, dtype=dtype) @ tensor(3, 5, dtype=dtype)) == (60, 0)

    def test_on_the_meta_device_costs_the_same(self):
        with torch.device("meta"):
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 16, 5))
            assert counted(lambda: model(torch.ones(2, 3, 6, 6))) == by_torch(
                lambda: model(torch.ones(2, 3, 6, 6))
            )


class TestTransforms:
    def test_vmap_costs_what_its_whole_batch_does(self):
        weight = torch.ones(5, 3)
        run = torch.vmap(lambda row: F.linear(row, weight))
        assert counted(lambda: run(torch.ones(7, 2, 3))) == (7 * 60, 0)

    def test_a_vmap_in_another_costs_what_both_batches_do(self):
        weight = torch.ones(5, 3)
        run = torch.vmap(torch.vmap(lambda row: F.linear(row, weight)))
        assert counted(lambda: run(torch.ones(4, 7, 2, 3))) == (28 * 60, 0)

    def test_what_no_batch_reaches_is_run_once(self):
        weight, other = torch.ones(5, 3), torch.ones(2, 3)
        run = torch.vmap(lambda row: row + F.linear(other, weight))
        assert counted(lambda: run(torch.ones(7, 5))) == (60, 0)

    def test_gradients_within_vmap_cost_what_its_whole_batch_does(self):
        weight = torch.ones(5, 3)
        run = torch.vmap(torch.func.grad(lambda row: F.linear(row, weight).sum()))
        assert counted(lambda: run(torch.ones(7, 3))) == (7 * 30, 7 * 30)


class TestGradients:
    def test_are_counted_only_where_they_flow(self):
        x, weight = torch.ones(2, 3), tensor(5, 3)
        assert counted(lambda: F.linear(x, weight)) == (60, 60)
        assert counted(lambda: F.linear(tensor(2, 3), weight.detach())) == (60, 60)
        assert counted(lambda: F.linear(x, weight.detach())) == (60, 0)

    def test_of_a_bias_alone_cost_nothing(self):
        assert counted(lambda: F.linear(torch.ones(2, 3), torch.ones(5, 3), tensor(5))) == (60, 0)

    def test_of_a_tensor_used_twice_are_two(self):
        x = tensor(3, 3)
        assert counted(lambda: x @ x) == (54, 108)

    @pytest.mark.parametrize("reentrant", [False, True])
    def test_of_a_checkpoint_come_with_what_is_run_again(self, reentrant):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

        def run():
            return torch.utils.checkpoint.checkpoint(model, tensor(3, 4), use_reentrant=reentrant)

        assert sum(counted(run)) == sum(by_torch(run))

    def test_belong_to_the_shapes_of_their_execution(self):
        flops, layer = Flops(), nn.Linear(3, 5)
        with amanda.apply(flops):
            outputs = [layer(torch.ones(rows, 3)) for rows in (2, 7, 4)]
            outputs[1].sum().backward()
        assert flops.total().backward == 7 * 30

    def test_are_not_counted_without_any(self):
        layer = nn.Linear(3, 5)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                assert counted(lambda: layer(tensor(2, 3))) == (60, 0)

    def test_run_after_the_scope_are_not_counted(self):
        flops = Flops()
        with amanda.apply(flops):
            output = F.linear(tensor(2, 3), tensor(5, 3))
        output.sum().backward()
        assert flops.total().backward == 0

    def test_of_a_custom_function_are_listed_as_uncounted(self):
        class Product(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                ctx.save_for_backward(x, y)
                return x @ y

            @staticmethod
            def backward(ctx, grad):
                x, y = ctx.saved_tensors
                return grad @ y.mT, x.mT @ grad

        found = total(lambda: Product.apply(tensor(2, 3), tensor(3, 5)))
        assert (found.forward, found.backward) == (60, 0)
        assert found.uncounted_backward == {"Product": 1}


def test_an_optimizer_that_multiplies_matrices_is_counted():
    layer = nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.Muon(layer.parameters())
    layer.weight.grad = torch.ones(4, 4)
    flops = Flops()
    with amanda.apply(flops):
        optimizer.step()
    with FlopCounterMode(display=False) as counter:
        optimizer.step()
    assert flops.total().forward == counter.get_total_flops() > 0
