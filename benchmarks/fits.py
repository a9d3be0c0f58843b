"""Time to fit each calibrator, next to other libraries, on the same rows in the same run.

    python benchmarks/fits.py                     # all sizes, one thread
    python benchmarks/fits.py --sizes 5000x10 --maps ts vs
    python benchmarks/fits.py --sizes 25000x1000 --maps sms --wide --limit 3600

Every fit runs in a process of its own, so that its peak memory is its own.  Peers come
from the `bench` dependency group; one that fails says why.  The objective is the map's own:
the mean cross-entropy of the calibration rows (probabilities floored at 1e-12) plus the
ridge of `svs`, `sms` and `dir-odir`, for `ets` the mean squared error; computed in float64
for every library: from its predictions, or from its parameters if it predicts in float32.
After each map comes a verdict: is cordcal faster than every peer, at an objective no worse?
Where a peer of `ms` is faster because it stops at a worse objective, a line "up to there"
is when cordcal has reached it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import numpy as np

from fit_peers import MAPS, Fit, Fitted, ours


class Figures(NamedTuple):
    """What a fit took and attained."""

    seconds: float
    predicting: float
    objective: float
    peak: float


# A thousand classes make these a matter of minutes.
WIDE = ("ms", "sms", "dir-odir")


def rows(size: str) -> tuple[np.ndarray, np.ndarray]:
    """Return float64 logits of an overconfident classifier with uneven classes, and labels."""
    n, k = map(int, size.split("x"))
    rng = np.random.default_rng(0)
    labels = rng.integers(k, size=n)
    logits = rng.normal(size=(n, k))
    logits *= 2.0
    logits += rng.normal(scale=0.5, size=k)
    logits[np.arange(n), labels] += rng.normal(7.0 + np.log(k / 10), 2.0, size=n)
    logits *= 1.5
    return logits, labels


def ridge(name: str, model: object, n: int, k: int) -> float:
    """Return the penalty of a map, from either library's parameters."""
    if name == "svs":
        away = model.scale_ - 1.0 if hasattr(model, "scale_") else model.v_.astype(float) - 1.0
        bias = model.bias_ if hasattr(model, "bias_") else model.b_.astype(float)
        return float(k / n * (np.sum(away**2) + np.sum(bias**2)))
    if name == "sms":
        if hasattr(model, "weight_"):
            away, bias = model.weight_ - np.eye(k), model.bias_
        else:
            away, bias = model.W_[:, :-1] - np.eye(k), model.W_[:, -1].astype(float)
        own = np.sum(away.diagonal() ** 2)
        others = np.sum(away**2) - own
        return float(k / n * (own + np.sum(bias**2)) + k * (k - 1) / n * others)
    if name == "dir-odir":
        others = np.sum(model.weight_**2) - np.sum(model.weight_.diagonal() ** 2)
        return float(model.off_diagonal * others + model.intercept * np.sum(model.bias_**2))
    return 0.0


def objective_of(name: str, fitted: Fitted, logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the map's objective on its calibration rows, in float64."""
    own = np.arange(len(labels)), labels
    if fitted.logits is None:
        q = fitted.predict(logits)
        if q.dtype != np.float64:
            raise TypeError(f"reports {q.dtype}; its objective needs its logits in float64")
        if name == "ets":  # published with the squared error
            return float(np.mean((q - np.eye(logits.shape[1])[labels]) ** 2))
        loss = -np.log(np.maximum(q[own], 1e-12))
    else:
        z = fitted.logits(logits)
        z -= z.max(axis=1, keepdims=True)
        loss = np.log(np.exp(z).sum(axis=1)) - z[own]
    return float(loss.mean()) + ridge(name, fitted.model, *logits.shape)


def best_of(fit: Fit, logits: np.ndarray, labels: np.ndarray) -> tuple[float, Fitted]:
    """Return the time of the fastest fit: of five, if they are short."""
    seconds: list[float] = []
    while len(seconds) < 5 and sum(seconds) < 10.0:
        start = time.perf_counter()
        fitted = fit(logits, labels)
        seconds.append(time.perf_counter() - start)
    return min(seconds), fitted


def until(name: str, target: float, logits: np.ndarray, labels: np.ndarray) -> Figures:
    """Return when a fit of cordcal's has come to an objective no worse than ``target``."""
    from cordcal.calibrators import affine

    steps: list[tuple[float, float]] = []

    @contextmanager
    def watched(*_: object) -> Iterator[Callable[[int, float, float], None]]:
        yield lambda step, value, gradient_norm: steps.append((time.perf_counter(), value))

    with mock.patch.object(affine, "progress", watched):
        start = time.perf_counter()
        ours(name)(logits, labels)
    reached, value = next((at, value) for at, value in steps if value <= target)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return Figures(reached - start, np.nan, value, peak)


def measure(
    name: str, peer: str, size: str, target: float | None, answer: multiprocessing.Queue
) -> None:
    """Fit in this process and put the figures, or what went wrong, on the queue."""
    warnings.simplefilter("ignore")
    fit = MAPS[name][peer]
    try:
        warm = rows("200x5")
        fit(*warm).predict(warm[0])  # imports and compilation are not the fit
        logits, labels = rows(size)
        if target is not None:
            repeats = 1 if logits.size > 10**7 else 5
            answer.put(min(until(name, target, logits, labels) for _ in range(repeats)))
            return
        seconds, fitted = best_of(fit, logits, labels)
        start = time.perf_counter()
        fitted.predict(logits)
        predicting = time.perf_counter() - start
        # The objective's own temporaries are not the fit's.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        objective = objective_of(name, fitted, logits, labels)
    except Exception as error:  # whatever ails a peer, its line says so
        answer.put(f"{type(error).__name__}: {error}".splitlines()[0][:90])
        return
    answer.put(Figures(seconds, predicting, objective, peak))


def run(
    name: str, peer: str, size: str, limit: float, target: float | None = None
) -> Figures | str:
    """Measure in a process of its own; return the figures, or why there are none.

    With a ``target``, the time is the one at which cordcal has attained that objective.
    """
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=measure, args=(name, peer, size, target, answer))
    process.start()
    end = time.monotonic() + limit
    try:
        while time.monotonic() < end:
            ended = not process.is_alive()
            try:
                return answer.get(timeout=1.0)
            except queue.Empty:
                if ended:
                    return f"ended with exit code {process.exitcode} and no answer"
        return f"stopped after {limit:.0f} s"
    finally:
        process.terminate()
        process.join()


