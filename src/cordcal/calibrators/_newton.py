"""Newton and L-BFGS minimisers of the calibrators' objectives, and their progress bar.

Logistic regression on a few features, for calibrators of one number per row, is at the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from cordcal._numeric.parallel import interruptible
from cordcal._numeric.progress import in_notebook, is_shown, line_of_progress, shown
from cordcal._numeric.types import Matrix, Vector
from cordcal.calibrators._affine_loss import AffineProblem, Step

if TYPE_CHECKING:
    from rich.console import Console
    from scipy.optimize import OptimizeResult

# In one dimension, stop when a step can lower the objective by less than this share; the
# parameter is then within about 1e-7 of the optimum.
_RELATIVE_DECREASE = 1e-15

# A search near its optimum, of a fold from the fit on all rows, ends with the first step whose
# expected decrease is below this share.  Its error is about the square, too small to evaluate.
_NEAR_DECREASE = 3e-6

# With many parameters, a step whose expected decrease is below this share is the last one.
_MIN_DECREASE = 1e-10
# The error of a step may cost a thousandth of that.
_NEGLIGIBLE, _NEGLIGIBLE_NEAR = 1e-13, 1e-10
# Relative accuracy of a step: a coarser one takes more steps, a finer one only more products.
_COARSEST, _FINEST, _NEAR_ACCURACY = 0.3, 1e-3, 0.03
# With few parameters an accurate last step costs next to nothing, and weights equal repeated rows
# almost to rounding.
_FEW_PARAMETERS, _LAST_ACCURACY = 64, 1e-6
# The last step may raise a value by this share, its rounding: a decrease may be smaller than that.
_ROUNDING = 2.0**-50
# Armijo's condition, and the shortest step length to try.
_ARMIJO, _MIN_LENGTH = 1e-4, 1e-10
# Hessian products per Newton step; ten times what a well-posed problem needs.
_MAX_PRODUCTS = 250
# Block exchanges that may fail to improve, all exchanges per parameter, and the relative size
# of slopes that are rounding.
_PATIENCE, _MAX_PIVOTS, _NOISE = 3, 10, 1e-12
# Relative size of the ridge that makes a flat model solvable; too small to change the result.
_RIDGE = 1e-13
# Keeps the ridge positive when every row is certain.
_TINY = 1e-100


@dataclass(frozen=True, slots=True)
class ScalarOptimum:
    """The result of a one-dimensional search."""

    at: float
    value: float
    slope: float
    passes: int
    converged: bool
    at_bound: bool


def minimise_scalar(
    function: Callable[[float], tuple[float, float, float]],
    start: float,
    low: float,
    high: float,
    *,
    floor: float,
    max_iter: int = 100,
    near: bool = False,
) -> ScalarOptimum:
    """Minimise over [low, high] by Newton steps inside a bracket that the slope's sign shrinks.

    Parameters
    ----------
    function : callable
        Returns the value, the slope and the curvature at a point.
    start, low, high : float
        The first point, and the interval.
    floor : float
        A value at or below this ends the search: the loss is practically zero.
    max_iter : int
        The most evaluations.
    near : bool
        Whether the start is near the optimum, and seven digits are enough.

    Examples
    --------
    >>> best = minimise_scalar(lambda x: ((x - 1) ** 2 + 1, 2 * (x - 1), 2.0), 3.0, -9, 9, floor=0)
    >>> best.at, best.passes
    (1.0, 2)
    """
    ends = low, high
    share = _NEAR_DECREASE if near else _RELATIVE_DECREASE
    point = min(max(start, low), high)
    for passes in range(1, max_iter + 1):
        value, slope, curvature = function(point)
        if value <= floor:
            return ScalarOptimum(point, value, slope, passes, False, False)
        if point == ends[slope < 0.0] and slope != 0.0:
            return ScalarOptimum(point, value, slope, passes, False, True)
        small = slope == 0.0 or (
            curvature > 0.0 and slope * slope <= 2.0 * share * curvature * value
        )
        if small:
            if near and curvature > 0.0:
                point = min(max(point - slope / curvature, low), high)
            return ScalarOptimum(point, value, slope, passes, True, False)
        low, high = (point, high) if slope < 0.0 else (low, point)
        newton = point - slope / curvature if curvature > 0.0 else math.nan
        if low < newton < high:
            point = newton
        else:
            # Try an end of the interval once; inside, halve.
            end = high if slope < 0.0 else low
            point = end if end in ends else 0.5 * (low + high)
        if high - low <= 1e-14 * max(1.0, abs(low)):
            return ScalarOptimum(point, value, slope, passes, True, False)
    return ScalarOptimum(point, value, slope, max_iter, False, False)


@dataclass(frozen=True, slots=True)
class Optimum:
    """The result of a search over many parameters."""

    theta: Matrix
    value: float
    gradient_norm: float
    n_iter: int
    converged: bool


class Problem(Protocol):
    """An objective of many parameters."""

    def evaluate(self, theta: Matrix) -> tuple[float, Matrix]: ...


class CurvedProblem(Problem, Protocol):
    """An objective with products of the Hessian at the last point, prepared by `refresh`."""

    value: float

    def refresh(self) -> None: ...
    def precondition(self, residual: Matrix) -> Matrix: ...
    def product(self, direction: Matrix) -> Matrix: ...


class Separable(Protocol):
    """An objective that may have its infimum at infinity."""

    def is_separated(self, value: float) -> bool: ...


class Report(Protocol):
    """A callback after each step: its number, the objective, the gradient norm."""

    def __call__(self, step: int, value: float, gradient_norm: float) -> None: ...


def newton_cg(
    problem: CurvedProblem,
    start: Matrix,
    *,
    max_iter: int,
    floor: float,
    report: Report,
    largest: float = math.inf,
    near: bool = False,
) -> Optimum:
    """Minimise a convex objective by Newton steps from preconditioned conjugate gradients."""
    return damped_newton(
        problem,
        start,
        conjugate_steps(problem, near=near),
        max_iter=max_iter,
        floor=floor,
        report=report,
        largest=largest,
        near=near,
    )


def conjugate_steps(problem: CurvedProblem, *, near: bool) -> Step:
    """Return a function for Newton steps from conjugate gradients; see `damped_newton`."""
    previous, accuracy = math.nan, _NEAR_ACCURACY if near else _COARSEST
    negligible = _NEGLIGIBLE_NEAR if near else _NEGLIGIBLE

    def step(theta: Matrix, gradient: Matrix) -> Matrix:
        nonlocal previous, accuracy
        problem.refresh()
        scaled = problem.precondition(-gradient)
        size = -float(np.vdot(gradient, scaled))
        # The accuracy follows the progress of the last step (Eisenstat and Walker): quadratic
        # convergence near an optimum, cheap steps on the way to one at infinity.  It tightens
        # gradually, since a single good step does not mean that an optimum is near.
        if previous > 0.0:
            accuracy = min(_COARSEST, max(_FINEST, size / previous, accuracy * accuracy))
        previous = size
        # A small step needs few correct digits.
        enough = math.sqrt(negligible * problem.value / size) if size > 0.0 else 1.0
        accuracy = max(accuracy, min(enough, _COARSEST))
        if near and size <= 4.0 * _NEAR_DECREASE * problem.value:
            accuracy = min(accuracy, enough)  # the last step
        elif gradient.size <= _FEW_PARAMETERS and size <= 4.0 * _MIN_DECREASE * problem.value:
            return conjugate_gradients(problem, gradient, scaled, _LAST_ACCURACY)
        return conjugate_gradients(problem, gradient, scaled, accuracy)

    return step


def damped_newton(
    problem: Problem,
    start: Matrix,
    step_from: Callable[[Matrix, Matrix], Matrix],
    *,
    max_iter: int,
    floor: float,
    report: Report,
    largest: float = math.inf,
    near: bool = False,
) -> Optimum:
    """Minimise by Newton steps with a backtracking line search.

    ``step_from(theta, gradient)`` returns the step.  Its expected decrease, half of the slope
    along it, decides when to stop; with ``near`` earlier, and without a last evaluation.  A value
    at or below ``floor``, or a parameter beyond ``largest``, ends the search unconverged.
    """
    theta = start
    value, gradient = problem.evaluate(theta)
    for iteration in range(max_iter):
        if value <= floor or np.abs(theta).max() > largest:
            return Optimum(theta, value, _size(gradient), iteration, False)
        step = step_from(theta, gradient)
        decrease = -0.5 * float(np.vdot(gradient, step))
        last = decrease <= (_NEAR_DECREASE if near else _MIN_DECREASE) * value
        if last and near:
            return Optimum(theta + step, value - decrease, _size(gradient), iteration + 1, True)
        length, rounding = 1.0, _ROUNDING * value if last else 0.0
        while True:
            candidate = theta + length * step
            new_value, new_gradient = problem.evaluate(candidate)
            if new_value <= value - 2.0 * _ARMIJO * length * decrease + rounding:
                break
            length *= 0.5
            if last or length < _MIN_LENGTH:
                return Optimum(theta, value, _size(gradient), iteration, last)
        theta, value, gradient = candidate, new_value, new_gradient
        report(iteration + 1, value, _size(gradient))
        if last:
            return Optimum(theta, value, _size(gradient), iteration + 1, True)
    return Optimum(theta, value, _size(gradient), max_iter, False)


def bounded_step(hessian: Matrix, gradient: Vector, room: Vector) -> Vector:
    """Return the step to a quadratic model's minimum with every entry at least ``-room``.

    Uses block principal pivoting (Kim & Park 2011): guess which entries are free of their
    bounds, solve for these, and exchange entries where they, or the slopes at bounds, are
    negative.  The first guess is the entries that have room now.
    """
    # Parameters without effect make the model flat; a tiny ridge keeps it solvable.
    curvature = hessian.diagonal() + _RIDGE * (hessian.diagonal().max() + _TINY)
    units = curvature**-0.5
    model = hessian * units
    model *= units[:, None]
    np.fill_diagonal(model, 1.0)
    linear = units * gradient - model @ (room / units)
    noise = _NOISE * float(np.abs(linear).max())
    free, solution = room > 0.0, room / units
    fewest, patience = room.size + 1, _PATIENCE
    for _ in range(_MAX_PIVOTS * room.size):
        at = np.flatnonzero(free)
        part, solution = model[:, at], np.zeros(room.size)
        solution[at] = -interruptible(np.linalg.solve, part[at], linear[at])
        wrong = np.where(free, solution < 0.0, part @ solution[at] + linear < -noise)
        count = int(np.count_nonzero(wrong))
        if count == 0:
            break
        if count < fewest:
            fewest, patience = count, _PATIENCE
        elif patience == 0:  # exchanging one at a time always ends, except for rounding
            wrong[: np.flatnonzero(wrong)[-1]] = False
        else:
            patience -= 1
        free ^= wrong
    return np.asarray(np.maximum(solution, 0.0) * units - room)


def _size(gradient: Matrix) -> float:
    return float(np.abs(gradient).max())


def conjugate_gradients(
    problem: CurvedProblem, gradient: Matrix, scaled: Matrix, accuracy: float
) -> Matrix:
    """Solve Hessian · step = −gradient to a relative accuracy in the preconditioner's norm.

    ``scaled`` is the preconditioned −gradient.
    """
    step, residual = np.zeros_like(gradient), -gradient
    direction = scaled
    size = float(np.vdot(residual, scaled))
    target = accuracy * accuracy * size
    for _ in range(_MAX_PRODUCTS):
        product = problem.product(direction)
        curvature = float(np.vdot(direction, product))
        if curvature <= 0.0:  # a flat direction, up to rounding
            return step if step.any() else scaled
        step += (size / curvature) * direction
        residual -= (size / curvature) * product
        scaled = problem.precondition(residual)
        new_size = float(np.vdot(residual, scaled))
        if new_size <= target:
            break
        direction = scaled + (new_size / size) * direction
        size = new_size
    return step


def lbfgs(
    problem: AffineProblem, start: Matrix, *, max_iter: int, floor: float, report: Report
) -> Optimum:
    """Take at most ``max_iter`` L-BFGS steps (ten pairs, SciPy's line search)."""
    from scipy.optimize import minimize

    shape = start.shape

    def objective(flat: Vector) -> tuple[float, Vector]:
        value, gradient = problem.evaluate(flat.reshape(shape))
        return value, gradient.ravel()

    steps = itertools.count(1)

    def after(intermediate_result: OptimizeResult) -> None:
        report(next(steps), float(intermediate_result.fun), math.nan)
        if intermediate_result.fun <= floor:
            raise StopIteration

    result = minimize(
        objective,
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        callback=after,
        # Only the gradient and max_iter end it, so that max_iter defines the result.
        options={"maxiter": max_iter, "maxcor": 10, "ftol": 0.0, "gtol": 1e-9, "maxfun": 10**9},
    )
    norm = _size(result.jac)
    converged = norm <= 1e-9 and result.fun > floor
    return Optimum(result.x.reshape(shape), float(result.fun), norm, int(result.nit), converged)


# Multiplications per pass; below this a fit takes seconds and needs no bar.
_LONG_WORK = 2**30


@contextmanager
def progress(title: str, work: int, steps: int | None = None) -> Iterator[Report]:
    """Yield a callback for the steps of a search; it shows a bar if ``work`` is large.

    Parameters
    ----------
    title : str
        The calibrator's key.
    work : int
        Multiplications per pass over the rows.
    steps : int, optional
        The number of steps, if known; the bar pulses otherwise.

    Examples
    --------
    >>> with progress("ms", work=1000) as report:
    ...     report(1, 0.5, 1e-3)
    """
    if in_notebook():
        with line_of_progress(f"fitting {title}", steps) as advance:
            yield lambda step, value, gradient_norm: advance(step, "steps")
        return
    if is_shown() or work < _LONG_WORK or not (console := _console()).is_terminal:
        yield lambda step, value, gradient_norm: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    # The bar disappears at the end: the results are in the fitted attributes.
    with shown(), Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"fitting {title}", total=steps, state="first step")

        def report(step: int, value: float, gradient_norm: float) -> None:
            total = "" if steps is None else f" of {steps}"
            loss = "" if math.isnan(value) else f", loss {value:.8f}"
            norm = "" if math.isnan(gradient_norm) else f", gradient {gradient_norm:.1e}"
            bar.update(task, completed=step, state=f"step {step}{total}{loss}{norm}")

        yield report


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True)


