"""Other calibrators of the confidence: the top probability, then the other classes in proportion.

Beta calibration (``tva-beta``), isotonic regression (``tva-isotonic``), a histogram for all
classes (``tva-histogram``) or for each predicted class (``top-label``), and a spline of the
cumulative gap (``cdf-spline``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Array, Kind, Vector
from cordcal.calibrators import Size
from cordcal.calibrators._base import check_positive_integer
from cordcal.calibrators._curves import curve_parameters, fit_knots, group_starts, interpolate
from cordcal.calibrators._newton import fit_rising_odds
from cordcal.calibrators.confidence import ConfidenceCalibrator, TopClass, TopVersusAllPlatt
from cordcal.expressions import Parameters

# Knots of the cumulative spline on the rows' ranks, as published.
_KNOTS = 6
# Weights are scaled down to this sum before rows are repeated; a larger sum would change the
# spline by about a millionth.
_MAX_REPEATED_ROWS = 2**20

# Fills the edges of classes with fewer bins: no confidence is above it.
_UNUSED_EDGE = 2.0


class TopVersusAllBeta(TopVersusAllPlatt):
    """TvA-beta: beta calibration of the confidence.

    The top probability c becomes s = ``sigmoid(a·log c − b·log(1 − c) + m)`` with a, b ≥ 0.
    The three parameters minimise the binary cross-entropy of the event that the top class is
    correct, exactly.  The other classes share 1 − s in their original proportions.  Where s
    would not be on top, it is raised just enough.

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

    _fit_odds = staticmethod(fit_rising_odds)

    @staticmethod
    def _features(top: TopClass, xp: Any) -> list[Array]:
        return [xp.log(top.confidence), 0.0 - xp.log(top.complement)]


class TopVersusAllIsotonic(ConfidenceCalibrator):
    """TvA-isotonic: isotonic regression of the confidence.

    The top probability becomes s, the isotonic regression on it of the event that the top class
    is correct, linear between its knots.  The other classes share 1 − s in their original
    proportions.  Where s would not be on top, it is raised just enough.  There are no
    hyperparameters.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the order, except for ties where s is 1.
    | −inf logits keep probability 0.
    | Cost: O(nK) once, and O(n log n).

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        Abscissas and values of the knots.

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

    parameter_names = ("knot_x_", "knot_y_")

    knot_x_: Vector
    knot_y_: Vector

    def _fit_confidence(
        self, top: TopClass, correct: npt.NDArray[np.bool_], weight: Vector | None
    ) -> None:
        self.knot_x_, self.knot_y_ = self._fit_curve(top.confidence, correct, weight)

    @staticmethod
    def _fit_curve(
        x: Vector, correct: npt.NDArray[np.bool_], weight: Vector | None
    ) -> tuple[Vector, Vector]:
        """Return the knots of the curve from original to calibrated confidence."""
        return fit_knots(x, correct, weight)

    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        """Return the parameters of the map as arrays."""
        return curve_parameters(self.knot_x_, self.knot_y_)

    @classmethod
    def _confidence(cls, top: TopClass, params: Parameters, xp: Any) -> Array:
        return interpolate(top.confidence, params, xp)


class CumulativeSpline(TopVersusAllIsotonic):
    """CDF spline: the slope of the cumulative calibration gap corrects the confidence.

    Rows are sorted by confidence c and have ranks t from 0 to 1.  h(t) is the cumulative sum up
    to t of accuracy minus confidence, divided by the number of rows.  A natural cubic spline
    with six equally spaced knots is fitted to h by least squares, and s = c + h'(t), linear in
    c between the calibration rows and clipped to [0, 1]; s need not increase with c.  The other
    classes share 1 − s in their original proportions.  Where s would not be on top, it is
    raised just enough.  There are no hyperparameters.  Weights whose sum exceeds both 2^20 and
    the number of rows are scaled down to the larger of the two.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the order, except for ties where s is 1.
    | −inf logits keep probability 0.
    | Cost: O(nK) once, and O(n log n); the curve has up to n knots.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.

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
    def _fit_curve(
        x: Vector, correct: npt.NDArray[np.bool_], weight: Vector | None
    ) -> tuple[Vector, Vector]:
        w = np.ones(x.size) if weight is None else weight
        order = np.argsort(x, kind="stable")
        order = order[w[order] > 0.0]
        row, mass = repeat_rows(w[order])
        c, hit = x[order][row], correct[order][row]
        s = np.clip(c + spline_slopes(mass, mass * (hit - c)), 0.0, 1.0)
        start = group_starts(c)
        total = np.add.reduceat(mass, start)
        return c[start], np.add.reduceat(mass * s, start) / total


