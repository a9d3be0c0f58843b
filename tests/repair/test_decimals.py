"""Probabilities rounded to decimals: whole units that sum to one, the prediction on top."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

import cordcal
from cordcal.repair.decimals import check_decimals, round_to_decimals
from errors import refused


@pytest.mark.parametrize("classes", [2, 3, 10, 300])
@pytest.mark.parametrize("decimals", [0, 1, 2, 4, 6])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_units_sum_to_one_and_the_prediction_leads(
    classes: int, decimals: int, dtype: type
) -> None:
    rng = np.random.default_rng(classes)
    rows = rng.dirichlet(np.full(classes, 0.7), 300)
    rows[:50] = 1.0 / classes
    prediction = rows.argmax(axis=1)
    result = round_to_decimals(rows.astype(dtype), prediction, decimals)
    assert result.dtype == dtype
    units = result.astype(float) * 10**decimals
    np.testing.assert_allclose(units, units.round(), atol=0.2 if dtype == np.float32 else 1e-9)
    assert (units.round().sum(axis=1) == 10**decimals).all()
    others = result.copy()
    others[np.arange(300), prediction] = -1.0
    assert (result[np.arange(300), prediction] > others.max(axis=1)).all()
    # The text of a number is the number.
    text = [[Decimal(f"{x:.{decimals}f}") for x in row] for row in result[:20]]
    assert all(sum(row) == 1 for row in text)
    # No entry moves by more than a unit, except to lead a tie.
    assert (np.abs(result - rows) <= 2.0 / 10**decimals + 1e-6).all()


def test_a_rule_decides_what_leads() -> None:
    rng = np.random.default_rng(0)
    weights = np.array([1.0, 5.0, 0.2])
    rows = rng.dirichlet(np.ones(3), 200)
    prediction = (rows * weights).argmax(axis=1)
    for decimals in (1, 2, 3):
        result = round_to_decimals(rows, prediction, decimals, weights)
        assert ((result * weights).argmax(axis=1) == prediction).all()


@pytest.mark.parametrize("value", [-1, 1.5, "2", True, None])
def test_bad_decimals(value: object) -> None:
    with refused("decimals", naming="whole number"):
        check_decimals(value, np.float64)


def test_decimals_beyond_the_dtype() -> None:
    assert check_decimals(3, np.float16) == 3
    for dtype, most in ((np.float16, 3), (np.float32, 6), (np.float64, 15)):
        with refused("decimals", naming=[np.dtype(dtype).name, str(most)]):
            check_decimals(most + 1, dtype)


def test_a_model_rounds() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(4, size=300)
    logits = 2.0 * np.eye(4)[labels] + rng.normal(size=(300, 4))
    model = cordcal.PreservingCalibrator().fit(logits, labels)
    rounded = model.predict_proba(logits, decimals=2)
    assert (rounded.argmax(axis=1) == logits.argmax(axis=1)).all()
    np.testing.assert_allclose(rounded, model.predict_proba(logits), atol=0.02)
    dense = model.predict_proba(logits.reshape(10, 30, 4).transpose(0, 2, 1), axis=1, decimals=2)
    np.testing.assert_array_equal(dense.transpose(0, 2, 1).reshape(300, 4), rounded)
    with refused("decimals", naming="float16"):
        model.predict_proba(logits, dtype=np.float16, decimals=4)
