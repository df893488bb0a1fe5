"""Ranges that are found on data, held to NumPy and to PyTorch's observers."""

import numpy as np
import pytest
import torch
from amanda_tools.quantization.affine import Affine
from amanda_tools.quantization.calibration import Observer
from amanda_tools.quantization.formula import settings_for
from amanda_tools.quantization.grid import grid_of
from amanda_tools.quantization.histogram import Histogram
from torch.ao.quantization import MinMaxObserver, MovingAverageMinMaxObserver

RANDOM = np.random.default_rng(0)
# Batches that reach further and further, and one of zeros.
BATCHES = [np.zeros((2, 3)), *(RANDOM.standard_normal((50, 40)) * size for size in (0.1, 1, 7))]
BATCHES = [batch.astype(np.float32) for batch in BATCHES]
ALL = np.concatenate([batch.ravel() for batch in BATCHES])
AFFINE = Affine(grid_of(4, symmetric=False, narrow=False))


def range_by(method, **options):
    observer = Observer(method, **{"percentile": 99, "averaging": 0.1, **options})
    for batch in BATCHES:
        observer.add(batch)
    return observer, observer.range_for(AFFINE)


def test_a_histogram_counts_as_if_it_had_known_its_range_from_the_beginning():
    histogram = Histogram()
    for batch in BATCHES:
        histogram.add(batch)
    edges = np.append(histogram.centers - histogram.width / 2, histogram.centers[-1])
    edges[-1] += histogram.width / 2
    np.testing.assert_array_equal(histogram.counts, np.histogram(ALL, edges)[0])
    assert histogram.counts.sum() == ALL.size


def test_all_values_are_in_a_range_by_minmax():
    assert range_by("minmax")[1] == (ALL.min(), ALL.max())


@pytest.mark.parametrize("percentile", [99.9, 90, 50])
def test_a_share_of_all_values_is_in_a_range_by_percentile(percentile):
    observer, found = range_by("percentile", percentile=percentile)
    tail = (100 - percentile) / 2
    expected = np.percentile(ALL, [tail, 100 - tail])
    np.testing.assert_allclose(found, expected, atol=2 * observer._histogram.width)


def test_a_moving_range_is_that_of_pytorch():
    reference = MovingAverageMinMaxObserver(averaging_constant=0.1)
    for batch in BATCHES:
        reference(torch.tensor(batch))
    assert range_by("moving")[1] == (float(reference.min_val), float(reference.max_val))


def test_no_other_range_has_a_smaller_error_than_that_by_mse():
    _, found = range_by("mse")

    def error(share):
        settings = settings_for(AFFINE, ALL.min() * share, ALL.max() * share)
        return float(((ALL - AFFINE.quantized(ALL, settings, np)) ** 2).sum())

    shares = np.arange(1, 101) / 100
    best = shares[np.argmin([error(share) for share in shares])]
    assert found[1] / ALL.max() == pytest.approx(best, abs=0.03)
    assert best < 0.9  # cutting some off is better than to take in all


def test_the_error_that_is_told_is_that_of_all_values():
    observer, found = range_by("mse")
    settings = settings_for(AFFINE, *found)
    exact = np.linalg.norm(ALL - AFFINE.quantized(ALL, settings, np)) / np.linalg.norm(ALL)
    assert observer.error(AFFINE, settings) == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("symmetric", [True, False])
def test_scale_and_zero_point_are_those_of_pytorch(symmetric):
    scheme = torch.per_tensor_symmetric if symmetric else torch.per_tensor_affine
    dtype = torch.qint8 if symmetric else torch.quint8
    reference = MinMaxObserver(dtype=dtype, qscheme=scheme)
    reference(torch.tensor(ALL))
    scale, zero_point = reference.calculate_qparams()
    formula = Affine(grid_of(8, symmetric, narrow=False))
    found = settings_for(formula, ALL.min(), ALL.max())
    assert (found[0], found[1]) == (float(scale), int(zero_point))


def test_a_tensor_of_zeros_has_a_scale():
    for symmetric in (True, False):
        formula = Affine(grid_of(8, symmetric, narrow=False))
        settings = settings_for(formula, 0, 0)
        assert formula.quantized(np.zeros(3, np.float32), settings, np).tolist() == [0, 0, 0]
