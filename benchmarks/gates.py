"""How often gates over classes and groups fail although the probabilities are right.

    python benchmarks/gates.py --checks 1000

Labels are drawn from the probabilities, so every failure is chance; 5 % are allowed for all
classes or groups of a check together.  A calibration error has the limit 0.  The other metrics
have the limit that the worst part just meets in expectation.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cordcal.evaluate.bounds import upper_mean
from cordcal.evaluate.gates import Gate, check
from cordcal.metrics import METRICS

Rng = np.random.Generator
MEASURES = ("ece", "nll", "accuracy")
ALPHA = 0.05


@dataclass(frozen=True)
class Setting:
    """Probabilities, and the group of each row; without groups the gate is over classes."""

    name: str
    probabilities: np.ndarray
    groups: np.ndarray | None

    @property
    def parts(self) -> np.ndarray:
        return self.probabilities.argmax(axis=1) if self.groups is None else self.groups


def groups(name: str, sizes: list[int], confidence: Callable[[int], np.ndarray]) -> Setting:
    """Return groups of two classes with confidences of a distribution."""
    number = np.repeat(np.arange(len(sizes)), sizes)
    top = confidence(len(number))
    return Setting(name, np.column_stack([top, 1.0 - top]), number)


def classes(name: str, count: int, rows: int, top: np.ndarray, width: int | None = None) -> Setting:
    """Return rows that predict ``count`` classes, ``rows`` each, among ``width`` classes."""
    predicted = np.repeat(np.arange(count), rows)
    width = count if width is None else width
    probabilities = np.repeat((1.0 - top)[:, None] / (width - 1), width, axis=1)
    probabilities[np.arange(len(predicted)), predicted] = top
    return Setting(name, probabilities, None)


def settings(rng: Rng) -> list[Setting]:
    """Return what the table has, one row each."""
    mixed = [30] * 200 + [300] * 20 + [3000] * 3
    sure = np.repeat([0.999999, 0.7], [3000, 3000])
    return [
        groups("1,000 groups x 30 at 0.9999", [30] * 1000, lambda n: np.full(n, 0.9999)),
        classes("300 classes x 30 at 0.9999", 300, 30, np.full(9000, 0.9999)),
        groups("100 groups x 30 at 0.9", [30] * 100, lambda n: np.full(n, 0.9)),
        groups("50 groups x 30 uniform in 0.5-1", [30] * 50, lambda n: rng.uniform(0.5, 1, n)),
        groups("mixed sizes, 30 to 3,000", mixed, lambda n: rng.uniform(0.5, 1, n)),
        groups("nearly certain and uncertain", [30] * 200, lambda n: sure[:n]),
        groups("ties: three values", [60] * 50, lambda n: rng.choice([0.55, 0.8, 0.96], n)),
        classes("50 of 1,000 classes x 40", 50, 40, rng.uniform(0.3, 1, 2000), width=1000),
    ]


def limit_of(setting: Setting, measure: str) -> float:
    """Return the limit that the worst part just meets in expectation."""
    top = setting.probabilities.max(axis=1)
    rows = len(top)
    p = setting.probabilities
    loss = {
        "nll": lambda: -np.sum(p * np.log(np.maximum(p, 1e-12)), axis=1),
        "brier": lambda: 1.0 - np.sum(p * p, axis=1),
        "accuracy": lambda: top,
    }
    if METRICS[measure].calibration_error:
        return 0.0
    values = loss[measure]()
    assert len(values) == rows
    means = [values[setting.parts == part].mean() for part in np.unique(setting.parts)]
    # The expectation and the limit are rounded differently.
    return min(means) - 1e-9 if measure == "accuracy" else max(means) + 1e-9


def failures(setting: Setting, measure: str, checks: int) -> int:
    """Return how many checks fail."""
    over = "class" if setting.groups is None else "group"
    bound = "min" if measure == "accuracy" else "max"
    gate = Gate(measure, limit_of(setting, measure), bound, over)  # type: ignore[arg-type]
    bounds = setting.probabilities.cumsum(axis=1)
    bounds /= bounds[:, -1:]
    failed = 0
    for number in range(checks):
        rng = np.random.default_rng([number, len(bounds)])
        labels = (bounds > rng.random((len(bounds), 1))).argmax(axis=1)
        result = check(
            setting.probabilities, labels, gates=[gate], groups=setting.groups, seed=number
        )
        failed += result.outcome == "failed"
    return failed


def levels(checks: int) -> None:
    """Print the share of checks that fail."""
    allowed = ALPHA + 2.0 * math.sqrt(ALPHA * (1.0 - ALPHA) / checks)
    print(f"Failures of {checks:,} checks in %; {100 * allowed:.1f} % are within two errors of 5 %")
    print(f"{'setting':34}" + "".join(f"{measure:>16}" for measure in MEASURES))
    for setting in settings(np.random.default_rng(0)):
        shares = [100.0 * failures(setting, measure, checks) / checks for measure in MEASURES]
        print(f"{setting.name:34}" + "".join(f"{share:16.1f}" for share in shares), flush=True)


def speed() -> None:
    """Print how long a gate over 100 classes takes, with the check without it."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(10_000, 100))
    scores[np.arange(10_000), rng.integers(100, size=10_000)] += 8.0
    probabilities = np.exp(scores)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    labels = (probabilities.cumsum(axis=1) > rng.random((10_000, 1))).argmax(axis=1)
    print("\nSeconds of a gate over 100 classes, 10,000 rows")
    for measure in (*MEASURES, "smooth_ece", "classwise_ece"):
        bound = "min" if measure == "accuracy" else "max"
        gates = [Gate.parse(f"{measure}.class", 1.0 if bound == "min" else 0.0, bound)]  # type: ignore[arg-type]
        seconds = []
        for chosen in (gates, gates, [], []):
            start = time.perf_counter()
            check(probabilities, labels, gates=chosen)
            seconds.append(time.perf_counter() - start)
        print(f"{measure:16} {min(seconds[:2]) - min(seconds[2:]):8.3f}")


