"""The share that may act, in comparisons and their report."""

from __future__ import annotations

import numpy as np

import cordcal
from cordcal.report.html import render


def test_comparisons_state_the_share_that_may_act() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=3000)
    logits = 3.0 * np.eye(3)[labels] + rng.normal(size=(3000, 3))
    comparison = cordcal.compare(logits, labels, calibrators=["ts", "irova"])
    assert set(comparison.act) == set(comparison.outputs())
    for shares in comparison.act.values():
        assert len(shares) == 4
        assert all(0.0 <= share <= 1.0 for share in shares)
    assert comparison.act["ts", "direct"][3] > 0.9
    assert comparison.to_dict()["act"]["ts direct"] == list(comparison.act["ts", "direct"])
    assert "Share that may act" in render(comparison, title="a page")
