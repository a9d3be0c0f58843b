"""Averages over tidy rows, against loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cordcal_study.chapters import Part, change, number
from cordcal_study.experiments.main import averaged_diagram
from cordcal_study.tidy import Bin, Row, mean_interval, means, over_splits, reductions


def some_rows() -> list[Row]:
    rng = np.random.default_rng(0)
    return [
        Row("g", name, key, seed, 1.0, "clean", repair, measure, float(rng.random()))
        for name, key, repair, measure in itertools.product(
            "ab", ("vs", "ms"), ("direct", "cord"), ("ece", "nll")
        )
        for seed in range(2 if name == "a" else 3)
    ]


def test_means_do_not_depend_on_the_order() -> None:
    rows = some_rows()
    result = means(rows, "set", "measure")
    assert result == pytest.approx(
        {
            (name, measure): np.mean(
                [r.value for r in rows if (r.set, r.measure) == (name, measure)]
            )
            for name in "ab"
            for measure in ("ece", "nll")
        }
    )
    assert means(rows[::-1], "set", "measure") == result


def test_conditions_count_the_same_whatever_their_splits() -> None:
    rows = some_rows()
    pooled = means(over_splits(rows), "measure")["ece",]
    by_hand = [
        np.mean(
            [
                r.value
                for r in rows
                if (r.set, r.calibrator, r.repair, r.measure) == (name, key, repair, "ece")
            ]
        )
        for name, key, repair in itertools.product("ab", ("vs", "ms"), ("direct", "cord"))
    ]
    assert pooled == pytest.approx(np.mean(by_hand))
    assert pooled != pytest.approx(np.mean([r.value for r in rows if r.measure == "ece"]))


def test_reductions_are_paired() -> None:
    rows = some_rows()
    value = {row[:-1]: row.value for row in rows}
    result = reductions(rows, base="direct", repair="cord")
    assert len(result) == len(rows) // 2
    for row in result:
        assert row.value == value[row._replace(repair="direct")[:-1]] - value[row[:-1]]


def test_interval_is_student_s() -> None:
    from scipy import stats

    values = [0.2, 0.5, 0.3, 0.9]
    mean, low, high = mean_interval(values)
    expected = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (low, high) == pytest.approx(expected)
    assert mean == pytest.approx(np.mean(values))
    assert mean_interval([0.4]) == (0.4, 0.4, 0.4)


def test_diagrams_average_only_the_splits_that_have_the_bin() -> None:
    first = Bin("g", "s", "vs", 0, "cord", 0, rows=3, accuracy=0.1, confidence=0.2)
    one = [first, first._replace(bin=1, rows=0)]
    other = [
        first._replace(seed=1, rows=1, accuracy=0.3, confidence=0.4),
        first._replace(seed=1, bin=1, rows=2, accuracy=0.8, confidence=0.9),
    ]
    curve = averaged_diagram([one, other])
    assert curve["confidence"] == pytest.approx([0.3, 0.9])
    assert curve["accuracy"] == pytest.approx([0.2, 0.8])
    assert curve["low"][1] == curve["high"][1] == 0.8
    assert all(0.0 <= value <= 1.0 for value in (*curve["low"], *curve["high"]))


def test_a_change_that_prints_as_zero_has_no_sign() -> None:
    assert change(0.004, 2) == Part("0.00")
    assert change(-0.006, 2) == Part("−0.01", mark="worse")
    assert change(0.006, 2, strong=True) == Part("0.01", True, "better")
    assert number(-0.0001, 2, signed=True).text == "0.00"
