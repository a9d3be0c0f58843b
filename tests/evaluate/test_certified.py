"""Certified error rates: exact bounds, and violations no more often than stated."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cordcal.evaluate.bounds import THRESHOLDS, certified_error_rates, lowest_certified_threshold
from cordcal.evaluate.gates import parse_share
from cordcal.metrics.base import LabelledRows
from errors import refused


def rows_of(confidence, correct, weight=None) -> LabelledRows:
    zeros = np.zeros(len(confidence))
    predicted = zeros.astype(np.intp)
    labels = np.where(correct, 0, 1)
    return LabelledRows(np.asarray(confidence, float), predicted, zeros, zeros, labels, weight)


def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    confidence = np.round(rng.uniform(0.5, 1.0, n), 3)  # with ties
    return confidence, rng.random(n) < confidence


def test_bounds_are_clopper_and_pearsons() -> None:
    confidence, correct = draw(np.random.default_rng(0), 500)
    for rate in certified_error_rates(rows_of(confidence, correct)):
        above = confidence >= rate.threshold
        assert (rate.n, rate.errors) == (above.sum(), (above & ~correct).sum())
        exact = stats.binomtest(rate.errors, rate.n, alternative="less")
        interval = exact.proportion_ci(1.0 - 0.05 / len(THRESHOLDS), method="exact")
        assert rate.bound == pytest.approx(interval.high, rel=1e-9)


def test_statements_are_wrong_no_more_often_than_stated() -> None:
    rng = np.random.default_rng(1)
    wrong = {"bounds": 0, "target": 0}
    for _ in range(500):
        rows = rows_of(*draw(rng, 400))
        # With calibrated rows, the error rate above t is 1 − (t + 1)/2.
        for rate in certified_error_rates(rows):
            if rate.bound < (1.0 - rate.threshold) / 2.0:
                wrong["bounds"] += 1
                break
        best = lowest_certified_threshold(rows, 0.1)
        wrong["target"] += best is not None and best.threshold < 0.8 - 0.001
    assert max(wrong.values()) <= 25


def test_the_target_is_reached() -> None:
    rows = rows_of(*draw(np.random.default_rng(2), 20_000))
    best = lowest_certified_threshold(rows, 0.1)
    assert 0.79 < best.threshold < 0.83
    assert best.errors / best.n < 0.1


def test_an_error_among_the_most_confident_rows_does_not_end_the_search() -> None:
    confidence, correct = draw(np.random.default_rng(3), 2_000)
    correct[np.argsort(-confidence)[:3]] = False
    rows = rows_of(confidence, correct)
    assert any(rate.bound <= 0.1 for rate in certified_error_rates(rows))
    assert lowest_certified_threshold(rows, 0.1).threshold < 0.87


def test_too_few_rows_or_too_many_errors_certify_nothing() -> None:
    assert lowest_certified_threshold(rows_of([0.9] * 28, [True] * 28), 0.1) is None
    assert lowest_certified_threshold(rows_of([0.9] * 29, [True] * 29), 0.1) is not None
    assert lowest_certified_threshold(rows_of([0.9] * 50, [False] * 50), 0.1) is None
    (rate,) = certified_error_rates(rows_of([0.55] * 3, [False] * 3))
    assert rate.bound == 1.0
    assert certified_error_rates(rows_of([], [])) == ()


def test_tied_rows_belong_together() -> None:
    """A threshold cannot separate rows of the same confidence."""
    correct = np.r_[np.ones(60, bool), np.zeros(60, bool)]
    assert lowest_certified_threshold(rows_of(np.full(120, 0.9), correct), 0.1) is None


def test_weights_and_bad_targets_are_refused() -> None:
    with refused("sample_weight"):
        certified_error_rates(rows_of([0.9], [True], np.ones(1)))
    for target in (0.0, 1.0, -1.0):
        with refused("target_error"):
            lowest_certified_threshold(rows_of([0.9], [True]), target)
    with refused("--error", naming="much"):
        parse_share("much", "--error")
