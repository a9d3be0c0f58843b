"""Statistics against scipy and statsmodels, and against what they must not do."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from cordcal.evaluate import statistics


def test_interval_is_scipys_percentile_bootstrap_at_bonferronis_level() -> None:
    from scipy.stats import bootstrap

    rng = np.random.default_rng(0)
    values = rng.normal(0.3, 1.0, 40)
    groups = ["a"] * 40 + ["b"] * 20
    effects = statistics.simultaneous_intervals(
        {
            "ECE": [*values, *rng.normal(size=20)],
            "NLL": rng.normal(size=60),
            "Brier": rng.normal(size=60),
        },
        groups,
        resamples=40_000,
    )
    assert [(each.group, each.measure, each.n) for each in effects] == [
        (group, measure, n)
        for group, n in (("a", 40), ("b", 20))
        for measure in ("ECE", "NLL", "Brier")
    ]
    # The argument was called random_state before scipy 1.15.
    generator = "rng" if "rng" in inspect.signature(bootstrap).parameters else "random_state"
    reference = bootstrap(
        (values,),
        np.mean,
        confidence_level=1 - 0.05 / 6,
        n_resamples=40_000,
        method="percentile",
        **{generator: np.random.default_rng(1)},
    ).confidence_interval
    assert effects[0].mean == pytest.approx(values.mean(), rel=1e-12)
    # Two independent bootstraps of 40,000: quantiles at 0.4 % agree to some Monte Carlo error.
    assert effects[0].low == pytest.approx(reference.low, abs=0.02)
    assert effects[0].high == pytest.approx(reference.high, abs=0.02)


def test_more_groups_or_measures_widen_every_interval() -> None:
    values = np.random.default_rng(2).normal(size=60)
    one = statistics.simultaneous_intervals({"ECE": values}, ["a"] * 60)[0]
    nine = statistics.simultaneous_intervals(
        dict.fromkeys(("ECE", "NLL", "Brier"), values), ["a"] * 60
    )[0]
    assert nine.low < one.low < one.high < nine.high


def test_measures_of_a_group_share_resamples_and_the_seed_fixes_them() -> None:
    values = np.random.default_rng(3).normal(size=30)
    first, second = statistics.simultaneous_intervals({"a": values, "b": 2 * values}, ["g"] * 30)
    assert (2 * first.low, 2 * first.high) == pytest.approx((second.low, second.high), rel=1e-12)
    again = statistics.simultaneous_intervals({"a": values, "b": 2 * values}, ["g"] * 30)
    other = statistics.simultaneous_intervals({"a": values, "b": 2 * values}, ["g"] * 30, seed=1)
    assert again == [first, second]
    assert other != again


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
        (
            lambda: statistics.simultaneous_intervals({"a": [1.0, np.nan]}, ["g", "g"]),
            "a: row 1 is not finite",
        ),
        (lambda: statistics.simultaneous_intervals({}, []), "differences is empty"),
        (
            lambda: statistics.simultaneous_intervals({"a": [1.0]}, ["g", "h"]),
            "groups has 2 entries",
        ),
        (lambda: statistics.simultaneous_intervals({"a": [1.0]}, ["g"], level=95), "level is 95"),
        (lambda: statistics.simultaneous_intervals({"a": [1.0]}, ["g"], resamples=0), "at least 1"),
        (lambda: statistics.holm([0.5, 1.5]), "between 0 and 1"),
        (lambda: statistics.wilcoxon_table({}), "cells is empty"),
        (lambda: statistics.wilcoxon_table({"a": []}), "a is empty"),
    ],
)
def test_bad_input(call, message) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - read below
        call()
    assert message in str(caught.value)
