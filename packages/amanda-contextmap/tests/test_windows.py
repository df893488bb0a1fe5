"""Paddings, against what they are defined by."""

from amanda_contextmap import windows
from hypothesis import given, settings
from hypothesis import strategies as st

sizes = st.integers(1, 40)
steps = st.integers(1, 5)
kernels = st.integers(1, 7)


@settings(deadline=None)
@given(sizes, kernels, steps, steps)
def test_same_gives_the_size_over_the_stride_rounded_up(size, kernel, stride, dilation):
    (reach,) = windows.span([kernel], [dilation])
    (total,) = windows.same([size], [reach], [stride])
    outputs = (size + total - reach) // stride + 1 if size + total >= reach else 0
    assert outputs == -(-size // stride)


@settings(deadline=None)
@given(sizes, kernels, steps, steps)
def test_same_pads_no_more_than_it_needs(size, kernel, stride, dilation):
    (reach,) = windows.span([kernel], [dilation])
    (total,) = windows.same([size], [reach], [stride])
    if total:
        last_window_ends = (-(-size // stride) - 1) * stride + reach
        assert last_window_ends == size + total


@settings(deadline=None)
@given(st.lists(st.integers(0, 9)))
def test_split_puts_the_odd_element_last(totals):
    pads = windows.split(totals)
    before, after = pads[: len(totals)], pads[len(totals) :]
    assert [b + a for b, a in zip(before, after, strict=True)] == totals
    assert all(0 <= a - b <= 1 for b, a in zip(before, after, strict=True))


def test_a_size_that_is_not_known_matters_only_with_a_stride():
    assert windows.same([None], [3], [1]) == [2]
    assert windows.same([None], [3], [2]) is None
