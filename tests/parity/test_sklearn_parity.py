"""Accuracy, log loss and Brier against scikit-learn, and where its log loss differs."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as theirs

from cordcal import metrics


@pytest.mark.parametrize("weighted", [False, True])
def test_means(report, weighted) -> None:
    p, y = report
    classes = np.arange(p.shape[1])
    weight = np.random.default_rng(0).random(len(y)) if weighted else None
    assert metrics.accuracy(p, y, sample_weight=weight) == pytest.approx(
        theirs.accuracy_score(y, p.argmax(axis=1), sample_weight=weight), rel=1e-12
    )
    assert metrics.nll(p, y, sample_weight=weight) == pytest.approx(
        theirs.log_loss(y, p, labels=classes, sample_weight=weight), rel=1e-12
    )
    # scikit-learn halves the sum for two classes by default.
    assert metrics.brier(p, y, sample_weight=weight) == pytest.approx(
        theirs.brier_score_loss(
            y,
            p if len(classes) > 2 else p[:, 1],
            labels=classes,
            sample_weight=weight,
            scale_by_half=False,
        ),
        rel=1e-12,
    )


def test_sklearn_clips_the_log_loss_elsewhere() -> None:
    """scikit-learn clips at the dtype's epsilon (2e-16 in float64), ours at the paper's 1e-12."""
    p, y = np.array([[1.0, 0.0], [0.5, 0.5]]), [1, 0]
    assert metrics.nll(p, y) == pytest.approx((-np.log(1e-12) - np.log(0.5)) / 2)
    epsilon = np.finfo(np.float64).eps
    assert theirs.log_loss(y, p) == pytest.approx((-np.log(epsilon) - np.log(0.5)) / 2)


def test_reliability_is_the_calibration_curve_of_the_top_label(report) -> None:
    from sklearn.calibration import calibration_curve

    p, y = report
    confidence, correct = p.max(axis=1), p.argmax(axis=1) == y
    accuracy, mean = calibration_curve(correct, confidence, n_bins=15)
    bins = metrics.reliability(p, y)
    filled = bins.count > 0
    np.testing.assert_allclose(bins.accuracy[filled], accuracy, rtol=1e-12)
    np.testing.assert_allclose(bins.confidence[filled], mean, rtol=1e-12)
