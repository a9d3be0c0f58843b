"""Histograms of the confidence: the share of right decisions in each bin."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal._door.types import Array, Kind, Vector
from cordcal.calibrators._base import Held
from cordcal.calibrators._facts import Size
from cordcal.calibrators.confidence import ConfidenceMap, Tops

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

    _holds = ("edges_", "values_")

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
    def _confidence(cls, found: Tops, held: Held, xp: Any) -> Array:
        values, edges = held["values_"], held["edges_"]
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

    _holds = ("edges_", "values_", "binned_")

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
    def _confidence(cls, found: Tops, held: Held, xp: Any) -> Array:
        values, edges = held["values_"], held["edges_"]
        s = values[0][found.decision]
        for i in range(edges.shape[0]):
            above = found.confidence > edges[i][found.decision]
            s = xp.where(above, values[i + 1][found.decision], s)
        return xp.where(held["binned_"][found.decision] > 0.0, s, found.confidence)


def check_bins(value: Any, name: str) -> None:
    """Refuse a number of bins, or of rows in one, that is none."""
    if not (isinstance(value, int | np.integer) and value >= 1):
        raise Refusal(name, f"is {value!r}", "pass a whole number from 1 on")


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
