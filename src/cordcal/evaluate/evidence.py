"""Evidence against a promise, valid however often and whenever it is looked at.

Each test starts with a capital of one and bets on every row.  While the promise holds, no
strategy can expect to gain, so the capital exceeds 1/α at any time in the monitor's life with
probability at most α (Ville's inequality).  The logarithm of the capital is the evidence.

`CalibrationEvidence` tests labelled rows: "a prediction reported at c is right with a
probability within ``tolerance`` of c".  `DriftEvidence` tests rows without labels: "they are
exchangeable with the baseline".  Both spread their capital over several strategies, and each
strategy over starting points, so that a change after a long calm is found about as fast as one
at the beginning.

Logarithms of bets are rounded down to multiples of 2^-32 and summed as integers, and stakes
change only at fixed numbers of rows: the evidence does not depend on how rows were divided
into batches.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Classes, Vector
from cordcal.evaluate.results.monitor import BAND_EDGES

Integers = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]

# A strategy may start after every 250 rows.  A shorter period pays more for the larger number of
# starting points, a longer one finds a change later; between 100 and 1,000 it hardly matters.
START_EVERY = 250
# Evidence is compared with the limit after every 25 rows, and at the end of each batch.
LOOK_EVERY = 25
N_BANDS = len(BAND_EDGES) + 1
# Shifts of the log-odds of being right that the strategies bet on, from subtle to gross.
TILTS = np.array([-2.0, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 2.0])
# How the capital is divided: half on all rows, the rest over bands, classes and groups.
ALL_ROWS_SHARE = 0.5
FAMILY_SHARE = (1.0 - ALL_ROWS_SHARE) / 3.0
# Histogram bets on p-values: bins, pseudo-rows towards the uniform density, and the factors by
# which past counts shrink at each start (a short and a long memory; dyadic, so exact).
P_BINS = 10
P_PRIOR = 50.0
P_MEMORY = np.array([0.5, 0.9375])

_FIXED_POINT = 2.0**32


def bands_of(confidence: Vector) -> Classes:
    """Return the band of each confidence.

    Examples
    --------
    >>> bands_of(np.array([0.3, 0.5, 0.97, 1.0])).tolist()
    [0, 1, 6, 7]
    """
    return np.searchsorted(BAND_EDGES, confidence, side="right").astype(np.intp)


def _to_fixed_point(logs: Matrix) -> Integers:
    """Round down, so that no strategy gains by rounding."""
    return np.asarray(np.floor(logs * _FIXED_POINT), dtype=np.int64)


def start_weight(start: int) -> float:
    """Return the share of capital of the ``start``-th starting point, 1/(k(k + 1))."""
    return 1.0 / (start * (start + 1.0))


def log_bets(confidence: Vector, correct: npt.NDArray[np.bool_], tolerance: float) -> Integers:
    """Return the logarithms of every strategy's bets on each row, in units of 2^-32.

    The strategy with tilt t multiplies its capital by exp(t·y)/(1 + m(exp(t) − 1)).  The
    expectation is at most one if P(y = 1) ≤ m for t > 0, and if P(y = 1) ≥ m for t < 0; so m is
    c + ε in the first case and c − ε in the second.  It is the bet 1 + λ(y − m) with the stake
    that is optimal if the log-odds are off by t.

    Examples
    --------
    >>> logs = log_bets(np.array([0.9]), np.array([False]), 0.02) / 2**32
    >>> bool(logs[0, 0] > 1.0), bool(logs[0, -1] < -1.0)  # a wrong prediction reported at 90 %
    (True, True)
    """
    bound = np.where(TILTS < 0.0, confidence[:, None] - tolerance, confidence[:, None] + tolerance)
    logs = TILTS * correct[:, None] - np.log1p(bound * np.expm1(TILTS))
    return _to_fixed_point(logs)


@dataclass(eq=False)
class Capital:
    """The capital of several strategies, each spread over starting points.

    ``log_capital`` is what every strategy had when the present stretch of `START_EVERY` rows
    began, with the share that starts there; ``sums`` are its bets since.  With the same bets for
    all starting points one number per strategy is enough: capital ← (capital + new share) × bet.
    ``best`` and ``best_start`` follow the single starting point that has earned most.
    """

    shape: tuple[int, ...]
    rows: int = 0
    log_capital: Matrix = field(init=False)
    sums: Integers = field(init=False)
    best: Matrix = field(init=False)
    best_start: Integers = field(init=False)

    def __post_init__(self) -> None:
        first = np.log(start_weight(1))
        self.log_capital = np.full(self.shape, first)
        self.sums = np.zeros(self.shape, dtype=np.int64)
        self.best = np.full(self.shape, first)
        self.best_start = np.ones(self.shape, dtype=np.int64)

    @property
    def start(self) -> int:
        """The number of the latest starting point, counted from one."""
        return self.rows // START_EVERY + 1

    @property
    def unstarted(self) -> float:
        """The share of capital whose starting point is still to come."""
        return 1.0 / (self.start + 1.0)

    def advance(self, rows: int, sums: Integers) -> None:
        """Add rows up to the end of the present stretch; begin the next one there."""
        self.rows += rows
        self.sums = self.sums + sums
        if self.rows % START_EVERY:
            return
        share = np.log(start_weight(self.start))
        earned = self.sums / _FIXED_POINT
        self.log_capital = np.logaddexp(self.log_capital + earned, share)
        self.best = self.best + earned
        better = self.best < share
        self.best = np.where(better, share, self.best)
        self.best_start = np.where(better, self.start, self.best_start)
        self.sums = np.zeros_like(self.sums)

    def logs(self, sums: Integers | None = None) -> Matrix:
        """Return the logarithm of each strategy's capital, with ``sums`` more bets.

        The share that has not started counts: it is held in cash.
        """
        sums = self.sums if sums is None else self.sums + sums
        return np.logaddexp(self.log_capital + sums / _FIXED_POINT, np.log(self.unstarted))

    def first_row_of_best(self, index: tuple[int, ...]) -> int:
        """Return the row at which a strategy's best starting point lies."""
        return int(self.best_start[index] - 1) * START_EVERY


