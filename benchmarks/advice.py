"""Measure how good the advice is: where the truth is known, and on rows never seen.

Run with ``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/advice.py [folder]``.
The first part needs nothing.  The second fits calibrators on some rows of each set in the
folder, takes the advice on others, and counts its regret on the rest: the NLL of the advised
report minus that of the best report that keeps every decision, in hindsight.  Every cell is
printed as it ends; ``--cells F.jsonl`` keeps it, and a later run goes on from there.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import cordcal
from cordcal.calibrators import Size
from cordcal.evaluate.comparison import Comparison

DRAWS = 200
ROWS = 1000
CALIBRATORS = ("ts", "ets", "vs", "svs", "sms", "irova-ts", "irm")
# What the advice chose among reports within chance of the lowest before confidence sets.
FORMERLY_SIMPLEST_FIRST = ("uncalibrated", "ts", "ets", "irm", "svs", "vs", "irova-ts", "sms")
# Matrices of more classes take minutes a fit.
MOST_CLASSES = 200
FEWEST_UNSEEN = 500


class Fixed:
    """A map that is known already: logits divided by a temperature, tilted, and seldom wild."""

    def __init__(self, key: str, numbers: int, temperature=1.0, tilt=0.0, wild=0) -> None:
        self.key, self.title, self.size = key, key, Size(fixed=numbers)
        self.temperature, self.tilt, self.wild = temperature, tilt, wild
        self.keeps_argmax = True

    def fit(self, scores, labels):
        return self

    def predict_proba(self, scores):
        logits = scores / self.temperature
        top = logits.argmax(axis=1)[:, None]
        # A tilt of the top class up in one half of the rows and down in the other.
        half = np.where(scores[:, :1] > scores[:, 1:2], 1.0, -1.0) * self.tilt
        np.put_along_axis(
            logits, top, np.take_along_axis(logits, top, 1) + np.maximum(half, 0.0), axis=1
        )
        if self.wild:
            logits[:: self.wild] *= 40.0
        logits -= logits.max(axis=1, keepdims=True)
        p = np.exp(logits)
        return p / p.sum(axis=1, keepdims=True)

    def get_params(self, deep=True):
        return {}

    def __sklearn_clone__(self):
        return self


def simulated(seed: int, rows: int = ROWS, classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Draw logits whose softmax at temperature 2 is the truth, and labels from it."""
    rng = np.random.default_rng(seed)
    logits = 3.0 * rng.normal(size=(rows, classes))
    p = np.exp(logits / 2.0)
    p /= p.sum(axis=1, keepdims=True)
    return logits, (p.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)


def standard_errors(maps: list[Fixed], seed: int = 10_000) -> float:
    """Return the true gap between two maps, in standard errors of the rows of one draw."""
    logits, labels = simulated(seed, 200_000)
    losses = [-np.log(each.predict_proba(logits)[np.arange(len(labels)), labels]) for each in maps]
    gap = losses[0] - losses[1]
    return float(gap.mean() / (gap.std() / np.sqrt(ROWS / 2)))


def shares(maps: list[Fixed]) -> dict[str, float]:
    """Return how often each report is advised."""
    advised = []
    for seed in range(DRAWS):
        found = cordcal.compare(*simulated(seed), maps, seed=seed)
        advised.append(found.recommendation.key)
    return {key: advised.count(key) / DRAWS for key in ["uncalibrated", *(m.key for m in maps)]}


def known_truth() -> None:
    # Clearly worse is by five standard errors of a draw: a rule under which an equal map passes
    # in nineteen draws of twenty must let some pass that are worse by two to three.
    worse, true = Fixed("simple", 1, 3.6), Fixed("true", 9, 2.0)
    print(f"a simpler map that is worse by {standard_errors([worse, true]):.1f} standard errors:")
    print(f"  advised: {shares([worse, true])}   (simple: below 5 %)", flush=True)
    lucky = Fixed("wild", 30, 2.0, wild=400)
    print("the same beside a map that is right but for a few wild rows:")
    print(f"  advised: {shares([worse, true, lucky])}   (simple: below 5 %)", flush=True)
    first, second = Fixed("simple", 1, 1.85), Fixed("other", 9, 2.165)
    print(f"two maps that differ by {standard_errors([first, second]):.2f} standard errors:")
    print(f"  advised: {shares([first, second])}   (simple: above 90 %)", flush=True)


Report = tuple[str, str]


def formerly(found: Comparison) -> Report:
    """Choose as before: the simplest of those within chance of the lowest NLL."""
    lowest = lowest_estimate(found)
    equals = [
        pair
        for pair in found.keepers()
        if pair == lowest or not found.difference(pair, lowest, "nll").clear
    ]
    return min(equals, key=lambda pair: FORMERLY_SIMPLEST_FIRST.index(pair[0]))


