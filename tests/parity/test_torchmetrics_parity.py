"""Accuracy and ECE against torchmetrics, and where its bins differ."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import metrics

torch = pytest.importorskip("torch")
functional = pytest.importorskip("torchmetrics.functional.classification")


def their_ece(p: np.ndarray, y: np.ndarray, bins: int) -> float:
    error = functional.multiclass_calibration_error(
        torch.tensor(p), torch.tensor(y), p.shape[1], n_bins=bins, norm="l1"
    )
    return float(error)


@pytest.mark.parametrize("bins", [10, 15])
def test_ece_away_from_edges(report, bins) -> None:
    p, y = report
    # torchmetrics always computes in float32.
    assert metrics.ece(p, y, bins=bins) == pytest.approx(their_ece(p, y, bins), abs=2e-6)


def test_accuracy(report) -> None:
    p, y = report
    theirs = functional.multiclass_accuracy(
        torch.tensor(p), torch.tensor(y), p.shape[1], average="micro"
    )
    assert metrics.accuracy(p, y) == pytest.approx(float(theirs), abs=1e-6)


def test_torchmetrics_has_a_separate_bin_for_one() -> None:
    """torchmetrics' bins are [lo, hi), and a confidence of exactly 1 has an extra bin.

    Ours are (lo, hi], as in the paper, so that 1 shares the last bin with its neighbours.
    """
    p, y = np.array([[1.0, 0.0], [0.96, 0.04]]), np.array([1, 0])
    assert metrics.ece(p, y) == pytest.approx(abs(1.96 - 1) / 2)
    assert their_ece(p, y, 15) == pytest.approx((1.0 + 0.04) / 2, abs=1e-6)


def test_torchmetrics_puts_an_edge_in_the_bin_above() -> None:
    p, y = np.array([[0.75, 0.25], [0.8, 0.2]]), np.array([0, 1])
    assert metrics.ece(p, y, bins=4) == pytest.approx((0.25 + 0.8) / 2)  # 0.75 is in (0.5, 0.75]
    assert their_ece(p, y, 4) == pytest.approx(abs(1.55 - 1) / 2, abs=1e-6)  # in [0.75, 1)
