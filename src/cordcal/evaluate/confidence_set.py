"""The reports that no other clearly beats: a model confidence set over paired resamples.

Hansen, Lunde and Nason (2011).  Testing each report against the one that happens to be lowest
lets every report pass when that one is noisy, and forgets how many are tested.  Here all pairs
are tested at once, by the largest studentised difference among them; while that is larger than
chance makes it, the report that loses the most clearly goes, and the rest are tested again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from cordcal._door.types import Vector

Name = TypeVar("Name")

LEVEL = 0.95
# Means of float64 rows agree to about this: a repair that has nothing to do still rounds.
ROUNDING = 1e-9


def confidence_set(
    estimates: Mapping[Name, float], replicates: Mapping[Name, Vector], *, level: float = LEVEL
) -> list[Name]:
    """Return the reports that are as good as the best, as far as the rows can tell.

    Parameters
    ----------
    estimates : mapping of name to float
        Each report's mean loss; lower is better.
    replicates : mapping of name to ndarray
        Its mean loss in each resample; the resamples are the same for all reports.
    level : float
        With this probability the best report is among those returned.

    Returns
    -------
    names : list
        In the order given; never empty.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> luck = rng.normal(size=500)
    >>> losses = {"good": 0.50, "same": 0.51, "bad": 0.60}
    >>> resampled = {name: loss + 0.1 * luck + 0.02 * rng.normal(size=500)
    ...              for name, loss in losses.items()}
    >>> confidence_set(losses, resampled)
    ['good', 'same']
    """
    names = list(estimates)
    losses = np.array([estimates[name] for name in names])
    drawn = np.stack([replicates[name] for name in names], axis=1)
    gaps, chances = _studentised(losses, drawn)
    left = list(range(len(names)))
    while len(left) > 1:
        here = gaps[np.ix_(left, left)]
        by_chance = np.abs(chances[np.ix_(range(len(chances)), left, left)]).max(axis=(1, 2))
        if np.mean(by_chance >= here.max()) >= 1.0 - level:
            break
        del left[int(here.max(axis=1).argmax())]
    return [names[place] for place in left]


def _studentised(losses: Vector, drawn: Vector) -> tuple[Vector, Vector]:
    """Return the pairs' differences and, by resample, their deviations, in standard errors."""
    gaps = losses[:, None] - losses[None, :]
    chances = drawn[:, :, None] - drawn[:, None, :] - gaps
    errors = np.sqrt(np.mean(chances * chances, axis=0))
    same = (errors < ROUNDING) & (np.abs(gaps) < ROUNDING)
    # A difference that no resample moves is clear, whatever its size; none at all is none.
    errors = np.maximum(errors, ROUNDING)
    return np.where(same, 0.0, gaps / errors), np.where(same, 0.0, chances / errors)