def lowest_estimate(found: Comparison) -> Report:
    return min(found.keepers(), key=lambda pair: found.measures(*pair)["nll"])


def advised(found: Comparison) -> Report:
    advice = found.recommendation
    if advice.key is None or advice.report is None:  # nothing was advised: leave things be
        return ("uncalibrated", "original")
    return (advice.key, advice.report)


RULES: dict[str, Callable[[Comparison], Report]] = {
    "advice": advised,
    "formerly": formerly,
    "lowest": lowest_estimate,
    "always ts": lambda found: ("ts", "direct"),
    "always sms + CORD": lambda found: ("sms", "repaired"),
}


def cell(values: np.ndarray, labels: np.ndarray, kind: str, rows: int, seed: int) -> dict:
    """Return the regret of every rule with so many rows of a set."""
    order = np.random.default_rng(seed).permutation(len(labels))
    fit, test, unseen = order[: rows // 2], order[rows // 2 : rows], order[rows : rows + 20_000]
    found = cordcal.compare(
        values[fit], labels[fit], CALIBRATORS, input=kind, evaluation=(values[test], labels[test])
    )
    truth = {}
    for key, report in found.keepers()[1:]:
        repair = "lift" if report == "lift" else "cord"
        model = cordcal.PreservingCalibrator(key, input=kind, repair=repair).fit(
            values[fit], labels[fit]
        )
        loss = cordcal.metrics.nll(model.predict_proba(values[unseen]), labels[unseen])
        truth[f"{key} {report}"] = loss
    from cordcal._validation.scores import original_probabilities

    plain = original_probabilities(values[unseen], kind)
    truth["uncalibrated original"] = cordcal.metrics.nll(plain, labels[unseen])
    best = min(truth.values())
    chosen = {name: rule(found) for name, rule in RULES.items()}
    return {
        "chosen": chosen,
        "regret": {name: truth[" ".join(pair)] - best for name, pair in chosen.items()},
        "truth": truth,
        "floored": found.recommendation.floored,
        "concerns": [concern.key for concern in found.concerns],
    }


def cells(
    folder: Path, sizes: list[int], seeds: int, done: set[tuple[str, int, int]]
) -> Iterator[dict]:
    for seed in range(seeds):
        for path in sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_size):
            if "features" in path.name:
                continue
            found = cordcal.files.read_scores(path)
            if found.labels is None or found.values.shape[1] > MOST_CLASSES:
                continue
            for rows in sizes:
                few = len(found.labels) < rows + FEWEST_UNSEEN
                if few or (path.stem, rows, seed) in done:
                    continue
                began = time.perf_counter()
                try:
                    one = cell(found.values, found.labels, found.kind, rows, seed)
                except ValueError as error:
                    print(f"{path.stem} {rows} {seed}: {error}", flush=True)
                    continue
                took = time.perf_counter() - began
                classes = found.values.shape[1]
                about = {"set": path.stem, "classes": classes, "rows": rows, "seed": seed}
                yield {**about, "seconds": took, **one}


def regrets(folder: Path, sizes: list[int], seeds: int, kept: Path | None) -> None:
    found = []
    if kept is not None and kept.exists():
        found = [json.loads(line) for line in kept.read_text().splitlines()]
    done = {(one["set"], one["rows"], one["seed"]) for one in found}
    for one in cells(folder, sizes, seeds, done):
        found.append(one)
        written = {name: round(value, 4) for name, value in one["regret"].items()}
        print(f"{one['set']} {one['rows']} {one['seed']}: {one['chosen']['advice']} {written}")
        if kept is not None:
            with kept.open("a") as file:
                file.write(json.dumps(one) + "\n")
    for rows in sizes:
        for few, group in ((True, "K ≤ 30"), (False, "K > 30")):
            some = [one for one in found if one["rows"] == rows and (one["classes"] <= 30) == few]
            if some:
                table(f"regret in nats, {rows} rows, {group}, {len(some)} cells", some)


def table(title: str, found: list[dict]) -> None:
    print(title)
    for name in RULES:
        values = [one["regret"][name] for one in found]
        worst = max(found, key=lambda one: one["regret"][name])
        print(
            f"  {name:18} mean {np.mean(values):.4f}  worst {max(values):.4f} "
            f"({worst['set']} {worst['seed']})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--rows", type=int, action="append")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cells", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.folder is None:
        known_truth()
    else:
        regrets(given.folder, given.rows or [1000, 3000], given.seeds, given.cells)


if __name__ == "__main__":
    main()
