"""Monotone curves between fitted knots: isotonic regression, Venn-Abers, interpolation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cordcal._numeric.arrays import scratch
from cordcal._numeric.types import Array, Vector
from cordcal.expressions import Parameters, minimum

# Entries to interpolate at a time: a handful of buffers stays in the processor's cache.
_PIECE = 2**15
# Size of a table of starting points: for all curves together, and at least for each of them.
_TABLE_SIZE, _MIN_TABLE_SIZE = 2**12, 2**8

Positions = npt.NDArray[np.intp]


def curve_parameters(
    knot_x: Vector,
    knot_y: Vector,
    knot_start: npt.NDArray[np.int64] | None = None,
    slope: Vector | None = None,
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays with which `interpolate` evaluates curves.

    Parameters
    ----------
    knot_x, knot_y : ndarray
        The knots of all curves, concatenated.
    knot_start : ndarray of int, optional
        Index of each curve's first knot, then the number of knots; by default there is one curve.
    slope : ndarray, optional
        The slopes of each curve, left of its first knot and right of each knot; by default it
        is linear between the knots and constant beyond them.

    Examples
    --------
    >>> arrays = curve_parameters(np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.2, 1.0]))
    >>> interpolate(np.array([[-1.0, 0.25, 0.75, 2.0]]), Parameters(arrays), np).round(3)
    array([[0. , 0.1, 0.6, 1. ]])
    """
    start = np.array([0, knot_x.size]) if knot_start is None else knot_start
    first, count = start[:-1], np.diff(start)
    padded = np.full((count.size, count.max()), np.inf)
    padded[np.arange(count.max()) < count[:, None]] = knot_x
    if slope is None:
        slope = np.insert(_slopes(knot_x, knot_y, start), first, 0.0)
    return {
        # Each curve is a list of half-lines, each valid up to the next; the first and the second
        # begin at the first knot, to its left and to its right.
        "begin_x_": np.insert(knot_x, first, knot_x[first]),
        "begin_y_": np.insert(knot_y, first, knot_y[first]),
        "slope_": slope,
        # Each curve's first and last half-line.
        "first_": first + np.arange(first.size),
        "last_": start[1:] + np.arange(first.size),
        # For torch, and for graphs.
        "padded_": padded,
        "stride_": 2 ** np.arange(int(count.max()).bit_length(), dtype=np.int64)[::-1],
    }


def _slopes(knot_x: Vector, knot_y: Vector, start: npt.NDArray[np.int64]) -> Vector:
    """Return the slope from each knot to the next one of its curve."""
    run, slope = np.diff(knot_x), np.zeros(knot_x.size)
    np.divide(np.diff(knot_y), run, out=slope[:-1], where=run > 0.0)
    slope[start[1:] - 1] = 0.0
    return slope


def interpolate(x: Array, params: Parameters, xp: Any) -> Array:
    """Evaluate one curve at every entry, or a different one per column.

    The arrays of ``params`` are those of `curve_parameters`.  NumPy arrays are overwritten.
    """
    if xp is np:
        curves = params.curves or CurveSearch.of(params.arrays)
        return curves.interpolate(x)
    begin_x, last = params["begin_x_"], params["last_"]
    if hasattr(xp, "searchsorted"):
        at = _search_torch(x, params, xp)
    else:
        at = xp.astype(xp.zeros_like(x), xp.int64) + params["first_"]
        for i in range(params["stride_"].shape[0]):
            candidate = minimum(at + params["stride_"][i], last, xp)
            at = xp.where(begin_x[candidate] <= x, candidate, at)
    return params["slope_"][at] * (x - begin_x[at]) + params["begin_y_"][at]


def _search_torch(x: Array, params: Parameters, xp: Any) -> Array:
    """Return the last half-line that begins at or below each entry."""
    knots = params["padded_"]
    if knots.shape[0] == 1:
        return xp.searchsorted(knots[0], x, right=True)
    above = xp.searchsorted(knots, x.T.contiguous(), right=True).T
    # Also a NaN stays within its curve.
    return xp.clamp(above + params["first_"], max=params["last_"])


