"""Equal-mass bins: ranks, ties, and a slow reference."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import metrics
from cordcal.metrics._equal_mass import confidence_order


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
    found = metrics.ece_equal_mass(p, np.where(correct, 0, 1), bins=bins)
    assert found == pytest.approx(slow_equal_mass(p.max(axis=1), correct, bins), rel=1e-12)


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
    found = confidence_order(confidence)
    np.testing.assert_array_equal(found, np.argsort(confidence, kind="stable"))
