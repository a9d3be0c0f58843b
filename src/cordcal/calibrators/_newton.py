"""Exact minimisers of the calibrators' objectives, and a progress bar for long fits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cordcal._numeric.parallel import interruptible
from cordcal._numeric.types import Matrix, Vector
from cordcal.calibrators._affine_loss import AffineProblem

if TYPE_CHECKING:
    from rich.console import Console
    from scipy.optimize import OptimizeResult

# A step that could still win less than this share of the objective ends the search;
# it leaves the parameter within about 1e-7 of the optimum.
_RELATIVE_DECREASE = 1e-15

# With many parameters a step that promises less than this share is the last one.
_DECREMENT = 1e-10
# What a step may leave undone: a thousandth of that.
_NEGLIGIBLE = 1e-13
# How exactly a step is solved for: never coarser, or steps multiply; never finer, as that
# costs products only.
_COARSEST, _FINEST = 0.3, 1e-3
# Armijo's condition and the shortest step worth trying.
_SUFFICIENT, _SHORTEST = 1e-4, 1e-10
# Products a Newton step may cost; ten times what a well-posed problem needs.
_MOST_PRODUCTS = 250
# Exchanges of whole blocks that may gain nothing, all exchanges for each parameter, and slopes
# that are rounding.
_PATIENCE, _MOST_PIVOTS, _NOISE = 3, 10, 1e-12
# Relative size of the ridge under a flat model; it moves no digit that matters.
_RIDGE = 1e-13
# Keeps it positive when every row is certain.
_TINY = 1e-100


@dataclass(frozen=True, slots=True)
class ScalarOptimum:
    """Where a one-dimensional search ended."""

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
) -> ScalarOptimum:
    """Minimise over [low, high] by Newton steps inside a shrinking bracket of slope signs.

    Parameters
    ----------
    function : callable
        Returns the value, the slope and the curvature at a point.
    start, low, high : float
        Where to begin, and the interval.
    floor : float
        A value at or below this ends the search: the loss has vanished.
    max_iter : int
        Most evaluations.

    Examples
    --------
    >>> best = minimise_scalar(lambda x: ((x - 1) ** 2 + 1, 2 * (x - 1), 2.0), 3.0, -9, 9, floor=0)
    >>> best.at, best.passes
    (1.0, 2)
    """
    ends = low, high
    here = min(max(start, low), high)
    for passes in range(1, max_iter + 1):
        value, slope, curvature = function(here)
        if value <= floor:
            return ScalarOptimum(here, value, slope, passes, False, False)
        if here == ends[slope < 0.0] and slope != 0.0:
            return ScalarOptimum(here, value, slope, passes, False, True)
        small = slope == 0.0 or (
            curvature > 0.0 and slope * slope <= 2.0 * _RELATIVE_DECREASE * curvature * value
        )
        if small:
            return ScalarOptimum(here, value, slope, passes, True, False)
        low, high = (here, high) if slope < 0.0 else (low, here)
        following = here - slope / curvature if curvature > 0.0 else math.nan
        if low < following < high:
            here = following
        else:
            # Try an end of the interval once; inside, halve.
            beyond = high if slope < 0.0 else low
            here = beyond if beyond in ends else 0.5 * (low + high)
        if high - low <= 1e-14 * max(1.0, abs(low)):
            return ScalarOptimum(here, value, slope, passes, True, False)
    return ScalarOptimum(here, value, slope, max_iter, False, False)


@dataclass(frozen=True, slots=True)
class Optimum:
    """Where a search over many parameters ended."""

    theta: Matrix
    value: float
    gradient_norm: float
    n_iter: int
    converged: bool


class Problem(Protocol):
    """An objective of many parameters."""

    def evaluate(self, theta: Matrix) -> tuple[float, Matrix]: ...


class Separable(Protocol):
    """An objective that may have its infimum at infinity."""

    def is_separated(self, value: float) -> bool: ...


class Report(Protocol):
    """What a search tells after each step: its number, the objective, the gradient norm."""

    def __call__(self, step: int, value: float, gradient_norm: float) -> None: ...


def newton_cg(
    problem: AffineProblem,
    start: Matrix,
    *,
    max_iter: int,
    floor: float,
    report: Report,
    largest: float = math.inf,
) -> Optimum:
    """Minimise a convex objective by Newton steps from preconditioned conjugate gradients."""
    before, accuracy = math.nan, _COARSEST

    def step(theta: Matrix, gradient: Matrix) -> Matrix:
        nonlocal before, accuracy
        problem.refresh()
        scaled = problem.precondition(-gradient)
        size = -float(np.vdot(gradient, scaled))
        # As exact as the last step did well (Eisenstat and Walker): quadratic convergence
        # near an optimum, cheap steps on the way to one at infinity.  But one lucky step
        # does not mean that an optimum is near.
        if before > 0.0:
            accuracy = min(_COARSEST, max(_FINEST, size / before, accuracy * accuracy))
        before = size
        # The last digits need not be solved for when the whole step is small.
        enough = math.sqrt(_NEGLIGIBLE * problem.value / size) if size > 0.0 else 1.0
        accuracy = max(accuracy, min(enough, _COARSEST))
        return _conjugate_gradients(problem, gradient, scaled, accuracy)

    return damped_newton(
        problem, start, step, max_iter=max_iter, floor=floor, report=report, largest=largest
    )


def damped_newton(
    problem: Problem,
    start: Matrix,
    step_from: Callable[[Matrix, Matrix], Matrix],
    *,
    max_iter: int,
    floor: float,
    report: Report,
    largest: float = math.inf,
) -> Optimum:
    """Take Newton steps, shortened where they promise too much.

    ``step_from(theta, gradient)`` returns the step.  Its decrement, half of what the slope
    along it promises, decides when to stop; a value at or below ``floor``, or a parameter
    beyond ``largest``, ends the search unconverged.
    """
    theta = start
    value, gradient = problem.evaluate(theta)
    for iteration in range(max_iter):
        if value <= floor or np.abs(theta).max() > largest:
            return Optimum(theta, value, _size(gradient), iteration, False)
        step = step_from(theta, gradient)
        promise = -0.5 * float(np.vdot(gradient, step))
        last = promise <= _DECREMENT * value
        length = 1.0
        while True:
            candidate = theta + length * step
            tried, slope = problem.evaluate(candidate)
            if tried <= value - 2.0 * _SUFFICIENT * length * promise:
                break
            length *= 0.5
            if last or length < _SHORTEST:  # rounding hides the last digits of the descent
                return Optimum(theta, value, _size(gradient), iteration, last)
        theta, value, gradient = candidate, tried, slope
        report(iteration + 1, value, _size(gradient))
        if last:
            return Optimum(theta, value, _size(gradient), iteration + 1, True)
    return Optimum(theta, value, _size(gradient), max_iter, False)


def bounded_step(hessian: Matrix, gradient: Vector, room: Vector) -> Vector:
    """Return the step to a quadratic model's minimum, no entry of it below ``-room``.

    By block principal pivoting (Kim & Park 2011): which entries are off their bounds is
    guessed, they are solved for, and exchanged where they, or slopes at bounds, come out
    negative.  The first guess is those that have room now.
    """
    # Parameters that nothing depends on leave the model flat; a trace of ridge keeps it solvable.
    curvature = hessian.diagonal() + _RIDGE * (hessian.diagonal().max() + _TINY)
    units = curvature**-0.5
    model = hessian * units
    model *= units[:, None]
    np.fill_diagonal(model, 1.0)
    linear = units * gradient - model @ (room / units)
    noise = _NOISE * float(np.abs(linear).max())
    free, found = room > 0.0, room / units
    fewest, patience = room.size + 1, _PATIENCE
    for _ in range(_MOST_PIVOTS * room.size):
        at = np.flatnonzero(free)
        part, found = model[:, at], np.zeros(room.size)
        found[at] = -interruptible(np.linalg.solve, part[at], linear[at])
        wrong = np.where(free, found < 0.0, part @ found[at] + linear < -noise)
        count = int(np.count_nonzero(wrong))
        if count == 0:
            break
        if count < fewest:
            fewest, patience = count, _PATIENCE
        elif patience == 0:  # one at a time always ends, but for rounding
            wrong[: np.flatnonzero(wrong)[-1]] = False
        else:
            patience -= 1
        free ^= wrong
    return np.asarray(np.maximum(found, 0.0) * units - room)


def _size(gradient: Matrix) -> float:
    return float(np.abs(gradient).max())


def _conjugate_gradients(
    problem: AffineProblem, gradient: Matrix, scaled: Matrix, accuracy: float
) -> Matrix:
    """Solve Hessian · step = −gradient to a relative accuracy in the preconditioner's norm.

    ``scaled`` is the preconditioned −gradient.
    """
    step, residual = np.zeros_like(gradient), -gradient
    direction = scaled
    size = float(np.vdot(residual, scaled))
    target = accuracy * accuracy * size
    for _ in range(_MOST_PRODUCTS):
        product = problem.product(direction)
        curvature = float(np.vdot(direction, product))
        if curvature <= 0.0:  # a flat direction, seen through rounding
            return step if step.any() else scaled
        step += (size / curvature) * direction
        residual -= (size / curvature) * product
        scaled = problem.precondition(residual)
        following = float(np.vdot(residual, scaled))
        if following <= target:
            break
        direction = scaled + (following / size) * direction
        size = following
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
        # Only the gradient and the cap end it, so that the cap defines the result.
        options={"maxiter": max_iter, "maxcor": 10, "ftol": 0.0, "gtol": 1e-9, "maxfun": 10**9},
    )
    norm = _size(result.jac)
    converged = norm <= 1e-9 and result.fun > floor
    return Optimum(result.x.reshape(shape), float(result.fun), norm, int(result.nit), converged)


# Entries read in one step of a fit, times its width; below this a fit takes seconds.
_LONG = 2**30


@contextmanager
def progress(title: str, work: int, steps: int | None = None) -> Iterator[Report]:
    """Yield what a search reports its steps to; shows a bar if ``work`` is large.

    Parameters
    ----------
    title : str
        What is being fitted.
    work : int
        Multiplications a pass over the rows takes.
    steps : int, optional
        How many steps there will be, where that is known; the bar pulses otherwise.

    Examples
    --------
    >>> with progress("ms", work=1000) as report:
    ...     report(1, 0.5, 1e-3)
    """
    if work < _LONG or not (console := _console()).is_terminal:
        yield lambda step, value, gradient_norm: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    # The bar goes when the fit is done: what it came to is in the fitted attributes.
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"fitting {title}", total=steps, state="first step")

        def report(step: int, value: float, gradient_norm: float) -> None:
            of = "" if steps is None else f" of {steps}"
            tail = "" if math.isnan(gradient_norm) else f", gradient {gradient_norm:.1e}"
            bar.update(task, completed=step, state=f"step {step}{of}, loss {value:.8f}{tail}")

        yield report


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True)
