"""Classwise ECE against a slow reference, in every dtype and on both sides of an edge."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import metrics


def slow_classwise(p: np.ndarray, y: np.ndarray, w: np.ndarray, bins: int) -> float:
    rows, classes = p.shape
    edges = [m / bins for m in range(bins + 1)]
    total = 0.0
    for j in range(classes):
        gaps = [0.0] * bins
        for i in range(rows):
            value = float(p[i, j])
            m = next((m for m in range(bins) if value <= edges[m + 1]), bins - 1)
            gaps[m] += w[i] * (value - (y[i] == j))
        total += sum(abs(gap) for gap in gaps) / w.sum()
    return total / classes


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bins", [1, 5, 15])
def test_against_the_slow_reference(dtype, bins, report) -> None:
    p, y, w = report
    p = p[:200].astype(dtype)
    p[100:150] = np.array([3, 3, 3, 3, 3, 0]) / np.array(15, dtype=dtype)  # on or near an edge
    result = metrics.classwise_ece(p, y[:200], bins=bins, sample_weight=w[:200])
    assert result == pytest.approx(slow_classwise(p, y[:200], w[:200], bins), rel=1e-12)


def test_a_class_that_no_label_names_counts_with_its_probability() -> None:
    # Column 2 is never the label: its own ECE is its mean probability.
    p = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]
    by_class = [(0.5 + 0.25) / 2, (0.25 + 0.5) / 2, 0.25]
    assert metrics.classwise_ece(p, [0, 1]) == pytest.approx(sum(by_class) / 3, rel=1e-12)