def _log_sum(logs: Matrix, weights: Matrix) -> float:
    """Return log Σ weight · exp(log) without overflow."""
    top = float(logs.max())
    return top + float(np.log((weights * np.exp(logs - top)).sum()))


def _stretches(done: int, rows: int) -> Iterator[slice]:
    """Divide new rows where stakes change, after ``done`` earlier rows."""
    start = 0
    while start < rows:
        stop = min(rows, start + START_EVERY - (done + start) % START_EVERY)
        yield slice(start, stop)
        start = stop


@dataclass(frozen=True)
class Look:
    """The evidence of a test after some of its rows."""

    evidence: float
    rows: int


class _Evidence(ABC):
    """A test with its capital."""

    capital: Capital

    @property
    def rows(self) -> int:
        """Number of rows that the test has seen."""
        return self.capital.rows

    @property
    def evidence(self) -> float:
        """The logarithm of the capital."""
        return self._evidence(self.capital.logs())

    @abstractmethod
    def _evidence(self, logs: Matrix) -> float:
        """Return the logarithm of the whole capital from those of the strategies."""


class CalibrationEvidence(_Evidence):
    """Evidence that predictions are right more or less often than their confidence.

    Parameters
    ----------
    classes : int
        Number of classes.
    tolerance : float
        How far the probability of being right may be from the confidence.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1.0, 3000)
    >>> predicted, groups = np.zeros(3000, dtype=int), np.full(3000, -1)
    >>> honest, boastful = CalibrationEvidence(2, 0.02), CalibrationEvidence(2, 0.02)
    >>> _ = honest.update(confidence, rng.random(3000) < confidence, predicted, groups)
    >>> _ = boastful.update(confidence, rng.random(3000) < confidence - 0.1, predicted, groups)
    >>> honest.evidence < 3.0 < boastful.evidence
    True
    """

    def __init__(self, classes: int, tolerance: float) -> None:
        self.classes, self.tolerance = classes, tolerance
        self.capital = Capital((1 + N_BANDS + classes, len(TILTS)))
        # Sums of c − y and its square in fixed point: Python integers, so exact.
        self.gap_sum = self.square_sum = 0

    @property
    def n_groups(self) -> int:
        """Number of groups that have appeared."""
        return self.capital.shape[0] - 1 - N_BANDS - self.classes

    def _evidence(self, logs: Matrix) -> float:
        weights = self._weights()
        # Groups that have not appeared hold their share in cash.
        cash = np.array([1.0 - weights.sum()])
        spread = np.broadcast_to(weights[:, None] / len(TILTS), logs.shape)
        return _log_sum(np.append(logs, 0.0), np.append(spread, cash))

    @property
    def mean_gap(self) -> float:
        """Mean confidence minus accuracy; there must be rows."""
        return self.gap_sum / _FIXED_POINT / self.rows

    def shares(self) -> Matrix:
        """Return how much of the capital each strategy holds, cell × tilt."""
        logs = np.log(self._weights()[:, None] / len(TILTS)) + self.capital.logs()
        return np.exp(logs - self.evidence)

    def _weights(self) -> Vector:
        """Return the share of capital of each cell; shares of groups follow 1/(j(j + 1))."""
        order = np.arange(1, self.n_groups + 1)
        return np.concatenate(
            [
                [ALL_ROWS_SHARE],
                np.full(N_BANDS, FAMILY_SHARE / N_BANDS),
                np.full(self.classes, FAMILY_SHARE / self.classes),
                FAMILY_SHARE / (order * (order + 1.0)),
            ]
        )

    def update(
        self,
        confidence: Vector,
        correct: npt.NDArray[np.bool_],
        predicted: Classes,
        groups: Classes,
        limit: float = math.inf,
    ) -> Look | None:
        """Bet on rows in their order; return the first look at which evidence reaches a limit.

        ``groups`` are numbers in the order of their first appearance, −1 for none.
        """
        gap = np.rint((confidence - correct) * _FIXED_POINT).astype(np.int64).tolist()
        self.gap_sum += sum(gap)
        self.square_sum += sum(value * value for value in gap)

        logs = log_bets(confidence, correct, self.tolerance)
        first_group = 1 + N_BANDS + self.classes
        cells = [
            np.zeros(len(predicted), dtype=np.intp),
            1 + bands_of(confidence),
            1 + N_BANDS + predicted,
            np.where(groups >= 0, first_group + groups, -1),
        ]
        crossed: Look | None = None
        for stretch in _stretches(self.rows, len(predicted)):
            # A group is added in the stretch where it appears, however rows are batched.
            self._add_groups(int(groups[stretch].max()) + 1)
            count = stretch.stop - stretch.start
            done = self.rows
            look = (done % LOOK_EVERY + np.arange(count)) // LOOK_EVERY
            sums = np.zeros((look[-1] + 1, *self.capital.shape), dtype=np.int64)
            for cell in cells:
                index = cell[stretch]
                some = index >= 0
                np.add.at(sums, (look[some], index[some]), logs[stretch][some])
            sums = sums.cumsum(axis=0)
            for number, total in enumerate(sums):
                evidence = self._evidence(self.capital.logs(total))
                if crossed is None and evidence >= limit:
                    rows = done - done % LOOK_EVERY + (number + 1) * LOOK_EVERY
                    crossed = Look(evidence, min(rows, done + count))
            self.capital.advance(count, sums[-1])
        return crossed

    def _add_groups(self, groups: int) -> None:
        """Make room for groups that appear for the first time; so far they held cash."""
        new = groups - self.n_groups
        if new <= 0:
            return
        capital = self.capital
        started = np.log1p(-capital.unstarted)
        shape = (new, len(TILTS))
        capital.log_capital = np.vstack([capital.log_capital, np.full(shape, started)])
        capital.sums = np.vstack([capital.sums, np.zeros(shape, dtype=np.int64)])
        capital.best = np.vstack([capital.best, np.full(shape, np.log(start_weight(1)))])
        capital.best_start = np.vstack([capital.best_start, np.ones(shape, dtype=np.int64)])
        capital.shape = capital.log_capital.shape

    def gap_interval(self, alpha: float) -> tuple[float, float]:
        """Return an interval for mean confidence minus accuracy, valid at every look.

        Empirical Bernstein: for |x| ≤ 1 and 0 ≤ λ < 1 the product of exp(λ(x − E x) − ψ(λ)x²)
        with ψ(λ) = −log(1 − λ) − λ is a supermartingale.  Each λ of a fixed list gives a bound
        that is linear in Σx²; the smallest one holds if α is divided among them.
        """
        if not self.rows:
            return -1.0, 1.0
        mean = self.mean_gap
        squares = self.square_sum / _FIXED_POINT**2
        steps = np.arange(1, 31)
        rates = 2.0 ** (-steps / 2.0)
        # In proportion to 1/(k(k + 1)), with sum one.
        shares = (len(steps) + 1.0) / len(steps) / (steps * (steps + 1.0))
        curvature = -np.log1p(-rates) - rates
        bounds = (np.log(2.0 / (alpha * shares)) + curvature * squares) / rates
        radius = float(bounds.min()) / self.rows
        return max(-1.0, mean - radius), min(1.0, mean + radius)


