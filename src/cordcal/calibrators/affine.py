"""Affine maps ``softmax(A x + b)`` of logits or log-probabilities, fitted by Newton's method.

Vector scaling (``vs``) and matrix scaling (``ms``), their structured, regularised forms
(``svs``, ``sms``), and Dirichlet calibration (``dir-odir``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.types import Array, Domain, Kind, Labels, Matrix, Vector
from cordcal.calibrators._affine_loss import (
    AffineProblem,
    Inverse,
    MatrixProblem,
    VectorProblem,
)
from cordcal.calibrators._base import Calibrator, FoldRows, Size, check_positive_integer
from cordcal.calibrators._newton import (
    Optimum,
    Report,
    ScalarOptimum,
    Separable,
    conjugate_steps,
    lbfgs,
    newton_cg,
    progress,
)
from cordcal.calibrators.temperature import (
    VANISHED_LOSS,
    CrossEntropy,
    fit_shared_fold_temperatures,
    fit_shared_temperature,
    fit_temperature,
    softmax_at_temperature,
    subsample,
    warn_about_temperature,
)
from cordcal.expressions import Parameters, add_in_place, log, multiply_in_place, shared

# With at most this many parameters `ms` is fitted to its optimum.  With more, calibration rows
# are usually almost separable and the stopping rule defines the map.
_MAX_CONVERGED_PARAMETERS = 1000

# A search for a finite optimum takes fewer steps.
_MAX_STEPS_NEAR = 12

# A diagonal weight beyond this diverges, and already amplifies rounding errors: the logarithm
# of a float32 probability near 1 is known to 6e-8.
_MAX_WEIGHT = 1e6


class AffineCalibrator(Calibrator):
    """Base of the maps ``softmax(A x + b)``: a convex problem, solved by Newton's method."""

    max_iter: int
    objective_: float
    gradient_norm_: float
    n_iter_: int

    # Parameters beyond this diverge.
    _largest: ClassVar[float] = np.inf
    _problem_class: ClassVar[type[AffineProblem]]
    # The last one of the fit on all rows; the folds use it.
    _preconditioner: Inverse | None = None

    def __init__(self, *, input: Kind = "logits", max_iter: int = 100) -> None:
        super().__init__(input=input)
        self.max_iter = max_iter

    def _ridge(self, classes: int, rows: float) -> Matrix | None:
        """Return the strength of the ridge penalty on each parameter."""
        return None

    @abstractmethod
    def _store(self, theta: Matrix) -> None:
        """Set the fitted attributes."""

    @abstractmethod
    def _theta(self) -> Matrix:
        """Return the fitted attributes as the parameters of the problem."""

    def _search(self, problem: AffineProblem, start: Matrix, report: Report) -> Optimum:
        return newton_cg(
            problem,
            start,
            max_iter=self.max_iter,
            floor=VANISHED_LOSS,
            report=report,
            largest=self._largest,
        )

    def _start(self, problem: AffineProblem) -> Matrix:
        return tempered_start(problem)

    def _known_steps(self, problem: AffineProblem) -> int | None:
        """Return the number of steps if it is known in advance, for the progress bar."""
        return None

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        check_positive_integer("max_iter", self.max_iter)
        problem = self._problem(scores, labels, weight)
        work = scores.size * problem.identity.shape[1]
        with progress(self.key, work, self._known_steps(problem)) as report:
            best = self._search(problem, self._start(problem), report)
        self._preconditioner = problem.preconditioner
        self._finish(problem, best)

    def _problem(
        self, scores: Matrix, labels: Labels, weight: Vector | None, memory: Matrix | None = None
    ) -> AffineProblem:
        """Return the objective, including its ridge penalty."""
        rows = scores.shape[0] if weight is None else float(weight.sum())
        ridge = self._ridge(scores.shape[1], rows)
        return self._problem_class(scores, labels, weight, ridge, memory)

    def _finish(self, problem: AffineProblem, best: Optimum) -> None:
        """Set the fitted attributes, and warn if there is no optimum."""
        self._store(best.theta)
        self.objective_, self.gradient_norm_ = best.value, best.gradient_norm
        self.n_iter_ = best.n_iter
        warn_about_search(self, problem, best, self._advice())

    def _fit_folds(self, rows: FoldRows) -> Iterator[Self]:
        if not self._is_near(rows):
            yield from super()._fit_folds(rows)
            return
        problem = self._problem(rows.scores(self.works_on), rows.labels, rows.weight)
        problem.preconditioner, problem.keeps_preconditioner = self._preconditioner, True
        newton = partial(conjugate_steps, problem, near=True)
        for start in problem.without(rows.folds, self._theta(), newton):
            model = self._unfitted_copy(rows.original.classes)
            model._search_near(problem, start)
            yield model

    def _search_near(self, problem: AffineProblem, start: Matrix) -> None:
        """Fit by a search that starts near the optimum."""
        best = newton_cg(
            problem,
            start,
            max_iter=self.max_iter,
            floor=VANISHED_LOSS,
            report=lambda *step: None,
            largest=self._largest,
            near=True,
        )
        self._finish(problem, best)

    def _is_near(self, rows: FoldRows) -> bool:
        """Return whether the optimum without a fold is close to that of all rows.

        An optimum at infinity is not: where the search ends depends on its start.  Then many
        steps were needed, or a class without rows is not held back by a ridge.
        """
        if not rows.many or self.n_iter_ > _MAX_STEPS_NEAR:
            return False
        ridge = self._ridge(rows.original.classes, 1.0)
        if ridge is not None and ridge.all():
            return True
        return all(
            np.bincount(
                np.delete(rows.labels, fold),
                None if rows.weight is None else np.delete(rows.weight, fold),
                rows.original.classes,
            ).all()
            for fold in rows.folds
        )

    def _advice(self) -> str:
        """Return what to do if the search does not converge."""
        return "raise max_iter"


