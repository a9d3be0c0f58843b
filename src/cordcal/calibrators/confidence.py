"""Confidence maps: how sure one can be of the decision, and the other classes as they were.

A binary calibrator turns the top probability into the probability that the decision is
right.  The lift makes a report of it: that number at the decision, the rest shared out as
the classifier does, and the number raised where it is too small to be on top.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._door.blocks import row_blocks
from cordcal._door.expressions import at_least, chosen, exp, plus, softplus, times
from cordcal._door.scores import LOG_FLOOR, row_weights
from cordcal._door.types import Array, Labels, Matrix, Vector
from cordcal.calibrators._base import Calibrator, Held
from cordcal.calibrators._binary import Odds, fit_odds, fit_rising_odds, smoothed
from cordcal.calibrators._curves import interpolate, search_strides
from cordcal.calibrators._facts import Size
from cordcal.calibrators._pav import fit_knots
from cordcal.calibrators.isotonic import first_wins

# In place of 1 in most/(1 + most), the confidence that ties with the next class: it raises the
# decision by a hair more than rounding takes away, here or in a graph.
_BARELY_LESS = 1.0 - 1e-12


class Tops(NamedTuple):
    """The decisions of rows, their probabilities, and what these leave."""

    decision: Array
    confidence: Array
    rest: Array


class ConfidenceMap(Calibrator):
    """Base of the confidence maps."""

    works_on = "shifted"
    keeps_argmax = True
    keeps_order = True
    takes_masked = True
    role = "rival"

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        blocks = [tops(exp(working[at], np), np) for at in row_blocks(*working.shape)]
        found = Tops(*(np.concatenate(part) for part in zip(*blocks, strict=True)))
        self._fit_confidence(found, found.decision == labels, weight)

    @abstractmethod
    def _fit_confidence(
        self, found: Tops, right: npt.NDArray[np.bool_], weight: Vector | None
    ) -> None:
        """Learn when decisions are right."""

    @classmethod
    @abstractmethod
    def _confidence(cls, found: Tops, held: Held, xp: Any) -> Array:
        """Return the calibrated confidence of each row, between 0 and 1."""

    @classmethod
    def _map(cls, working: Array, held: Held, *, xp: Any) -> Array:
        powers = exp(working, xp)
        found = tops(powers, xp)
        return lifted(powers, found.decision, cls._confidence(found, held, xp), xp)


def tops(powers: Array, xp: Any) -> Tops:
    """Return decision, confidence and rest of rows whose largest entry is 1."""
    decision = xp.argmax(powers, axis=1)
    # Summed without the decision: one minus a confidence near one would lose its digits.
    left = xp.where(chosen(powers, decision, xp), xp.zeros_like(powers), powers)
    rest = xp.sum(left, axis=1)
    total = 1.0 + rest
    return Tops(decision, 1.0 / total, at_least(rest / total, LOG_FLOOR, xp))


def lifted(powers: Array, decision: Array, confidence: Array, xp: Any) -> Array:
    """Return reports with the confidence at the decision, raised where it must be."""
    mine = chosen(powers, decision, xp)
    others = xp.where(mine, xp.zeros_like(powers), powers)
    total = xp.sum(others, axis=1, keepdims=True)
    # A certain row says nothing about its other classes: they share alike.
    even = xp.where(mine, xp.zeros_like(powers), xp.ones_like(powers)) / (powers.shape[1] - 1)
    some = total > 0.0
    others = xp.where(some, others / xp.where(some, total, xp.ones_like(total)), even)
    most = xp.max(others, axis=1)
    s = at_least(confidence, most / (_BARELY_LESS + most), xp)[:, None]
    return first_wins(xp.where(mine, s, times(others, 1.0 - s, xp)), decision, xp)


class TopVersusAllPlatt(ConfidenceMap):
    """TvA-Platt: Platt scaling of the confidence, lifted to a report.

    The decision's probability c becomes s = ``sigmoid(a·log(c/(1 − c)) + b)``; a and b minimise
    the binary cross-entropy of "the decision is right", exactly.  The other classes share what
    is left in the original proportions; where s could not be on top it is raised just enough.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the order.
    | −inf logits keep probability 0.
    | Cost: O(nK) once, and O(n) a step.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.

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
    cost = "O(nK) once, O(n) a step"
    reference = "Le Coz et al. 2024, NeurIPS"

    _holds = ("coefficients_",)

    coefficients_: Vector
    objective_: float

    def _fit_confidence(
        self, found: Tops, right: npt.NDArray[np.bool_], weight: Vector | None
    ) -> None:
        rows = right.size
        features = np.stack([*self._features(found, np), np.ones(rows)])
        w = row_weights(rows, weight)
        best = self._fit_odds(features, right.astype(np.float64), w)
        if not best.converged:
            self._warn(
                "confidence separates right from wrong decisions perfectly, so no odds are "
                "best; Platt's smoothed targets were used. Fit on more rows"
            )
            target = smoothed(right, np.ones(rows) if weight is None else weight)
            best = self._fit_odds(features, target, w)
        self.coefficients_, self.objective_ = best.coefficients, best.value

    @staticmethod
    def _fit_odds(features: Matrix, target: Vector, weight: Vector) -> Odds:
        return fit_odds(features, target, weight)

    @staticmethod
    def _features(found: Tops, xp: Any) -> list[Array]:
        """Return what the log-odds are linear in, besides a constant."""
        return [xp.log(found.confidence) - xp.log(found.rest)]

    @classmethod
    def _confidence(cls, found: Tops, held: Held, xp: Any) -> Array:
        features = cls._features(found, xp)
        odds = xp.zeros_like(found.rest) + held["coefficients_"][len(features)]
        for i, feature in enumerate(features):
            odds = plus(odds, held["coefficients_"][i] * feature, xp)
        return xp.exp(0.0 - softplus(0.0 - odds, xp))


