"""Hostile rows in every dtype: strict predictions, ratios, sums, and rows alone."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from attacks.promises import Rng, hold, strictly_top
from cordcal import CORD
from cordcal.repair.engine import LONG_ROW
from precision import sum_warning_level

ENTRIES = 60_000
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11}


def trial(rng: Rng, folder: Path) -> int:
    """Repair some thousand rows, all and one alone."""
    classes = int(rng.choice([2, 3, 5, 8, 10, 17, 64, 100, 257, 1000]))
    rows = int(rng.integers(1, 1 + ENTRIES // classes))
    dtype = np.dtype(rng.choice(list(UNIT)))
    original, direct = (report(rng, rows, classes, dtype) for _ in range(2))
    if rng.random() < 0.3:  # the calibrator moves the prediction by a rounding only
        direct = nudged(original, rng)
    shown_text = rng.random() < 0.3
    prediction = rng.integers(classes, size=rows) if shown_text else original.argmax(axis=1)
    # The order of classes is the scores' own: a prediction that is passed is the first rank alone.
    preserve = 1 if shown_text else min(int(rng.choice([1, 1, 1, 2, 3])), classes - 1)
    if rng.random() < 0.1:  # probabilities of few decimals
        direct = inexact(direct, rng)
    passed = prediction if shown_text else None
    at = int(rng.integers(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of sums, which are looked at below
        cord = CORD(preserve).fit(original, direct, prediction=passed)
        repaired = cord.transform(original, direct, prediction=passed)
        alone = cord.transform(
            original[at], direct[at], prediction=passed[at : at + 1] if shown_text else None
        )
    check(repaired, direct, prediction, preserve)
    if preserve == 1:
        check_ratios(repaired, direct, prediction, dtype)
    hold(alone.tobytes() == repaired[at].tobytes(), "a row alone has other bits")
    return rows


def report(rng: Rng, rows: int, classes: int, dtype: np.dtype) -> np.ndarray:
    """Return a report with ties, zeros, certainties and numbers that are almost zero."""
    sharpness = 10.0 ** rng.uniform(-2, 2.5, (rows, 1))
    scores = sharpness * rng.normal(size=(rows, classes))
    values = np.exp(scores - scores.max(axis=1, keepdims=True))
    levels = rng.choice([2, 4, 100], (rows, 1))
    values = np.where(rng.random((rows, 1)) < 0.3, np.ceil(values * levels) / levels, values)
    values[rng.random((rows, classes)) < 0.05 * rng.random()] *= 1e-300
    values /= values.sum(axis=1, keepdims=True)
    hot = rng.random(rows) < 0.03
    values[hot] = np.eye(classes)[rng.integers(classes, size=int(hot.sum()))]
    uniform = rng.random(rows) < 0.03
    values[uniform] = 1.0 / classes
    stored = values.astype(dtype)
    # Half precision of many small numbers may miss one by more than is accepted.
    off = np.abs(stored.sum(axis=1, dtype=np.float64) - 1.0) > 5e-4
    stored[off] = np.eye(classes, dtype=dtype)[values[off].argmax(axis=1)]
    return stored


def nudged(original: np.ndarray, rng: Rng) -> np.ndarray:
    """Return the report with its two largest entries made equal, or passed by one step."""
    direct = original.copy()
    rows = np.arange(len(direct))
    order = np.argsort(-direct, axis=1, kind="stable")
    first, second = order[:, 0], order[:, 1]
    mean = (direct[rows, first] + direct[rows, second]) / direct.dtype.type(2)
    direct[rows, first] = mean
    step = rng.random(len(direct)) < 0.5
    direct[rows, second] = np.where(step, np.nextafter(mean, direct.dtype.type(2)), mean)
    return direct


def inexact(report: np.ndarray, rng: Rng) -> np.ndarray:
    """Return the report with sums off by up to what is accepted."""
    factors = 1.0 + rng.uniform(-9e-4, 9e-4, (len(report), 1))
    off = (report * factors).astype(report.dtype)
    fits = np.abs(off.sum(axis=1, dtype=np.float64) - 1.0) < 9.9e-4
    return np.where(fits[:, None], off, report)


def check(repaired: np.ndarray, direct: np.ndarray, prediction: np.ndarray, preserve: int) -> None:
    """Ask for distributions whose one largest entry is the prediction."""
    dtype, classes = direct.dtype, direct.shape[1]
    hold(repaired.dtype == dtype, f"{repaired.dtype} came out of {dtype}")
    hold((repaired >= 0).all(), "a negative probability")
    hold(strictly_top(repaired, prediction), "a prediction that is not strictly the largest")
    same = (repaired == direct).all(axis=1)  # bit for bit, sums included
    off = np.abs(repaired.sum(axis=1, dtype=np.float64) - 1.0)
    level = sum_warning_level(dtype, classes) + classes * UNIT["float64"]
    hold((off[same] <= level).all(), "a row that is not normalised came back as it was")
    off = off[~same]
    # Roundings to the dtype, and a step for each rank that is lifted over the next; sums in
    # float64, class by class if there are few; and entries that are almost zero.
    additions = max(classes / 8, min(classes, LONG_ROW))
    bound = 3 * preserve * UNIT[dtype.name] + (1 + additions) * UNIT["float64"]
    bound += classes * float(np.finfo(dtype).smallest_subnormal)
    hold((off <= bound).all(), f"a sum is off by {off.max(initial=0.0):.3g}, {dtype}")


def check_ratios(
    repaired: np.ndarray, direct: np.ndarray, prediction: np.ndarray, dtype: np.dtype
) -> None:
    """Ask that the other classes keep the proportions of the direct report."""
    others = np.ones(direct.shape, dtype=bool)
    others[np.arange(len(prediction)), prediction] = False
    inner = direct.astype(np.float64)
    # The paper's stabilisation of rows with exact zeros, which moves nothing else.
    boundary = (direct == 0).any(axis=1, keepdims=True)
    total = inner.sum(axis=1, keepdims=True)
    inner = np.where(boundary, (1 - 1e-10) * inner / total + 1e-10 / direct.shape[1], inner)
    expected, tail = (
        np.where(others, masses, 0.0) for masses in (inner, repaired.astype(np.float64))
    )
    left = expected.sum(axis=1, keepdims=True)
    # A tail that is almost zero has no proportions in this dtype.
    share = np.divide(expected, left, out=np.zeros_like(expected), where=left > 0)
    scale = tail.sum(axis=1, keepdims=True)
    spare = direct.shape[1] * float(np.finfo(dtype).smallest_subnormal)
    bound = 4 * UNIT[dtype.name] * share * scale + spare + 1e-14
    worst = (np.abs(tail - share * scale) - bound).max(initial=0.0)
    hold(worst <= 0.0, f"proportions are off by {worst:.3g} beyond rounding, {dtype}")
