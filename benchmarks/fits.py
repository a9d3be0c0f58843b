"""Time to fit each calibrator, beside other libraries, on the same rows in the same run.

    python benchmarks/fits.py                     # all sizes, one thread
    python benchmarks/fits.py --sizes 5000x10 --maps ts vs

Every fit runs in a process of its own, so that its peak memory is its own.  Peers come
from the `bench` dependency group; one that is not installed is left out.  The loss is the
mean cross-entropy of the calibration rows, whatever the peer's own objective: together
with the time it shows what was paid for what.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import time
import warnings
from collections.abc import Callable

import numpy as np

Fit = Callable[[np.ndarray, np.ndarray], Callable[[np.ndarray], np.ndarray]]
"""Takes logits and labels, returns what turns logits into probabilities."""


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
    def fit(logits: np.ndarray, labels: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        from cordcal import calibrators

        return calibrators.make(key).fit(logits, labels).predict_proba

    return fit


def probmetrics(name: str) -> Fit:
    def fit(logits: np.ndarray, labels: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        from probmetrics.calibrators import get_calibrator

        model = get_calibrator(name)
        model.fit(softmax(logits), labels)
        return lambda z: model.predict_proba(softmax(z))

    return fit


def torchcal(name: str) -> Fit:
    def fit(logits: np.ndarray, labels: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        import torch
        from probmetrics import calibrators
        from probmetrics.distributions import CategoricalLogits

        model = getattr(calibrators, name)()
        model.fit_torch(CategoricalLogits(torch.tensor(logits)), torch.tensor(labels))
        return lambda z: (
            model.predict_proba_torch(CategoricalLogits(torch.tensor(z))).get_probs().numpy()
        )

    return fit


def netcal_temperature(logits: np.ndarray, labels: np.ndarray) -> Callable[..., np.ndarray]:
    from netcal.scaling import TemperatureScaling

    model = TemperatureScaling()
    model.fit(softmax(logits), labels)
    return lambda z: model.transform(softmax(z))


def sklearn_temperature(logits: np.ndarray, labels: np.ndarray) -> Callable[..., np.ndarray]:
    from sklearn.calibration import _TemperatureScaling

    model = _TemperatureScaling().fit(logits, labels)
    return model.predict


def sklearn_isotonic(logits: np.ndarray, labels: np.ndarray) -> Callable[..., np.ndarray]:
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

    return predict


def torch_lbfgs(*, matrix: bool) -> Fit:
    """L-BFGS with step 0.1 and 200 iterations in float32, as torch-based libraries run it."""

    def fit(logits: np.ndarray, labels: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
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
                out = mapped(torch.tensor(new, dtype=torch.float32)).double()
                return torch.softmax(out, dim=1).numpy()

        return predict

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
NARROW = ("ms", "sms", "dir-odir")


def measure(name: str, peer: str, size: str, answer: multiprocessing.Queue) -> None:
    """Fit in this process and put (fit seconds, predict seconds, loss, peak GB) on the queue."""
    warnings.simplefilter("ignore")
    fit = MAPS[name][peer]
    try:
        warm = rows("200x5")
        fit(*warm)(warm[0])  # imports and compilation are not the fit
        logits, labels = rows(size)
        seconds = []
        while len(seconds) < 3 and sum(seconds) < 10.0:  # the best of three, if they are short
            start = time.perf_counter()
            predict = fit(logits, labels)
            seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
        q = predict(logits)
        predicting = time.perf_counter() - start
    except Exception as error:
        answer.put(f"{type(error).__name__}: {error}"[:70])
        return
    own = np.maximum(np.asarray(q, dtype=np.float64)[np.arange(len(labels)), labels], 1e-12)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    answer.put((min(seconds), predicting, float(-np.log(own).mean()), peak))


def run(name: str, peer: str, size: str, limit: float) -> tuple[float, float, float, float] | str:
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=measure, args=(name, peer, size, answer))
    process.start()
    try:
        return answer.get(timeout=limit)
    except Exception:
        return f"stopped after {limit:.0f} s"
    finally:
        process.terminate()
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["5000x10", "5000x100", "25000x1000"])
    parser.add_argument("--maps", nargs="+", default=list(MAPS), choices=list(MAPS))
    parser.add_argument("--threads", default="1")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds a fit may take")
    options = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = options.threads  # read by the processes started below
    print(f"{'size':>10} {'map':<9} {'library':<14} {'fit s':>9} {'predict s':>9} "
          f"{'× ours':>7} {'loss':>12} {'peak GB':>8}")  # fmt: skip
    for size in options.sizes:
        for name in options.maps:
            if name in NARROW and size.endswith("x1000"):
                continue
            base = None
            for peer in MAPS[name]:
                found = run(name, peer, size, options.limit)
                if isinstance(found, str):
                    print(f"{size:>10} {name:<9} {peer:<14} {found}", flush=True)
                    continue
                seconds, predicting, loss, peak = found
                base = base or seconds
                print(f"{size:>10} {name:<9} {peer:<14} {seconds:9.3f} {predicting:9.3f} "
                      f"{seconds / base:7.1f} {loss:12.9f} {peak:8.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
