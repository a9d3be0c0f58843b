"""The model confidence set, against a slow twin and where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal.evaluate.recommendation import confidence_set


def slow(losses, drawn, level=0.95):
    """Test and eliminate pair by pair, as the definition says it."""
    left = list(losses)
    while len(left) > 1:
        pairs = [(i, j) for i in left for j in left if i != j]
        size, t = {}, {}
        for i, j in pairs:
            gap = losses[i] - losses[j]
            size[i, j] = np.sqrt(np.mean((drawn[i] - drawn[j] - gap) ** 2))
            t[i, j] = gap / size[i, j]
        statistic = max(abs(value) for value in t.values())
        exceed = 0
        for b in range(len(drawn[left[0]])):
            chance = max(
                abs(drawn[i][b] - drawn[j][b] - losses[i] + losses[j]) / size[i, j]
                for i, j in pairs
            )
            exceed += chance >= statistic
        if exceed / len(drawn[left[0]]) >= 1 - level:
            break
        left.remove(max(left, key=lambda i: max(t[i, j] for j in left if j != i)))
    return left


def draws(rng, means, rows=200, resamples=200, spread=0.3):
    """Return mean losses of some reports on the same rows, and their resamples."""
    common = rng.normal(size=rows)
    losses = {name: common + mean + spread * rng.normal(size=rows) for name, mean in means.items()}
    counts = rng.multinomial(rows, np.full(rows, 1 / rows), size=resamples)
    return (
        {name: float(values.mean()) for name, values in losses.items()},
        {name: counts @ values / rows for name, values in losses.items()},
    )


@pytest.mark.parametrize("seed", range(8))
def test_is_that_of_the_slow_twin(seed) -> None:
    rng = np.random.default_rng(seed)
    means = {name: 0.05 * rng.random() for name in "abcde"}
    losses, drawn = draws(rng, means, resamples=60)
    assert confidence_set(losses, drawn) == slow(losses, drawn)


def test_holds_the_best_as_often_as_it_says_and_drops_what_is_worse() -> None:
    # Of 200 draws, binomial(200, 0.95) below 180: 2e-3; the worse is 0.15 / 0.03 = 5 errors off.
    held = dropped = 0
    for seed in range(200):
        rng = np.random.default_rng(1000 + seed)
        losses, drawn = draws(rng, {"best": 0.0, "near": 0.0, "worse": 0.15})
        found = confidence_set(losses, drawn)
        held += "best" in found
        dropped += "worse" not in found
    assert held >= 180
    assert dropped >= 190


def test_a_noisy_report_does_not_shield_what_another_clearly_beats() -> None:
    # Two reports 5 errors apart, and a third that is lowest by the luck of one row.
    rng = np.random.default_rng(5)
    losses, drawn = draws(rng, {"simple": 0.15, "good": 0.0})
    luck = rng.poisson(1.0, 200) - 1.0
    losses["noisy"] = losses["good"] - 0.01
    drawn["noisy"] = drawn["good"] - 0.01 + 0.2 * luck
    assert confidence_set(losses, drawn) == ["good", "noisy"]


def test_equal_reports_stay_together_and_one_is_a_set() -> None:
    values = np.random.default_rng(0).normal(size=50)
    same = {"a": values, "b": values + 1e-13, "c": values + 0.5}
    assert confidence_set({"a": 1.0, "b": 1.0 + 1e-13, "c": 1.5}, same) == ["a", "b"]
    assert confidence_set({"a": 1.0}, {"a": values}) == ["a"]
