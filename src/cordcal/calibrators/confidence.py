"""Confidence maps: recalibrate the top probability and scale the other classes."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.expressions import chosen, exp, maximum, plus, softplus, times
from cordcal._numeric.types import Array, Kind, Labels, Matrix, Parameters, Vector
from cordcal._validation.scores import LOG_FLOOR, row_weights
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators._binary import Odds, fit_odds, fit_rising_odds, smoothed
from cordcal.calibrators._curves import fit_knots, group_starts, interpolate, search_strides
from cordcal.calibrators.isotonic import break_ties_to_first

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

    def _fit(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        blocks = [tops(exp(scores[at], np), np) for at in row_blocks(*scores.shape)]
        found = Tops(*(np.concatenate(part) for part in zip(*blocks, strict=True)))
        self._fit_confidence(found, found.decision == labels, weight)

    @abstractmethod
    def _fit_confidence(
        self, found: Tops, right: npt.NDArray[np.bool_], weight: Vector | None
    ) -> None:
        """Learn when decisions are right."""

    @classmethod
    @abstractmethod
    def _confidence(cls, found: Tops, params: Parameters, xp: Any) -> Array:
        """Return the calibrated confidence of each row, between 0 and 1."""

    @classmethod
    def _map(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        powers = exp(scores, xp)
        found = tops(powers, xp)
        return lifted(powers, found.decision, cls._confidence(found, params, xp), xp)


def tops(powers: Array, xp: Any) -> Tops:
    """Return decision, confidence and rest of rows whose largest entry is 1."""
    decision = xp.argmax(powers, axis=1)
    # Summed without the decision: one minus a confidence near one would lose its digits.
    left = xp.where(chosen(powers, decision, xp), xp.zeros_like(powers), powers)
    rest = xp.sum(left, axis=1)
    total = 1.0 + rest
    return Tops(decision, 1.0 / total, maximum(rest / total, LOG_FLOOR, xp))


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
    s = maximum(confidence, most / (_BARELY_LESS + most), xp)[:, None]
    return break_ties_to_first(xp.where(mine, s, times(others, 1.0 - s, xp)), decision, xp)


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

    _parameter_names = ("coefficients_",)

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
    def _confidence(cls, found: Tops, params: Parameters, xp: Any) -> Array:
        features = cls._features(found, xp)
        odds = xp.zeros_like(found.rest) + params["coefficients_"][len(features)]
        for i, feature in enumerate(features):
            odds = plus(odds, params["coefficients_"][i] * feature, xp)
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

    _parameter_names = ("knot_x_", "knot_y_")

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

    def _parameters(self) -> dict[str, npt.NDArray[Any]]:
        return {**super()._parameters(), "stride_": search_strides(self.knot_x_)}

    @classmethod
    def _confidence(cls, found: Tops, params: Parameters, xp: Any) -> Array:
        return interpolate(found.confidence, params, xp)


# An edge that no confidence is above: it fills the tables of classes with fewer bins.
_BEYOND = 2.0


class TopVersusAllHistogram(ConfidenceMap):
    """TvA-histogram: the share of right decisions among rows of similar confidence.

    The decision's probability becomes s, the share of right decisions in its bin; a bin
    without calibration rows keeps its middle.  The other classes share what is left in the
    original proportions; where s could not be on top it is raised just enough.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the order, but for ties where s is 1.
    | −inf logits keep probability 0.
    | Cost: O(nK) once, and O(n log n).

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.
    bins : int
        How many.
    equal_mass : bool
        Bins of as many rows each; else of equal width.

    Attributes
    ----------
    edges_ : ndarray of shape (bins - 1,)
        Where a bin ends; an edge belongs to the bin below it.
    values_ : ndarray of shape (bins,)
        The share of right decisions.

    References
    ----------
    Le Coz, Herbin, Adjed (2024). Confidence calibration of classifiers with many classes.
    NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0], [3.0, 0.0], [0.0, 3.5], [2.0, 0.0]])
    >>> TopVersusAllHistogram(bins=2).fit(logits, [0, 1, 1, 0]).values_
    array([0.5, 1. ])
    """

    key = "tva-histogram"
    title = "Histogram of the confidence"
    short = "TvA-histogram"
    size = Size(fixed=29)
    cost = "O(nK) once, O(n log n)"
    reference = "Le Coz et al. 2024, NeurIPS"

    _parameter_names = ("edges_", "values_")

    edges_: Vector
    values_: Vector

    def __init__(self, *, input: Kind = "logits", bins: int = 15, equal_mass: bool = True) -> None:
        super().__init__(input=input)
        self.bins = bins
        self.equal_mass = equal_mass

    def _fit_confidence(
        self, found: Tops, right: npt.NDArray[np.bool_], weight: Vector | None
    ) -> None:
        check_bins(self.bins, "bins")
        c = found.confidence
        w = np.ones(c.size) if weight is None else weight
        share = np.linspace(0.0, 1.0, self.bins + 1)[1:-1]
        self.edges_ = weighted_quantiles(c, w, share) if self.equal_mass else share
        self.values_ = bin_means(c, right, w, self.edges_)

    @classmethod
    def _confidence(cls, found: Tops, params: Parameters, xp: Any) -> Array:
        values, edges = params["values_"], params["edges_"]
        s = xp.zeros_like(found.confidence) + values[0]
        for i in range(edges.shape[0]):
            s = xp.where(found.confidence > edges[i], xp.zeros_like(s) + values[i + 1], s)
        return s


class TopLabelHistogram(ConfidenceMap):
    """Top-label histogram binning: a histogram of the confidence for each predicted class.

    Each predicted class has as many bins of equal mass as ``rows_per_bin`` allows; the
    confidence becomes the share of right decisions in its bin.  A class predicted less often
    keeps its confidences.  The other classes share what is left in the original proportions;
    where the confidence could not be on top it is raised just enough.  The published random
    nudge of ties is left out.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the order, but for ties where the share is 1.
    | −inf logits keep probability 0.
    | Cost: O(nK) once, and O(n log n).

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.
    rows_per_bin : int
        Calibration rows a bin must have at least.

    Attributes
    ----------
    edges_ : ndarray of shape (B - 1, K)
        Where the bins of each class end; filled up with 2.
    values_ : ndarray of shape (B, K)
        The share of right decisions; filled up with 0.
    binned_ : ndarray of shape (K,)
        1 for a class with bins, 0 for one that keeps its confidences.

    References
    ----------
    Gupta, Ramdas (2022). Top-label calibration and multiclass-to-binary reductions. ICLR.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> TopLabelHistogram().fit(logits, labels).values_.shape
    (2, 3)
    """

    key = "top-label"
    title = "Top-label histogram binning"
    short = "Top-label"
    size = Size(curves_per_class=1)
    cost = "O(nK) once, O(n log n)"
    reference = "Gupta and Ramdas 2022, ICLR"

    _parameter_names = ("edges_", "values_", "binned_")

    edges_: npt.NDArray[np.float64]
    values_: npt.NDArray[np.float64]
    binned_: Vector

    def __init__(self, *, input: Kind = "logits", rows_per_bin: int = 50) -> None:
        super().__init__(input=input)
        self.rows_per_bin = rows_per_bin

    def _fit_confidence(
        self, found: Tops, right: npt.NDArray[np.bool_], weight: Vector | None
    ) -> None:
        check_bins(self.rows_per_bin, "rows_per_bin")
        w = np.ones(right.size) if weight is None else weight
        mass = np.bincount(found.decision, w, self.n_classes_)
        bins = np.floor(mass / self.rows_per_bin)
        tables = {}
        for k in np.flatnonzero(bins):
            mine = (found.decision == k) & (w > 0.0)
            c, hit, count = found.confidence[mine], right[mine], w[mine]
            edges = equal_mass_edges(c, count, float(bins[k]))
            tables[k] = edges, bin_means(c, hit, count, edges)
        most = max((edges.size for edges, _ in tables.values()), default=0)
        self.edges_ = np.full((most, self.n_classes_), _BEYOND)
        self.values_ = np.zeros((most + 1, self.n_classes_))
        self.binned_ = (bins > 0).astype(np.float64)
        for k, (edges, values) in tables.items():
            self.edges_[: edges.size, k] = edges
            self.values_[: values.size, k] = values

    @classmethod
    def _confidence(cls, found: Tops, params: Parameters, xp: Any) -> Array:
        values, edges = params["values_"], params["edges_"]
        s = values[0][found.decision]
        for i in range(edges.shape[0]):
            above = found.confidence > edges[i][found.decision]
            s = xp.where(above, values[i + 1][found.decision], s)
        return xp.where(params["binned_"][found.decision] > 0.0, s, found.confidence)


def check_bins(value: Any, name: str) -> None:
    """Refuse a number of bins, or of rows in one, that is none."""
    if not (isinstance(value, int | np.integer) and value >= 1):
        raise InputError(name, f"is {value!r}", "pass a whole number from 1 on")


def bin_means(
    c: Vector, right: npt.NDArray[np.bool_], weight: Vector, edges: Vector
) -> npt.NDArray[np.float64]:
    """Return the share of right decisions in each bin; the middle of a bin without rows."""
    bins = edges.size + 1
    number = np.searchsorted(edges, c)
    mass = np.bincount(number, weight, bins)
    hits = np.bincount(number, weight * right, bins)
    ends = np.concatenate([[0.0], edges, [1.0]])
    middle = 0.5 * (ends[1:] + ends[:-1])
    return np.where(mass > 0.0, hits / np.where(mass > 0.0, mass, 1.0), middle)


def weighted_quantiles(x: Vector, weight: Vector, share: Vector) -> Vector:
    """Return linear quantiles of rows that count as often as their weights say.

    Examples
    --------
    >>> x, twice = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 1.0])
    >>> weighted_quantiles(x, twice, np.array([0.5, 0.9]))
    array([2. , 3.4])
    >>> np.quantile([1.0, 2.0, 2.0, 4.0], [0.5, 0.9])
    array([2. , 3.4])
    """
    order = np.argsort(x, kind="stable")
    order = order[weight[order] > 0.0]
    upto, rising = np.cumsum(weight[order]), x[order]
    # Weights below one on average, such as shares, are no counts: their mean counts as a row.
    upto *= max(1.0, rising.size / upto[-1])
    place = share * (upto[-1] - 1.0)
    whole = np.floor(place)
    last = rising.size - 1
    low, high = (
        rising[np.minimum(np.searchsorted(upto, at, side="right"), last)]
        for at in (whole, whole + 1.0)
    )
    return np.asarray(low + (place - whole) * (high - low))


def equal_mass_edges(x: Vector, weight: Vector, bins: float) -> Vector:
    """Return the upper edges of all bins but the last; the first ones take the odd rows.

    Bins of equal edges are one, so there are no more than rows, however large their weights,
    and the last one has rows.

    Examples
    --------
    >>> equal_mass_edges(np.array([0.1, 0.2, 0.3, 0.4, 0.5]), np.ones(5), 2)
    array([0.3])
    >>> equal_mass_edges(np.array([0.1, 0.2, 0.3]), np.full(3, 1e15), 1e12)
    array([0.1, 0.2])
    """
    order = np.argsort(x, kind="stable")
    upto = np.cumsum(weight[order])
    each, odd = divmod(upto[-1], bins)
    # Bin m ends at m·each + min(m, odd): how many have ended by each row?
    here = upto + 1e-6 * max(1.0, upto[-1] / x.size)  # sums of weights are rounded
    ended = np.where(here < odd * (each + 1.0), here / (each + 1.0), (here - odd) / each)
    ended = np.clip(np.floor(ended), 0.0, bins - 1.0)
    edges = np.unique(x[order][np.diff(ended, prepend=0.0) > 0.0])
    return np.asarray(edges[edges < x[order[-1]]])


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
