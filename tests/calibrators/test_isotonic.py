"""The isotonic maps against scikit-learn, which defines them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from cordcal import calibrators
from cordcal.calibrators import _curves
from cordcal.calibrators._curves import (
    curve_parameters,
    fit_knots,
    group_starts,
    interpolate,
)
from cordcal.expressions import Parameters

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


@pytest.mark.parametrize("rows", [2, 40, 3000])
def test_pooling_in_rounds_is_isotonic_regression(rows: int) -> None:
    rng = np.random.default_rng(rows)
    mass, target = rng.integers(1, 5, rows).astype(float), rng.random(rows)
    # A staircase before a fall pools one step per round, so that SciPy has to finish.
    staircase = np.append(np.sort(target[1:]), -1.0)
    for values in (target, np.round(target), staircase):
        expected = IsotonicRegression().fit(np.arange(rows), values, mass).predict(np.arange(rows))
        assert np.abs(_curves._isotonic(values * mass, mass) - expected).max() < 1e-13


def random_curves(kind: str, curves: int, rng: np.random.Generator) -> list[tuple]:
    """Return knots of each curve: of few and many, close, equal and negative abscissas."""
    x = rng.random((curves, 60)) ** 8
    knots = [np.sort(row[: rng.integers(1, 60)]) for row in x]
    if kind == "few":
        knots = [row[:5] for row in knots]
    if kind == "zeros":
        knots = [np.sort(np.append(row, [0.0, 0.0, 1.0, 1.0])) for row in knots]
    if kind == "negative":
        knots = [np.log(row + 1e-9) for row in knots]
    return [(row, np.sort(rng.integers(0, 9, row.size) / 8)) for row in knots]


@pytest.mark.parametrize("kind", ["plain", "few", "zeros", "negative"])
@pytest.mark.parametrize("curves", [1, 7])
@pytest.mark.parametrize("power", [1, 40])  # with 40 most entries lie on the first level
def test_interpolation_is_numpys_to_the_bit(kind: str, curves: int, power: int) -> None:
    rng = np.random.default_rng(curves)
    for rows in (1, 50, 2500):
        knots = random_curves(kind, curves, rng)
        start = np.cumsum([0, *(x.size for x, _ in knots)])
        knot_x, knot_y = (np.concatenate(part) for part in zip(*knots, strict=True))
        x = rng.random((rows, 7)) ** power
        x = np.log(x + 1e-12) if kind == "negative" else x
        x[rng.random(x.shape) < 0.3] = rng.choice(knot_x)
        x[0, :3] = -0.0, 1.0, 0.0
        columns = [x.T[k] for k in range(7)] if curves == 7 else [x]
        parts = [np.interp(column, *curve) for column, curve in zip(columns, knots, strict=True)]
        expected = np.stack(parts, axis=1) if curves == 7 else parts[0]
        params = curve_parameters(knot_x, knot_y, start if curves == 7 else None)
        np.testing.assert_array_equal(interpolate(x.copy(), Parameters(params), np), expected)


def reference_irm(p: np.ndarray, y: np.ndarray, new: np.ndarray, weight=None) -> np.ndarray:
    own = np.eye(p.shape[1])[y].ravel()
    entry_weight = None if weight is None else np.repeat(weight, p.shape[1])
    model = IsotonicRegression(out_of_bounds="clip").fit(p.ravel(), own, sample_weight=entry_weight)
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
    monkeypatch.setattr(_curves, "_SORTED_PIECE", 37)
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
