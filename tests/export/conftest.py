"""Fitted models and rows that an adapter must get right."""

from __future__ import annotations

import functools
import warnings

import numpy as np

import cordcal
from cordcal import calibrators

CLASSES = 6
CLASSES_OF = {key: calibrators.calibrator_class(key) for key in calibrators.available()}
KEYS = tuple(key for key, cls in CLASSES_OF.items() if cls.has_expression())
# Compilers take seconds a map: one of each family, and two that are built on another map.
FAMILIES = (*{CLASSES_OF[key].__module__: key for key in reversed(KEYS)}.values(), "svs", "irm")
KINDS = ("logits", "probabilities")


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def noisy_scores(rows: int, kind: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return positive logits (or their softmax) of a mediocre classifier, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=rows)
    logits = 3.0 * (np.eye(CLASSES)[labels] + 0.7 * rng.normal(size=(rows, CLASSES)))
    logits -= logits.min()
    return (logits if kind == "logits" else softmax(logits)), labels


@functools.cache
def fitted(key: str, kind: str = "logits") -> cordcal.PreservingCalibrator:
    scores, labels = noisy_scores(500, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cordcal.PreservingCalibrator(key, input=kind).fit(scores, labels)


@functools.cache
def lifted(prefer: str, kind: str = "logits") -> cordcal.PreservingCalibrator:
    """Return a model whose predictions for class 0 are all wrong: many rows are at Lift's bound."""
    scores, labels = noisy_scores(500, kind)
    labels = np.where(labels == 0, 1, labels)
    model = cordcal.PreservingCalibrator("svs", input=kind, repair=cordcal.Lift(prefer=prefer))
    model.fit(scores, labels)
    assert model.construction_.n_at_lower > 0
    return model


def hard_rows(kind: str, classes: int = CLASSES) -> np.ndarray:
    """Return rows of exact ties, near ties, uniform, saturated and one-hot rows."""
    rng = np.random.default_rng(7)
    tied = np.round(3.0 * rng.random((60, classes)))
    near = rng.random((20, classes)) + 5.0
    near[:, 1] = near.max(axis=1)
    near[:, 3] = np.nextafter(near[:, 1], np.inf)
    base = [tied, near, np.ones((1, classes)), 700.0 * np.eye(classes), np.eye(classes)]
    saturated = np.full((2, classes), 1.0)
    saturated[0, :2], saturated[1, -2:] = 1e4, 80.0
    logits = np.concatenate([*base, saturated])
    if kind == "logits":
        return logits
    halves = np.zeros((2, classes))
    halves[0, :2], halves[1, 1:3] = 0.5, 0.5
    return np.concatenate([softmax(logits), np.eye(classes), halves])


def steepness(model: cordcal.PreservingCalibrator) -> float:
    """Return how much a map magnifies the last bit of a softmax: its largest slope."""
    calibrator = model.calibrator_
    if not hasattr(calibrator, "knot_x_"):
        return 10.0
    run, rise = np.diff(calibrator.knot_x_), np.diff(calibrator.knot_y_)
    inner = run > 0.0
    return max(10.0, float(np.max(np.abs(rise[inner]) / run[inner])))


def library(model: cordcal.PreservingCalibrator, scores: np.ndarray, dtype: object = None):
    """Return the library's reports."""
    return model.predict_both(scores, dtype=dtype)