class DriftEvidence(_Evidence):
    """Evidence that rows are not exchangeable with the baseline, without labels.

    Rows fall into cells, predicted class × band of confidence.  With the cells in a fixed order
    the smoothed rank of a row among the baseline and all rows seen is uniform on [0, 1] and
    independent of earlier ranks if the rows are exchangeable.  Strategies bet on the next rank
    by the histogram of earlier ones, with two memories, for two orders: by confidence and by
    class.

    Ranks of one order are independent of its own earlier ranks, not of those of the other order.
    So the two capitals must not be averaged: the larger one counts, halved (a union bound).

    Parameters
    ----------
    counts : ndarray of int of shape (classes, N_BANDS)
        How many rows of the baseline fall into each cell.
    seed : int or numpy.random.Generator
        Breaks ties.
    """

    def __init__(self, counts: Integers, seed: int | np.random.Generator) -> None:
        self.counts = np.array(counts, dtype=np.int64)
        self.generator = np.random.default_rng(seed)
        self.histogram = np.zeros((2, len(P_MEMORY), P_BINS))
        self.recent = np.zeros((2, P_BINS))
        self.capital = Capital((2, len(P_MEMORY)))

    def _evidence(self, logs: Matrix) -> float:
        return max(_log_sum(order, np.full(len(order), 0.5 / len(order))) for order in logs)

    def update(self, predicted: Classes, bands: Classes, limit: float = math.inf) -> Look | None:
        """Bet on rows in their order; return the first look at which evidence reaches a limit."""
        classes = self.counts.shape[0]
        ranks = np.stack([bands * classes + predicted, predicted * N_BANDS + bands])
        crossed: Look | None = None
        for stretch in _stretches(self.rows, len(predicted)):
            count = stretch.stop - stretch.start
            bins = self._p_bins(ranks[:, stretch], predicted[stretch], bands[stretch])
            logs = self._log_densities()[np.arange(2)[:, None], :, bins]
            sums = logs.cumsum(axis=1)
            done = self.rows
            first = LOOK_EVERY - 1 - done % LOOK_EVERY
            for row in sorted({*range(first, count, LOOK_EVERY), count - 1}):
                evidence = self._evidence(self.capital.logs(sums[:, row]))
                if crossed is None and evidence >= limit:
                    crossed = Look(evidence, done + row + 1)
            for order in range(2):
                self.recent[order] += np.bincount(bins[order], minlength=P_BINS)
            self.capital.advance(count, sums[:, -1])
            if self.rows % START_EVERY == 0:
                memory = P_MEMORY[None, :, None]
                self.histogram = (self.histogram + self.recent[:, None, :]) * memory
                self.recent = np.zeros_like(self.recent)
        return crossed

    def _log_densities(self) -> Integers:
        """Return the logarithm of each strategy's density in each bin, in fixed point."""
        total = self.histogram.sum(axis=2, keepdims=True)
        density = (self.histogram * P_BINS + P_PRIOR) / (total + P_PRIOR)
        return _to_fixed_point(np.log(density))

    def _p_bins(self, ranks: Classes, predicted: Classes, bands: Classes) -> Classes:
        """Return the bin of each row's smoothed p-value in both orders, and count the rows.

        p = (rows of lower rank + U · rows of equal rank)/all rows; the row itself counts.
        """
        before = int(self.counts.sum())
        smoothing = self.generator.random((len(predicted), 2)).T
        total = before + 1.0 + np.arange(len(predicted))
        bins = np.empty(ranks.shape, dtype=np.intp)
        for order, counts in enumerate((self.counts.T.ravel(), self.counts.ravel())):
            rank = ranks[order]
            lower = (counts.cumsum() - counts)[rank]
            equal = counts[rank]
            earlier = np.tri(len(rank), k=-1, dtype=bool)
            lower = lower + ((rank[None, :] < rank[:, None]) & earlier).sum(axis=1)
            equal = equal + ((rank[None, :] == rank[:, None]) & earlier).sum(axis=1) + 1
            p = (lower + smoothing[order] * equal) / total
            bins[order] = np.minimum((p * P_BINS).astype(np.intp), P_BINS - 1)
        np.add.at(self.counts, (predicted, bands), 1)
        return bins


