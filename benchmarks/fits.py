"""Time to fit each calibrator, beside other libraries, on the same rows in the same run.

    python benchmarks/fits.py                     # all sizes, one thread
    python benchmarks/fits.py --sizes 5000x10 --maps ts vs
    python benchmarks/fits.py --sizes 25000x1000 --maps sms --wide --limit 3600

Every fit runs in a process of its own, so that its peak memory is its own.  Peers come
from the `bench` dependency group; one that fails says why.  The objective is the map's own:
the mean cross-entropy of the calibration rows (probabilities floored at 1e-12) plus the
ridge of `svs`, `sms` and `dir-odir`, computed in float64 for every library: from its
predictions, or from its parameters if it predicts in float32.  After each map comes a
verdict: is cordcal faster than every peer, at an objective no worse?  Where a peer of `ms`
is faster because it stops at a worse objective, a line "up to there" tells when cordcal has
come as far.
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


class Fitted(NamedTuple):
    """A fitted map, of whichever library."""

    predict: Callable[[np.ndarray], np.ndarray]
    """Turns logits into probabilities, as the library does."""
    logits: Callable[[np.ndarray], np.ndarray] | None = None
    """The map's logits in float64, from its parameters, for a library that reports float32."""
    model: object = None


Fit = Callable[[np.ndarray, np.ndarray], Fitted]


class Figures(NamedTuple):
    """What a fit took and attained."""

    seconds: float
    predicting: float
    objective: float
    peak: float


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


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    e /= e.sum(axis=1, keepdims=True)
    return e


def ours(key: str) -> Fit:
    def fit(logits: np.ndarray, labels: np.ndarray) -> Fitted:
        from cordcal import calibrators

        model = calibrators.make(key).fit(logits, labels)
        return Fitted(model.predict_proba, model=model)

    return fit


def probmetrics(name: str) -> Fit:
    def fit(logits: np.ndarray, labels: np.ndarray) -> Fitted:
        from probmetrics.calibrators import get_calibrator

        model = get_calibrator(name)
        model.fit(softmax(logits), labels)

        def in_float64(z: np.ndarray) -> np.ndarray:
            temperature = model.ts_.cal_.invtemp_
            mix = 1.0 / (len(labels) + 1.0)
            r = (1.0 - mix) * softmax(temperature * z) + mix / z.shape[1]
            if name == "svs":
                return np.log(r) * model.v_.astype(float) + model.b_.astype(float)
            return np.log(r) @ model.W_[:, :-1].T.astype(float) + model.W_[:, -1].astype(float)

        return Fitted(
            lambda z: model.predict_proba(softmax(z)),
            in_float64 if name in ("svs", "sms") else None,
            model,
        )

    return fit


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


def torchcal(name: str) -> Fit:
    def fit(logits: np.ndarray, labels: np.ndarray) -> Fitted:
        import torch
        from probmetrics import calibrators
        from probmetrics.distributions import CategoricalLogits

        model = getattr(calibrators, name)()
        model.fit_torch(CategoricalLogits(torch.tensor(logits)), torch.tensor(labels))

        # Some of its parameters are float32, but float64 logits promote them.
        def predict(z: np.ndarray) -> np.ndarray:
            report = model.predict_proba_torch(CategoricalLogits(torch.tensor(z)))
            return report.get_probs().numpy()

        return Fitted(predict)

    return fit


def netcal_temperature(logits: np.ndarray, labels: np.ndarray) -> Fitted:
    from netcal.scaling import TemperatureScaling

    model = TemperatureScaling()
    model.fit(softmax(logits), labels)
    return Fitted(lambda z: model.transform(softmax(z)))


def sklearn_temperature(logits: np.ndarray, labels: np.ndarray) -> Fitted:
    from sklearn.calibration import _TemperatureScaling

    return Fitted(_TemperatureScaling().fit(logits, labels).predict)


def sklearn_isotonic(logits: np.ndarray, labels: np.ndarray) -> Fitted:
    from sklearn.isotonic import IsotonicRegression

    p = softmax(logits)
    columns = [
        IsotonicRegression(out_of_bounds="clip").fit(p[:, k], labels == k)
        for k in range(p.shape[1])
    ]

    def predict(z: np.ndarray) -> np.ndarray:
        p = softmax(z)
        q = np.stack([model.predict(p[:, k]) for k, model in enumerate(columns)], axis=1)
        return q / q.sum(axis=1, keepdims=True)

    return Fitted(predict)