# Why an objective is higher on purpose.
BY_DESIGN = {
    "beta": "by design: fitted to Platt's smoothed targets, betacal to 0 and 1, docs/maps.md"
}


def verdict(name: str, ours: Figures, peers: dict[str, Figures], overtaken: set[str]) -> str:
    """Say whether ours is the fastest, at an objective no worse.

    ``overtaken`` are faster peers whose objective ours attains sooner.
    """
    faults = [
        f"slower than {peer}" + (", but sooner at its objective" if peer in overtaken else "")
        for peer, it in peers.items()
        if it.seconds < ours.seconds
    ]
    faults += [
        f"worse than {peer} by {ours.objective - it.objective:.1e}"
        + (f" ({BY_DESIGN[name]})" if name in BY_DESIGN else "")
        for peer, it in peers.items()
        if ours.objective > it.objective * (1.0 + 1e-14)  # two sums may round differently
    ]
    return "; ".join(faults) or "faster than every peer, at an objective no worse"


def line(lead: str, it: Figures, reference: float) -> None:
    print(f"{lead} {it.seconds:9.3f} {it.predicting:9.3f} {it.seconds / reference:7.2f} "
          f"{it.objective:15.12f} {it.peak:8.2f}", flush=True)  # fmt: skip


def compare(size: str, name: str, limit: float) -> None:
    """Print the figures of all libraries for one map and size, and the verdict."""
    results: dict[str, Figures] = {}
    for peer in MAPS[name]:
        result = run(name, peer, size, limit)
        lead = f"{size:>10} {name:<9} {peer:<14}"
        if isinstance(result, str):
            print(lead, result, flush=True)
            continue
        results[peer] = result
        line(lead, result, results.get("cordcal", result).seconds)
    ours = results.pop("cordcal", None)
    if ours is None or not results:
        return
    overtaken = set()
    for peer, it in results.items():
        # A peer that stops early is not faster if cordcal reached its objective earlier.
        if name == "ms" and it.seconds < ours.seconds and it.objective > ours.objective:
            result = run(name, "cordcal", size, limit, target=it.objective)
            if isinstance(result, Figures):
                line(f"{size:>10} {name:<9} {'up to there':<14}", result, ours.seconds)
                overtaken |= {peer} if result.seconds < it.seconds else set()
    print(f"{'':>10} {name:<9} {verdict(name, ours, results, overtaken)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["5000x10", "5000x100", "25000x1000"])
    parser.add_argument("--maps", nargs="+", default=list(MAPS), choices=list(MAPS))
    parser.add_argument("--threads", default="1")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds a fit may take")
    parser.add_argument("--wide", action="store_true", help="the matrix maps at 1000 classes too")
    options = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = options.threads  # read by the processes started below
    if hasattr(os, "getloadavg"):
        print(f"load before the run: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, "
              f"threads for each fit: {options.threads}")  # fmt: skip
    print(f"{'size':>10} {'map':<9} {'library':<14} {'fit s':>9} {'predict s':>9} "
          f"{'× ours':>7} {'objective':>15} {'peak GB':>8}")  # fmt: skip
    for size in options.sizes:
        for name in options.maps:
            if name in WIDE and int(size.split("x")[1]) >= 1000 and not options.wide:
                print(f"{size:>10} {name:<9} left out: minutes each; ask with --wide")
                continue
            compare(size, name, options.limit)


if __name__ == "__main__":
    main()
