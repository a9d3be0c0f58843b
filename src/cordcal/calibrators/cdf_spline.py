"""Spline of the cumulative gap between confidence and accuracy, whose slope corrects the first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cordcal._door.types import Vector
from cordcal.calibrators._facts import Size
from cordcal.calibrators._pav import group_starts
from cordcal.calibrators.confidence import TopVersusAllIsotonic

# Knots of the spline on the rows' ranks, as published.
_KNOTS = 6
# Rows that a sum of weights is counted as, at most: a larger one moves the spline, an integral
# in all but name, by about a millionth.
_MOST_SINGLE_ROWS = 2**20


class CumulativeSpline(TopVersusAllIsotonic):
    """CDF spline: the slope of the cumulative calibration gap corrects the confidence.

    With rows sorted by confidence c and t their rank between 0 and 1, h(t) is the mean over
    all rows of accuracy minus confidence, summed up to t.  A natural cubic spline with six
    equally spaced knots is fitted to h by least squares, and s = c + h'(t), linear in c
    between the calibration rows and cut to [0, 1].  The other classes share what is left in
    the original proportions; where s could not be on top it is raised just enough.  s need
    not rise with c.  There is nothing to tune.  Weights that add up to more than 2^20, and more
    than the rows, are scaled down to that sum.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the order, but for ties where s is 1.
    | −inf logits keep probability 0.
    | Cost: O(nK) once, and O(n log n); the curve has up to n knots.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        c and s of the calibration rows.

    References
    ----------
    Gupta, Rahimi, Ajanthan, Mensink, Sminchisescu, Hartley (2021). Calibration of neural
    networks using splines. ICLR.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> model = CumulativeSpline().fit(logits, labels)
    >>> bool(((model.knot_y_ >= 0.0) & (model.knot_y_ <= 1.0)).all())
    True
    """

    key = "cdf-spline"
    title = "Spline of the cumulative gap"
    short = "CDF spline"
    size = Size(curves=1)
    cost = "O(nK) once, O(n log n)"
    reference = "Gupta et al. 2021, ICLR"

    @staticmethod
    def _curve(
        x: Vector, right: npt.NDArray[np.bool_], weight: Vector | None
    ) -> tuple[Vector, Vector]:
        w = np.ones(x.size) if weight is None else weight
        order = np.argsort(x, kind="stable")
        order = order[w[order] > 0.0]
        row, mass = as_single_rows(w[order])
        c, hit = x[order][row], right[order][row]
        s = np.clip(c + spline_slopes(mass, mass * (hit - c)), 0.0, 1.0)
        start = group_starts(c)
        total = np.add.reduceat(mass, start)
        return c[start], np.add.reduceat(mass * s, start) / total


def as_single_rows(weight: Vector) -> tuple[npt.NDArray[np.intp], Vector]:
    """Return rows of mass 1 or less: a row of weight 2 is there twice.

    Examples
    --------
    >>> as_single_rows(np.array([2.0, 0.5]))
    (array([0, 0, 1]), array([1. , 1. , 0.5]))
    >>> as_single_rows(np.array([2e300, 1e300]))[0].size < 2_000_000
    True
    """
    most = max(weight.size, _MOST_SINGLE_ROWS)
    weight = weight * min(1.0, most / weight.sum())
    times = np.ceil(weight).astype(np.intp)
    mass = np.ones(times.sum())
    mass[np.cumsum(times) - 1] = weight - (times - 1)
    return np.repeat(np.arange(weight.size), times), mass


def spline_slopes(mass: Vector, gap: Vector) -> Vector:
    """Return the slope, at each row's rank, of the spline fitted to the summed gaps."""
    from scipy.interpolate import CubicSpline

    upto = np.cumsum(mass)
    height = np.cumsum(gap) / upto[-1]
    # Ranks from 0 to 1; a single row has rank 0.
    rank = (upto - mass[0]) / max(upto[-1] - mass[0], np.finfo(np.float64).tiny)
    knots = np.linspace(0.0, 1.0, _KNOTS)
    basis = CubicSpline(knots, np.eye(_KNOTS), bc_type="natural")
    root = np.sqrt(mass)
    values = np.linalg.lstsq(root[:, None] * basis(rank), root * height)[0]
    return np.asarray(basis(rank, 1) @ values)
