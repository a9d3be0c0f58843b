"""Seeds: a whole number, or a generator that is asked for one."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from cordcal._door.errors import Refusal


def as_seed(seed: Any) -> int:
    """Return a seed as a number, which can be written down and used again.

    Examples
    --------
    >>> as_seed(3), as_seed(np.random.default_rng(0)) == as_seed(np.random.default_rng(0))
    (3, True)
    """
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**32))
    if isinstance(seed, np.random.RandomState):
        return int(seed.randint(2**31))
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise Refusal("seed", f"is {seed!r}", "pass a whole number from 0 on, or a NumPy generator")
    return number
