"""Repair and construction against the memory floor and against plain NumPy, in one run.

    python benchmarks/repair.py [--repeats 15]

One thread, validation on, ``out=`` given, rows with zeros in the direct report.
Candidates are interleaved and medians are compared, so that a noisy machine disturbs
all of them alike.  The floor is ``np.add(P, Q, out=R)``: two arrays read, one written.
Plain NumPy stands in two columns: as it is, without any validation, and after the checks
that CORD makes too (finite, not negative, rows that sum to one).

The first table compares with the paper's listing and the same checks: in the first process of an
installation, which works on arrays, and afterwards, with kernels.  Its times are the least CPU
times of the candidates in turns.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from cordcal import CORD

SIZES = ((5_000, 10), (5_000, 100), (25_000, 1000))


def make_pair(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Softmax outputs and a vector-scaled report of them; a third of the rows has a zero."""
    rng = np.random.default_rng(0)
    logits = 3.0 * rng.normal(size=(rows, classes))
    logits[np.arange(rows), rng.integers(classes, size=rows)] += 6.0
    moved = 0.8 * logits * rng.uniform(0.95, 1.05, classes) + 0.2 * rng.normal(size=classes)

    def softmax(z: np.ndarray) -> np.ndarray:
        z = np.exp(z - z.max(axis=1, keepdims=True))
        return z / z.sum(axis=1, keepdims=True)

    original, direct = softmax(logits), softmax(moved)
    direct[::3, 1] = 0.0
    return original, direct / direct.sum(axis=1, keepdims=True)


class PlainNumPy:
    """Algorithm 1 as vectorised NumPy, the way one would write it first."""

    def rows(self, original: np.ndarray, direct: np.ndarray):  # type: ignore[no-untyped-def]
        at = np.arange(len(direct))
        p, q = (self.inner(x) for x in (original, direct))
        keep = p.argmax(axis=1)
        b = q[at, keep]
        tail = q.copy()
        tail[at, keep] = 0.0
        tail /= tail.sum(axis=1, keepdims=True)
        rho = tail.max(axis=1)
        g = np.where(q.argmax(axis=1) == keep, b, (b + p[at, keep]) / 2)
        return keep, b, g, tail, rho / (1 + rho) + 1e-12

    @staticmethod
    def inner(x: np.ndarray) -> np.ndarray:
        zero = (x == 0).any(axis=1)
        if not zero.any():
            return x
        inner = x.copy()
        inner[zero] = (1 - 1e-10) * x[zero] + 1e-10 / x.shape[1]
        return inner

    @staticmethod
    def respond(eta: float, g: np.ndarray, lower: np.ndarray) -> np.ndarray:
        radius = np.hypot(eta + 2 * g - 1, 2 * np.sqrt(g * (1 - g)))
        s = 2 * g / (1 - eta + radius) if eta <= 1 else (eta - 1 + radius) / (2 * eta)
        return np.clip(s, lower, 1 - 1e-12)

    def fit(self, original: np.ndarray, direct: np.ndarray) -> float:
        _, b, g, _, lower = self.rows(original, direct)
        target = np.clip(b.mean(), lower.mean(), 1 - 1e-12)
        upwards = self.respond(0.0, g, lower).mean() < target
        edge = (1 - 1e-12 - g) / 1e-12 if upwards else (lower - g) / (lower * (1 - lower))
        near, far = 0.0, float(edge.max() if upwards else edge.min())
        while (middle := near + (far - near) / 2) not in (near, far):
            mean = self.respond(middle, g, lower).mean()
            if (mean >= target) if upwards else (mean <= target):
                far = middle
            else:
                near = middle
        return far

    @staticmethod
    def check(*reports: np.ndarray) -> None:
        for report in reports:
            assert np.isfinite(report).all()
            assert (report >= 0).all()
            assert np.abs(report.sum(axis=1) - 1).max() < 1e-3

    def transform(self, eta: float, original: np.ndarray, direct: np.ndarray) -> np.ndarray:
        keep, _, g, tail, lower = self.rows(original, direct)
        s = self.respond(eta, g, lower)
        tail *= (1 - s)[:, None]
        tail[np.arange(len(s)), keep] = s
        return tail