@dataclass(frozen=True, slots=True, eq=False)
class CurveSearch:
    """Curves prepared for NumPy: the search for an entry's half-line starts from a table.

    The table goes by the leading bits of an entry's distance from ``left``, which order numbers
    from 0 on.  An infinite abscissa follows each curve's last one, so that the search does not
    leave the curve.
    """

    x: Vector
    y: Vector
    slope: Vector
    left: float
    # Distances below and above have the first and the last place of the table.
    bounds: tuple[float, float]
    # How many of a distance's bits are dropped, and what to add to the others, per curve.
    shift: int
    origin: Positions
    table: Positions

    @classmethod
    def of(cls, params: Mapping[str, Array]) -> CurveSearch:
        """Prepare the curves of `curve_parameters`."""
        first, last = params["first_"], params["last_"]
        x = params["begin_x_"]
        left = min(0.0, float(x.min()))
        distance = x - left
        # The first two half-lines begin at the same abscissa.  Above zero, because the bits of −0
        # are those of the smallest integer.
        low = max(float(distance[np.minimum(first + 2, last)].min()), np.finfo(np.float64).tiny)
        high = max(low, float(distance.max()))
        size = max(_TABLE_SIZE // first.size, _MIN_TABLE_SIZE)
        shift = ((_bits(high) - _bits(low)) // size).bit_length()
        edges = np.arange(_bits(low) >> shift, (_bits(high) >> shift) + 1) << shift
        table = np.empty((first.size, edges.size), dtype=np.intp)
        for row, begin, end in zip(table, first.tolist(), last.tolist(), strict=True):
            # Half-lines that begin before the place does: distances that round alike may differ.
            before = np.searchsorted(distance[begin : end + 1], edges.view(np.float64))
            row[:] = begin + np.maximum(before - 1, 0)
        table[:, 0] = first
        curve = np.arange(first.size)
        return cls(
            np.insert(x, last + 1, np.inf),
            np.insert(params["begin_y_"], last + 1, np.inf),
            np.insert(params["slope_"], last + 1, np.inf),
            left,
            (low, high),
            shift,
            curve * edges.size - (_bits(low) >> shift),
            (table + curve[:, None]).ravel(),  # after the infinite ones of earlier curves
        )

    def interpolate(self, x: Array) -> Array:
        """Evaluate the curves at all entries, in place."""
        rows = max(1, _PIECE * len(x) // max(1, x.size))
        with scratch(3 * x[:rows].size) as memory:
            for begin in range(0, len(x), rows):
                part = x[begin : begin + rows]
                at, step, value = memory[: 3 * part.size].reshape(3, *part.shape)
                at, step = at.view(np.intp), step.view(np.intp)
                self._find(part, at, step, value)
                part -= self.x.take(at, out=value, mode="clip")
                part *= self.slope.take(at, out=value, mode="clip")
                part += self.y.take(at, out=value, mode="clip")
        return x

    def _find(self, x: Array, at: Positions, step: Positions, value: Vector) -> None:
        """Set ``at`` to the last half-line that begins at or below each entry, else the first."""
        np.subtract(x, self.left, out=value)
        np.maximum(value, self.bounds[0], out=value)
        np.minimum(value, self.bounds[1], out=value)
        np.right_shift(value.view(np.int64), self.shift, out=step)
        step += self.origin
        self.table.take(step, out=at, mode="clip")
        following = self.x[1:]
        behind = following.take(at, out=value, mode="clip") <= x
        at += behind
        # Few entries are more than one step away.
        some = behind.reshape(-1).nonzero()[0]
        flat_at, flat_x = at.reshape(-1), x.reshape(-1)
        while some.size:
            some = some[following[flat_at[some]] <= flat_x[some]]
            flat_at[some] += 1


def _bits(number: float) -> int:
    """Return the bits of a number as an integer."""
    return int(np.float64(number).view(np.int64))


# Float64 resolution near one, rounded to a power of ten; closer abscissas count as equal.
_RESOLUTION = 1e-15

# Levels lie between 0 and 1; those that differ by less differ only by rounding.
_SAME_LEVEL = 1e-13

# Rounds of an isotonic regression in NumPy; only a long staircase before a fall takes more.
_POOLING_ROUNDS = 32

# Abscissas that are processed together.
_SORTED_PIECE = 2**18


Knots = tuple[Vector, Vector]
"""Abscissas and values of a curve's knots."""

JoinedKnots = tuple[Vector, Vector, npt.NDArray[np.int64]]
"""Knots of several curves, and the index of each curve's first knot, then their number."""


class Elements(NamedTuple):
    """What an isotonic regression pools: first and last abscissa, positive mass, mass.

    A group of equal abscissas with a positive row is an element, and so are all rows between two
    of these.
    """

    first: Vector
    last: Vector
    positive: Vector | Positions
    mass: Vector


def fit_knots(x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None = None) -> Knots:
    """Return the knots of the isotonic regression of ``positive`` on ``x``.

    Examples
    --------
    >>> x = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    >>> fit_knots(x, np.array([False, True, False, True, True]))
    (array([0.1, 0.2, 0.3, 0.4, 0.5]), array([0. , 0.5, 0.5, 1. , 1. ]))
    """
    return knots_of_elements([elements_of(x.copy(), positive, weight)])[:2]


def knots_of_elements(curves: Iterable[Elements]) -> JoinedKnots:
    """Return the knots of several isotonic regressions, which are pooled together."""
    parts = list(curves)
    first, last, positive, mass = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    begin = np.cumsum([0, *(part.mass.size for part in parts[:-1])])
    return _knots(first, last, _isotonic(positive, mass, begin), begin)


def join_knots(curves: Iterable[Knots]) -> JoinedKnots:
    """Concatenate the knots of several curves."""
    x, y = zip(*curves, strict=True)
    start = np.cumsum([0, *(part.size for part in x)], dtype=np.int64)
    return np.concatenate(x), np.concatenate(y), start


def elements_of(
    x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None = None
) -> Elements:
    """Return the elements of a regression of ``positive`` on ``x``, which may be overwritten."""
    if weight is None:
        return elements_of_hits(x, x[positive])
    return _sorted_elements(*_sort_weighted(x, positive, weight))[0]


def elements_of_hits(x: Vector, hits: Vector) -> Elements:
    """Return the elements from all abscissas, in any order afterwards, and the positive ones."""
    ordered, dropped = _sort_from(_far_below(hits, x.size), x)
    return _sorted_elements(ordered, hits, dropped=dropped)[0]


def _sort_weighted(
    x: Vector, positive: npt.NDArray[np.bool_], weight: Vector
) -> tuple[Vector, Vector, Vector, Vector]:
    """Return the sorted abscissas, the positive ones, and the weights of both."""
    counted = weight > 0.0
    x, positive, weight = x[counted], positive[counted], weight[counted]
    order = np.argsort(x, kind="stable")
    return x[order], x[positive], weight[order], weight[positive]


def _sorted_elements(
    ordered: Vector,
    hits: Vector,
    weight: Vector | None = None,
    hit_weight: Vector | None = None,
    *,
    dropped: int = 0,
) -> tuple[Elements, Positions]:
    """Return the elements of sorted abscissas, and where each begins.

    ``hits`` are those of positive rows; others were dropped below the second abscissa.
    """
    start, last_group = _element_bounds(ordered, hits)
    if weight is None:
        mass = np.diff(start, append=ordered.size).astype(np.float64)
    else:
        mass = np.add.reduceat(weight, start)
    mass[0] += dropped
    first = ordered[start]
    element = np.searchsorted(first, hits, side="right") - 1
    positive = np.bincount(element, weights=hit_weight, minlength=start.size)
    return Elements(first, ordered[last_group], positive, mass), start


def _far_below(hits: Vector, rows: int) -> float:
    """Return a bound; no group of abscissas below it reaches a positive row."""
    return float(np.min(hits, initial=np.inf)) - 2.0 * _RESOLUTION * rows


def _sort_from(bound: float, x: Vector) -> tuple[Vector, int]:
    """Sort abscissas, of those below a bound only the first and the last; count the others.

    With many classes most rows lie below every positive one, on the curve's first flat piece.
    """
    below = x < bound
    count = int(np.count_nonzero(below))
    if count <= x.size // 8 + 2:
        x.sort()
        return x, 0
    low = x[below]
    ordered = np.empty(x.size - count + 2)
    ordered[:2] = low.min(), low.max()
    np.compress(~below, x, out=ordered[2:])
    ordered[2:].sort()
    return ordered, count - 2


def fit_centres(x: Vector, positive: npt.NDArray[np.bool_], weight: Vector | None = None) -> Knots:
    """Return the knots of the centred isotonic regression: a level at its rows' mean abscissa.

    Examples
    --------
    >>> x = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    >>> fit_centres(x, np.array([False, True, False, True, True]))
    (array([0.1 , 0.25, 0.45]), array([0. , 0.5, 1. ]))
    """
    w = np.ones(x.size) if weight is None else weight
    ordered, hits, w, hit_weight = _sort_weighted(x, positive, w)
    elements, start = _sorted_elements(ordered, hits, w, hit_weight)
    level, moment = _isotonic(*elements[2:]), np.add.reduceat(w * ordered, start)
    # Levels equal up to rounding are one level: 0.1 / 0.2 and 0.3 / 0.6 need not be equal.
    new = np.flatnonzero(np.append(True, np.diff(level) > _SAME_LEVEL))
    centre = np.add.reduceat(moment, new) / np.add.reduceat(elements.mass, new)
    # Rounding may put the means of close abscissas out of order.
    return np.maximum.accumulate(centre), level[new]


def _element_bounds(ordered: Vector, hits: Vector) -> tuple[Positions, Positions]:
    """Return where elements of sorted abscissas begin, and where their last groups begin.

    Abscissas that count as equal are a group.
    """
    first, last = _groups(ordered)

    def group_of(position: Positions) -> tuple[Positions, Positions]:
        """Return the first and the last position of the groups of some positions."""
        if not first.size:
            return position, position
        nearest = np.searchsorted(first, position, side="right") - 1
        inside = (nearest >= 0) & (position <= last[nearest])
        return np.where(inside, first[nearest], position), np.where(inside, last[nearest], position)

    with_hit, end_of_hit = group_of(np.searchsorted(ordered, np.sort(hits)))
    begins = np.concatenate([[0, ordered.size], with_hit, end_of_hit + 1])
    start = _distinct(begins)[:-1]
    return start, group_of(np.append(start[1:], ordered.size) - 1)[0]


def _distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the sorted distinct values, as `numpy.unique`, which is slower."""
    values = np.sort(values)
    distinct: npt.NDArray[Any] = values[np.append(True, values[1:] != values[:-1])[: values.size]]
    return distinct


def _isotonic(
    total: Vector | Positions, mass: Vector, begin: Positions | Sequence[int] = (0,)
) -> Vector:
    """Return the isotonic regressions of ``total / mass`` by pooling adjacent violators.

    A round pools every run that does not rise.  Rounds are few, about ten for 3,000 levels; SciPy
    finishes what they leave.  Importing it costs more than most regressions.  ``begin`` has the
    first index of each regression.
    """
    size, start, begin = mass.size, np.arange(mass.size), np.asarray(begin)
    level = total / mass
    for _ in range(_POOLING_ROUNDS):
        rises = level[1:] > level[:-1]
        rises[begin[1:] - 1] = True
        rising = np.flatnonzero(rises) + 1
        if rising.size + 1 >= level.size:
            break
        run = np.concatenate(([0], rising))
        total, mass = np.add.reduceat(total, run), np.add.reduceat(mass, run)
        level, start, begin = total / mass, start[run], np.searchsorted(run, begin)
    else:
        from scipy.optimize import isotonic_regression

        for at in map(slice, begin, np.append(begin[1:], level.size)):
            level[at] = isotonic_regression(level[at], weights=mass[at]).x
    return np.repeat(level, np.diff(start, append=size))


class FoldCurve:
    """Isotonic regressions of the same rows without one fold each; every fold is sorted once.

    The elements of all rows are found first.  Without a fold they have smaller masses, and some
    are empty; a regression needs no more.  If values close to a positive row form a chain, which
    of them count as equal depends on the fold that is left out, and the other folds are merged.

    Parameters
    ----------
    x : sequence of ndarray
        The abscissas of each fold; in any order afterwards.
    hits : sequence of ndarray
        The abscissas of its positive rows.
    """

    def __init__(self, x: Sequence[Vector], hits: Sequence[Vector]) -> None:
        every = _distinct(np.concatenate(hits))
        bound = _far_below(every, sum(part.size for part in x))
        parts = [_sort_from(bound, part) for part in x]
        # The abscissas around each positive one: the first and last of them, and the next.
        first, last, after = np.full((3, every.size), np.inf)
        last = -last
        for part, _ in parts:
            begin = np.searchsorted(part, every - 2.0 * _RESOLUTION)
            end = np.searchsorted(part, every + 2.0 * _RESOLUTION, side="right")
            some = np.flatnonzero(begin < end)
            first[some] = np.minimum(first[some], part[begin[some]])
            last[some] = np.maximum(last[some], part[end[some] - 1])
            some = np.flatnonzero(end < part.size)
            after[some] = np.minimum(after[some], part[end[some]])
        if (last - first >= _RESOLUTION).any():
            self._merged = [_merge(parts, hits, without=fold) for fold in range(len(x))]
            return
        self._merged = []
        edges = _distinct(np.concatenate([[-np.inf], first, after[np.isfinite(after)]]))
        shape = len(x), edges.size
        self._mass, self._positive = np.empty(shape), np.empty(shape)
        self._first, self._last = np.full(shape, np.inf), np.full(shape, -np.inf)
        for fold, (part, dropped) in enumerate(parts):
            begin = np.append(np.searchsorted(part, edges), part.size)
            self._mass[fold] = np.diff(begin)
            self._mass[fold, 0] += dropped
            element = np.searchsorted(edges, hits[fold], side="right") - 1
            self._positive[fold] = np.bincount(element, minlength=edges.size)
            filled = np.flatnonzero(self._mass[fold])
            self._first[fold, filled] = part[begin[filled]]
            self._last[fold, filled] = part[begin[filled + 1] - 1]

    def elements_without(self, fold: int) -> Elements:
        """Return the elements of all other folds, as `elements_of` does."""
        if self._merged:
            return self._merged[fold]
        others = np.arange(len(self._mass)) != fold
        mass = self._mass[others].sum(axis=0)
        filled = np.flatnonzero(mass)
        first = self._first[others].min(axis=0)[filled]
        last = self._last[others].max(axis=0)[filled]
        positive = self._positive[others].sum(axis=0)[filled]
        return Elements(first, last, positive, mass[filled])


def _merge(parts: Sequence[tuple[Vector, int]], hits: Sequence[Vector], without: int) -> Elements:
    """Return the elements of all sorted parts except one."""
    others = [number for number in range(len(parts)) if number != without]
    # A stable sort merges sorted runs.
    ordered = np.sort(np.concatenate([parts[number][0] for number in others]), kind="stable")
    dropped = sum(parts[number][1] for number in others)
    positive = np.concatenate([hits[number] for number in others])
    return _sorted_elements(ordered, positive, dropped=dropped)[0]


def _knots(first: Vector, last: Vector, level: Vector, begin: Positions) -> JoinedKnots:
    """Return each level's first and last abscissa, once where they coincide."""
    new = np.append(True, level[1:] != level[:-1])
    new[begin] = True
    x = np.stack([first[new], last[np.append(new[1:], True)]], axis=1).ravel()
    y = np.repeat(level[new], 2)
    keep = np.ones(x.size, dtype=bool)
    keep[1::2] = x[1::2] != x[::2]
    place = 2 * np.searchsorted(np.flatnonzero(new), begin)
    start = np.append(np.append(0, np.cumsum(keep))[place], np.count_nonzero(keep))
    return x[keep], y[keep], start.astype(np.int64, copy=False)


def group_starts(x: Vector) -> Positions:
    """Return the positions in sorted ``x`` where groups of equal values begin, found greedily."""
    first, last = _groups(x)
    change = np.zeros(x.size + 1, dtype=np.int8)
    change[first + 1], change[last + 1] = 1, -1
    return np.flatnonzero(np.cumsum(change[:-1], dtype=np.int8) == 0)


def _groups(x: Vector) -> tuple[Positions, Positions]:
    """Return the first and the last position of each group of several equal values, greedily."""
    gaps = []
    for at in range(0, x.size, _SORTED_PIECE):
        piece = x[at : at + _SORTED_PIECE + 1]
        gaps.append(np.flatnonzero(piece[1:] - piece[:-1] < _RESOLUTION) + (at + 1))
    close = gaps[0] if len(gaps) == 1 else np.concatenate(gaps)
    if not close.size:
        return close, close
    first, last = _runs(close)
    # All neighbours in a chain may be close while its ends are not: cut such chains greedily.
    chained = x[last] - x[first] >= _RESOLUTION
    if chained.any():
        in_chain = np.flatnonzero(np.repeat(chained, last - first))
        close = np.delete(close, in_chain[_chain_cuts(x, close[in_chain])])
        first, last = _runs(close)
    return first, last


def _runs(close: Positions) -> tuple[Positions, Positions]:
    """Return the first and the last positions of groups, from all positions but the first."""
    begins = np.diff(close, prepend=-1) != 1
    return close[begins] - 1, close[np.append(begins[1:], True)[: close.size]]


def _chain_cuts(x: Vector, points: Positions) -> Positions:
    """Return which points of chains of close neighbours begin a group of their own."""
    cuts, start, previous = [], 0.0, -1
    for piece in range(0, points.size, _SORTED_PIECE):
        some = points[piece : piece + _SORTED_PIECE]
        values = zip(some.tolist(), x[some].tolist(), x[some - 1].tolist(), strict=True)
        for number, (point, value, before) in enumerate(values, piece):
            if point != previous + 1:
                start = before
            if value - start >= _RESOLUTION:
                start = value
                cuts.append(number)
            previous = point
    return np.array(cuts, dtype=np.intp)
