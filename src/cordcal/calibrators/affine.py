"""Affine maps: vector and matrix scaling, their structured forms, Dirichlet calibration."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.expressions import log, plus, softmax, times
from cordcal._numeric.types import Array, Domain, Kind, Labels, Matrix, Parameters, Vector
from cordcal.calibrators._affine_loss import AffineProblem, MatrixProblem, VectorProblem
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators._newton import Optimum, Report, Separable, lbfgs, newton_cg, progress
from cordcal.calibrators.temperature import (
    VANISHED_LOSS,
    cross_entropy,
    fit_temperature,
    sample_of,
    tempered,
    warn_about_temperature,
)


class AffineCalibrator(Calibrator):
    """Base of the maps ``softmax(A x + b)``: a convex fit by Newton's method."""

    max_iter: int
    objective_: float
    gradient_norm_: float
    n_iter_: int

    def __init__(self, *, input: Kind = "logits", max_iter: int = 100) -> None:
        super().__init__(input=input)
        self.max_iter = max_iter

    @abstractmethod
    def _problem(self, scores: Matrix, labels: Labels, weight: Vector | None) -> AffineProblem:
        """Return the objective, with its ridge."""

    @abstractmethod
    def _keep(self, theta: Matrix) -> None:
        """Store the parameters under their names."""

    def _search(self, problem: AffineProblem, start: Matrix, report: Report) -> Optimum:
        return newton_cg(problem, start, max_iter=self.max_iter, floor=VANISHED_LOSS, report=report)

    def _start(self, problem: AffineProblem) -> Matrix:
        return tempered_start(problem)

    def _known_steps(self, problem: AffineProblem) -> int | None:
        """Return how many steps the search takes, where that can be told beforehand."""
        return None

    def _fit(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        check_max_iter(self.max_iter)
        problem = self._problem(scores, labels, weight)
        work = scores.size * problem.identity.shape[1]
        with progress(self.key, work, self._known_steps(problem)) as report:
            best = self._search(problem, self._start(problem), report)
        self._keep(best.theta)
        self.objective_, self.gradient_norm_ = best.value, best.gradient_norm
        self.n_iter_ = best.n_iter
        warn_about_search(self, problem, best, self._advice())

    def _advice(self) -> str:
        return "raise max_iter"


class StructuredCalibrator(AffineCalibrator):
    """Base of the structured maps: temperature and Laplace mix first, ridge towards identity.

    The map works on L = log((1 − w)·softmax(z/T) + w/K) with w = 1/(n + 1); the mix is part
    of the model, so L is bounded and masked classes are welcome.
    """

    temperature_: float
    mix_: float

    def _start(self, problem: AffineProblem) -> Matrix:
        return problem.identity

    def _fit(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        best = fit_temperature(cross_entropy, scores, labels, weight)
        self.temperature_ = float(np.exp(-best.at))
        warn_about_temperature(self, best)
        rows = scores.shape[0] if weight is None else float(weight.sum())
        self.mix_ = 1.0 / (rows + 1.0)
        params = {name: getattr(self, name) for name in ("temperature_", "mix_")}
        for at in row_blocks(*scores.shape):
            mixed(scores[at], params, np)
        super()._fit(scores, labels, weight)

    @classmethod
    def _map(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        return super()._map(mixed(scores, params, xp), params, xp=xp)


def mixed(shifted: Array, params: Parameters, xp: Any) -> Array:
    """Return L = log((1 − w)·softmax(shifted / T) + w/K)."""
    mix = params["mix_"]
    masses = times(tempered(shifted, params, xp), 1.0 - mix, xp)
    return log(plus(masses, mix / shifted.shape[1], xp), xp)


def check_max_iter(value: Any) -> None:
    """Refuse a cap that allows no step."""
    if not (isinstance(value, int | np.integer) and value >= 1):
        raise InputError("max_iter", f"is {value!r}", "pass a whole number from 1 on")


def tempered_start(problem: AffineProblem) -> Matrix:
    """Return a tempered identity: saturated scores leave Newton's method nothing to see."""
    scores, labels, weight = sample_of(problem.scores, problem.labels, problem.weight)
    shifted = scores - scores.max(axis=1, keepdims=True)
    best = fit_temperature(cross_entropy, shifted, labels, weight)
    return problem.identity * float(np.exp(min(best.at, 0.0)))


def warn_about_search(
    calibrator: Calibrator, problem: Separable, best: Optimum, advice: str = "raise max_iter"
) -> None:
    """Say what to do when the rows are separable or the search was cut short."""
    if best.value <= VANISHED_LOSS or problem.is_separated(best.value):
        calibrator._warn(
            f"the calibration rows are perfectly separable, so the parameters grow without "
            f"end; stopped at a loss of {best.value:.2g}. Fit on more rows, or use a "
            f"regularised map such as 'svs'"
        )
    elif not best.converged:
        calibrator._warn(
            f"stopped after {best.n_iter} steps with a gradient norm of "
            f"{best.gradient_norm:.3g}; {advice}"
        )


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

    _parameter_names: ClassVar[tuple[str, ...]] = ("scale_", "bias_")

    scale_: Vector
    bias_: Vector

    def _problem(self, scores: Matrix, labels: Labels, weight: Vector | None) -> AffineProblem:
        return VectorProblem(scores, labels, weight)

    def _keep(self, theta: Matrix) -> None:
        self.scale_, self.bias_ = theta[0].copy(), theta[1] - theta[1].mean()

    @classmethod
    def _map(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        return softmax(plus(times(scores, params["scale_"], xp), params["bias_"], xp), xp)


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

    _parameter_names = ("temperature_", "mix_", "scale_", "bias_")

    def _problem(self, scores: Matrix, labels: Labels, weight: Vector | None) -> AffineProblem:
        rows = scores.shape[0] if weight is None else float(weight.sum())
        classes = scores.shape[1]
        return VectorProblem(scores, labels, weight, np.full((2, classes), classes / rows))


# Up to this many parameters `ms` is taken to its optimum; beyond, calibration rows are
# nearly separable and the stopping rule defines it.
_SMALL = 1000

# An own weight beyond this is on its way to infinity, and already acts on rounding: the
# logarithm of a float32 probability near 1 is known to 6e-8.
_RUNAWAY = 1e6


class _MatrixMap(AffineCalibrator):
    """Parameters and prediction of ``softmax(W x + b)``."""

    keeps_argmax = False
    keeps_order = False
    takes_masked = False
    role = "base"
    size = Size(squared=1, per_class=1)
    # From a thousand classes on, K² numbers take minutes and gigabytes.
    most_classes = 999, "has K² numbers, too many"

    _parameter_names: ClassVar[tuple[str, ...]] = ("weight_", "bias_")

    weight_: Matrix
    bias_: Vector

    def _keep(self, theta: Matrix) -> None:
        self.weight_, self.bias_ = theta[:, :-1].copy(), theta[:, -1].copy()

    @classmethod
    def _map(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        return softmax(plus(xp.matmul(scores, params["weight_"].T), params["bias_"], xp), xp)


class MatrixScaling(_MatrixMap):
    """Matrix scaling: ``softmax(W z + b)`` with a full K×K matrix, without penalty.

    Up to 31 classes, W and b are the minimiser of the mean cross-entropy, by Newton steps until
    one promises to win less than 1e-10 of it.  Where a class of the calibration rows can be
    told from the others without error, the minimum lies at infinity and every further step
    wins a little: the same rule ends the search, with large weights, and a warning follows if
    all rows are separable.  With more classes that is the usual case, and the result is
    **defined by its stopping rule**, ``max_iter`` L-BFGS steps (ten pairs) from the identity;
    a warning tells the gradient norm at which it stopped.  Expect overfitting there; `sms` and
    `dir-odir` are the regularised forms.

    | Works on raw logits, or on log-probabilities with ``input="probabilities"``; these are
      different models.
    | Does not keep the argmax.
    | −inf logits are refused.
    | Cost: O(nK²) a pass, at most about 200 passes with 32 classes or more.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.
    max_iter : int
        The stopping rule.  200 steps are what common implementations take.

    Attributes
    ----------
    weight_ : ndarray of shape (K, K)
        W.
    bias_ : ndarray of shape (K,)
        b.
    objective_, gradient_norm_ : float
        The mean cross-entropy of the calibration rows, and its largest slope.
    n_iter_ : int
        Steps taken.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017). On calibration of modern neural networks. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    >>> ms = MatrixScaling().fit(logits, labels)
    >>> ms.predict_proba(logits[:1]).round(3)
    array([[0.003, 0.   , 0.997]])
    """

    key = "ms"
    title = "Matrix scaling"
    short = "MS"
    works_on = "logits"
    cost = "O(nK²) a pass, up to 200 passes"
    square_work = 2.0
    reference = "Guo et al. 2017, ICML"

    def __init__(self, *, input: Kind = "logits", max_iter: int = 200) -> None:
        super().__init__(input=input, max_iter=max_iter)

    def _problem(self, scores: Matrix, labels: Labels, weight: Vector | None) -> AffineProblem:
        return MatrixProblem(scores, labels, weight)

    def _start(self, problem: AffineProblem) -> Matrix:
        return super()._start(problem) if _is_small(problem) else problem.identity

    def _known_steps(self, problem: AffineProblem) -> int | None:
        return None if _is_small(problem) else self.max_iter

    def _search(self, problem: AffineProblem, start: Matrix, report: Report) -> Optimum:
        if _is_small(problem):
            return super()._search(problem, start, report)
        return lbfgs(problem, start, max_iter=self.max_iter, floor=VANISHED_LOSS, report=report)

    def _advice(self) -> str:
        return (
            "this stopping rule defines the map when the rows are nearly separable; 'sms' and "
            "'dir-odir' are regularised and converge"
        )


class StructuredMatrixScaling(StructuredCalibrator, _MatrixMap):
    """SMS: matrix scaling of tempered, mixed log-probabilities, with structured ridge.

    First T and the Laplace mix as in `svs`, then ``softmax((I + D)·log r + b)``, whose D
    and b minimise the mean cross-entropy plus (K/n)·(Σ D_jj² + Σ b_j²) and
    (K(K−1)/n)·Σ_{i≠j} D_ij², exactly.  The strengths are part of the method.

    | Works on logits; log-probabilities give the same map.
    | Does not keep the argmax.
    | −inf logits count as probability 0, and get a little of the mix.
    | Cost: O(nK²) a pass, about forty passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.
    max_iter : int
        Most Newton steps; about six are needed.

    Attributes
    ----------
    temperature_, mix_ : float
        T and w.
    weight_ : ndarray of shape (K, K)
        I + D.
    bias_ : ndarray of shape (K,)
        b.
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
    >>> sms = StructuredMatrixScaling().fit(logits, labels)
    >>> sms.predict_proba(logits[:1]).round(3)
    array([[0.003, 0.001, 0.996]])
    """

    key = "sms"
    title = "Structured matrix scaling"
    short = "SMS"
    size = Size(squared=1, per_class=1, fixed=1)
    works_on = "shifted"
    takes_masked = True
    cost = "O(nK²) a pass, about 40 passes"
    square_work = 1.0
    reference = "Berta et al. 2025, arXiv"

    _parameter_names = ("temperature_", "mix_", "weight_", "bias_")

    def _problem(self, scores: Matrix, labels: Labels, weight: Vector | None) -> AffineProblem:
        rows = scores.shape[0] if weight is None else float(weight.sum())
        classes = scores.shape[1]
        ridge = ridge_of(
            classes,
            off_diagonal=classes * (classes - 1) / rows,
            diagonal=classes / rows,
            bias=classes / rows,
        )
        return MatrixProblem(scores, labels, weight, ridge)


class DirichletODIR(_MatrixMap):
    """Dir-ODIR: ``softmax(W log p + b)``, off-diagonal entries and biases pulled to zero.

    W and b minimise the mean cross-entropy plus λ·Σ_{i≠j} W_ij² + μ·Σ b_j², exactly; the
    diagonal is free and no reference row is subtracted.  Libraries differ by orders of
    magnitude in what "default" means; λ = μ = 1e-2, with sums and not means of squares, is
    the strength that works with 10 and with 100 classes alike.

    Saturated scores may tell a class apart on their own.  The weight of its own score, which
    has no penalty, then grows by orders of magnitude while the others shrink, and the
    minimum lies at infinity, or nearly: the search ends, with a warning, once a weight is
    beyond 1e6.

    | Works on log-probabilities.
    | Does not keep the argmax.
    | −inf logits are refused; zero probabilities are floored at 1e-12.
    | Cost: O(nK²) a pass, about a hundred passes, more when few rows are in doubt.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.
    off_diagonal : float
        λ.
    intercept : float
        μ.
    max_iter : int
        Most Newton steps; about ten are needed, thirty when few rows are in doubt.

    Attributes
    ----------
    weight_ : ndarray of shape (K, K)
        W.
    bias_ : ndarray of shape (K,)
        b.
    objective_, gradient_norm_ : float
        The penalised objective, and its largest slope.
    n_iter_ : int
        Newton steps taken.

    References
    ----------
    Kull, Perello-Nieto, Kängsepp, Silva Filho, Song, Flach (2019). Beyond temperature
    scaling: obtaining well-calibrated multiclass probabilities with Dirichlet calibration.
    NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    >>> model = DirichletODIR().fit(logits, labels)
    >>> model.predict_proba(logits[:1]).round(3)
    array([[0.003, 0.   , 0.997]])
    """

    key = "dir-odir"
    title = "Dirichlet calibration with ODIR"
    short = "Dir-ODIR"
    works_on = "log-probabilities"
    cost = "O(nK²) a pass, about 100 passes"
    square_work = 4.0
    reference = "Kull et al. 2019, NeurIPS"

    def __init__(
        self,
        *,
        input: Kind = "logits",
        off_diagonal: float = 1e-2,
        intercept: float = 1e-2,
        max_iter: int = 100,
    ) -> None:
        super().__init__(input=input, max_iter=max_iter)
        self.off_diagonal = off_diagonal
        self.intercept = intercept

    def _problem(self, scores: Matrix, labels: Labels, weight: Vector | None) -> AffineProblem:
        for name in ("off_diagonal", "intercept"):
            value = getattr(self, name)
            if not 0.0 <= value < np.inf:
                raise InputError(name, f"is {value!r}", "pass a finite number that is not negative")
        ridge = ridge_of(
            scores.shape[1], off_diagonal=self.off_diagonal, diagonal=0.0, bias=self.intercept
        )
        return MatrixProblem(scores, labels, weight, ridge)

    def _search(self, problem: AffineProblem, start: Matrix, report: Report) -> Optimum:
        return newton_cg(
            problem,
            start,
            max_iter=self.max_iter,
            floor=VANISHED_LOSS,
            report=report,
            largest=_RUNAWAY,
        )

    def _advice(self) -> str:
        own = self.weight_.diagonal()
        runaway = np.abs(own).argmax()
        if abs(own[runaway]) <= _RUNAWAY:
            return super()._advice()
        return (
            f"the minimum lies at infinity, or nearly: the scores are saturated, and the weight "
            f"of class {runaway}'s own score, which has no penalty, grew to "
            f"{own[runaway]:.2g}. 'sms' and 'svs' penalise these weights too"
        )


def _is_small(problem: AffineProblem) -> bool:
    return problem.identity.size <= _SMALL


def ridge_of(classes: int, *, off_diagonal: float, diagonal: float, bias: float) -> Matrix:
    """Return the strength of the pull on each parameter, rows [W_j, b_j]."""
    ridge = np.full((classes, classes + 1), off_diagonal)
    np.fill_diagonal(ridge, diagonal)
    ridge[:, -1] = bias
    return ridge