def medians(candidates: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Time the candidates in turns; return the median seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for run in candidates.values():
        run()
    for _ in range(repeats):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def measure(rows: int, classes: int, repeats: int) -> None:
    p, q = make_pair(rows, classes)
    out = np.empty_like(q)
    p32, q32 = p.astype(np.float32), q.astype(np.float32)
    out32 = np.empty_like(q32)
    one = CORD(threads=1)
    plain = PlainNumPy()
    eta = plain.fit(p, q)
    one.fit(p, q)
    assert abs(one.eta_ - eta) < 1e-9
    assert np.abs(one.transform(p, q) - plain.transform(eta, p, q)).max() < 1e-12
    times = medians(
        {
            "floor": lambda: np.add(p, q, out=out),
            "floor32": lambda: np.add(p32, q32, out=out32),
            "repair": lambda: one.transform(p, q, out=out),
            "repair32": lambda: one.transform(p32, q32, out=out32),
            "fit": lambda: one.fit(p, q),
        },
        repeats,
    )
    slow = medians(
        {
            "repair": lambda: plain.transform(eta, p, q),
            "check": lambda: plain.check(p, q),
            "fit": lambda: plain.fit(p, q),
        },
        max(3, repeats // 4),
    )
    against = {
        name: (slow[name] / times[name], (slow[name] + slow["check"]) / times[name])
        for name in ("repair", "fit")
    }
    row = (
        f"{rows:>6,} × {classes:<5}"
        f"{times['repair'] / times['floor']:>8.2f}"
        f"{times['repair32'] / times['floor32']:>11.2f}"
        f"{against['repair'][0]:>12.1f} / {against['repair'][1]:<6.1f}"
        f"{against['fit'][0]:>8.1f} / {against['fit'][1]:<6.1f}"
        f"{1e6 * times['repair']:>10,.0f}"
        f"{1e6 * times['fit']:>10,.0f}"
    )
    print(row, flush=True)


def against_listing(rows: int, classes: int, repeats: int) -> None:
    """Print the time of both engines as a share of plain NumPy's, with the same checks."""
    p, q = make_pair(rows, classes)
    plain, cord, before = PlainNumPy(), CORD(threads=1), os.environ["CORDCAL_ENGINE"]
    eta = plain.fit(p, q)
    candidates: dict[str, Callable[[], object]] = {
        "check": lambda: plain.check(p, q),
        "transform": lambda: plain.transform(eta, p, q),
        "fit": lambda: plain.fit(p, q),
    }
    engines = {"first process": "array", "afterwards": "compiled"}
    for name, engine in engines.items():

        def on_engine(run: Callable[..., object], engine: str = engine) -> None:
            os.environ["CORDCAL_ENGINE"] = engine
            run(p, q)

        candidates[f"{name} fit"] = lambda call=on_engine: call(cord.fit)
        candidates[f"{name} transform"] = lambda call=on_engine: call(cord.transform)
    least = dict.fromkeys(candidates, float("inf"))
    for _ in range(repeats + 1):
        for name, run in candidates.items():
            start = time.process_time()
            run()
            least[name] = min(least[name], time.process_time() - start)
    os.environ["CORDCAL_ENGINE"] = before
    for name in engines:
        ratios = (
            least[f"{name} {work}"] / (least[work] + least["check"])
            for work in ("transform", "fit")
        )
        cells = "".join(f"{ratio:>12.2f}" for ratio in ratios)
        print(f"{rows:>6,} × {classes:<5}{name:<15}{cells}", flush=True)


def two_threads(rows: int, classes: int, repeats: int) -> float:
    """Return how much faster two threads repair than one."""
    p, q = make_pair(rows, classes)
    out = np.empty_like(q)
    cords = {n: CORD(threads=n).fit(p[:5000], q[:5000]) for n in (1, 2)}
    times = medians(
        {str(n): lambda cord=cord: cord.transform(p, q, out=out) for n, cord in cords.items()},
        repeats,
    )
    return times["1"] / times["2"]


def peak_memory(rows: int, classes: int) -> tuple[float, float]:
    """Return what fit and transform allocate at most, in bytes a row."""
    p, q = make_pair(rows, classes)
    cord = CORD(threads=1)
    peaks = []
    for run in (lambda: cord.fit(p, q), lambda: cord.transform(p, q)):
        run()
        tracemalloc.start()
        run()
        peaks.append(tracemalloc.get_traced_memory()[1] / rows)
        tracemalloc.stop()
    return peaks[0], peaks[1]


_WARMUP = """
import time, numba, cordcal
start = time.perf_counter()
cordcal.warmup()
print(time.perf_counter() - start)
"""


def warmup_times() -> list[float]:
    """Return the seconds of a warm-up in a new process: with an empty cache, with a full one."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        command = [sys.executable, "-c", _WARMUP]
        return [
            float(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
            for _ in range(2)
        ]


def one_row(classes: int) -> float:
    p, q = make_pair(50, classes)
    cord = CORD().fit(p, q)
    cord.transform(p[0], q[0])
    times = []
    for _ in range(300):
        start = time.perf_counter()
        cord.transform(p[0], q[0])
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    cold, cached = warmup_times()
    print(f"kernels compiled in {cold:.2f} s, loaded from the cache in {cached:.2f} s\n")
    print("time as a share of the paper's listing with the same checks")
    print("rows × K      process           transform         fit")
    for rows, classes in ((3_000, 10), (5_000, 100), (25_000, 10)):
        against_listing(rows, classes, repeats)
    print()
    print(
        "rows × K      repair/  repair32/   repair: plain      fit: plain       repair       fit\n"
        "                floor    floor32   NumPy / checked   NumPy / checked       µs        µs"
    )
    for rows, classes in SIZES:
        measure(rows, classes, repeats)
    print("\ntwo threads against one:")
    for rows, classes in ((500_000, 10), (25_000, 1000)):
        print(f"  {rows:>7,} × {classes:<5} {two_threads(rows, classes, repeats):.2f} ×")
    fit, repair = peak_memory(25_000, 1000)
    print(f"\nallocated at 25,000 × 1000: fit {fit:.0f} B a row, repair {repair:,.0f} B a row")
    print(f"one row: K=10 {one_row(10):.0f} µs, K=1000 {one_row(1000):.0f} µs")


if __name__ == "__main__":
    main()
