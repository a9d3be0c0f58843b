"""False alarms and delays of `cordcal.Monitor`, with simpler monitors on the same rows.

    python benchmarks/monitor.py --lives 1008        # a life is 365 nights of 500 rows
    python benchmarks/monitor.py --shifts FOLDER     # real shifts, in files of classifier outputs

A false alarm is an alarm at any time in a life in which nothing is wrong.  A delay is the number
of rows from the change to the alarm.  A certified statement about error rates is violated if
the error rate of all rows is larger than what was certified from a sample of them.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import cordcal
from cordcal.evaluate.bounds import certified_error_rates, lowest_certified_threshold
from cordcal.evaluate.evidence import N_BANDS, CalibrationEvidence, DriftEvidence, bands_of
from cordcal.metrics.base import LabelledRows
from stored import read_outputs

NIGHTS, ROWS, CLASSES, TOLERANCE, ALPHA = 365, 500, 3, 0.02, 0.05
# Each of the two tests has half of α.
LIMIT = math.log(2.0 / ALPHA)
CALM_NIGHTS = 50
# How far the confidence is too high after the change.
SHIFT = 0.07
ROLLING_ROWS = 2000
TARGETS = (0.02, 0.05, 0.1, 0.2)

Rng = np.random.Generator
SHAPES: dict[str, Callable[[Rng, int], np.ndarray]] = {
    "around 0.9": lambda rng, n: np.clip(rng.normal(0.9, 0.03, n), 0.5, 1.0),
    "uniform in 0.5-1": lambda rng, n: rng.uniform(0.5, 1.0, n),
    "mostly above 0.99": lambda rng, n: 1.0 - 0.5 * rng.beta(0.15, 1.5, n),
    "three values, tied": lambda rng, n: rng.choice([0.55, 0.8, 0.96], n, p=[0.2, 0.3, 0.5]),
}
# P(right) minus the confidence, as a multiple of the tolerance: honest, and at both edges.
EDGES = {"calibrated": 0.0, "at the lower edge": -1.0, "at the upper edge": 1.0}


def answers(rng: Rng, confidence: np.ndarray, off: float) -> np.ndarray:
    """Draw whether predictions are right, with P = confidence + off."""
    return rng.random(len(confidence)) < confidence + off


def labelled_alarm(confidence: np.ndarray, correct: np.ndarray, rng: Rng) -> int | None:
    """Return after how many rows the monitor's test with labels raises an alarm."""
    test = CalibrationEvidence(CLASSES, TOLERANCE)
    predicted = rng.integers(CLASSES, size=len(confidence))
    look = test.update(confidence, correct, predicted, np.full(len(confidence), -1), LIMIT)
    return None if look is None else look.rows


def unlabelled_alarm(confidence: np.ndarray, baseline: np.ndarray, rng: Rng) -> int | None:
    """Return after how many rows the test without labels raises an alarm."""
    counts = np.zeros((CLASSES, N_BANDS), dtype=np.int64)
    np.add.at(counts, (rng.integers(CLASSES, size=len(baseline)), bands_of(baseline)), 1)
    test = DriftEvidence(counts, int(rng.integers(2**31)))
    look = test.update(rng.integers(CLASSES, size=len(confidence)), bands_of(confidence), LIMIT)
    return None if look is None else look.rows


def nightly_interval_alarm(
    confidence: np.ndarray, correct: np.ndarray, tolerance: float = 0.0
) -> bool:
    """Whether a 95 % interval of one night's gap ever lies beyond the tolerance."""
    gap = (confidence - correct).reshape(-1, ROWS)
    error = 1.96 * gap.std(axis=1, ddof=1) / math.sqrt(ROWS)
    return bool((np.abs(gap.mean(axis=1)) - error > tolerance).any())


def life(shape: str, edge: str, number: int) -> tuple[bool, bool, bool, bool]:
    """Simulate one life; return which monitors raise an alarm though nothing is wrong."""
    rng = np.random.default_rng([list(SHAPES).index(shape), list(EDGES).index(edge), number])
    confidence = SHAPES[shape](rng, NIGHTS * ROWS)
    correct = answers(rng, confidence, EDGES[edge] * TOLERANCE)
    return (
        labelled_alarm(confidence, correct, rng) is not None,
        unlabelled_alarm(confidence, SHAPES[shape](rng, 5000), rng) is not None,
        nightly_interval_alarm(confidence, correct),
        nightly_interval_alarm(confidence, correct, TOLERANCE),
    )


