"""Roundings of each dtype, and how far from one the sum of a row may be, stated independently."""

from __future__ import annotations

from typing import Any

import numpy as np

UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def sum_warning_level(dtype: Any, classes: int) -> float:
    """Return the deviation beyond which a row is normalised with a warning."""
    unit = max(UNIT_ROUNDOFF[np.dtype(dtype).name], UNIT_ROUNDOFF["float32"])
    return 32.0 * unit * float(np.sqrt(classes))


def sum_tolerance(dtype: Any) -> float:
    """Return the deviation beyond which a row is refused."""
    return max(1e-3 + 2.0**-20, 8.0 * UNIT_ROUNDOFF[np.dtype(dtype).name])
