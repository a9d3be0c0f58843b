"""Time the measures against a plain pass over the same array.

Run with ``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/metrics.py``.  Times are
the best of several runs; the ratio is to ``P.max(axis=1)`` plus ``P.sum()`` in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from cordcal import metrics
from cordcal.evaluate.baseline import Fingerprint
from cordcal.evaluate.statistics import resampled
from cordcal.metrics.base import ProbabilityMatrix
from cordcal.metrics.smooth import Normalization, smooth_gap

ROWS, CLASSES = 25_000, 1000


def best(call: Callable[[], object], runs: int = 7) -> float:
    """Return the fastest of some runs, in milliseconds."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def report(dtype: type[np.floating]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(ROWS, CLASSES)).astype(np.float32) * 2.5
    np.exp(scores, out=scores)
    p = (scores / scores.sum(axis=1, keepdims=True, dtype=np.float64)).astype(dtype)
    labels = np.where(rng.random(ROWS) < 0.5, p.argmax(axis=1), rng.integers(0, CLASSES, ROWS))
    return p, labels


def main() -> None:
    for dtype in (np.float64, np.float32):
        p, y = report(dtype)
        plain = best(lambda p=p: (p.max(axis=1), p.sum()))
        print(f"{ROWS:,} x {CLASSES} {np.dtype(dtype).name}: max + sum {plain:.1f} ms")
        calls: dict[str, Callable[[], object]] = {
            "measure_all": lambda p=p, y=y: metrics.measure_all(p, y),
            "ece": lambda p=p, y=y: metrics.ece(p, y),
            "classwise_ece": lambda p=p, y=y: metrics.classwise_ece(p, y),
            "tpcr": lambda p=p: metrics.tpcr(p, p),
            "fingerprint": lambda p=p: Fingerprint.of(p),
        }
        for name, call in calls.items():
            took = best(call)
            print(f"  {name:14} {took:7.1f} ms  {took / plain:5.2f} x")
    rows = ProbabilityMatrix.from_array(p, "p").reduce(y)
    kinds: tuple[Normalization, ...] = ("count", "density", "corrected")
    for kind in kinds:
        print(f"smECE of {ROWS:,} rows, {kind}: {best(lambda k=kind: smooth_gap(rows, k)):.1f} ms")
    pair, split = {"direct": [rows], "repaired": [rows]}, [np.arange(ROWS)]
    took = best(lambda: resampled(pair, split, ROWS, resamples=100), runs=2) / 100
    print(f"paired bootstrap, two reports of {ROWS:,} rows: {took:.2f} ms a resample")


if __name__ == "__main__":
    main()
