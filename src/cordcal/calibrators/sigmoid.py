"""Sigmoid calibrators of each class against the rest, rows renormalised.

Platt scaling of log-odds (``platt``) and beta calibration (``beta``).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Array, Domain, Labels, Matrix, Vector
from cordcal._validation.scores import LOG_FLOOR
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators._newton import fit_odds, fit_rising_odds, smoothed
from cordcal.expressions import Parameters, maximum, minimum, softplus


class SigmoidOneVsRest(Calibrator):
    """Base: each class's log-odds are linear in a few features of its probability."""

    works_on: ClassVar[Domain] = "probabilities"
    keeps_argmax = False
    keeps_order = False
    takes_masked = True
    role = "base"

    coefficients_: Matrix

    @staticmethod
    def _features(p: Array, xp: Any) -> list[Array]:
        """Return the features in which the log-odds are linear; a constant is added."""
        raise NotImplementedError

    _fit_odds = staticmethod(fit_odds)

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        rows, classes = scores.shape
        count = np.ones(rows) if weight is None else weight
        w = count / count.sum()
        coefficients = []
        for k in range(classes):
            p = np.clip(scores[:, k], LOG_FLOOR, 1.0 - LOG_FLOOR)
            features = np.stack([*self._features(p, np), np.ones(rows)])
            target = smoothed(labels == k, count)
            coefficients.append(self._fit_odds(features, target, w).coefficients)
        self.coefficients_ = np.stack(coefficients)

    @classmethod
    def logits(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the logits of the map."""
        p = minimum(maximum(scores, LOG_FLOOR, xp), 1.0 - LOG_FLOOR, xp)
        odds = params["bias_"]
        for i, feature in enumerate(cls._features(p, xp)):
            odds = odds + params[f"scale_{i}_"] * feature
        # The softmax of the sigmoids' logarithms is the sigmoids divided by their sum.
        return 0.0 - softplus(0.0 - odds, xp)

    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        """Return the parameters of the map as arrays."""
        *scales, bias = self.coefficients_.T
        return {"bias_": bias, **{f"scale_{i}_": scale for i, scale in enumerate(scales)}}


class PlattScaling(SigmoidOneVsRest):
    """Platt scaling of log-odds, one class against the rest, rows renormalised.

    Each class's probability p becomes ``sigmoid(a·log(p/(1 − p)) + b)``; a and b minimise the
    binary cross-entropy against Platt's smoothed targets, exactly, by Newton's method.  The
    log-odds matter: a sigmoid of the probability itself fits poorly.  There are no
    hyperparameters.

    | Works on probabilities (the softmax of logits), clipped to [1e-12, 1 − 1e-12].
    | Does not keep the argmax.
    | −inf logits count as probability 1e-12, which the map may raise.
    | Cost: O(nK) per pass, about ten passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.

    Attributes
    ----------
    coefficients_ : ndarray of shape (K, 2)
        a and b of each class.

    References
    ----------
    Platt (1999). Probabilistic outputs for support vector machines and comparisons to
    regularized likelihood methods. Advances in large margin classifiers.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> PlattScaling().fit(logits, labels).coefficients_.shape
    (3, 2)
    """

    key = "platt"
    title = "Platt scaling of log-odds, one versus rest"
    short = "Platt"
    size = Size(per_class=2)
    cost = "O(nK) per pass, about 10 passes"
    reference = "Platt 1999"

    @staticmethod
    def _features(p: Array, xp: Any) -> list[Array]:
        return [xp.log(p) - xp.log(1.0 - p)]


class BetaCalibration(SigmoidOneVsRest):
    """Beta calibration, one class against the rest, rows renormalised.

    Each class's probability p becomes ``sigmoid(a·log p − b·log(1 − p) + m)`` with a, b ≥ 0.
    The three parameters minimise the binary cross-entropy against Platt's smoothed targets,
    exactly.  With a = b it is `PlattScaling`.  There are no hyperparameters.

    | Works on probabilities (the softmax of logits), clipped to [1e-12, 1 − 1e-12].
    | Does not keep the argmax.
    | −inf logits count as probability 1e-12, which the map may raise.
    | Cost: O(nK) per pass, about ten passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.

    Attributes
    ----------
    coefficients_ : ndarray of shape (K, 3)
        a, b and m of each class.

    References
    ----------
    Kull, Silva Filho, Flach (2017). Beta calibration: a well-founded and easily implemented
    improvement on logistic calibration for binary classifiers. AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> beta = BetaCalibration().fit(logits, labels)
    >>> bool((beta.coefficients_[:, :2] >= 0.0).all())
    True
    """

    key = "beta"
    title = "Beta calibration, one versus rest"
    short = "Beta"
    size = Size(per_class=3)
    cost = "O(nK) per pass, about 10 passes"
    reference = "Kull et al. 2017, AISTATS"

    @staticmethod
    def _features(p: Array, xp: Any) -> list[Array]:
        return [xp.log(p), 0.0 - xp.log(1.0 - p)]

    _fit_odds = staticmethod(fit_rising_odds)
