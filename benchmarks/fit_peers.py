"""The maps that `fits.py` times: cordcal's, and the same of other libraries.

Peers run with the settings their users get.  Where a library predicts in float32, its
parameters are read and the map is computed in float64, so that objectives can be compared to
the last digit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Fitted(NamedTuple):
    """A fitted map, of whichever library."""

    predict: Callable[[np.ndarray], np.ndarray]
    """Turns logits into probabilities, as the library does."""
    logits: Callable[[np.ndarray], np.ndarray] | None = None
    """The map's logits in float64, from its parameters, for a library that reports float32."""
    model: object = None


Fit = Callable[[np.ndarray, np.ndarray], Fitted]


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


def probmetrics_ensemble(logits: np.ndarray, labels: np.ndarray) -> Fitted:
    from probmetrics.calibrators import ETSCalibrator  # not among the names of get_calibrator

    model = ETSCalibrator(loss="mse")
    model.fit(softmax(logits), labels)
    return Fitted(lambda z: model.predict_proba(softmax(z)))


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


def one_versus_rest(fit_class: Callable[[np.ndarray, np.ndarray], Callable]) -> Fit:
    """Fit a binary calibrator of another library to each class, and divide by the sum."""

    def fit(logits: np.ndarray, labels: np.ndarray) -> Fitted:
        p = softmax(logits)
        columns = [fit_class(p[:, k], labels == k) for k in range(p.shape[1])]

        def predict(z: np.ndarray) -> np.ndarray:
            p = softmax(z)
            q = np.stack([map_of(p[:, k]) for k, map_of in enumerate(columns)], axis=1)
            return q / q.sum(axis=1, keepdims=True)

        return Fitted(predict)

    return fit


def sklearn_sigmoid(p: np.ndarray, own: np.ndarray) -> Callable:
    from sklearn.calibration import _SigmoidCalibration

    def odds(p: np.ndarray) -> np.ndarray:
        return np.log(np.clip(p, 1e-12, None)) - np.log(np.clip(1.0 - p, 1e-12, None))

    model = _SigmoidCalibration().fit(odds(p), own)
    return lambda new: model.predict(odds(new))


def betacal(p: np.ndarray, own: np.ndarray) -> Callable:
    from betacal import BetaCalibration

    model = BetaCalibration(parameters="abm").fit(p.reshape(-1, 1), own)
    return model.predict


def venn_abers(p: np.ndarray, own: np.ndarray) -> Callable:
    from venn_abers import VennAbers

    model = VennAbers()
    model.fit(np.stack([1.0 - p, p], axis=1), own.astype(int))
    return lambda new: model.predict_proba(np.stack([1.0 - new, new], axis=1))[0][:, 1]


def splinecalib(logits: np.ndarray, labels: np.ndarray) -> Fitted:
    from splinecalib import SplineCalib

    model = SplineCalib()
    model.fit(softmax(logits), labels)
    return Fitted(lambda z: model.calibrate(softmax(z)))


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
    "platt": {"cordcal": ours("platt"), "scikit-learn": one_versus_rest(sklearn_sigmoid)},
    "beta": {"cordcal": ours("beta"), "betacal": one_versus_rest(betacal)},
    "venn-abers": {"cordcal": ours("venn-abers"), "venn-abers": one_versus_rest(venn_abers)},
    "spline": {"cordcal": ours("spline"), "splinecalib": splinecalib},
    "ets": {"cordcal": ours("ets"), "probmetrics": probmetrics_ensemble},
    **{key: {"cordcal": ours(key)} for key in ("mono", "ts-class", "hts", "pb", "cir")},
}