# Logistic regression on a few features.

# Newton steps of a fit; two or three well-posed parameters need fewer than ten.
_MAX_STEPS = 100
# With a mean loss this small the data are separable.
_MIN_LOSS = 1e-10
# A coefficient beyond this diverges: the rows are separable.
_MAX_COEFFICIENT = 1e6
# Relative size of the ridge that keeps equal inputs solvable; too small to change the result.
_ODDS_RIDGE = 1e-12


@dataclass(frozen=True, slots=True)
class Odds:
    """A fitted logistic model: coefficients, mean loss, and whether the search converged."""

    coefficients: Vector
    value: float
    converged: bool


def sigmoid(x: Vector) -> Vector:
    """Return 1/(1 + e^−x), without overflow.

    Examples
    --------
    >>> sigmoid(np.array([-800.0, 0.0, 800.0]))
    array([0. , 0.5, 1. ])
    """
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0.0, e, 1.0) / (1.0 + e))


class LogisticProblem:
    """The mean binary cross-entropy of ``sigmoid(θ · features)``, plus θ·penalty·θ."""

    def __init__(
        self, features: Matrix, target: Vector, weight: Vector, penalty: Matrix | None = None
    ) -> None:
        size = features.shape[0]
        self.features, self.target, self.weight = features, target, weight
        self.penalty = np.zeros((size, size)) if penalty is None else penalty
        self.hessian: Matrix

    def evaluate(self, theta: Vector) -> tuple[float, Vector]:
        """Return the objective and its gradient, and store the Hessian."""
        x = theta @ self.features
        e = np.exp(-np.abs(x))
        p = np.where(x < 0.0, e, 1.0) / (1.0 + e)
        value = float(self.weight @ (np.maximum(x, 0.0) + np.log1p(e) - self.target * x))
        gradient = self.features @ (self.weight * (p - self.target))
        variance = self.weight * p * (1.0 - p)
        self.hessian = (self.features * variance) @ self.features.T + 2.0 * self.penalty
        pull = self.penalty @ theta
        return value + float(theta @ pull), gradient + 2.0 * pull

    def step(self, theta: Vector, gradient: Vector) -> Vector:
        """Return the Newton step."""
        size = self.hessian.trace()
        hessian = self.hessian + _ODDS_RIDGE * size * np.eye(theta.size)
        return -np.asarray(np.linalg.lstsq(hessian, gradient)[0], dtype=np.float64)


