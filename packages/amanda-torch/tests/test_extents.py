"""Where tensors lie in memory, against the bytes of each, counted one by one."""

import itertools

import pytest
import torch
from amanda_torch.tensors.extents import extent_of

BASE = torch.zeros(4, 6, dtype=torch.float32)
VIEWS = {
    "all": BASE,
    "flat": BASE.view(-1),
    "transposed": BASE.t(),
    "row": BASE[1],
    "column": BASE[:, 1],
    "left": BASE[:, :3],
    "right": BASE[:, 3:],
    "even": BASE[:, ::2],
    "odd": BASE[:, 1::2],
    "odd rows": BASE[1::2],
    "middle": BASE[1:3, 2:4],
    "corner": BASE[3:, 5:],
    "expanded": BASE[:, :1].expand(4, 6),
    "diagonal": BASE.diagonal(),
    "none": BASE[:0],
    "halves": BASE.view(torch.float16)[:, ::4],
    "windows": BASE.view(-1).unfold(0, 5, 2),
}


def bytes_of(tensor):
    item = tensor.element_size()
    indices = itertools.product(*map(range, tensor.shape))
    starts = (
        tensor.storage_offset() + sum(i * s for i, s in zip(index, tensor.stride(), strict=True))
        for index in indices
    )
    return {start * item + byte for start in starts for byte in range(item)}


@pytest.mark.parametrize("one", VIEWS)
def test_meet_and_cover_as_their_bytes_do(one):
    first = extent_of(VIEWS[one])
    for tensor in VIEWS.values():
        second = extent_of(tensor)
        assert first.meets(second) == bool(bytes_of(VIEWS[one]) & bytes_of(tensor))
        if first.covers(second):  # else it may not be known
            assert bytes_of(VIEWS[one]) >= bytes_of(tensor)


@pytest.mark.parametrize("name", ["all", "flat", "transposed"])
def test_what_has_all_bytes_covers_all(name):
    assert all(extent_of(VIEWS[name]).covers(extent_of(tensor)) for tensor in VIEWS.values())


def test_what_is_at_the_same_place_is_covered():
    assert extent_of(BASE[:, :3]).covers(extent_of(BASE.t()[:3]))
