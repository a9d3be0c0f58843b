"""The paired bootstrap: resampled values are the measures of the resampled rows."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import metrics
from cordcal.evaluate.bootstrap import RESAMPLED, percentile_interval, resampled_measures
from cordcal.metrics._rows import Report


def labelled(seed: int, rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(5, 0.4), rows)
    return p, np.where(rng.random(rows) < 0.7, p.argmax(axis=1), rng.integers(0, 5, rows))


@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_the_measures_with_counts_as_weights(weighted) -> None:
    p, y = labelled(1)
    w = np.random.default_rng(9).random(400) if weighted else None
    values = resampled_measures([Report.of(p, "p").labelled(y, w)], resamples=3, seed=7)[0]
    rng = np.random.default_rng(7)
    for found in values:
        counts = np.bincount(rng.integers(0, 400, 400), minlength=400)
        weight = counts if w is None else counts * w
        expected = [getattr(metrics, name)(p, y, sample_weight=weight) for name in RESAMPLED]
        np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_reports_are_resampled_together() -> None:
    p, y = labelled(2)
    rows = Report.of(p, "p").labelled(y)
    values = resampled_measures([rows, rows], resamples=5)
    np.testing.assert_array_equal(values[0], values[1])
    assert np.ptp(values[0], axis=0).min() > 0.0


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    # Accuracy of 0.7 + 0.3 / 5 in 40 data sets of 400 rows; binomial(40, 0.95) below 32: 6e-4.
    truth = 0.7 + 0.3 / 5
    covered = 0
    for seed in range(40):
        p, y = labelled(100 + seed)
        values = resampled_measures([Report.of(p, "p").labelled(y)], resamples=60, seed=seed)[0]
        low, high = percentile_interval(values[:, 0], 0.95)
        covered += bool(low <= truth <= high)
    assert covered >= 32