def fit_odds(features: Matrix, target: Vector, weight: Vector) -> Odds:
    """Fit a logistic model by Newton's method; features are rows, and weights sum to one.

    Examples
    --------
    >>> x = np.array([[-1.0, 0.0, 1.0, 2.0], np.ones(4)])
    >>> fit_odds(x, np.array([0.0, 1.0, 0.0, 1.0]), np.full(4, 0.25)).coefficients.round(3)
    array([ 0.908, -0.454])
    """
    return search(LogisticProblem(features, target, weight), np.zeros(features.shape[0]))


def search(problem: LogisticProblem, start: Vector) -> Odds:
    """Minimise a logistic problem."""
    best = damped_newton(
        problem,
        start,
        problem.step,
        max_iter=_MAX_STEPS,
        floor=_MIN_LOSS,
        report=lambda step, value, gradient_norm: None,
        largest=_MAX_COEFFICIENT,
    )
    return Odds(best.theta, best.value, best.converged)


def fit_rising_odds(features: Matrix, target: Vector, weight: Vector) -> Odds:
    """Fit a logistic model whose coefficients, except the last, are nonnegative.

    The problem is convex, so the optimum is the best feasible fit with some of them zero.
    """
    best = fit_odds(features, target, weight)
    rising = features.shape[0] - 1
    if best.coefficients[:rising].min() >= 0.0:
        return best
    feasible: list[Odds] = []
    for size in range(rising):
        for subset in itertools.combinations(range(rising), size):
            columns = [*subset, rising]
            part = fit_odds(features[columns], target, weight)
            coefficients = np.zeros(rising + 1)
            coefficients[columns] = part.coefficients
            if coefficients[:rising].min() >= 0.0:
                feasible.append(Odds(coefficients, part.value, part.converged))
    return min(feasible, key=lambda odds: odds.value)


def smoothed(event: npt.NDArray[np.bool_], weight: Vector) -> Vector:
    """Return Platt's targets: one extra row of each kind keeps the odds of rare events finite."""
    hits = float(weight @ event)
    misses = float(weight.sum()) - hits
    return np.where(event, (hits + 1.0) / (hits + 2.0), 1.0 / (misses + 2.0))
