"""Vector maps: each class's score is scaled and shifted on its own."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from cordcal._door.expressions import plus, softmax, times
from cordcal._door.types import Array, Domain, Labels, Matrix, Vector
from cordcal.calibrators._affine import AffineProblem, VectorProblem
from cordcal.calibrators._base import Held
from cordcal.calibrators._facts import Size
from cordcal.calibrators._logistic import AffineCalibrator, StructuredCalibrator


class VectorScaling(AffineCalibrator):
    """Vector scaling: ``softmax(v·z + b)`` with a scale and a bias for each class.

    v and b minimise the mean cross-entropy, without penalty, by Newton's method with
    conjugate gradients.  Raw logits and log-probabilities are different models: the map
    is not invariant to a shift of a row, so say with ``input`` what the scores are.

    | Works on raw logits, or on log-probabilities with ``input="probabilities"``.
    | Does not keep the argmax.
    | −inf logits are refused: a scale may be negative.
    | Cost: O(nK) a pass, about thirty passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.
    max_iter : int
        Most Newton steps; about ten are needed.

    Attributes
    ----------
    scale_, bias_ : ndarray of shape (K,)
        v and b; the biases sum to zero, as only their differences matter.
    objective_, gradient_norm_ : float
        The mean cross-entropy of the calibration rows, and its largest slope.
    n_iter_ : int
        Newton steps taken.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017). On calibration of modern neural networks. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    >>> vs = VectorScaling().fit(logits, labels)
    >>> vs.scale_.round(2), vs.n_iter_ < 10
    (array([2.01, 1.65, 2.06]), True)
    """

    key = "vs"
    title = "Vector scaling"
    short = "VS"
    size = Size(per_class=2)
    works_on: ClassVar[Domain] = "logits"
    keeps_argmax = False
    keeps_order = False
    takes_masked = False
    role = "base"
    cost = "O(nK) a pass, about 30 passes"
    reference = "Guo et al. 2017, ICML"

    _holds: ClassVar[tuple[str, ...]] = ("scale_", "bias_")

    scale_: Vector
    bias_: Vector

    def _problem(self, working: Matrix, labels: Labels, weight: Vector | None) -> AffineProblem:
        return VectorProblem(working, labels, weight)

    def _keep(self, theta: Matrix) -> None:
        self.scale_, self.bias_ = theta[0].copy(), theta[1] - theta[1].mean()

    @classmethod
    def _map(cls, working: Array, held: Held, *, xp: Any) -> Array:
        return softmax(plus(times(working, held["scale_"], xp), held["bias_"], xp), xp)


class StructuredVectorScaling(StructuredCalibrator, VectorScaling):
    """SVS: vector scaling of tempered, mixed log-probabilities, with ridge K/n.

    First T by cross-entropy and the Laplace mix r = (1 − w)·softmax(z/T) + w/K with
    w = 1/(n + 1), then ``softmax((1 + v)·log r + b)``, whose v and b minimise the mean
    cross-entropy plus (K/n)·(Σv² + Σb²), exactly.  The strengths are part of the
    method, so there is nothing to tune.

    | Works on logits; log-probabilities give the same map.
    | Does not keep the argmax.
    | −inf logits count as probability 0, and get a little of the mix.
    | Cost: O(nK) a pass, about twenty passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.
    max_iter : int
        Most Newton steps; about five are needed.

    Attributes
    ----------
    temperature_, mix_ : float
        T and w.
    scale_, bias_ : ndarray of shape (K,)
        1 + v and b.
    objective_, gradient_norm_ : float
        The penalised objective, and its largest slope.
    n_iter_ : int
        Newton steps taken.

    References
    ----------
    Berta, Holzmüller, Jordan, Bach (2025). Structured matrix scaling for multi-class
    calibration. arXiv.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    >>> svs = StructuredVectorScaling().fit(logits, labels)
    >>> svs.scale_.round(2)
    array([1.05, 1.03, 1.  ])
    """

    key = "svs"
    title = "Structured vector scaling"
    short = "SVS"
    size = Size(fixed=1, per_class=2)
    works_on = "shifted"
    takes_masked = True
    cost = "O(nK) a pass, about 20 passes"
    reference = "Berta et al. 2025, arXiv"

    _holds = ("temperature_", "mix_", "scale_", "bias_")

    def _problem(self, working: Matrix, labels: Labels, weight: Vector | None) -> AffineProblem:
        rows = working.shape[0] if weight is None else float(weight.sum())
        classes = working.shape[1]
        return VectorProblem(working, labels, weight, np.full((2, classes), classes / rows))