def torch_lbfgs(*, matrix: bool) -> Fit:
    """L-BFGS with step 0.1 and 200 iterations in float32, as torch-based libraries run it."""

    def fit(logits: np.ndarray, labels: np.ndarray) -> Fitted:
        import torch

        z, y = torch.tensor(logits, dtype=torch.float32), torch.tensor(labels)
        k = z.shape[1]
        scale = torch.eye(k) if matrix else torch.ones(k)
        bias = torch.zeros(k)
        parameters = [scale.requires_grad_(), bias.requires_grad_()]
        optimiser = torch.optim.LBFGS(parameters, lr=0.1, max_iter=200)

        def mapped(x: torch.Tensor) -> torch.Tensor:
            return x @ scale.T + bias if matrix else x * scale + bias

        def closure() -> torch.Tensor:
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(mapped(z), y)
            loss.backward()
            return loss

        optimiser.step(closure)

        def predict(new: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                return torch.softmax(mapped(torch.tensor(new, dtype=torch.float32)), 1).numpy()

        def in_float64(new: np.ndarray) -> np.ndarray:
            weight, b = scale.detach().double().numpy(), bias.detach().double().numpy()
            return new @ weight.T + b if matrix else new * weight + b

        return Fitted(predict, in_float64)

    return fit


MAPS: dict[str, dict[str, Fit]] = {
    "ts": {
        "cordcal": ours("ts"),
        "probmetrics": probmetrics("temp-scaling"),
        "netcal": netcal_temperature,
        "scikit-learn": sklearn_temperature,
    },
    "vs": {
        "cordcal": ours("vs"),
        "torch 0.1x200": torch_lbfgs(matrix=False),
        "probmetrics": torchcal("VectorScalingCalibrator"),
    },
    "svs": {"cordcal": ours("svs"), "probmetrics": probmetrics("svs")},
    "ms": {
        "cordcal": ours("ms"),
        "torch 0.1x200": torch_lbfgs(matrix=True),
        "probmetrics": torchcal("MatrixScalingCalibrator"),
    },
    "sms": {"cordcal": ours("sms"), "probmetrics": probmetrics("sms")},
    "irova": {"cordcal": ours("irova"), "scikit-learn": sklearn_isotonic},
    "irm": {"cordcal": ours("irm")},
    "dir-odir": {"cordcal": ours("dir-odir")},
}
# A thousand classes make these a matter of minutes to hours.
WIDE = ("ms", "sms", "dir-odir")


def objective_of(name: str, fitted: Fitted, logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the map's objective on its calibration rows, in float64."""
    own = np.arange(len(labels)), labels
    if fitted.logits is None:
        q = fitted.predict(logits)
        if q.dtype != np.float64:
            raise TypeError(f"reports {q.dtype}; its objective needs its logits in float64")
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
    from cordcal.calibrators import _logistic

    steps: list[tuple[float, float]] = []

    @contextmanager
    def watched(*_: object) -> Iterator[Callable[[int, float, float], None]]:
        yield lambda step, value, gradient_norm: steps.append((time.perf_counter(), value))

    with mock.patch.object(_logistic, "progress", watched):
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
            tried = [
                until(name, target, logits, labels) for _ in range(3 if labels.size < 20_000 else 1)
            ]
            answer.put(min(tried))
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


def verdict(ours: Figures, peers: dict[str, Figures]) -> str:
    """Say whether ours is the fastest, at an objective no worse."""
    faults = [f"slower than {peer}" for peer, it in peers.items() if it.seconds < ours.seconds]
    faults += [
        f"worse than {peer} by {ours.objective - it.objective:.1e}"
        for peer, it in peers.items()
        if ours.objective > it.objective * (1.0 + 1e-14)  # two sums may round differently
    ]
    return "; ".join(faults) or "faster than every peer, at an objective no worse"


def line(lead: str, it: Figures, reference: float) -> None:
    print(f"{lead} {it.seconds:9.3f} {it.predicting:9.3f} {it.seconds / reference:7.2f} "
          f"{it.objective:15.12f} {it.peak:8.2f}", flush=True)  # fmt: skip


def compare(size: str, name: str, limit: float) -> None:
    """Print the figures of all libraries for one map and size, and the verdict."""
    found: dict[str, Figures] = {}
    for peer in MAPS[name]:
        result = run(name, peer, size, limit)
        lead = f"{size:>10} {name:<9} {peer:<14}"
        if isinstance(result, str):
            print(lead, result, flush=True)
            continue
        found[peer] = result
        line(lead, result, found.get("cordcal", result).seconds)
    ours = found.pop("cordcal", None)
    if ours is None or not found:
        return
    for it in found.values():
        # A peer that stops early is no faster if cordcal was there before it.
        if name == "ms" and it.seconds < ours.seconds and it.objective > ours.objective:
            result = run(name, "cordcal", size, limit, target=it.objective)
            if isinstance(result, Figures):
                line(f"{size:>10} {name:<9} {'up to there':<14}", result, ours.seconds)
    print(f"{'':>10} {name:<9} {verdict(ours, found)}", flush=True)


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
                print(f"{size:>10} {name:<9} left out: minutes to hours; ask with --wide")
                continue
            compare(size, name, options.limit)


if __name__ == "__main__":
    main()
