"""`apply` with rows that are left out, against the same file without bad rows.

    python benchmarks/skip.py

A calibrator on one file and a repair on two, 50,000 × 10, with none, a tenth and half of the
rows NaN; then two classes and all rows bad but one, at sizes that grow tenfold.  Times are
medians in the library; ratios are to the clean file of the same run.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

import cordcal
from cordcal.files import open_scores
from cordcal.files.apply import ApplyOptions, ModelApplication, apply_model

ROWS, CLASSES, REPEATS = 50_000, 10, 5
SKIP = ApplyOptions(on_error="skip")


def seconds(work: Callable[[], object]) -> float:
    """Return the median time of some runs, after one that warms up."""
    work()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def holes(scores: np.ndarray, share: float) -> np.ndarray:
    """Return the scores with NaN in a share of the rows, spread evenly."""
    bad = scores.copy()
    chosen = np.random.default_rng(1).random(len(scores)) < share
    bad[chosen, 3 % scores.shape[1]] = np.nan
    return bad


def calibrated(folder: Path, model: Any, scores: np.ndarray) -> Callable[[], object]:
    """Return a run of a calibrator on one file."""
    np.save(folder / "s.npy", scores)

    def work() -> object:
        rows = ModelApplication(model, [open_scores(folder / "s.npy", input="logits")], SKIP)
        return apply_model(rows, folder / "out.parquet")

    return work


def repaired(folder: Path, cord: Any, scores: np.ndarray) -> Callable[[], object]:
    """Return a run of a repair on two files, of which the original has the bad rows."""
    np.save(folder / "p.npy", softmax(scores, axis=1))
    np.save(folder / "q.npy", softmax(np.nan_to_num(scores) / 2 + np.arange(CLASSES) / 9, axis=1))

    def work() -> object:
        files = [
            open_scores(folder / f"{name}.npy", role=role, input="probabilities")
            for name, role in (("p", "original"), ("q", "direct"))
        ]
        return apply_model(ModelApplication(cord, files, SKIP), folder / "o.parquet")

    return work


def main() -> None:
    """Print the tables."""
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=ROWS)
    scores = 2.0 * np.eye(CLASSES)[labels] + rng.normal(size=(ROWS, CLASSES))
    model = cordcal.PreservingCalibrator("vs").fit(scores[:5000], labels[:5000])
    direct = softmax(scores / 2 + np.arange(CLASSES) / 9, axis=1)
    cord = cordcal.CORD().fit(softmax(scores, axis=1), direct)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"apply --on-error skip, {ROWS:,} × {CLASSES}, seconds and ratio to no bad rows")
        for title, make in (
            ("calibrator on one file", lambda s: calibrated(folder, model, s)),
            ("repair on two files", lambda s: repaired(folder, cord, s)),
        ):
            clean = seconds(make(scores))
            print(f"  {title:<24} clean {clean:.3f} s", end="")
            for share in (0.1, 0.5):
                taken = seconds(make(holes(scores, share)))
                print(f"   {share:.0%} NaN {taken:.3f} s = {taken / clean:.2f} ×", end="")
            print()
        two = cordcal.PreservingCalibrator("vs").fit(scores[:5000, :2], labels[:5000] % 2)
        print("two classes, all rows bad but one")
        for rows in (10_000, 100_000, 1_000_000):
            bad = np.full((rows, 2), np.nan)
            bad[rows // 2] = 0.5, 2.0
            taken = seconds(calibrated(folder, two, bad))
            print(f"  {rows:>9,} rows {taken:.3f} s = {1e6 * taken / rows:.2f} µs a row")


if __name__ == "__main__":
    main()
