"""`measure_all` agrees with the single metrics."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import metrics
from cordcal.metrics import base

NAMES = ["accuracy", "nll", "brier", "ece", "ece_equal_mass", "smooth_ece", "classwise_ece"]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("block", [2**19, 600])
def test_equals_the_single_metrics(weighted, block, report, monkeypatch) -> None:
    p, y, w = report
    w = w if weighted else None
    expected = {name: getattr(metrics, name)(p, y, sample_weight=w) for name in NAMES}
    monkeypatch.setattr(base, "_BLOCK_ENTRIES", block)
    values = metrics.measure_all(p, y, sample_weight=w).to_dict()
    assert values.pop("n") == 500
    assert values == pytest.approx(expected, rel=1e-13)


def test_read_only_and_strided_arrays_are_read_as_they_are(report) -> None:
    p, y, _ = report
    expected = metrics.measure_all(p, y)
    wide = np.zeros((500, 12))
    wide[:, ::2] = p
    view = wide[:, ::2]
    view.flags.writeable = False
    for same in (view, np.asfortranarray(p)):
        values = metrics.measure_all(same, y).to_dict()
        assert values == pytest.approx(expected.to_dict(), rel=1e-13)


def test_real_outputs(real_set) -> None:
    values = metrics.measure_all(real_set.probabilities(), real_set.labels)
    assert values.accuracy == np.mean(real_set.probabilities().argmax(axis=1) == real_set.labels)
    assert 0.0 <= values.smooth_ece <= 1.0
    assert values.classwise_ece <= 2.0 / real_set.scores.shape[1]
    # One bin averages all gaps away, so its gap bounds ECE from below.
    one = metrics.ece(real_set.probabilities(), real_set.labels, bins=1)
    assert values.ece >= one - 1e-12
    assert values.ece_equal_mass >= one - 1e-12
