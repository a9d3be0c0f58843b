"""Statistics against scipy and statsmodels, and intervals over classifiers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from cordcal import InputError
from cordcal_study import statistics
from cordcal_study.statistics import effects
from cordcal_study.tidy import Row


def rows_of(values: dict[str, list[float]], calibrators: int = 3) -> list[Row]:
    """Return classifiers whose calibrators all share their classifier's values, one a split."""
    return [
        Row("G", name, f"c{calibrator}", seed, 1.0, "clean", "cord", "ece", value)
        for name, splits in values.items()
        for calibrator in range(calibrators)
        for seed, value in enumerate(splits)
    ]


def test_calibrators_of_one_classifier_are_no_independent_evidence() -> None:
    rng = np.random.default_rng(0)
    rows = rows_of({f"net {at}": [value] for at, value in enumerate(rng.normal(size=12))}, 30)
    (clustered,) = effects(rows, ["ece"])
    (naive,) = effects(rows, ["ece"], "conditions")
    assert (clustered.n_units, naive.n_units, clustered.n_conditions) == (12, 360, 360)
    assert clustered.mean == pytest.approx(naive.mean, abs=1e-15)
    # Thirty copies of each classifier shrink the naive interval by about the root of thirty.
    ratio = (clustered.high - clustered.low) / (naive.high - naive.low)
    assert 4.0 < ratio < 7.5


def test_the_bootstrap_is_that_of_a_plain_loop() -> None:
    values = {"a": [1.0, 2.0, 4.0], "b": [0.0, 3.0], "c": [5.0]}
    (result,) = effects(rows_of(values), ["ece"], resamples=40_000)
    rng = np.random.default_rng(5)
    names = list(values)
    means = []
    for _ in range(40_000):
        drawn = [values[names[at]] for at in rng.integers(0, 3, 3)]
        means.append(np.mean([rng.choice(splits, len(splits)).mean() for splits in drawn]))
    low, high = np.quantile(means, [0.025, 0.975])
    assert result.low == pytest.approx(low, abs=0.05)
    assert result.high == pytest.approx(high, abs=0.05)


def test_classifiers_with_fewer_calibrators_count_by_their_conditions() -> None:
    rows = [*rows_of({"a": [1.0]}, 1), *rows_of({"b": [4.0]}, 2)]
    (result,) = effects(rows, ["ece"])
    assert result.mean == pytest.approx(3.0)
    assert result.units == {"a": 1.0, "b": 4.0}


def test_one_unit_has_no_spread() -> None:
    (result,) = effects(rows_of({"a": [1.0, 3.0]}), ["ece"])
    assert math.isnan(result.t_low)
    assert result.low < result.mean < result.high  # its splits still vary


def test_holm_is_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    rng = np.random.default_rng(4)
    for size in (1, 2, 9, 40):
        p = rng.random(size) ** 3
        p[: size // 4] = p[0]  # ties
        expected = multitest.multipletests(p, method="holm")[1]
        np.testing.assert_allclose(statistics.holm(p), expected, rtol=1e-14)


def test_wilcoxon_is_scipys_and_nothing_is_no_evidence() -> None:
    from scipy.stats import wilcoxon

    rng = np.random.default_rng(5)
    cells = {"shifted": rng.normal(1, 1, 49), "null": rng.normal(0, 1, 49), "zero": np.zeros(49)}
    tests = {test.cell: test for test in statistics.wilcoxon_table(cells)}
    for name in ("shifted", "null"):
        assert tests[name].p_value == wilcoxon(cells[name]).pvalue
    assert tests["zero"].p_value == tests["zero"].adjusted == 1.0
    assert tests["shifted"].adjusted == pytest.approx(3 * tests["shifted"].p_value)
    assert tests["shifted"].stars == "***"
    assert tests["null"].stars == ""
    assert tests["shifted"].to_dict()["stars"] == "***"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: statistics.holm([0.5, 1.5]), "between 0 and 1"),
        (lambda: statistics.wilcoxon_table({}), "cells is empty"),
        (lambda: statistics.wilcoxon_table({"a": []}), "a is empty"),
        (lambda: statistics.wilcoxon_table({"a": [1.0, np.nan]}), "a: row 1 is not finite"),
    ],
)
def test_bad_input(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
