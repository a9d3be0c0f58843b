"""The cost of the constraint, against slow searches."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest

import cordcal
from cordcal.evaluate import constraint_cost
from cordcal.evaluate.constraint_cost import (
    cost_without_labels,
    lower_end,
    measure_constraint_cost,
    smallest_loss,
)


def slow(mass, right, share, end, values):
    """Try every non-decreasing assignment of the values to the rows."""
    order = np.argsort(mass, kind="stable")
    best = np.inf
    for f in combinations_with_replacement(values, len(mass)):
        if any(mass[i] == mass[j] and f[a] != f[a + 1] for a, (i, j) in enumerate(pairwise(order))):
            continue
        loss = 0.0
        for value, row in zip(f, order, strict=True):
            s = max(value, end[row])
            p = s if right[row] else (1 - s) * share[row]
            loss -= np.log(max(p, 1e-12))
        best = min(best, loss / len(mass))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_is_the_smallest_of_all_monotone_assignments(seed, monkeypatch) -> None:
    logits = np.linspace(-3, 3, 7)
    monkeypatch.setattr(constraint_cost, "_LOGITS", logits)
    rng = np.random.default_rng(seed)
    mass = rng.choice([0.2, 0.4, 0.5, 0.7, 0.9, 0.95], 6)
    right = rng.random(6) < mass
    share, end = np.where(right, 1.0, rng.random(6)), 0.6 * rng.random(6)
    expected = slow(mass, right, share, end, 1 / (1 + np.exp(-logits)))
    assert smallest_loss(mass, right, share, end) == pytest.approx(expected, rel=1e-12)


def test_without_ends_it_is_isotonic_regression() -> None:
    from sklearn.isotonic import IsotonicRegression

    rng = np.random.default_rng(1)
    mass = rng.random(3000)
    right = rng.random(3000) < mass**2
    fitted = IsotonicRegression(y_min=1e-9, y_max=1 - 1e-9).fit_transform(mass, right)
    exact = -np.mean(np.where(right, np.log(fitted), np.log1p(-fitted)))
    none = np.zeros(3000)
    loss = smallest_loss(mass, right, np.ones(3000), none)
    assert 0.0 <= loss - exact < 3e-4  # the values f may take are 0.1 apart in the logit


def test_no_repair_of_the_kind_is_better() -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(4, size=1200)
    logits = 2.0 * np.eye(4)[labels] + rng.normal(size=(1200, 4)) + np.array([0, 0, 1.0, 2.0])
    model = cordcal.PreservingCalibrator("vs").fit(logits, labels)
    reports = model.predict_both(logits)
    cost = measure_constraint_cost(reports.direct, reports.prediction, labels)
    # CORD is such a repair, and so is the least that keeps each prediction.
    assert cost.kept <= cordcal.metrics.nll(reports.repaired, labels) + 3e-4
    assert cost.free <= cordcal.metrics.nll(reports.direct, labels) + 3e-4
    mass, rest, end = lower_end(reports.direct, reports.prediction)
    raised = reports.direct * ((1 - np.maximum(mass, end)) / rest)[:, None]
    raised[np.arange(1200), reports.prediction] = np.maximum(mass, end)
    assert (raised.max(axis=1) <= raised[np.arange(1200), reports.prediction] + 1e-12).all()
    assert cost.kept <= cordcal.metrics.nll(raised, labels) + 3e-4
    assert cost.to_dict()["cost"] == cost.kept - cost.free


def test_the_smallest_loss_is_the_smallest_of_all_repairs() -> None:
    direct = np.array([[0.6, 0.4], [0.3, 0.7], [0.8, 0.2]])
    prediction, labels = np.array([0, 0, 0]), np.array([0, 0, 1])
    alone = measure_constraint_cost(direct, prediction, labels)
    with_repairs = measure_constraint_cost(
        direct, prediction, labels, cord=alone.kept - 0.01, lift=alone.kept + 0.01
    )
    assert with_repairs.kept == with_repairs.cord == alone.kept - 0.01
    assert with_repairs.free <= with_repairs.kept
    assert with_repairs.free <= alone.free


def test_certain_rows_are_no_trouble() -> None:
    direct = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.2, 0.3, 0.5]])
    cost = measure_constraint_cost(direct, np.array([0, 0, 2]), np.array([1, 0, 2]))
    assert np.isfinite([cost.kept, cost.free]).all()


def test_without_labels_it_is_the_divergence_from_what_keeps() -> None:
    from scipy.special import rel_entr

    rng = np.random.default_rng(3)
    mass, end = rng.random(50), 0.5 * rng.random(50)
    mass[:2] = 0.0, 1.0
    raised = np.maximum(mass, end)
    expected = np.mean(rel_entr(mass, raised) + rel_entr(1 - mass, 1 - raised))
    assert cost_without_labels(mass, end) == pytest.approx(expected, rel=1e-12)
    assert cost_without_labels(raised, end) == 0.0


def test_an_audit_tells_it_without_labels() -> None:
    original = np.array([[0.6, 0.3, 0.1], [0.5, 0.4, 0.1]])
    direct = np.array([[0.7, 0.2, 0.1], [0.4, 0.5, 0.1]])
    result = cordcal.audit(original, direct)
    # The second row's others stand as 5 to 1, so that 5/11 is the least that keeps its prediction.
    smallest_mass = 5 / 11
    expected = (0.4 * np.log(0.4 / smallest_mass) + 0.6 * np.log(0.6 / (1 - smallest_mass))) / 2
    assert result.cost == pytest.approx(expected, rel=1e-12)
    assert f"costs {expected:.4f} nats per row" in result.interpret()
