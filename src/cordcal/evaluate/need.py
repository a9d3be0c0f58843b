"""Is calibration needed at all?  Likelihood-ratio tests.

A calibrator that contains the identity, fitted by maximum likelihood, never lowers the likelihood
of its calibration rows.  If no calibration is needed, twice the gain in log-likelihood is about
chi-squared, with one degree of freedom per parameter.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cordcal._numeric.types import Labels, Record, Vector
from cordcal._validation.scores import LOG_FLOOR, CheckedScores

if TYPE_CHECKING:
    from cordcal.calibrators.crossfit import FitCache

# A p-value below this counts as evidence.
LEVEL = 0.05
# The chi-squared distribution is asymptotic: with fewer rows per parameter there is no test.
_ROWS_PER_PARAMETER = 10


@dataclass(frozen=True)
class LikelihoodRatio(Record):
    """A test of the classifier's own probabilities against a calibrator that contains them.

    The rows must be independent, and not training rows of the classifier.

    Attributes
    ----------
    key : str
        The calibrator: ``"ts"``, one temperature, or ``"vs"``, a scale and a bias per class.
    statistic : float
        Twice the gain in log-likelihood on the calibration rows.
    freedom : int
        Degrees of freedom of its chi-squared distribution.
    p_value : float
        The probability of such a gain if no calibration is needed.
    n : int
        Number of calibration rows.
    """

    _computed = ("needed",)

    key: str
    statistic: float
    freedom: int
    p_value: float
    n: int

    @property
    def needed(self) -> bool:
        """Whether the test rejects the classifier's own probabilities."""
        return self.p_value < LEVEL


def calibration_tests(
    fit_cache: FitCache, compared: Collection[str]
) -> tuple[LikelihoodRatio, ...]:
    """Test the identity against one temperature, and against vector scaling if it is compared.

    A fit that warns has no maximum inside its range, and there is no test against it.

    Parameters
    ----------
    fit_cache : FitCache
        The calibration rows, and the fits so far.
    compared : collection of str
        The calibrators that are compared anyway.
    """
    from scipy.special import chdtrc

    if fit_cache.original.clusters is not None:
        return ()  # the test counts rows as independent
    rows, classes = len(fit_cache.labels), fit_cache.original.classes
    # Biases are free up to a shift; the bias of a class without labels has no maximum.
    freedoms = {"ts": 1}
    if "vs" in compared and len(np.unique(fit_cache.labels)) == classes:
        freedoms["vs"] = 2 * classes - 1
    before = float(np.mean(_log_loss(fit_cache.original, fit_cache.labels)))
    tests = []
    for key, freedom in freedoms.items():
        if rows < _ROWS_PER_PARAMETER * freedom:
            continue
        fit = fit_cache.fit(key)
        after = float(fit.model.objective_)  # type: ignore[attr-defined]
        if not fit.warnings and math.isfinite(before - after):
            statistic = 2.0 * rows * max(before - after, 0.0)
            p_value = float(chdtrc(freedom, statistic))
            tests.append(LikelihoodRatio(key, statistic, freedom, p_value, rows))
    return tuple(tests)


def _log_loss(original: CheckedScores, labels: Labels) -> Vector:
    """Return −log p of the true classes, with scores converted as calibrators do."""
    from scipy.special import log_softmax

    logits = np.asarray(original.raw, dtype=np.float64)
    if original.kind == "probabilities":
        logits = np.log(np.maximum(logits, LOG_FLOOR))
    return np.asarray(-log_softmax(logits, axis=1)[np.arange(len(labels)), labels])


def describe_need(tests: Collection[LikelihoodRatio]) -> str:
    """Return whether calibration is needed, in one sentence; empty without a test.

    With several tests, the smallest p-value is compared with a share of the level.
    """
    if not tests:
        return ""
    smallest = min(tests, key=lambda test: test.p_value)
    if smallest.p_value < LEVEL / len(tests):
        return (
            f"Yes: {_MODELS[smallest.key]} already fits clearly better than the classifier's own "
            f"probabilities ({_format_p_value(smallest)})."
        )
    models = [_MODELS[test.key] for test in tests]
    fits = (
        f"{models[0]} does not fit" if len(tests) == 1 else f"neither {' nor '.join(models)} fits"
    )
    return (
        f"There is no clear sign of it: {fits} clearly better "
        f"({', '.join(map(_format_p_value, tests))}). This does not prove that none is needed."
    )


def _format_p_value(test: LikelihoodRatio) -> str:
    return "p < 1e-12" if test.p_value < 1e-12 else f"p = {test.p_value:.2g}"


def describe_tests(tests: Collection[LikelihoodRatio]) -> list[str]:
    """Return one sentence per test."""
    return [_sentence(test) for test in tests]


_MODELS = {"ts": "one temperature", "vs": "a scale and a bias for each class"}


def _sentence(test: LikelihoodRatio) -> str:
    model = _MODELS[test.key]
    return (
        f"{model[0].upper()}{model[1:]}: likelihood ratio {test.statistic:.1f} on {test.freedom} "
        f"degree{'' if test.freedom == 1 else 's'} of freedom, {_format_p_value(test)}, "
        f"{test.n:,} calibration rows."
    )
