"""Equal-mass bins: ranks, ties, and a slow reference."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import metrics
from cordcal.metrics.base import LabelledRows
from cordcal.metrics.equal_mass import confidence_order, rank_bins


def slow_equal_mass(confidence: np.ndarray, correct: np.ndarray, bins: int) -> float:
    order = sorted(range(len(confidence)), key=lambda i: (confidence[i], i))
    groups: list[list[int]] = [[] for _ in range(bins)]
    for rank, row in enumerate(order):
        groups[bins * rank // len(order)].append(row)
    total = 0.0
    for group in groups:
        if group:
            total += abs(sum(confidence[i] for i in group) - sum(correct[i] for i in group))
    return total / len(order)


@pytest.mark.parametrize("rows", [3, 15, 16, 100, 501])
@pytest.mark.parametrize("bins", [1, 4, 15])
def test_against_the_slow_reference(rows, bins) -> None:
    rng = np.random.default_rng(rows)
    confidence = np.round(rng.uniform(0.5, 1.0, rows), 1)  # many ties
    correct = rng.random(rows) < confidence
    p = np.stack([confidence, 1.0 - confidence], axis=1)
    result = metrics.ece_equal_mass(p, np.where(correct, 0, 1), bins=bins)
    assert result == pytest.approx(slow_equal_mass(p.max(axis=1), correct, bins), rel=1e-12)


def test_ties_are_split_by_position() -> None:
    p = [[0.5, 0.5]] * 4
    # Two bins of two tied rows each: right, right | wrong, wrong, or one of each.
    assert metrics.ece_equal_mass(p, [0, 0, 1, 1], bins=2) == 0.5
    assert metrics.ece_equal_mass(p, [0, 1, 0, 1], bins=2) == 0.0


def test_rows_of_weight_zero_are_no_rows(report) -> None:
    p, y, _ = report
    weight = (np.arange(500) % 3 > 0).astype(float)
    counted = weight > 0
    assert metrics.ece_equal_mass(p, y, sample_weight=weight) == pytest.approx(
        metrics.ece_equal_mass(p[counted], y[counted]), rel=1e-12
    )


def test_the_scale_of_weights_does_not_matter(report) -> None:
    p, y, w = report
    assert metrics.ece_equal_mass(p, y, sample_weight=4 * w) == pytest.approx(
        metrics.ece_equal_mass(p, y, sample_weight=w), rel=1e-12
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_order_of_confidences_is_stable(dtype) -> None:
    rng = np.random.default_rng(1)
    confidence = np.round(rng.random(999), 2).astype(dtype).astype(np.float64)
    confidence[::5] = rng.random(200).astype(dtype)
    result = confidence_order(confidence)
    np.testing.assert_array_equal(result, np.argsort(confidence, kind="stable"))


@pytest.mark.parametrize("constant", [0.1, 1.0 / 3.0, 7.0, 1e-300, 5e-324, 1e300])
def test_a_constant_weight_is_none(constant: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(1000):
        rows = int(rng.integers(20, 200))
        confidence = rng.uniform(0.5, 1.0, rows)
        p = np.stack([confidence, 1.0 - confidence], axis=1)
        y = rng.integers(2, size=rows)
        weight = np.full(rows, constant)
        result = metrics.ece_equal_mass(p, y, sample_weight=weight)
        assert result == pytest.approx(metrics.ece_equal_mass(p, y), rel=1e-12)


@pytest.mark.parametrize("constant", [0.1, 1.0 / 3.0, 7.0, 1e-300, 5e-324, 1e300])
def test_a_constant_weight_is_none_in_the_stream(constant: float) -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        rows = int(rng.integers(20, 2000))
        confidence = rng.uniform(0.5, 1.0, rows)
        p = np.stack([confidence, 1.0 - confidence], axis=1)
        y = rng.integers(2, size=rows)
        plain = metrics.EqualMassECEStream().update(p, y)
        weighted = metrics.EqualMassECEStream()
        for at in (slice(0, 7), slice(7, None)):
            weighted.update(p[at], y[at], sample_weight=np.full(len(y[at]), constant))
        assert weighted.result() == pytest.approx(plain.result(), rel=1e-12)
        assert weighted.error_bound() == pytest.approx(plain.error_bound(), rel=1e-12)


@pytest.mark.parametrize("constant", [0.1, 1.0 / 3.0, 7.0])
def test_rows_repeated_by_a_weight_fall_in_the_same_bins(constant: float) -> None:
    rng = np.random.default_rng(6)
    for _ in range(200):
        rows = int(rng.integers(20, 200))
        weight = rng.integers(0, 4, rows).astype(float)
        weight[0] = 1.0
        result = rank_bins(constant * weight, 15)
        total = int(weight.sum())
        behind = np.cumsum(weight).astype(int) - weight.astype(int)
        np.testing.assert_array_equal(result, np.minimum(15 * behind // total, 14))


@pytest.mark.parametrize("constant", [0.1, 1.0 / 3.0, 1e-70])
def test_resamples_with_a_constant_weight(constant: float) -> None:
    rng = np.random.default_rng(8)
    confidence = rng.uniform(0.5, 1.0, 150)
    rows = LabelledRows(
        confidence,
        np.zeros(150, dtype=np.intp),
        confidence,
        confidence,
        rng.integers(2, size=150),
        None,
    )
    counts = rng.multinomial(150, np.full(150, 1 / 150), size=300).T.astype(float)
    values = metrics.METRICS["ece_equal_mass"].resampled(rows)
    weight = constant * counts
    np.testing.assert_allclose(
        values(weight, weight.sum(axis=0)), values(counts, counts.sum(axis=0)), rtol=1e-12
    )
