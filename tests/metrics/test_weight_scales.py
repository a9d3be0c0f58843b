"""Weights of any size: metrics depend on their ratios alone, in functions and in streams."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from cordcal import metrics

# Weights are whole numbers up to 9, so that every product with these is exact or nearly so.
SCALES = [5e-324, 1e-320, 1e-300, 1.0 / 3.0, 7.0, 1e150, 1e300, 1.9e307]
RNG = np.random.default_rng(5)
WEIGHT = RNG.integers(0, 10, 500).astype(float)
HALVES = slice(0, 250), slice(250, 500)

LABELLED = {
    "accuracy": (metrics.accuracy, metrics.AccuracyStream),
    "nll": (metrics.nll, metrics.NLLStream),
    "brier": (metrics.brier, metrics.BrierStream),
    "ece": (metrics.ece, metrics.ECEStream),
    "equal mass": (metrics.ece_equal_mass, metrics.EqualMassECEStream),
    "smooth": (metrics.smooth_ece, metrics.SmoothECEStream),
    "classwise": (metrics.classwise_ece, metrics.ClasswiseECEStream),
}


def streamed(stream: Any, p: np.ndarray, y: np.ndarray, *weights: np.ndarray) -> Any:
    """Return a stream of one half of the rows, merged into that of the other."""
    first, second = (
        stream().update(p[at], y[at], sample_weight=weight[at])
        for at, weight in zip(HALVES, weights, strict=True)
    )
    return second.merge(first)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", LABELLED)
def test_the_scale_of_weights_does_not_matter(name: str, scale: float, report) -> None:
    p, y, _ = report
    function, stream = LABELLED[name]
    expected = function(p, y, sample_weight=WEIGHT)
    weight = scale * WEIGHT
    assert function(p, y, sample_weight=weight) == pytest.approx(expected, rel=1e-9)
    assert metrics.measure_all(p, y, sample_weight=weight).to_dict() == pytest.approx(
        metrics.measure_all(p, y, sample_weight=WEIGHT).to_dict(), rel=1e-9
    )
    assert streamed(stream, p, y, weight, weight).result() == pytest.approx(
        streamed(stream, p, y, WEIGHT, WEIGHT).result(), rel=1e-9
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", LABELLED)
def test_blocks_whose_weights_differ_by_hundreds_of_decades(name: str, report) -> None:
    p, y, _ = report
    _, stream = LABELLED[name]
    for scales in ((5e-324, 1.0), (1e300, 5e-324), (1.0, 1e300), (1e300, 1.0)):
        heavy = HALVES[int(np.argmax(scales))]
        weight = max(scales) * WEIGHT[heavy]
        alone = stream().update(p[heavy], y[heavy], sample_weight=weight).result()
        result = streamed(stream, p, y, *(scale * WEIGHT for scale in scales)).result()
        assert result == pytest.approx(alone, rel=1e-9)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", SCALES)
def test_reliability_and_risk(scale: float, report) -> None:
    p, y, _ = report
    weight = scale * WEIGHT
    for function in (metrics.reliability, lambda *a, **k: metrics.class_reliability(*a, 1, **k)):
        result, expected = (function(p, y, sample_weight=w) for w in (weight, WEIGHT))
        assert result.ece == pytest.approx(expected.ece, rel=1e-9)
        np.testing.assert_array_equal(result.count, expected.count)
        for field in ("confidence", "accuracy", "accuracy_low", "accuracy_high"):
            np.testing.assert_allclose(getattr(result, field), getattr(expected, field), rtol=1e-9)
        share = result.weight / result.weight.sum()
        np.testing.assert_allclose(share, expected.weight / expected.weight.sum(), rtol=1e-9)
    result, expected = (metrics.risk_coverage(p, y, sample_weight=w) for w in (weight, WEIGHT))
    np.testing.assert_allclose(result.coverage, expected.coverage, rtol=1e-9)
    np.testing.assert_allclose(result.risk, expected.risk, rtol=1e-9)
    assert 0.0 <= result.aurc <= 1.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", SCALES)
def test_changes_and_retention(scale: float, report) -> None:
    p, y, _ = report
    q = np.roll(p, 1, axis=0)
    weight = scale * WEIGHT
    for function, arguments in (
        (metrics.prediction_changes, (p, q, y)),
        (metrics.topk_changes, (p, q, 2)),
    ):
        result, expected = (
            asdict(function(*arguments, sample_weight=sample_weight))
            for sample_weight in (weight, WEIGHT)
        )
        assert result == pytest.approx(expected, rel=1e-9)
    result, expected = (metrics.mean_retention(p, p, q, sample_weight=w) for w in (weight, WEIGHT))
    assert result == pytest.approx(expected, rel=1e-9)


def test_a_block_without_weights_among_others_counts_its_rows_once(report) -> None:
    p, y, _ = report
    ones = np.where(np.arange(500) < 250, 1.0, WEIGHT)
    for name in ("ece", "nll", "classwise", "equal mass", "smooth"):
        _, stream = LABELLED[name]
        for order in (HALVES, HALVES[::-1]):
            result = stream()
            for at in order:
                weight = None if at is HALVES[0] else WEIGHT[at]
                result.update(p[at], y[at], sample_weight=weight)
            expected = streamed(stream, p, y, ones, ones)
            assert result.result() == pytest.approx(expected.result(), rel=1e-9)