def gaffke(values: np.ndarray, largest: float, rng: Rng) -> float:
    """Return Gaffke's bound, which is shorter and has no proof for values that are not shares."""
    points, counts = np.unique(np.append(values, largest), return_counts=True)
    weight = rng.gamma(counts, size=(4000, len(points)))
    return float(np.quantile(weight @ points / weight.sum(axis=1), 0.975))


def bernstein(values: np.ndarray, lowest: float, largest: float) -> float:
    """Return the empirical Bernstein bound of Maurer and Pontil (2009)."""
    n, price = len(values), math.log(2.0 / 0.025)
    error = math.sqrt(2.0 * values.var(ddof=1) * price / n)
    return float(values.mean()) + error + 7.0 * (largest - lowest) * price / (3.0 * (n - 1))


def increases(trials: int, rows: int = 1000) -> None:
    """Print how often the upper end of an increase covers it, where few rows changed."""
    print(f"\nUpper ends of an increase, {trials:,} trials of {rows:,} pairs; 97.5 % must cover")
    names = ("betting", "Gaffke", "Bernstein", "normal")
    print(f"{'changed rows':>14}" + "".join(f"{name:>10} {'mean':>8}" for name in names))
    for share in (0.001, 0.003, 0.01, 0.1):
        ends = np.empty((trials, len(names)))
        for number in range(trials):
            rng = np.random.default_rng([number, int(1e6 * share)])
            changed = rng.random(rows) < share
            loss = np.where(changed, rng.choice([1.0, -1.0], rows, p=[0.8, 0.2]), 0.0)
            ends[number] = (
                upper_mean(loss, -1.0, 1.0, 0.025),
                gaffke(loss, 1.0, rng),
                bernstein(loss, -1.0, 1.0),
                loss.mean() + 1.96 * loss.std() / math.sqrt(rows),
            )
        cells = zip((ends >= 0.6 * share).mean(axis=0), ends.mean(axis=0), strict=True)
        print(f"{share:14.1%}" + "".join(f"{c:10.1%} {mean:8.3%}" for c, mean in cells), flush=True)


def two_samples(trials: int) -> None:
    """Print how often the upper end covers the increase between two samples of other rows."""
    print(f"\nUpper ends of accuracy.increase, {trials:,} trials of two samples; 97.5 % must cover")
    print(
        f"{'errors before, now':>20} {'rows before, now':>18} {'covers':>8} {'mean':>8} {'true':>7}"
    )
    gate = [Gate("accuracy", 0.5, "max", "increase")]
    for wrong in ((0.0, 0.001), (0.001, 0.001), (0.01, 0.02), (0.2, 0.2)):
        for sizes in ((1000, 1000), (5000, 1000), (1000, 5000)):
            ends = []
            for number in range(trials):
                rng = np.random.default_rng([number, *sizes])
                labels = [rng.random(n) < share for n, share in zip(sizes, wrong, strict=True)]
                scores = [
                    np.column_stack([p := rng.uniform(0, 0.4, n), 1 - p])[:, ::-1] for n in sizes
                ]
                before = check(scores[0], labels[0].astype(int), gates=[], ids=np.arange(sizes[0]))
                ids = np.arange(sizes[1]) + 10**6
                now = check(
                    scores[1], labels[1].astype(int), gates=gate, ids=ids, baseline=before.baseline
                )
                ends.append(now.verdicts[0].value)
            true = wrong[1] - wrong[0]
            print(
                f"{wrong[0]:12.1%} {wrong[1]:7.1%} {sizes[0]:10,} {sizes[1]:7,} "
                f"{np.mean(np.array(ends) >= true):8.1%} {np.mean(ends):8.3%} {true:7.1%}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checks", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=2000)
    options = parser.parse_args()
    speed()
    increases(options.trials)
    two_samples(options.trials)
    levels(options.checks)