class TopVersusAllBeta(TopVersusAllPlatt):
    """TvA-beta: beta calibration of the confidence, lifted to a report.

    The decision's probability c becomes s = ``sigmoid(a·log c − b·log(1 − c) + m)`` with a,
    b ≥ 0, which minimise the binary cross-entropy of "the decision is right", exactly.  The
    other classes share what is left in the original proportions; where s could not be on top
    it is raised just enough.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the order.
    | −inf logits keep probability 0.
    | Cost: O(nK) once, and O(n) a step.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.

    Attributes
    ----------
    coefficients_ : ndarray of shape (3,)
        a, b and m.
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
    >>> model = TopVersusAllBeta().fit(logits, labels)
    >>> bool((model.coefficients_[:2] >= 0.0).all())
    True
    """

    key = "tva-beta"
    title = "Beta calibration of the confidence"
    short = "TvA-beta"
    size = Size(fixed=3)

    @staticmethod
    def _fit_odds(features: Matrix, target: Vector, weight: Vector) -> Odds:
        return fit_rising_odds(features, target, weight)

    @staticmethod
    def _features(found: Tops, xp: Any) -> list[Array]:
        return [xp.log(found.confidence), 0.0 - xp.log(found.rest)]


class TopVersusAllIsotonic(ConfidenceMap):
    """TvA-isotonic: isotonic regression of the confidence, lifted to a report.

    The decision's probability becomes s, the isotonic regression of "the decision is right"
    on it, linear between its knots.  The other classes share what is left in the original
    proportions; where s could not be on top it is raised just enough.  There is nothing to
    tune.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the order, but for ties where s is 1.
    | −inf logits keep probability 0.
    | Cost: O(nK) once, and O(n log n).

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        The knots.

    References
    ----------
    Le Coz, Herbin, Adjed (2024). Confidence calibration of classifiers with many classes.
    NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0], [3.0, 0.0], [0.0, 3.5], [2.0, 0.0]])
    >>> model = TopVersusAllIsotonic().fit(logits, [0, 1, 1, 0])
    >>> model.knot_y_
    array([0.5, 0.5, 1. , 1. ])
    """

    key = "tva-isotonic"
    title = "Isotonic regression of the confidence"
    short = "TvA-isotonic"
    size = Size(curves=1)
    cost = "O(nK) once, O(n log n)"
    reference = "Le Coz et al. 2024, NeurIPS"

    _holds = ("knot_x_", "knot_y_")

    knot_x_: Vector
    knot_y_: Vector

    def _fit_confidence(
        self, found: Tops, right: npt.NDArray[np.bool_], weight: Vector | None
    ) -> None:
        self.knot_x_, self.knot_y_ = self._curve(found.confidence, right, weight)

    @staticmethod
    def _curve(
        x: Vector, right: npt.NDArray[np.bool_], weight: Vector | None
    ) -> tuple[Vector, Vector]:
        """Return the knots of the curve from confidence to confidence."""
        return fit_knots(x, right, weight)

    def _held(self) -> dict[str, npt.NDArray[Any]]:
        return {**super()._held(), "stride_": search_strides(self.knot_x_)}

    @classmethod
    def _confidence(cls, found: Tops, held: Held, xp: Any) -> Array:
        return interpolate(found.confidence, held, xp)