def false_alarms(lives: int) -> None:
    """Print in how many lives there is an alarm though nothing is wrong."""
    lives_per_kind = max(1, lives // len(SHAPES) // len(EDGES))
    print(
        f"\nAlarms in {lives_per_kind} lives of each kind, {NIGHTS} nights x {ROWS} rows; "
        f"each test has {ALPHA / 2:.1%}"
    )
    headings = ("labels", "inputs", "nightly 95%", "and tolerance")
    print(f"{'confidence':20} {'truth':18}" + "".join(f"{name:>15}" for name in headings))
    totals = np.zeros(len(headings), dtype=int)
    for shape in SHAPES:
        for edge in EDGES:
            counts = np.sum([life(shape, edge, number) for number in range(lives_per_kind)], axis=0)
            totals += counts
            row = "".join(f"{count:15}" for count in counts)
            print(f"{shape:20} {edge:18}{row}", flush=True)
    row = "".join(f"{count:15}" for count in totals)
    print(f"{'together':20} {lives_per_kind * len(SHAPES) * len(EDGES):<18}{row}", flush=True)


def labelled_rows(confidence: np.ndarray, correct: np.ndarray) -> LabelledRows:
    """Return rows of which only confidence and correctness matter."""
    zeros = np.zeros(len(confidence))
    return LabelledRows(confidence, zeros.astype(int), zeros, zeros, (~correct).astype(int), None)


def certified_violations(resamples: int, rng: Rng, sample: int = 1000) -> None:
    """Print how often a statement certified from a sample is wrong about all rows."""
    print(f"\nCertified from {sample:,} rows, {resamples} resamples: violations (5% allowed)")
    print(f"{'confidence':20} {'bounds':>8}" + "".join(f"{f'target {t:.0%}':>12}" for t in TARGETS))
    for shape, draw in SHAPES.items():
        confidence = draw(rng, 200_000)
        correct = answers(rng, confidence, -TOLERANCE)
        order = np.sort(confidence)
        wrong = np.r_[(~correct[np.argsort(confidence, kind="stable")])[::-1].cumsum()[::-1], 0]

        def error_rate(threshold: float, order=order, wrong=wrong) -> float:
            first = np.searchsorted(order, threshold)
            return float(wrong[first]) / max(1, len(order) - first)

        violations = np.zeros(1 + len(TARGETS))
        for _ in range(resamples):
            index = rng.integers(len(confidence), size=sample)
            rows = labelled_rows(confidence[index], correct[index])
            rates = certified_error_rates(rows)
            violations[0] += any(error_rate(rate.threshold) > rate.bound for rate in rates)
            for column, target in enumerate(TARGETS, start=1):
                rate = lowest_certified_threshold(rows, target)
                violations[column] += rate is not None and error_rate(rate.threshold) > target
        row = "".join(f"{share:12.1%}" for share in violations[1:] / resamples)
        print(f"{shape:20} {violations[0] / resamples:8.1%}{row}", flush=True)


def rolling_ece(confidence: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Return the ECE (15 bins) of the latest rows, every night from the first full window on."""
    values = []
    for stop in range(ROLLING_ROWS, len(confidence) + 1, ROWS):
        window = slice(stop - ROLLING_ROWS, stop)
        bins = np.minimum((confidence[window] * 15).astype(int), 14)
        gaps = np.bincount(bins, confidence[window] - correct[window], minlength=15)
        values.append(np.abs(gaps).sum() / ROLLING_ROWS)
    return np.array(values)


def adwin(values: np.ndarray, delta: float = 0.002) -> Iterator[int]:
    """Yield the rows at which ADWIN (Bifet and Gavalda 2007) cuts its window, night by night.

    Cuts are looked for between nights only, with the bound that uses the variance.
    """
    nights = values.reshape(-1, ROWS)
    start = 0
    for night in range(1, len(nights) + 1):
        window = nights[start:night].ravel()
        n, variance = len(window), float(window.var())
        confidence = math.log(2.0 * math.log(max(n, 3)) / delta)
        sums = window.cumsum()
        for cut in range(ROWS, n, ROWS):
            harmonic = 1.0 / (1.0 / cut + 1.0 / (n - cut))
            bound = math.sqrt(2.0 / harmonic * variance * confidence)
            bound += 2.0 / (3.0 * harmonic) * confidence
            older, newer = sums[cut - 1] / cut, (sums[-1] - sums[cut - 1]) / (n - cut)
            if abs(older - newer) >= bound:
                yield night * ROWS
                start += cut // ROWS
                break


def delays(runs: int, rng: Rng) -> None:
    """Print how many rows after the change each monitor needs."""
    calm = CALM_NIGHTS * ROWS
    print(
        f"\nRows until the alarm after {CALM_NIGHTS} calm nights, confidence then {SHIFT:.0%} too "
        f"high; {runs} runs: median, 90 % of runs, and the share of lives with a false alarm"
    )
    for shape, draw in list(SHAPES.items())[:2]:
        # The threshold of the rolling ECE has the same false alarms as the monitor: 5 % of lives.
        highest = []
        for _ in range(100):
            confidence = draw(rng, NIGHTS * ROWS)
            highest.append(rolling_ece(confidence, answers(rng, confidence, 0.0)).max())
        threshold = float(np.quantile(highest, 1.0 - ALPHA))
        adwin_false = 0
        for _ in range(20):
            confidence = draw(rng, NIGHTS * ROWS)
            gap = confidence - answers(rng, confidence, 0.0)
            adwin_false += next(adwin(gap), None) is not None
        rows: dict[str, list[float]] = {"monitor": [], "rolling ECE": [], "ADWIN": []}
        for _ in range(runs):
            confidence = draw(rng, calm + 20_000)
            off = np.where(np.arange(len(confidence)) < calm, 0.0, -SHIFT)
            correct = answers(rng, confidence, off)
            alarm = labelled_alarm(confidence, correct, rng)
            rows["monitor"].append(math.inf if alarm is None else alarm - calm)
            above = np.flatnonzero(rolling_ece(confidence, correct) > threshold)
            night = ROLLING_ROWS + above * ROWS - calm
            rows["rolling ECE"].append(float(night[night > 0].min(initial=10**9)))
            cuts = [row - calm for row in adwin(confidence - correct) if row > calm]
            rows["ADWIN"].append(cuts[0] if cuts else math.inf)
        false = {"monitor": "at most 2.5%", "rolling ECE": "5% (tuned)"}
        false["ADWIN"] = f"{adwin_false / 20:.0%}"
        for name, values in rows.items():
            print(
                f"{shape:20} {name:12} {np.median(values):8,.0f} {np.quantile(values, 0.9):8,.0f} "
                f"{false[name]:>14}",
                flush=True,
            )


def speed() -> None:
    """Print what adding 100,000 rows with 100 classes takes."""
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(100, 0.1), 100_000)
    labels = rng.integers(100, size=100_000)
    monitor = cordcal.Monitor(probabilities[:5000])
    start = time.process_time()
    maximum = probabilities.max(axis=1), probabilities.argmax(axis=1)
    baseline = time.process_time() - start
    start = time.process_time()
    monitor.add(probabilities, labels)
    used = time.process_time() - start
    print(
        f"\nAdding 100,000 x 100 with labels: {used:.2f} s of CPU, "
        f"{used / baseline:.1f} x max and argmax of the array ({len(maximum)} passes)"
    )


def real_shifts(folder: Path) -> None:
    """Print when a model fitted on half of a file's rows is found wrong on shifted rows."""
    print("\nReal shifts: default model fitted on half of the first file; a quarter as baseline")
    print(f"{'from':34} {'to':44} {'calm':>7} {'labels':>8} {'inputs':>8}")
    for source, target, onset in SHIFTS:
        scores, labels, kind = read_outputs(folder / f"{source}.npz")
        new, new_labels, _ = read_outputs(folder / f"{target}.npz")
        order = np.random.default_rng(0).permutation(len(labels))
        fit, rest = np.split(order, 2)
        model = cordcal.PreservingCalibrator(input=kind).fit(scores[fit], labels[fit])
        # A quarter of the rows as baseline, a quarter as the calm before the shift.
        baseline, calm = np.split(rest, [len(rest) // 2])
        monitor = cordcal.Monitor(model.predict_proba(scores[baseline]))
        monitor.add(model.predict_proba(scores[calm]), labels[calm])
        if onset is None:
            before, after = np.split(np.random.default_rng(1).permutation(len(new_labels)), [0])
        else:
            before, after = np.split(np.arange(len(new_labels)), [onset])
        if len(before):
            monitor.add(model.predict_proba(new[before]), new_labels[before])
        quiet = monitor.status.verdict
        monitor.add(model.predict_proba(new[after]), new_labels[after])
        calm_rows = len(calm) + len(before)
        seen = {alarm.test: alarm.rows - calm_rows for alarm in monitor.alarms}
        print(
            f"{source:34} {target:44} {quiet:>7} {seen.get('calibration', '-'):>8} "
            f"{seen.get('inputs', '-'):>8}",
            flush=True,
        )


# From, to, and the row of the second file at which the shift begins; None: all rows, in any order.
SHIFTS: list[tuple[str, str, int | None]] = [
    ("c10_akamaster_resnet20_test", "c10c_akamaster_resnet20_gaussian_noise_s3", None),
    ("c10_akamaster_resnet20_test", "c10c_akamaster_resnet20_gaussian_noise_s5", None),
    ("c10_akamaster_resnet20_test", "c10c_akamaster_resnet20_jpeg_s3", None),
    ("sctl_densenet40_c10_LT_val", "sctl_densenet40_c10_LT_test", None),
    ("fresh/nannyml_cards3_reference", "fresh/nannyml_cards3_analysis", 30_000),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lives", type=int, default=96)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shifts", type=Path, help="folder with files of real shifts")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    if options.shifts is not None:
        real_shifts(options.shifts)
        return
    false_alarms(options.lives)
    certified_violations(500, rng)
    delays(options.runs, rng)
    speed()


if __name__ == "__main__":
    main()