def tempered_start(problem: AffineProblem) -> Matrix:
    """Return the identity over a temperature of at least 1: saturated scores have no gradient."""
    scores, labels, weight = subsample(problem.scores, problem.labels, problem.weight)
    shifted = scores - scores.max(axis=1, keepdims=True)
    best = fit_temperature(CrossEntropy, shifted, labels, weight)
    return problem.identity * float(np.exp(min(best.at, 0.0)))


def warn_about_search(
    calibrator: Calibrator, problem: Separable, best: Optimum, advice: str = "raise max_iter"
) -> None:
    """Warn if the rows are separable or the search stopped early."""
    if best.value <= VANISHED_LOSS or problem.is_separated(best.value):
        calibrator._warn(
            f"the calibration rows are perfectly separable, so the parameters grow without "
            f"bound; stopped at a loss of {best.value:.2g}. Fit on more rows, or use a "
            f"regularised calibrator such as 'svs'"
        )
    elif not best.converged:
        calibrator._warn(
            f"stopped after {best.n_iter} steps with a gradient norm of "
            f"{best.gradient_norm:.3g}; {advice}"
        )


class VectorScaling(AffineCalibrator):
    """Vector scaling: ``softmax(v·z + b)`` with a scale and a bias for each class.

    v and b minimise the mean cross-entropy, without penalty, by Newton's method with
    conjugate gradients.  The map is not invariant to a shift of a row, so raw logits and
    log-probabilities give different models: set ``input`` accordingly.

    | Works on raw logits, or on log-probabilities with ``input="probabilities"``.
    | Does not keep the argmax.
    | −inf logits raise an error: a scale may be negative.
    | Cost: O(nK) per pass, about thirty passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    max_iter : int
        Maximum number of Newton steps; about ten are needed.

    Attributes
    ----------
    scale_, bias_ : ndarray of shape (K,)
        v and b; the biases sum to zero, as only their differences matter.
    objective_, gradient_norm_ : float
        The mean cross-entropy of the calibration rows, and the largest entry of its gradient.
    n_iter_ : int
        Number of Newton steps taken.

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
    cost = "O(nK) per pass, about 30 passes"
    reference = "Guo et al. 2017, ICML"

    parameter_names: ClassVar[tuple[str, ...]] = ("scale_", "bias_")
    _problem_class = VectorProblem

    scale_: Vector
    bias_: Vector

    def _store(self, theta: Matrix) -> None:
        self.scale_, self.bias_ = theta[0].copy(), theta[1] - theta[1].mean()

    def _theta(self) -> Matrix:
        return np.stack([self.scale_, self.bias_])

    @classmethod
    def logits(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the logits of the map."""
        return add_in_place(multiply_in_place(scores, params["scale_"], xp), params["bias_"], xp)


