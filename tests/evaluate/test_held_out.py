"""Metrics on held-out rows: which rows, which models, and no optimism."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import PreservingCalibrator
from cordcal.cli.fit import describe_held_out
from cordcal.evaluate import held_out
from cordcal.evaluate.held_out import measure_held_out
from cordcal.metrics import measure_all

RNG = np.random.default_rng(0)
LABELS = RNG.integers(4, size=600)
SCORES = 3.0 * np.eye(4)[LABELS] + 2.0 * RNG.normal(size=(600, 4))


def test_every_row_is_held_out_once() -> None:
    result = measure_held_out(lambda: PreservingCalibrator("ts"), SCORES, LABELS, input="logits")
    assert (result.n, result.fits) == (600, 5)
    original = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)
    assert result.original["nll"] == pytest.approx(measure_all(original, LABELS).nll, rel=1e-12)


def test_many_entries_need_one_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out, "_MANY_ENTRIES", SCORES.size)
    result = measure_held_out(lambda: PreservingCalibrator("ts"), SCORES, LABELS, input="logits")
    assert (result.n, result.fits) == (120, 1)
    assert describe_held_out(result)[-1][1] == "120 rows held out by a second fit"


def test_the_default_is_measured_on_every_row() -> None:
    began = []
    result = measure_held_out(
        PreservingCalibrator, SCORES, LABELS, input="logits", progress=began.append
    )
    assert (result.n, result.fits, len(began)) == (600, 5, 5)


def test_the_change_has_an_interval() -> None:
    result = measure_held_out(lambda: PreservingCalibrator("ts"), SCORES, LABELS, input="logits")
    for metric in ("nll", "ece"):
        change = result.change[metric]
        assert change.estimate == result.repaired[metric] - result.original[metric]
        assert change.low < change.estimate < change.high
    assert result.change["nll"].high < 0.0
    assert set(result.to_dict()["change"]["ece"]) == {"estimate", "low", "high"}
    # New rows of the same kind: the difference is inside the interval of those held out.
    rng = np.random.default_rng(1)
    labels = rng.integers(4, size=20_000)
    scores = 3.0 * np.eye(4)[labels] + 2.0 * rng.normal(size=(20_000, 4))
    model = PreservingCalibrator("ts").fit(SCORES, LABELS)
    original = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    before, after = (measure_all(p, labels).nll for p in (original, model.predict_proba(scores)))
    assert result.change["nll"].low < after - before < result.change["nll"].high


def test_a_map_that_learns_noise_by_heart_gains_nothing() -> None:
    noise = RNG.normal(size=(200, 4))
    with pytest.warns(UserWarning, match="no better than with shuffled labels"):
        model = PreservingCalibrator("irova").fit(noise, LABELS[:200])
    seen = model.predict_proba(noise)
    result = measure_held_out(
        lambda: PreservingCalibrator("irova"), noise, LABELS[:200], input="logits"
    )
    assert measure_all(seen, LABELS[:200]).nll < np.log(4) < result.repaired["nll"]


def test_weights_count_in_fits_and_measures() -> None:
    twice = np.where(np.arange(600) < 100, 2.0, 1.0)
    result = measure_held_out(
        lambda: PreservingCalibrator("ts"), SCORES, LABELS, input="logits", sample_weight=twice
    )
    original = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)
    weighted = measure_all(original, LABELS, sample_weight=twice).nll
    assert result.original["nll"] == pytest.approx(weighted, rel=1e-12)
