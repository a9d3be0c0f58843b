"""Confidence calibrators: calibrate the top probability, then scale the other classes.

A binary calibrator predicts whether the top class is correct from its probability: Platt
scaling (``tva-platt``).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.types import Array, Labels, Matrix, Vector
from cordcal._validation.scores import LOG_FLOOR, row_weights
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators._newton import fit_odds, smoothed
from cordcal.calibrators.isotonic import break_ties_to_first
from cordcal.expressions import (
    Parameters,
    add_in_place,
    chosen,
    exp,
    maximum,
    multiply_in_place,
    softplus,
)

# A confidence of m/(1 + m) ties with the next class, of share m among the others.  This in place
# of 1 raises it above the tie by more than rounding, here or in an ONNX graph, takes away.
_BELOW_ONE = 1.0 - 1e-12


class TopClass(NamedTuple):
    """The top class of each row, its probability, and the probability of all other classes."""

    prediction: Array
    confidence: Array
    complement: Array


class ConfidenceCalibrator(Calibrator):
    """Base of the confidence calibrators."""

    works_on = "shifted"
    keeps_argmax = True
    keeps_order = True
    takes_masked = True
    role = "rival"

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        blocks = [top_class(exp(scores[at], np), np) for at in row_blocks(*scores.shape)]
        top = TopClass(*(np.concatenate(part) for part in zip(*blocks, strict=True)))
        self._fit_confidence(top, top.prediction == labels, weight)

    @abstractmethod
    def _fit_confidence(
        self, top: TopClass, correct: npt.NDArray[np.bool_], weight: Vector | None
    ) -> None:
        """Learn when the top class is correct."""

    @classmethod
    @abstractmethod
    def _confidence(cls, top: TopClass, params: Parameters, xp: Any) -> Array:
        """Return the calibrated confidence of each row, between 0 and 1."""

    @classmethod
    def probabilities(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the probabilities of the map."""
        powers = exp(scores, xp)
        top = top_class(powers, xp)
        return with_confidence(powers, top.prediction, cls._confidence(top, params, xp), xp)


def top_class(powers: Array, xp: Any) -> TopClass:
    """Return the top class of rows exp(z), whose largest entry is 1."""
    prediction = xp.argmax(powers, axis=1)
    # Sum the others: 1 − c would lose the digits of a confidence near one.
    others = xp.where(chosen(powers, prediction, xp), xp.zeros_like(powers), powers)
    sum_others = xp.sum(others, axis=1)
    total = 1.0 + sum_others
    return TopClass(prediction, 1.0 / total, maximum(sum_others / total, LOG_FLOOR, xp))


def with_confidence(powers: Array, prediction: Array, confidence: Array, xp: Any) -> Array:
    """Return probabilities with this confidence, raised where the top class would not be on top.

    The other classes share the remaining probability in the proportions of ``powers``.
    """
    is_top = chosen(powers, prediction, xp)
    others = xp.where(is_top, xp.zeros_like(powers), powers)
    total = xp.sum(others, axis=1, keepdims=True)
    # With a confidence of 1 the others are all 0: they get equal shares.
    even = xp.where(is_top, xp.zeros_like(powers), xp.ones_like(powers)) / (powers.shape[1] - 1)
    positive = total > 0.0
    others = xp.where(positive, others / xp.where(positive, total, xp.ones_like(total)), even)
    largest = xp.max(others, axis=1)
    s = maximum(confidence, largest / (_BELOW_ONE + largest), xp)[:, None]
    return break_ties_to_first(
        xp.where(is_top, s, multiply_in_place(others, 1.0 - s, xp)), prediction, xp
    )


class TopVersusAllPlatt(ConfidenceCalibrator):
    """TvA-Platt: Platt scaling of the confidence.

    The top probability c becomes s = ``sigmoid(a·log(c/(1 − c)) + b)``; a and b minimise the
    binary cross-entropy of the event that the top class is correct, exactly.  The other classes
    share 1 − s in their original proportions.  Where s would not be on top, it is raised just
    enough.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the order.
    | −inf logits keep probability 0.
    | Cost: O(nK) once, and O(n) per step.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.

    Attributes
    ----------
    coefficients_ : ndarray of shape (2,)
        a and b.
    objective_ : float
        The mean binary cross-entropy of the calibration rows.

    References
    ----------
    Le Coz, Herbin, Adjed (2024). Confidence calibration of classifiers with many classes.
    NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> model = TopVersusAllPlatt().fit(logits, labels)
    >>> bool((model.predict_proba(logits).argmax(axis=1) == logits.argmax(axis=1)).all())
    True
    """

    key = "tva-platt"
    title = "Platt scaling of the confidence"
    short = "TvA-Platt"
    size = Size(fixed=2)
    cost = "O(nK) once, O(n) per step"
    reference = "Le Coz et al. 2024, NeurIPS"

    parameter_names = ("coefficients_",)

    coefficients_: Vector
    objective_: float

    def _fit_confidence(
        self, top: TopClass, correct: npt.NDArray[np.bool_], weight: Vector | None
    ) -> None:
        rows = correct.size
        features = np.stack([*self._features(top, np), np.ones(rows)])
        w = row_weights(rows, weight)
        best = self._fit_odds(features, correct.astype(np.float64), w)
        if not best.converged:
            self._warn(
                "the confidence separates correct from wrong predictions perfectly, so there are "
                "no optimal odds; Platt's smoothed targets were used. Fit on more rows"
            )
            target = smoothed(correct, np.ones(rows) if weight is None else weight)
            best = self._fit_odds(features, target, w)
        self.coefficients_, self.objective_ = best.coefficients, best.value

    _fit_odds = staticmethod(fit_odds)

    @staticmethod
    def _features(top: TopClass, xp: Any) -> list[Array]:
        """Return the features in which the log-odds are linear; a constant is added."""
        return [xp.log(top.confidence) - xp.log(top.complement)]

    @classmethod
    def _confidence(cls, top: TopClass, params: Parameters, xp: Any) -> Array:
        features = cls._features(top, xp)
        odds = xp.zeros_like(top.complement) + params["coefficients_"][len(features)]
        for i, feature in enumerate(features):
            odds = add_in_place(odds, params["coefficients_"][i] * feature, xp)
        return xp.exp(0.0 - softplus(0.0 - odds, xp))
