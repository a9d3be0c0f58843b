"""Hostile rows through Lift with both preferences: strict predictions, sums and proportions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attacks.promises import Rng, hold, strictly_top
from attacks.rows import UNIT, check_ratios, nudged, report
from cordcal import Lift
from cordcal.repair.engine import LONG_ROW

ENTRIES = 40_000


def trial(rng: Rng, folder: Path) -> int:
    """Learn from labels of any quality and repair the same rows."""
    classes = int(rng.choice([2, 3, 5, 8, 10, 17, 64, 100, 257]))
    rows = int(rng.integers(2, 2 + ENTRIES // classes))
    dtype = np.dtype(rng.choice(list(UNIT)))
    original, direct = (report(rng, rows, classes, dtype) for _ in range(2))
    if rng.random() < 0.3:
        direct = nudged(original, rng)
    result = rng.random() < 0.3
    prediction = rng.integers(classes, size=rows) if result else original.argmax(axis=1)
    labels = np.where(rng.random(rows) < rng.random(), prediction, rng.integers(classes, size=rows))
    prefer = str(rng.choice(["confidence", "likelihood"]))
    passed = {"prediction": prediction} if result else {}
    lift = Lift(prefer).fit(original, direct, labels, **passed)
    repaired = lift.transform(original, direct, **passed)
    hold(repaired.dtype == dtype, f"{repaired.dtype} came out of {dtype}")
    hold((repaired >= 0).all(), "a negative probability")
    hold(
        strictly_top(repaired, prediction),
        f"a prediction that is not strictly the largest, {prefer}",
    )
    off = np.abs(repaired.sum(axis=1, dtype=np.float64) - 1.0)
    # Roundings to the dtype, at the bound of K entries alike; the additions of a row, one by one
    # if it is short, as in `rows`; and entries that are almost zero.
    additions = max(classes / 8, min(classes, LONG_ROW))
    bound = (11 + classes / 8) * UNIT[dtype.name] + additions * UNIT["float64"]
    bound += classes * float(np.finfo(dtype).smallest_subnormal)
    hold((off <= bound).all(), f"a sum is off by {off.max():.3g}, {dtype}, {prefer}")
    inside = lift.explain(original, direct, **passed).at_bound >= 0
    check_ratios(repaired[inside], direct[inside], prediction[inside], dtype)
    return rows
