"""Repair and construction against the memory floor and against plain NumPy, in one run.

    python benchmarks/repair.py [--repeats 15]

One thread, validation on, ``out=`` given; rows of a softmax, a third of them with a zero, and
rows of a Dirichlet distribution, of which the calibrator changes nearly all.  Candidates are
interleaved and the least CPU times are compared, so that a noisy machine disturbs all of them
alike.  The floor is ``np.add(P, Q, out=R)``: two arrays read, one written.  The listing is the
paper's algorithm in plain NumPy, after the checks that CORD makes too (finite, not negative, rows
that sum to one).
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from cordcal import CORD

SIZES = ((5_000, 10), (5_000, 100), (5_000, 1000))
MILLION = 1_000_000


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


def dirichlet_pair(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Unrelated reports: nearly every prediction changes."""
    original, direct = np.random.default_rng(0).dirichlet(np.ones(classes), size=(2, rows))
    return original, direct


def least(candidates: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Time the candidates in turns; return the least CPU seconds of each."""
    times = dict.fromkeys(candidates, float("inf"))
    for _ in range(repeats + 1):
        for name, run in candidates.items():
            start = time.process_time()
            run()
            times[name] = min(times[name], time.process_time() - start)
    return times


def measure(kind: str, p: np.ndarray, q: np.ndarray, repeats: int) -> None:
    """Print the times of CORD next to the floor and to the listing."""
    rows, classes = q.shape
    p32, q32 = p.astype(np.float32), q.astype(np.float32)
    out, out32 = np.empty_like(q), np.empty_like(q32)
    cord, plain = CORD(threads=1).fit(p, q), PlainNumPy()
    eta = plain.fit(p, q)
    assert abs(cord.eta_ - eta) < 1e-9
    assert np.abs(cord.transform(p, q) - plain.transform(eta, p, q)).max() < 1e-12
    times = least(
        {
            "floor": lambda: np.add(p, q, out=out),
            "floor32": lambda: np.add(p32, q32, out=out32),
            "repair": lambda: cord.transform(p, q, out=out),
            "repair32": lambda: cord.transform(p32, q32, out=out32),
            "fit": lambda: cord.fit(p, q),
            "check": lambda: plain.check(p, q),
            "listed repair": lambda: plain.transform(eta, p, q),
        },
        repeats,
    )
    slow = least({"fit": lambda: plain.fit(p, q)}, max(3, repeats // 5))
    print(
        f"{kind:<10}{rows:>6,} × {classes:<5}"
        f"{times['repair'] / times['floor']:>8.1f}"
        f"{times['repair32'] / times['floor32']:>11.1f}"
        f"{times['repair'] / (times['listed repair'] + times['check']):>12.2f}"
        f"{times['fit'] / (slow['fit'] + times['check']):>8.2f}"
        f"{1e9 * times['repair'] / rows:>10,.0f}"
        f"{1e9 * times['fit'] / rows:>8,.0f}",
        flush=True,
    )


def million(classes: int, repeats: int) -> float:
    """Return the CPU seconds to repair a million rows."""
    p, q = make_pair(10_000, classes)
    cord, out = CORD(threads=1).fit(p, q), np.empty_like(q)
    seconds = least({"repair": lambda: cord.transform(p, q, out=out)}, max(3, repeats // 3))
    return seconds["repair"] * MILLION / len(p)


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
    print(
        "                        repair/  repair32/    repair/    fit/       repair     fit\n"
        "data      rows × K        floor    floor32    listing  listing    ns a row   ns a row"
    )
    for rows, classes in SIZES:
        measure("softmax", *make_pair(rows, classes), repeats)
        measure("Dirichlet", *dirichlet_pair(rows, classes), repeats)
    print("\na million rows, in pieces of 10,000:")
    for classes in (10, 100, 1000):
        print(f"  × {classes:<5} {million(classes, repeats):6.2f} s")
    print("\ntwo threads against one:")
    for rows, classes in ((500_000, 10), (25_000, 1000)):
        print(f"  {rows:>7,} × {classes:<5} {two_threads(rows, classes, repeats):.2f} ×")
    fit, repair = peak_memory(25_000, 1000)
    print(f"\nallocated at 25,000 × 1000: fit {fit:.0f} B a row, repair {repair:,.0f} B a row")
    print(f"one row: K=10 {one_row(10):.0f} µs, K=1000 {one_row(1000):.0f} µs")


if __name__ == "__main__":
    main()
