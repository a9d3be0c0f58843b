"""Hostile rows with many ranks kept, the whole order among them: every dtype, rows alone."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from attacks.promises import Rng, hold, in_order
from attacks.rows import UNIT, nudged, report
from cordcal import CORD

ENTRIES = 30_000


def trial(rng: Rng, folder: Path) -> int:
    """Repair some rows, all and one alone, with two ranks or more."""
    classes = int(rng.choice([3, 4, 5, 10, 33, 34, 64, 100]))
    rows = int(rng.integers(1, 1 + ENTRIES // classes**1.5))
    dtype = np.dtype(rng.choice(list(UNIT)))
    original, direct = (report(rng, rows, classes, dtype) for _ in range(2))
    if rng.random() < 0.3:
        direct = nudged(original, rng)
    preserve: int | Literal["ranking"] = int(rng.integers(2, classes))
    if rng.random() < 0.5:
        preserve = "ranking"
    levels = classes - 1 if preserve == "ranking" else preserve
    cord = CORD(preserve).fit(original, direct)
    repaired = cord.transform(original, direct)
    check(repaired, original, levels)
    at = int(rng.integers(rows))
    alone = cord.transform(original[at], direct[at])
    hold(alone.tobytes() == repaired[at].tobytes(), "a row alone has other bits")
    return rows


def check(repaired: np.ndarray, original: np.ndarray, levels: int) -> None:
    """Ask for distributions whose first ranks are the original's."""
    dtype, classes = repaired.dtype, repaired.shape[1]
    hold(dtype == original.dtype, f"{dtype} came out of {original.dtype}")
    hold((repaired >= 0).all(), "a negative probability")
    hold(in_order(repaired, original, levels), f"an order that is not kept, {dtype}")
    off = np.abs(repaired.sum(axis=1, dtype=np.float64) - 1.0)
    # Each rank may be lifted above the next: k(k + 1)/2 steps of the largest entry.
    step = np.spacing(repaired.max(axis=1)).astype(np.float64)
    smallest = float(np.finfo(dtype).smallest_normal)
    bound = (levels * (levels + 1) / 2 + classes) * (step + smallest)
    hold((off <= bound + 1e-14).all(), f"a sum is off by {off.max():.3g}, {dtype}")