# How many times the promised error rate the bets of `ActEvidence` assume.
_FACTORS = np.array([1.25, 1.5, 2.0, 3.0, 5.0])


class ActEvidence(_Evidence):
    """Evidence that more of the acted predictions are wrong than a certificate promises.

    Each row multiplies a capital by the likelihood ratio of a larger error rate, which does not
    grow on average while at most ``error`` of the rows are wrong.

    Examples
    --------
    >>> test = ActEvidence(0.02)
    >>> test.update(np.zeros(100, dtype=bool)) is None and test.evidence < 0.0
    True
    """

    def __init__(self, error: float) -> None:
        rates = np.minimum(_FACTORS * error, (1.0 + error) / 2.0)
        self._logs = _to_fixed_point(np.log([(1.0 - rates) / (1.0 - error), rates / error]))
        self.capital = Capital(_FACTORS.shape)

    def _evidence(self, logs: Matrix) -> float:
        return float(np.logaddexp.reduce(logs) - math.log(len(_FACTORS)))

    def update(self, wrong: npt.NDArray[np.bool_], limit: float = math.inf) -> Look | None:
        """Add rows; return the first look with evidence of at least ``limit``."""
        crossed: Look | None = None
        for stretch in _stretches(self.rows, len(wrong)):
            sums = self._logs[wrong[stretch].astype(np.intp)].cumsum(axis=0)
            logs = self.capital.logs(sums)
            evidence = np.logaddexp.reduce(logs, axis=1) - math.log(len(_FACTORS))
            reached = np.flatnonzero(evidence >= limit)
            if crossed is None and len(reached):
                crossed = Look(float(evidence[reached[0]]), self.rows + int(reached[0]) + 1)
            self.capital.advance(len(sums), sums[-1])
        return crossed
