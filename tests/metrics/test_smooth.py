"""smECE: the definition written out slowly, weights, and the boundary."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import metrics
from cordcal.metrics.smooth import Positions, Residuals
from errors import refused


def two_class(confidence: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.stack([confidence, 1.0 - confidence], axis=1), np.where(correct, 0, 1)


def slow_smooth(values: np.ndarray, width: float) -> np.ndarray:
    """Mirror, then convolve term by term."""
    nodes = len(values)
    kernel = np.exp(-((np.linspace(0, 1, nodes) - 0.5) ** 2) / (2 * width**2))
    kernel /= np.sqrt(2 * np.pi) * width
    mirrored = np.concatenate([values[::-1][:-1], values, values[::-1][1:]])
    return np.convolve(mirrored, kernel, "valid")[nodes // 2 : nodes // 2 + nodes]


@pytest.mark.parametrize("width", [0.02, 0.1, 0.7])
def test_the_transform_is_the_convolution(width) -> None:
    rng = np.random.default_rng(2)
    confidence, correct = rng.random(300), rng.random(300) < 0.5
    positions = Positions(confidence)
    residual = confidence - correct
    points = Residuals(positions, residual, np.ones(300), "count")
    error = points.error_at(width)
    nodes = 200 if round(20 / width) <= 200 else 3200 if round(20 / width) > 800 else 800
    slow = np.abs(slow_smooth(positions.spread(residual, nodes), width)).sum() / (nodes * 300)
    assert error == pytest.approx(slow, rel=1e-11)


def test_sharing_keeps_mass_and_mean() -> None:
    rng = np.random.default_rng(3)
    confidence, values = np.append(rng.random(50), [0.0, 1.0]), rng.normal(size=52)
    shared = Positions(confidence).spread(values, 17)
    assert shared.sum() == pytest.approx(values.sum(), rel=1e-12)
    assert shared @ np.linspace(0, 1, 17) == pytest.approx(values @ confidence, rel=1e-12)


def test_certain_rows_count_half_in_both_published_forms() -> None:
    # 90 certain and right rows, 10 rows at 0.7 that are all wrong: the error is 0.07.
    p, y = two_class(np.array([1.0] * 90 + [0.7] * 10), np.array([True] * 90 + [False] * 10))
    count, density, corrected = (
        metrics.smooth_ece(p, y, normalization=kind) for kind in ("count", "density", "corrected")
    )
    assert corrected == pytest.approx(0.07, abs=0.002)
    assert count == pytest.approx(0.07, abs=0.002)
    assert density > 1.7 * corrected


def test_confident_and_wrong_rows() -> None:
    p, y = two_class(np.full(50, 1.0), np.full(50, False))
    assert metrics.smooth_ece(p, y) < 0.5  # the paper's form sees half of these rows
    assert metrics.smooth_ece(p, y, normalization="corrected") == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("kind", ["count", "density", "corrected"])
def test_weights_scale_freely_and_repeat_rows(kind, report) -> None:
    p, y, w = report
    error = metrics.smooth_ece(p, y, normalization=kind, sample_weight=w)
    scaled = metrics.smooth_ece(p, y, normalization=kind, sample_weight=8 * w)
    assert scaled == pytest.approx(error, rel=1e-12)
    counts = np.arange(500) % 4
    rows = np.repeat(np.arange(500), counts)
    repeated = metrics.smooth_ece(p[rows], y[rows], normalization=kind)
    # The density's floor is per row, so repetition is not quite the same there.
    assert metrics.smooth_ece(p, y, normalization=kind, sample_weight=counts) == pytest.approx(
        repeated, rel=1e-12 if kind == "count" else 1e-6
    )


def test_unknown_normalization() -> None:
    with refused("normalization", naming=["new", "count, density, corrected"]):
        metrics.smooth_ece([[0.5, 0.5]], [0], normalization="new")
    with refused("other", naming=["count", "density"]):
        metrics.SmoothECEStream().merge(metrics.SmoothECEStream("density"))
