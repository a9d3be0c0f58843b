"""How far down the list a calibrator reorders the classes: `topk_changes`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal, placed, refuse
from cordcal._door.reports import check_same_shape, nan_refusal
from cordcal._door.rows import same_rows
from cordcal._door.types import Classes
from cordcal._door.vectors import check_weights
from cordcal._numeric.exact import ExactSum, total_weight
from cordcal.metrics._changes import added, tally
from cordcal.metrics._documented import documented
from cordcal.metrics._feeding import fed
from cordcal.metrics._rows import Report
from cordcal.metrics._stream import require_rows, unlike


@dataclass(frozen=True)
class TopkChanges:
    """How an evaluated report's k best classes differ from the original ones.

    Attributes
    ----------
    n, k : int
        Rows compared, and how many classes of each.
    n_set_changed, n_order_changed : int
        Rows whose k best classes are other classes; rows whose k best classes are other
        classes or the same in another order.
    set_changed, order_changed : float
        Their shares of the rows' weight.
    """

    n: int
    k: int
    n_set_changed: int
    n_order_changed: int
    set_changed: float
    order_changed: float

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return asdict(self)


class TopkChangesStream:
    """`topk_changes` of blocks of rows, exact for any blocks and order.

    Parameters
    ----------
    k : int
        How many of the best classes to compare.
    """

    def __init__(self, k: int) -> None:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise Refusal("k", f"is {k!r}", "pass a whole number of classes, at least 1")
        self.k = int(k)
        self._n = 0
        self._weight = ExactSum()
        self._parts = [(0, ExactSum())] * 2

    def update(self, original: Any, evaluated: Any, *, sample_weight: Any = None) -> Self:
        """Add a block of rows; the arguments are those of `topk_changes`.

        Parameters
        ----------
        original, evaluated : array_like of shape (n, K)
            Probabilities or logits.
        sample_weight : array_like, optional
            Weights of the rows.

        Returns
        -------
        self : TopkChangesStream
            The stream, so that calls can be chained.
        """
        original, evaluated, sample_weight = same_rows(
            original=original, evaluated=evaluated, sample_weight=sample_weight
        )
        before, after = Report.of(original, "original"), Report.of(evaluated, "evaluated")
        check_same_shape(before.values, "original", after.values, "evaluated")
        if self.k > before.classes:
            raise Refusal(
                "k",
                f"is {self.k} but there are {before.classes} classes",
                f"pass k between 1 and {before.classes}",
            )
        weight = (
            None if sample_weight is None else check_weights(sample_weight, before.rows, some=False)
        )
        for (at, first), (_, second) in zip(before.blocks(), after.blocks(), strict=True):
            best = [
                _best(block, self.k, name, at.start)
                for block, name in ((first, "original"), (second, "evaluated"))
            ]
            order = (best[0] != best[1]).any(axis=1)
            members = (np.sort(best[0], axis=1) != np.sort(best[1], axis=1)).any(axis=1)
            block_weight = None if weight is None else weight[at]
            tallies = [tally(flags, block_weight) for flags in (members, order)]
            self._parts = added(self._parts, tallies)
        self._n += before.rows
        self._weight += total_weight(before.rows, weight)
        return self

    def merge(self, other: Self) -> Self:
        """Add what another stream has seen; return this stream."""
        if other.k != self.k:
            raise unlike(f"k = {self.k} and k = {other.k}")
        self._n += other._n
        self._weight += other._weight
        self._parts = added(self._parts, other._parts)
        return self

    def result(self) -> TopkChanges:
        """Return the changes among all rows seen so far."""
        require_rows(self._n)
        (n_set, of_set), (n_order, of_order) = self._parts
        set_rate, order_rate = of_set.mean(self._weight), of_order.mean(self._weight)
        return TopkChanges(self._n, self.k, n_set, n_order, set_rate, order_rate)


def _best(scores: npt.NDArray[Any], k: int, name: str, first: int) -> Classes:
    """Return each row's k best classes, best first, the smallest index on ties."""
    rows, classes = scores.shape
    # NaN sorts last, so it shows among the best.
    threshold = np.partition(scores, classes - k, axis=1)[:, classes - k :]
    if np.isnan(threshold).any():
        with placed(first):
            refuse(nan_refusal(scores, name))
    inside = scores >= threshold[:, :1]
    # A tie at the last place lets too many in: the smallest indices stay.
    crowded = np.flatnonzero(inside.sum(axis=1) > k)
    if crowded.size:
        ranked = np.argsort(-scores[crowded], axis=1, kind="stable")[:, :k]
        inside[crowded] = False
        inside[crowded[:, None], ranked] = True
    members = np.nonzero(inside)[1].reshape(rows, k)
    order = np.argsort(-np.take_along_axis(scores, members, axis=1), axis=1, kind="stable")
    return np.take_along_axis(members, order, axis=1)


@documented
def topk_changes(
    original: Any, evaluated: Any, k: int, *, sample_weight: Any = None, axis: int | None = None
) -> TopkChanges:
    """Count the rows whose k best classes change, as a set and in their order.

    Parameters
    ----------
    original, evaluated : array_like of shape (n, K)
        Probabilities or logits; ties rank the smallest index first.
    k : int
        How many of the best classes to compare.
    sample_weight : array_like, optional
        Weights of the rows; they enter the rates, not the counts.
    {axis}

    Returns
    -------
    changes : TopkChanges
        Counts and rates.

    Examples
    --------
    >>> changes = topk_changes([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]],
    ...                        [[0.4, 0.5, 0.1], [0.5, 0.2, 0.3]], k=2)
    >>> changes.n_set_changed, changes.n_order_changed
    (1, 2)
    """
    stream = fed(TopkChangesStream(k), original, evaluated, sample_weight=sample_weight, axis=axis)
    return stream.result()
