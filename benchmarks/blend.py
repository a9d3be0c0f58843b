"""Blend and lift on real outputs: log loss, Brier and ECE against other maps, and time.

    python benchmarks/blend.py --data FOLDER [--sizes 300 1000 half] [--seeds 0 1] [--output F.json]
    python benchmarks/blend.py --time

Rows of every set are split in half at random; calibration rows are drawn from one half (at
most 5,000), evaluation rows are the other (at most 5,000).  Figures are ratios to temperature
scaling in the same cell.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import cordcal
from cordcal._door.original import Original
from cordcal.calibrators import make
from cordcal.calibrators._crossfit import FOLDS, Folds, Workshop
from cordcal.calibrators.blend import Blend
from cordcal.metrics import brier, ece, nll
from cordcal.repair import CORD, Lift

MOST_ROWS = 5000
# Sets that are the calibration part of another, features, and a thousand classes.
LEFT_OUT = ("_val.", "_cal.", "_trainoof.", "_features.", "imagenet1k")


def cells(folder: Path, sizes: list[str], seeds: list[int]) -> Iterator[tuple[str, str, int]]:
    """Yield set, size and seed, smallest files first."""
    files = sorted(folder.glob("*.npz"), key=lambda path: path.stat().st_size)
    for path in files:
        if not any(mark in path.name for mark in LEFT_OUT):
            for size in sizes:
                for seed in seeds:
                    yield str(path), size, seed


def measured(path: str, size: str, seed: int) -> dict[str, dict[str, float]] | None:
    """Return the measures of every report of a cell; None if the set has too few rows."""
    held = np.load(path)
    kind = "logits" if "logits" in held else "probabilities"
    scores, labels = held["logits" if kind == "logits" else "probs"], held["labels"].astype(int)
    order = np.random.default_rng(seed).permutation(len(labels))
    half = len(order) // 2
    count = min(half, MOST_ROWS) if size == "half" else int(size)
    if count > half:
        return None
    fit, test = order[:count], order[half:][:MOST_ROWS]
    original = Original.of(scores[fit], kind)
    evaluated = Original.of(scores[test], kind)
    workshop = Workshop(original, labels[fit], None, Folds.of(labels[fit], FOLDS, 0))
    blend = Blend(input=kind)
    blend._fit_from(workshop)
    reports = {}
    for key in blend._keys(original.classes):
        found, _ = workshop.candidate(key)
        if found is not None:
            reports[key] = found.model._direct_of(evaluated)
    reports["blend"] = blend._direct_of(evaluated)
    candidates = {"blend": (blend, blend.held_out_)}
    if "sms" in reports:
        found, _ = workshop.candidate("sms")
        candidates["sms"] = (found.model, found.held_out)
    for key, (model, held_out) in candidates.items():
        rows = (original.probabilities, model._direct_of(original))
        repairs = {
            "CORD": CORD().fit(*rows, decision=original.decision),
            "lift": Lift()._fit(
                *rows, labels[fit], original.decision, None, held_out=held_out.masses
            ),
        }
        for name, repair in repairs.items():
            reports[f"{key} + {name}"] = repair.transform(
                evaluated.probabilities, reports[key], decision=evaluated.decision
            )
    return {name: measures(report, labels[test]) for name, report in reports.items()}


def measures(report: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return the three measures of a report."""
    return {
        name: float(f(report, labels)) for name, f in (("nll", nll), ("brier", brier), ("ece", ece))
    }


def summary(found: list[dict[str, object]]) -> None:
    """Print the geometric mean ratios to ts, mean ECE, and the shares of cells won."""
    names = [
        "ets",
        "sms",
        "sms + CORD",
        "sms + lift",
        "blend",
        "blend + CORD",
        "blend + lift",
        "best",
    ]
    for size in dict.fromkeys(str(cell["size"]) for cell in found):
        here = [cell["reports"] for cell in found if cell["size"] == size]
        for reports in here:
            single = [key for key in reports if key != "blend" and "+" not in key]
            reports["best"] = min((reports[key] for key in single), key=lambda each: each["nll"])
        print(f"\n{size}: {len(here)} cells      NLL / ts   Brier / ts     ECE")
        print(
            f"  {'ts':14}{1:16.3f}{1:13.3f}{100 * np.mean([r['ts']['ece'] for r in here]):8.2f} %"
        )
        for name in names:
            some = [reports for reports in here if name in reports]
            ratios = [
                np.exp(np.mean([np.log(r[name][m] / r["ts"][m]) for r in some]))
                for m in ("nll", "brier")
            ]
            error = 100 * np.mean([r[name]["ece"] for r in some])
            print(f"  {name:14}{ratios[0]:16.3f}{ratios[1]:13.3f}{error:8.2f} %")
        some = [r for r in here if "sms" in r]
        against_ts = np.array([r["blend + lift"]["nll"] / r["ts"]["nll"] for r in here])
        against_sms = np.array([r["blend"]["nll"] / r["sms"]["nll"] for r in some])
        print(f"  blend below sms in {np.mean(against_sms < 1):.0%} of cells")
        print(
            f"  blend + lift below ts in {np.mean(against_ts < 1):.0%}; more than 2 % above in "
            f"{np.mean(against_ts > 1.02):.1%}; at most {against_ts.max():.3f} times"
        )


def times() -> None:
    """Print how long a blend takes to fit and to predict, against its members."""
    for rows, classes in ((5000, 10), (5000, 100)):
        rng = np.random.default_rng(0)
        labels = rng.integers(classes, size=rows)
        logits = 2.0 * rng.normal(size=(rows, classes))
        logits[np.arange(rows), labels] += 6.0 * rng.random(rows)
        begun = time.perf_counter()
        model = cordcal.Preserved().fit(logits, labels)
        fitted = time.perf_counter()
        model.calibrator_.predict_proba(logits)
        whole = time.perf_counter() - fitted
        alone = 0.0
        for member in model.calibrator_.members_.values():
            start = time.perf_counter()
            member.predict_proba(logits)
            alone += time.perf_counter() - start
        single = time.perf_counter()
        for key in model.calibrator_._keys(classes):
            make(key).fit(logits, labels)
        single = time.perf_counter() - single
        print(
            f"{rows:,} × {classes}: fit {fitted - begun:.1f} s ({(fitted - begun) / single:.1f} "
            f"times one fit of each member), predict {whole / alone:.2f} times its members"
        )


def main() -> None:
    """Run the cells that are asked for and print their summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sizes", nargs="+", default=["300", "1000", "half"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--time", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.time or given.data is None:
        times()
        return
    found: list[dict[str, object]] = []
    for path, size, seed in cells(given.data, given.sizes, given.seeds):
        reports = measured(path, size, seed)
        if reports is not None:
            found.append({"set": Path(path).stem, "size": size, "seed": seed, "reports": reports})
            ratio = reports["blend + lift"]["nll"] / reports["ts"]["nll"]
            print(f"{Path(path).stem} {size} {seed}: {ratio:.3f}", flush=True)
            if given.output:
                given.output.write_text(json.dumps(found))
    summary(found)


if __name__ == "__main__":
    main()
