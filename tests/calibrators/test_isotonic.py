"""The isotonic maps against scikit-learn, which defines them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from cordcal import calibrators
from cordcal.calibrators import _curves
from cordcal.calibrators._curves import fit_knots, group_starts

from .conftest import noisy_logits, softmax


def reference_irova(p: np.ndarray, y: np.ndarray, new: np.ndarray, weight=None) -> np.ndarray:
    columns = [
        IsotonicRegression(out_of_bounds="clip")
        .fit(p[:, k], y == k, sample_weight=weight)
        .predict(new[:, k])
        for k in range(p.shape[1])
    ]
    q = np.stack(columns, axis=1)
    total = q.sum(axis=1, keepdims=True)
    return np.where(total > 0, q / np.where(total > 0, total, 1.0), new)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [1.0, 6.0, 60.0])  # 60: most probabilities are below 1e-15
def test_irova_is_scikit_learns(scale: float, weighted: bool) -> None:
    logits, labels = noisy_logits(1500, 6, scale=scale)
    weight = np.random.default_rng(1).integers(0, 4, size=1500) * 0.5 if weighted else None
    new = noisy_logits(700, 6, seed=2, scale=scale)[0]
    model = calibrators.make("irova").fit(logits, labels, sample_weight=weight)
    expected = reference_irova(softmax(logits), labels, softmax(new), weight)
    assert np.abs(model.predict_proba(new) - expected).max() < 1e-12


def reference_irm(p: np.ndarray, y: np.ndarray, new: np.ndarray, weight=None) -> np.ndarray:
    is_label = np.eye(p.shape[1])[y].ravel()
    entry_weight = None if weight is None else np.repeat(weight, p.shape[1])
    model = IsotonicRegression(out_of_bounds="clip").fit(
        p.ravel(), is_label, sample_weight=entry_weight
    )
    q = model.predict(new.ravel()).reshape(new.shape) + 1e-9 * new
    return q / q.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [1.0, 6.0, 60.0])
def test_irm_is_scikit_learns_made_strict(scale: float, weighted: bool) -> None:
    logits, labels = noisy_logits(1500, 6, scale=scale)
    weight = np.random.default_rng(1).integers(0, 4, size=1500) * 0.5 if weighted else None
    new = noisy_logits(700, 6, seed=2, scale=scale)[0]
    model = calibrators.make("irm").fit(logits, labels, sample_weight=weight)
    expected = reference_irm(softmax(logits), labels, softmax(new), weight)
    assert np.abs(model.predict_proba(new) - expected).max() < 1e-12


def greedy_starts(x: np.ndarray) -> list[int]:
    starts = [0]
    for i, value in enumerate(x):
        if value - x[starts[-1]] >= 1e-15:
            starts.append(i)
    return starts


@pytest.mark.parametrize("offset", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("spread", [1e-17, 2e-16, 1e-15, 5e-15])
def test_close_values_are_grouped_greedily(
    spread: float, offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_curves, "_CHAIN_PIECE", 37)
    rng = np.random.default_rng(3)
    x = np.sort(offset + np.cumsum(rng.exponential(spread, size=400)))
    assert group_starts(x).tolist() == greedy_starts(x)


def test_zero_weight_rows_do_not_count() -> None:
    x, positive = np.array([0.1, 0.2, 0.3]), np.array([True, False, True])
    knots = fit_knots(x, positive, np.array([0.0, 1.0, 1.0]))
    np.testing.assert_array_equal(knots, fit_knots(x[1:], positive[1:], None))


def test_a_row_of_zeros_keeps_its_original() -> None:
    # Class 2 never occurs and classes 0 and 1 only with large probabilities.
    p = np.array([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.8, 0.1, 0.1], [0.1, 0.8, 0.1]])
    model = calibrators.make("irova", input="probabilities").fit(p, [0, 1, 0, 1])
    row = np.array([[0.2, 0.15, 0.65]])
    np.testing.assert_array_equal(model.predict_proba(row), row / row.sum())