def repeat_rows(weight: Vector) -> tuple[npt.NDArray[np.intp], Vector]:
    """Return indices of rows, repeated to have weights of at most 1, and these weights.

    Examples
    --------
    >>> repeat_rows(np.array([2.0, 0.5]))
    (array([0, 0, 1]), array([1. , 1. , 0.5]))
    >>> repeat_rows(np.array([2e300, 1e300]))[0].size < 2_000_000
    True
    """
    max_sum = max(weight.size, _MAX_REPEATED_ROWS)
    weight = weight * min(1.0, max_sum / weight.sum())
    repeats = np.ceil(weight).astype(np.intp)
    mass = np.ones(repeats.sum())
    mass[np.cumsum(repeats) - 1] = weight - (repeats - 1)
    return np.repeat(np.arange(weight.size), repeats), mass


def spline_slopes(mass: Vector, gap: Vector) -> Vector:
    """Return the slope, at each row's rank, of the spline fitted to the cumulative gaps."""
    from scipy.interpolate import CubicSpline

    cumulative = np.cumsum(mass)
    height = np.cumsum(gap) / cumulative[-1]
    # Ranks from 0 to 1; a single row has rank 0.
    rank = (cumulative - mass[0]) / max(cumulative[-1] - mass[0], np.finfo(np.float64).tiny)
    knots = np.linspace(0.0, 1.0, _KNOTS)
    basis = CubicSpline(knots, np.eye(_KNOTS), bc_type="natural")
    root = np.sqrt(mass)
    values = np.linalg.lstsq(root[:, None] * basis(rank), root * height)[0]
    return np.asarray(basis(rank, 1) @ values)


class TopVersusAllHistogram(ConfidenceCalibrator):
    """TvA-histogram: the accuracy of rows with similar confidence.

    The top probability becomes s, the accuracy in its bin, or the middle of a bin without
    calibration rows.  The other classes share 1 − s in their original proportions.  Where s
    would not be on top, it is raised just enough.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the order, except for ties where s is 1.
    | −inf logits keep probability 0.
    | Cost: O(nK) once, and O(n log n).

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    bins : int
        Number of bins.
    equal_mass : bool
        Whether bins have equal numbers of rows, instead of equal width.

    Attributes
    ----------
    edges_ : ndarray of shape (bins - 1,)
        Upper edges of all bins except the last; an edge belongs to the bin below it.
    values_ : ndarray of shape (bins,)
        Accuracy in each bin.

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

    parameter_names = ("edges_", "values_")

    edges_: Vector
    values_: Vector

    def __init__(self, *, input: Kind = "logits", bins: int = 15, equal_mass: bool = True) -> None:
        super().__init__(input=input)
        self.bins = bins
        self.equal_mass = equal_mass

    def _fit_confidence(
        self, top: TopClass, correct: npt.NDArray[np.bool_], weight: Vector | None
    ) -> None:
        check_positive_integer("bins", self.bins)
        c = top.confidence
        w = np.ones(c.size) if weight is None else weight
        share = np.linspace(0.0, 1.0, self.bins + 1)[1:-1]
        self.edges_ = weighted_quantiles(c, w, share) if self.equal_mass else share
        self.values_ = bin_accuracies(c, correct, w, self.edges_)

    @classmethod
    def _confidence(cls, top: TopClass, params: Parameters, xp: Any) -> Array:
        values, edges = params["values_"], params["edges_"]
        s = xp.zeros_like(top.confidence) + values[0]
        for i in range(edges.shape[0]):
            s = xp.where(top.confidence > edges[i], xp.zeros_like(s) + values[i + 1], s)
        return s


class TopLabelHistogram(ConfidenceCalibrator):
    """Top-label histogram binning: a histogram of the confidence for each predicted class.

    Each predicted class has as many bins of equal mass as ``rows_per_bin`` allows; the
    confidence becomes the accuracy in its bin.  A class that is predicted less often keeps its
    confidences.  The other classes share the remaining probability in their original
    proportions.  Where the confidence would not be on top, it is raised just enough.  The
    published method perturbs ties at random; this one does not.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the order, except for ties where the confidence is 1.
    | −inf logits keep probability 0.
    | Cost: O(nK) once, and O(n log n).

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    rows_per_bin : int
        Minimum number of calibration rows per bin.

    Attributes
    ----------
    edges_ : ndarray of shape (B - 1, K)
        Upper edges of each class's bins except the last; padded with 2.
    values_ : ndarray of shape (B, K)
        Accuracy in each bin; padded with 0.
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

    parameter_names = ("edges_", "values_", "binned_")

    edges_: npt.NDArray[np.float64]
    values_: npt.NDArray[np.float64]
    binned_: Vector

    def __init__(self, *, input: Kind = "logits", rows_per_bin: int = 50) -> None:
        super().__init__(input=input)
        self.rows_per_bin = rows_per_bin

    def _fit_confidence(
        self, top: TopClass, correct: npt.NDArray[np.bool_], weight: Vector | None
    ) -> None:
        check_positive_integer("rows_per_bin", self.rows_per_bin)
        w = np.ones(correct.size) if weight is None else weight
        mass = np.bincount(top.prediction, w, self.n_classes_)
        bins = np.floor(mass / self.rows_per_bin)
        histograms = {}
        for k in np.flatnonzero(bins):
            rows = (top.prediction == k) & (w > 0.0)
            c = top.confidence[rows]
            edges = equal_mass_edges(c, w[rows], float(bins[k]))
            histograms[k] = edges, bin_accuracies(c, correct[rows], w[rows], edges)
        max_edges = max((edges.size for edges, _ in histograms.values()), default=0)
        self.edges_ = np.full((max_edges, self.n_classes_), _UNUSED_EDGE)
        self.values_ = np.zeros((max_edges + 1, self.n_classes_))
        self.binned_ = (bins > 0).astype(np.float64)
        for k, (edges, values) in histograms.items():
            self.edges_[: edges.size, k] = edges
            self.values_[: values.size, k] = values

    @classmethod
    def _confidence(cls, top: TopClass, params: Parameters, xp: Any) -> Array:
        values, edges = params["values_"], params["edges_"]
        s = values[0][top.prediction]
        for i in range(edges.shape[0]):
            above = top.confidence > edges[i][top.prediction]
            s = xp.where(above, values[i + 1][top.prediction], s)
        return xp.where(params["binned_"][top.prediction] > 0.0, s, top.confidence)