class _MatrixCalibrator(AffineCalibrator):
    """Base of the maps ``softmax(W x + b)`` with a full K×K matrix."""

    keeps_argmax = False
    keeps_order = False
    takes_masked = False
    role = "base"
    size = Size(squared=1, per_class=1)
    # With a thousand classes or more, K² parameters take minutes and gigabytes.
    most_classes = 999, "has K² parameters, too many"

    parameter_names: ClassVar[tuple[str, ...]] = ("weight_", "bias_")
    _problem_class = MatrixProblem

    weight_: Matrix
    bias_: Vector

    def _store(self, theta: Matrix) -> None:
        self.weight_, self.bias_ = theta[:, :-1].copy(), theta[:, -1].copy()

    def _theta(self) -> Matrix:
        return np.append(self.weight_, self.bias_[:, None], axis=1)

    @classmethod
    def logits(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        return add_in_place(xp.matmul(scores, params["weight_"].T), params["bias_"], xp)


class MatrixScaling(_MatrixCalibrator):
    """Matrix scaling: ``softmax(W z + b)`` with a full K×K matrix, without penalty.

    Up to 31 classes, W and b minimise the mean cross-entropy.  Newton's method stops when the
    expected relative decrease is below 1e-10.  If a class of the calibration rows can be
    separated from the others without error, the minimum lies at infinity and every step
    decreases the loss a little.  The same rule then ends the search, with large weights, and a
    warning follows if all rows are separable.  With more classes that is the usual case, and
    the result is **defined by its stopping rule**, ``max_iter`` L-BFGS steps (ten pairs) from
    the identity; a warning gives the gradient norm at the end.  Expect overfitting there; `sms`
    and `dir-odir` are the regularised forms.

    | Works on raw logits, or on log-probabilities with ``input="probabilities"``; these give
      different models.
    | Does not keep the argmax.
    | −inf logits raise an error.
    | Cost: O(nK²) per pass, at most about 200 passes with 32 classes or more.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    max_iter : int
        Maximum number of steps, the stopping rule.  200 is common in other implementations.

    Attributes
    ----------
    weight_ : ndarray of shape (K, K)
        W.
    bias_ : ndarray of shape (K,)
        b.
    objective_, gradient_norm_ : float
        The mean cross-entropy of the calibration rows, and the largest entry of its gradient.
    n_iter_ : int
        Number of steps taken.

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
    cost = "O(nK²) per pass, up to 200 passes"
    square_work = 2.0
    reference = "Guo et al. 2017, ICML"

    def __init__(self, *, input: Kind = "logits", max_iter: int = 200) -> None:
        super().__init__(input=input, max_iter=max_iter)

    def _start(self, problem: AffineProblem) -> Matrix:
        return super()._start(problem) if _converges(problem) else problem.identity

    def _known_steps(self, problem: AffineProblem) -> int | None:
        return None if _converges(problem) else self.max_iter

    def _search(self, problem: AffineProblem, start: Matrix, report: Report) -> Optimum:
        if _converges(problem):
            return super()._search(problem, start, report)
        return lbfgs(problem, start, max_iter=self.max_iter, floor=VANISHED_LOSS, report=report)

    def _advice(self) -> str:
        return (
            "this stopping rule defines the map when the rows are almost separable; 'sms' and "
            "'dir-odir' are regularised and converge"
        )


def _converges(problem: AffineProblem) -> bool:
    """Return whether `ms` is fitted to its optimum."""
    return problem.identity.size <= _MAX_CONVERGED_PARAMETERS


class DirichletODIR(_MatrixCalibrator):
    """Dir-ODIR: ``softmax(W log p + b)`` with a penalty on off-diagonal entries and biases.

    W and b minimise the mean cross-entropy plus λ·Σ_{i≠j} W_ij² + μ·Σ b_j², exactly.  The
    diagonal has no penalty and no reference row is subtracted.  The defaults of other libraries
    differ by orders of magnitude; λ = μ = 1e-2, with sums and not means of squares, works with
    10 and with 100 classes.

    Saturated scores may separate a class by its own score alone.  The weight of that score,
    which has no penalty, then grows by orders of magnitude while the others shrink, and the
    minimum lies at or near infinity.  The search ends, with a warning, once a weight exceeds
    1e6.

    | Works on log-probabilities.
    | Does not keep the argmax.
    | −inf logits raise an error; zero probabilities count as 1e-12.
    | Cost: O(nK²) per pass, about a hundred passes, more if few rows are uncertain.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    off_diagonal : float
        λ.
    intercept : float
        μ.
    max_iter : int
        Maximum number of Newton steps; about ten are needed, thirty if few rows are uncertain.

    Attributes
    ----------
    weight_ : ndarray of shape (K, K)
        W.
    bias_ : ndarray of shape (K,)
        b.
    objective_, gradient_norm_ : float
        The penalised objective, and the largest entry of its gradient.
    n_iter_ : int
        Number of Newton steps taken.

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
    cost = "O(nK²) per pass, about 100 passes"
    square_work = 4.0
    reference = "Kull et al. 2019, NeurIPS"

    _largest = _MAX_WEIGHT

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

    def _ridge(self, classes: int, rows: float) -> Matrix:
        for name in ("off_diagonal", "intercept"):
            value = getattr(self, name)
            if not 0.0 <= value < np.inf:
                raise InputError(name, f"is {value!r}", "pass a finite number that is not negative")
        return matrix_ridge(
            classes, off_diagonal=self.off_diagonal, diagonal=0.0, bias=self.intercept
        )

    def _advice(self) -> str:
        diagonal = self.weight_.diagonal()
        largest = np.abs(diagonal).argmax()
        if abs(diagonal[largest]) <= _MAX_WEIGHT:
            return super()._advice()
        return (
            f"the minimum lies at or near infinity: the scores are saturated, and the weight "
            f"of class {largest}'s own score, which has no penalty, grew to "
            f"{diagonal[largest]:.2g}. 'sms' and 'svs' penalise these weights too"
        )


def matrix_ridge(classes: int, *, off_diagonal: float, diagonal: float, bias: float) -> Matrix:
    """Return the penalty strength of each parameter, in rows [W_j, b_j]."""
    ridge = np.full((classes, classes + 1), off_diagonal)
    np.fill_diagonal(ridge, diagonal)
    ridge[:, -1] = bias
    return ridge


class StructuredCalibrator(AffineCalibrator):
    """Base of the structured maps, which are pulled towards the identity by a ridge penalty.

    The affine map is applied to L = log((1 − w)·softmax(z/T) + w/K) with w = 1/(n + 1).  The
    Laplace mixture bounds L, so masked classes are allowed.
    """

    temperature_: float
    mix_: float

    def _start(self, problem: AffineProblem) -> Matrix:
        return problem.identity

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        best = fit_shared_temperature(self, scores, labels, weight)
        self._temper(best, scores, weight)
        super().fit_parameters(scores, labels, weight)

    def _temper(self, best: ScalarOptimum, shifted: Matrix, weight: Vector | None) -> None:
        """Set the temperature and the mixture, and turn the scores into L."""
        self.temperature_ = float(np.exp(-best.at))
        warn_about_temperature(self, best)
        rows = shifted.shape[0] if weight is None else float(weight.sum())
        self.mix_ = 1.0 / (rows + 1.0)
        params = Parameters({name: getattr(self, name) for name in ("temperature_", "mix_")})
        for at in row_blocks(*shifted.shape):
            mixed_log_probabilities(shifted[at], params, np)

    def _fit_folds(self, rows: FoldRows) -> Iterator[Self]:
        if not self._is_near(rows):
            yield from Calibrator._fit_folds(self, rows)
            return
        scores, mass = (np.empty(rows.original.raw.shape) for _ in range(2))
        optima, preconditioner = fit_shared_fold_temperatures(self, rows), self._preconditioner
        for fold, best in zip(rows.folds, optima, strict=True):
            model = self._unfitted_copy(rows.original.classes)
            shifted, labels, weight = rows.without(fold, self.works_on, scores)
            model._temper(best, shifted, weight)
            problem = self._problem(shifted, labels, weight, mass)
            problem.preconditioner, problem.keeps_preconditioner = preconditioner, True
            model._search_near(problem, self._theta())
            preconditioner = problem.preconditioner
            yield model

    @classmethod
    def logits(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the logits of the map."""
        return super().logits(mixed_log_probabilities(scores, params, xp), params, xp=xp)


def mixed_log_probabilities(shifted: Array, params: Parameters, xp: Any) -> Array:
    """Return L = log((1 − w)·softmax(shifted / T) + w/K)."""

    def compute() -> Array:
        mix = params["mix_"]
        tempered = multiply_in_place(softmax_at_temperature(shifted, params, xp), 1.0 - mix, xp)
        return log(add_in_place(tempered, mix / shifted.shape[1], xp), xp)

    return shared("mixed", compute, params, xp)


class StructuredVectorScaling(StructuredCalibrator, VectorScaling):
    """SVS: vector scaling of tempered, mixed log-probabilities, with ridge K/n.

    T minimises the cross-entropy; r = (1 − w)·softmax(z/T) + w/K with w = 1/(n + 1) is the
    Laplace mixture.  In ``softmax((1 + v)·log r + b)``, v and b minimise the mean
    cross-entropy plus (K/n)·(Σv² + Σb²), exactly.  The method fixes the strengths of the
    penalty, so there are no hyperparameters.

    | Works on logits; log-probabilities give the same map.
    | Does not keep the argmax.
    | −inf logits count as probability 0, which the mixture raises a little.
    | Cost: O(nK) per pass, about twenty passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    max_iter : int
        Maximum number of Newton steps; about five are needed.

    Attributes
    ----------
    temperature_, mix_ : float
        T and w.
    scale_, bias_ : ndarray of shape (K,)
        1 + v and b.
    objective_, gradient_norm_ : float
        The penalised objective, and the largest entry of its gradient.
    n_iter_ : int
        Number of Newton steps taken.

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
    cost = "O(nK) per pass, about 20 passes"
    reference = "Berta et al. 2025, arXiv"

    parameter_names = ("temperature_", "mix_", "scale_", "bias_")

    def _ridge(self, classes: int, rows: float) -> Matrix:
        return np.full((2, classes), classes / rows)


class StructuredMatrixScaling(StructuredCalibrator, _MatrixCalibrator):
    """SMS: matrix scaling of tempered, mixed log-probabilities, with structured ridge.

    T and the Laplace mixture r are those of `svs`.  In ``softmax((I + D)·log r + b)``, D and
    b minimise the mean cross-entropy plus (K/n)·(Σ D_jj² + Σ b_j²) plus
    (K(K−1)/n)·Σ_{i≠j} D_ij², exactly.  The method fixes the strengths of the penalty.

    | Works on logits; log-probabilities give the same map.
    | Does not keep the argmax.
    | −inf logits count as probability 0, which the mixture raises a little.
    | Cost: O(nK²) per pass, about forty passes.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    max_iter : int
        Maximum number of Newton steps; about six are needed.

    Attributes
    ----------
    temperature_, mix_ : float
        T and w.
    weight_ : ndarray of shape (K, K)
        I + D.
    bias_ : ndarray of shape (K,)
        b.
    objective_, gradient_norm_ : float
        The penalised objective, and the largest entry of its gradient.
    n_iter_ : int
        Number of Newton steps taken.

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
    cost = "O(nK²) per pass, about 40 passes"
    square_work = 1.0
    reference = "Berta et al. 2025, arXiv"

    parameter_names = ("temperature_", "mix_", "weight_", "bias_")

    def _ridge(self, classes: int, rows: float) -> Matrix:
        return matrix_ridge(
            classes,
            off_diagonal=classes * (classes - 1) / rows,
            diagonal=classes / rows,
            bias=classes / rows,
        )
