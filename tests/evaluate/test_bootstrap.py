"""The paired bootstrap: resampled values are the metrics of the resampled rows."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import metrics
from cordcal.evaluate import statistics
from cordcal.evaluate.statistics import Replicates, percentile_interval, resampled
from cordcal.metrics.base import LabelledRows, ProbabilityMatrix
from cordcal.metrics.smooth import Positions, Residuals, smooth_gap

RESAMPLED = ("accuracy", "nll", "brier", "ece", "ece_equal_mass", "smooth_ece")


def labelled(seed: int, rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(5, 0.4), rows)
    return p, np.where(rng.random(rows) < 0.7, p.argmax(axis=1), rng.integers(0, 5, rows))


def replicates(*reports: LabelledRows, **options) -> list[Replicates]:
    rows = len(reports[0])
    named = {str(place): [report] for place, report in enumerate(reports)}
    return list(resampled(named, [np.arange(rows)], rows, **options).values())


@pytest.mark.parametrize("sharp", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_values_are_the_measures_with_counts_as_weights(weighted, sharp) -> None:
    p, y = labelled(1)
    if sharp:  # well calibrated and sure: a narrow kernel, on a finer grid
        p = np.where(np.eye(5)[y] > 0, 0.96, 0.01)
        y = np.where(np.arange(400) % 25 == 0, (y + 1) % 5, y)
    w = np.random.default_rng(9).random(400) if weighted else None
    (values,) = replicates(ProbabilityMatrix.from_array(p, "p").reduce(y, w), resamples=4, seed=7)
    assert tuple(values) == RESAMPLED
    rng = np.random.default_rng(7)
    for place in range(4):
        counts = np.bincount(rng.integers(0, 400, 400), minlength=400)
        weight = counts if w is None else counts * w
        for name in RESAMPLED[:-1]:
            expected = getattr(metrics, name)(p, y, sample_weight=weight)
            np.testing.assert_allclose(values[name][place], expected, rtol=1e-10, err_msg=name)
        # The smooth error keeps the kernel's width of the sample.
        rows = ProbabilityMatrix.from_array(p, "p").reduce(y, w)
        residual = weight * (rows.confidence - rows.correct)
        points = Residuals(Positions(rows.confidence), residual, weight, "count")
        expected = points.error_at(smooth_gap(rows)[1])
        np.testing.assert_allclose(values["smooth_ece"][place], expected, rtol=1e-10)


def test_reports_are_resampled_together_whatever_the_blocks(monkeypatch) -> None:
    p, y = labelled(2)
    rows = ProbabilityMatrix.from_array(p, "p").reduce(y)
    first, second = replicates(rows, rows, resamples=5)
    monkeypatch.setattr(statistics, "_BLOCK_ENTRIES", 800)
    (blocks,) = replicates(rows, resamples=5)
    assert "nll" in first
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name])
        np.testing.assert_allclose(values, blocks[name], rtol=1e-12)
        assert np.ptp(values) > 0.0


def test_splits_are_drawn_from_the_whole_and_averaged() -> None:
    p, y = labelled(3)
    halves = [np.arange(0, 400, 2), np.arange(1, 400, 2)]
    parts = [ProbabilityMatrix.from_array(p[half], "p").reduce(y[half]) for half in halves]
    together = resampled({"both": parts}, halves, 400, resamples=3)["both"]["accuracy"]
    alone = [
        resampled({"one": [part]}, [half], 400, resamples=3)
        for part, half in zip(parts, halves, strict=True)
    ]
    expected = np.mean([sample["one"]["accuracy"] for sample in alone], axis=0)
    np.testing.assert_allclose(together, expected, rtol=1e-14)


def test_a_resample_that_draws_none_of_a_few_rows_counts_each_once() -> None:
    p, y = labelled(4)
    few = ProbabilityMatrix.from_array(p[:1], "p").reduce(y[:1])
    values = resampled({"few": [few]}, [np.arange(1)], 400, resamples=20)["few"]
    assert np.isfinite(values["nll"]).all()


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    # Accuracy of 0.7 + 0.3 / 5 in 40 data sets of 400 rows; binomial(40, 0.95) below 32: 6e-4.
    truth = 0.7 + 0.3 / 5
    covered = 0
    for seed in range(40):
        p, y = labelled(100 + seed)
        (values,) = replicates(
            ProbabilityMatrix.from_array(p, "p").reduce(y), resamples=60, seed=seed
        )
        low, high = percentile_interval(values["accuracy"], 0.95)
        covered += bool(low <= truth <= high)
    assert covered >= 32