def bin_accuracies(
    confidence: Vector, correct: npt.NDArray[np.bool_], weight: Vector, edges: Vector
) -> npt.NDArray[np.float64]:
    """Return the accuracy in each bin, or the middle of a bin without rows."""
    bins = edges.size + 1
    bin_of_row = np.searchsorted(edges, confidence)
    mass = np.bincount(bin_of_row, weight, bins)
    hits = np.bincount(bin_of_row, weight * correct, bins)
    ends = np.concatenate([[0.0], edges, [1.0]])
    middle = 0.5 * (ends[1:] + ends[:-1])
    return np.where(mass > 0.0, hits / np.where(mass > 0.0, mass, 1.0), middle)


def weighted_quantiles(x: Vector, weight: Vector, share: Vector) -> Vector:
    """Return linearly interpolated quantiles; a row of weight 2 counts as two rows.

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
    cumulative, ascending = np.cumsum(weight[order]), x[order]
    # Weights with a mean below one are not counts: scale their mean to one row.
    cumulative *= max(1.0, ascending.size / cumulative[-1])
    position = share * (cumulative[-1] - 1.0)
    whole = np.floor(position)
    last = ascending.size - 1
    low, high = (
        ascending[np.minimum(np.searchsorted(cumulative, at, side="right"), last)]
        for at in (whole, whole + 1.0)
    )
    return np.asarray(low + (position - whole) * (high - low))


def equal_mass_edges(x: Vector, weight: Vector, bins: float) -> Vector:
    """Return the upper edges of all bins except the last; the first bins take the odd rows.

    Bins with equal edges are merged, so there are at most as many bins as rows, for any
    weights, and the last bin is not empty.

    Examples
    --------
    >>> equal_mass_edges(np.array([0.1, 0.2, 0.3, 0.4, 0.5]), np.ones(5), 2)
    array([0.3])
    >>> equal_mass_edges(np.array([0.1, 0.2, 0.3]), np.full(3, 1e15), 1e12)
    array([0.1, 0.2])
    """
    order = np.argsort(x, kind="stable")
    cumulative = np.cumsum(weight[order])
    per_bin, odd = divmod(cumulative[-1], bins)
    cumulative += 1e-6 * max(1.0, cumulative[-1] / x.size)  # sums of weights are rounded
    # Bin m ends at mass m·per_bin + min(m, odd): count the bins that end at or before each row.
    full_bins = np.where(
        cumulative < odd * (per_bin + 1.0),
        cumulative / (per_bin + 1.0),
        (cumulative - odd) / per_bin,
    )
    full_bins = np.clip(np.floor(full_bins), 0.0, bins - 1.0)
    edges = np.unique(x[order][np.diff(full_bins, prepend=0.0) > 0.0])
    return np.asarray(edges[edges < x[order[-1]]])
