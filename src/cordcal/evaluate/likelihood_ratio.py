"""Is calibration needed at all?  Likelihood-ratio tests of the classifier's own probabilities.

A map that contains the identity, fitted by maximum likelihood, is never less likely on its
own rows.  If the identity is true, twice the gain in log-likelihood is about chi-squared,
with as many degrees of freedom as the map has numbers to choose.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cordcal._numeric.types import Labels, Vector
from cordcal._validation.scores import LOG_FLOOR, CheckedScores
from cordcal.calibrators.crossfit import FitCache

# A p-value below this is called evidence.
LEVEL = 0.05
# The chi-squared law is an asymptotic one: with fewer rows a number it is not relied on.
_ROWS_A_NUMBER = 10


@dataclass(frozen=True)
class LikelihoodRatio:
    """A test of the classifier's own probabilities against a map that contains them.

    The rows must be independent, and not those that the classifier was trained on.

    Attributes
    ----------
    key : str
        The map: ``"ts"``, one temperature, or ``"vs"``, a scale and a bias a class.
    statistic : float
        Twice the gain in log-likelihood on the calibration rows.
    freedom : int
        Degrees of freedom of its chi-squared law.
    p_value : float
        The chance of so much where no calibration is needed.
    n : int
        The calibration rows.
    """

    key: str
    statistic: float
    freedom: int
    p_value: float
    n: int

    @property
    def needed(self) -> bool:
        """Whether the test rejects the classifier's own probabilities."""
        return self.p_value < LEVEL

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return {**asdict(self), "needed": self.needed}


def calibration_tests(fit_cache: FitCache, tried: Collection[str]) -> tuple[LikelihoodRatio, ...]:
    """Test the identity against one temperature, and against vector scaling where it is tried.

    A fit that warns has no maximum inside its range, and is not tested against.

    Parameters
    ----------
    workshop : Workshop
        The calibration rows, and what was fitted on them.
    tried : collection of str
        The calibrators that are compared anyway.
    """
    rows, classes = len(fit_cache.labels), fit_cache.original.classes
    # Biases are free up to a shift; one of a class that no label names has no maximum.
    wide = 2 * classes - 1
    freedoms = {"ts": 1}
    if "vs" in tried and len(np.unique(fit_cache.labels)) == classes:
        freedoms["vs"] = wide
    before = float(np.mean(_log_loss(fit_cache.original, fit_cache.labels)))
    found = []
    for key, freedom in freedoms.items():
        if rows < _ROWS_A_NUMBER * freedom:
            continue
        fit = fit_cache.fit(key)
        after = float(fit.model.objective_)  # type: ignore[attr-defined]
        if not fit.warnings and math.isfinite(before - after):
            found.append(_ratio(key, 2.0 * rows * max(before - after, 0.0), freedom, rows))
    return tuple(found)


def _ratio(key: str, statistic: float, freedom: int, rows: int) -> LikelihoodRatio:
    from scipy.special import chdtrc

    return LikelihoodRatio(key, statistic, freedom, float(chdtrc(freedom, statistic)), rows)


def _log_loss(original: CheckedScores, labels: Labels) -> Vector:
    """Return −log p of the true classes, as calibrators read the scores."""
    from scipy.special import log_softmax

    wide = np.asarray(original.raw, dtype=np.float64)
    if original.kind == "probabilities":
        wide = np.log(np.maximum(wide, LOG_FLOOR))
    return np.asarray(-log_softmax(wide, axis=1)[np.arange(len(labels)), labels])


def reading(tests: Collection[LikelihoodRatio]) -> list[str]:
    """Return what the tests say, a sentence each."""
    return [_sentence(test) for test in tests]


_MAPS = {"ts": "one temperature", "vs": "a scale and a bias for each class"}


def _sentence(test: LikelihoodRatio) -> str:
    chance = "p < 1e-12" if test.p_value < 1e-12 else f"p = {test.p_value:.2g}"
    figures = (
        f"likelihood ratio {test.statistic:.1f} on {test.freedom} "
        f"degree{'' if test.freedom == 1 else 's'} of freedom, {chance}, "
        f"{test.n:,} calibration rows"
    )
    if test.needed:
        return f"Calibration is needed: {_MAPS[test.key]} fits clearly better ({figures})."
    return (
        f"Against {_MAPS[test.key]} there is no sign that calibration is needed ({figures}); "
        f"that is no proof that none is."
    )
