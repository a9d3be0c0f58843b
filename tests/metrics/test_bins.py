"""ECE's bins: edges, extremes, and a slow reference that walks the bins."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import metrics
from cordcal.metrics.binned import bin_index
from errors import refused


def slow_ece(confidence: np.ndarray, correct: np.ndarray, bins: int) -> float:
    total = 0.0
    for m in range(bins):
        low, high = m / bins, (m + 1) / bins
        inside = (confidence > low) & (confidence <= high)
        if m == 0:
            inside |= confidence <= 0.0
        if inside.any():
            total += inside.mean() * abs(confidence[inside].mean() - correct[inside].mean())
    return total


def two_class(confidence: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities whose top confidence is ``confidence`` (at least 1/2), and their labels."""
    return np.stack([confidence, 1.0 - confidence], axis=1), np.where(correct, 0, 1)


@pytest.mark.parametrize("bins", [1, 7, 10, 15, 100])
def test_edges_belong_to_the_bin_below(bins) -> None:
    edges = np.array([m / bins for m in range(bins + 1)])
    np.testing.assert_array_equal(bin_index(edges, bins), [0, *range(bins)])
    above = np.nextafter(edges[:-1], 2.0)
    np.testing.assert_array_equal(bin_index(above, bins), np.arange(bins))


def test_confidence_one_and_above_by_rounding_is_in_the_last_bin() -> None:
    np.testing.assert_array_equal(bin_index(np.array([1.0, 1.0 + 2.0**-23]), 15), [14, 14])
    bins = metrics.reliability([[1.0, 0.0], [1.0, 0.0]], [0, 1])
    assert bins.count.tolist() == [0] * 14 + [2]
    assert bins.accuracy[-1] == 0.5


@pytest.mark.parametrize("bins", [5, 15])
def test_against_the_slow_reference(bins) -> None:
    rng = np.random.default_rng(3)
    # Fifteenths land on edges often.
    confidence = np.concatenate([rng.uniform(0.5, 1.0, 300), rng.integers(8, 16, 300) / 15])
    correct = rng.random(600) < confidence
    p, y = two_class(confidence, correct)
    assert metrics.ece(p, y, bins=bins) == pytest.approx(slow_ece(confidence, correct, bins), 1e-12)
    assert metrics.reliability(p, y, bins=bins).ece == pytest.approx(
        metrics.ece(p, y, bins=bins), rel=1e-12
    )


def test_clopper_pearson_is_the_exact_binomial_interval() -> None:
    from scipy.stats import binomtest

    rng = np.random.default_rng(5)
    confidence = rng.uniform(0.5, 1.0, 200)
    p, y = two_class(confidence, rng.random(200) < confidence)
    bins = metrics.reliability(p, y)
    for count, accuracy, low, high in zip(
        bins.count, bins.accuracy, bins.accuracy_low, bins.accuracy_high, strict=True
    ):
        if count == 0:
            assert (low, high) == (0.0, 1.0)
            continue
        exact = binomtest(round(accuracy * count), count).proportion_ci(method="exact")
        assert (low, high) == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_equal_weights_leave_the_intervals_alone() -> None:
    p, y = two_class(np.full(20, 0.75), np.arange(20) < 15)
    plain, scaled = metrics.reliability(p, y), metrics.reliability(p, y, sample_weight=[7.0] * 20)
    np.testing.assert_allclose(scaled.accuracy_low, plain.accuracy_low, rtol=1e-12)
    assert scaled.count.tolist() == plain.count.tolist()
    assert scaled.weight.sum() == 140.0


def test_empty_bins_are_none_in_the_dictionary() -> None:
    bins = metrics.reliability([[0.75, 0.25]], [0], bins=2).to_dict()
    assert bins["accuracy"] == [None, 1.0]
    assert bins["count"] == [0, 1]


@pytest.mark.parametrize("bins", [0, -1, 2.5, True, "15"])
def test_bins_must_be_a_whole_number(bins) -> None:
    with refused("bins", naming=repr(bins)):
        metrics.ece([[0.5, 0.5]], [0], bins=bins)
