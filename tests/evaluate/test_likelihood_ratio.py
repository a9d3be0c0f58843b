"""Whether calibration is needed: the distribution of the tests, their figures and wording."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

import cordcal
from cordcal.calibrators.crossfit import FOLDS, FitCache, Folds
from cordcal.evaluate.need import LikelihoodRatio, calibration_tests, describe_need, describe_tests
from internals import CheckedScores


def fit_cache(logits: np.ndarray, labels: np.ndarray) -> FitCache:
    return FitCache(
        CheckedScores.from_scores(logits, "logits"),
        labels,
        None,
        Folds.of(logits, labels, FOLDS, seed=0),
    )


def drawn(seed: int, rows: int = 800, sharpness: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return logits whose softmax, taken ``sharpness`` times less sharp, the labels follow."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(rows, 3))
    noise = rng.gumbel(size=(rows, 3))
    return sharpness * logits, (logits + noise).argmax(axis=1)


def test_the_statistic_is_twice_the_gain_in_log_likelihood() -> None:
    logits, labels = drawn(0, sharpness=1.3)
    (ts, _) = calibration_tests(fit_cache(logits, labels), ["vs"])

    def loss(inverse: float) -> float:
        z = inverse * logits
        lse = np.log(np.exp(z).sum(axis=1))
        return float((lse - z[np.arange(len(z)), labels]).sum())

    best = optimize.minimize_scalar(loss, bounds=(0.1, 3.0), options={"xatol": 1e-10}).fun
    assert ts.statistic == pytest.approx(2 * (loss(1.0) - best), abs=1e-6)
    assert ts.p_value == pytest.approx(stats.chi2.sf(ts.statistic, 1))
    assert ts.needed
    assert describe_tests([ts])[0].startswith("One temperature: likelihood ratio")
    assert describe_need([ts]).startswith("Yes: one temperature")


def test_one_verdict_for_several_tests() -> None:
    def test(key: str, p_value: float) -> LikelihoodRatio:
        return LikelihoodRatio(key, 1.0, 1, p_value, 100)

    assert describe_need([]) == ""
    assert describe_need([test("ts", 0.3), test("vs", 1e-5)]).startswith("Yes: a scale and a bias")
    # Two tests share the level of 5 %.
    assert describe_need([test("ts", 0.03), test("vs", 0.5)]).startswith(
        "There is no clear sign of it: neither one temperature nor"
    )
    assert describe_need([test("ts", 0.03)]).startswith("Yes: ")


def test_p_values_are_uniform_where_nothing_is_needed() -> None:
    results = [calibration_tests(fit_cache(*drawn(seed)), ["vs"]) for seed in range(60)]
    for place, freedom in enumerate((1, 5)):
        values = [tests[place].p_value for tests in results]
        assert {tests[place].freedom for tests in results} == {freedom}
        assert stats.kstest(values, "uniform").pvalue > 0.01


def test_too_few_rows_or_a_class_without_labels_leave_a_test_out() -> None:
    logits, labels = drawn(1, rows=45)
    assert [test.key for test in calibration_tests(fit_cache(logits, labels), ["vs"])] == ["ts"]
    logits, labels = drawn(1)
    two = np.where(labels == 2, 1, labels)
    assert [test.key for test in calibration_tests(fit_cache(logits, two), ["vs"])] == ["ts"]


def test_a_comparison_carries_them() -> None:
    comparison = cordcal.compare(*drawn(2, sharpness=2.0), ["irova"])
    assert [test.key for test in comparison.needed] == ["ts"]
    data = comparison.to_dict()
    assert data["needed"][0]["needed"] is True
    assert data["need"].startswith("Yes: ")
    assert "p < " in data["need"] or "p = " in data["need"]
