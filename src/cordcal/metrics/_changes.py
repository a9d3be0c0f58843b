"""What a calibrator does to decisions: how many change, which way, and how far down the list."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._door import arrays
from cordcal._door.errors import Refusal, refuse
from cordcal._door.names import column_names, in_column_order
from cordcal._door.reports import nan_refusal
from cordcal._door.rows import same_rows
from cordcal._door.types import Classes, Vector
from cordcal._door.vectors import check_decisions, check_weights
from cordcal._numeric.exact import ExactSum, total_weight
from cordcal.metrics._documented import documented
from cordcal.metrics._feeding import fed
from cordcal.metrics._rows import Report
from cordcal.metrics._stream import require_rows


@dataclass(frozen=True)
class DecisionChanges:
    """How an evaluated report's decisions differ from the original ones.

    Counts are numbers of rows; rates are shares of the rows' weight.  What needs labels is
    None without them.

    Attributes
    ----------
    n : int
        Rows compared.
    n_changed : int
        Rows whose decision changed.
    tpcr : float
        Top-1 prediction change rate: their share.
    n_gained, n_lost, n_neutral : int or None
        C⁺ (wrong → correct), C⁻ (correct → wrong), C⁰ (wrong → another wrong class).
    gained, lost, neutral : float or None
        Their shares; they add up to ``tpcr``.
    delta_accuracy : float or None
        Accuracy of the evaluated decisions minus that of the original: ``gained - lost``.
    """

    n: int
    n_changed: int
    tpcr: float
    n_gained: int | None = None
    n_lost: int | None = None
    n_neutral: int | None = None
    gained: float | None = None
    lost: float | None = None
    neutral: float | None = None
    delta_accuracy: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return asdict(self)


class DecisionChangesStream:
    """`decision_changes` of blocks of rows, exact for any blocks and order.

    Examples
    --------
    >>> stream = DecisionChangesStream()
    >>> stream.update([0, 1], [[0.4, 0.6], [0.1, 0.9]], [1, 1]).result().tpcr
    0.5
    """

    def __init__(self) -> None:
        self._n = self._changed = 0
        self._weight = self._changed_weight = ExactSum()
        # By kind: C⁺, C⁻, C⁰.  None once a block came without labels.
        self._kinds: list[tuple[int, ExactSum]] | None = [(0, ExactSum())] * 3

    def update(
        self, original: Any, evaluated: Any, labels: Any = None, *, sample_weight: Any = None
    ) -> Self:
        """Add a block of rows; the arguments are those of `decision_changes`.

        Parameters
        ----------
        original, evaluated : array_like
            Scores of shape (n, K), or n decisions.
        labels : array_like of int, optional
            The true class of each row.
        sample_weight : array_like, optional
            Weights of the rows.

        Returns
        -------
        self : DecisionChangesStream
            The stream, so that calls can be chained.
        """
        original, evaluated, labels, sample_weight = same_rows(
            original=original, evaluated=evaluated, labels=labels, sample_weight=sample_weight
        )
        before, after, classes = decision_pair(original, evaluated)
        weight = (
            None if sample_weight is None else check_weights(sample_weight, len(before), some=False)
        )
        truth: Classes | None = None
        if labels is not None:
            if classes is None:  # two vectors of decisions do not say how many classes there are
                classes = 1 + int(np.max(arrays.to_numpy(labels), initial=0))
            truth = check_decisions(labels, len(before), classes, "labels")
        return self.add(before, after, truth, weight)

    def add(
        self,
        before: Classes,
        after: Classes,
        truth: Classes | None = None,
        weight: Vector | None = None,
    ) -> Self:
        """Add decisions, labels and weights that were checked already."""
        moved = before != after
        self._n += len(before)
        self._weight += total_weight(len(before), weight)
        count, changed_weight = tally(moved, weight)
        self._changed += count
        self._changed_weight += changed_weight
        if truth is None:
            self._kinds = None
            return self
        if self._kinds is not None:
            gained, lost = moved & (after == truth), moved & (before == truth)
            kinds = (gained, lost, moved & ~gained & ~lost)
            self._kinds = added(self._kinds, [tally(kind, weight) for kind in kinds])
        return self

    def merge(self, other: Self) -> Self:
        """Add what another stream has seen; return this stream."""
        self._n += other._n
        self._changed += other._changed
        self._weight += other._weight
        self._changed_weight += other._changed_weight
        if self._kinds is not None and other._kinds is not None:
            self._kinds = added(self._kinds, other._kinds)
        else:
            self._kinds = None
        return self

    def result(self) -> DecisionChanges:
        """Return the changes among all rows seen; split only if every block had labels."""
        require_rows(self._n)
        tpcr = self._changed_weight.mean(self._weight)
        if self._kinds is None:
            return DecisionChanges(self._n, self._changed, tpcr)
        (n_gained, gained), (n_lost, lost), (n_neutral, neutral) = self._kinds
        return DecisionChanges(
            n=self._n,
            n_changed=self._changed,
            tpcr=tpcr,
            n_gained=n_gained,
            n_lost=n_lost,
            n_neutral=n_neutral,
            gained=gained.mean(self._weight),
            lost=lost.mean(self._weight),
            neutral=neutral.mean(self._weight),
            delta_accuracy=(gained - lost).mean(self._weight),
        )


def tally(flags: npt.NDArray[np.bool_], weight: Vector | None) -> tuple[int, ExactSum]:
    count = int(np.count_nonzero(flags))
    return count, total_weight(count, None if weight is None else weight[flags])


def added(
    first: list[tuple[int, ExactSum]], second: list[tuple[int, ExactSum]]
) -> list[tuple[int, ExactSum]]:
    return [(n + m, a + b) for (n, a), (m, b) in zip(first, second, strict=True)]


def read_decisions(values: Any, name: str) -> tuple[Classes, int | None]:
    """Read decisions and the number of classes: class indices as given, or argmaxes of scores.

    Scores may be probabilities or logits: only their order is read, the smallest index on
    ties.  A vector of class indices says nothing about how many classes there are.
    """
    if np.ndim(values) == 1:
        vector = arrays.to_numpy(values, name)
        whole = vector.dtype.kind in "iu" or (
            vector.dtype.kind == "f" and np.array_equal(vector, np.round(vector))
        )
        if not whole or not vector.size:
            raise Refusal(
                name,
                f"has shape {vector.shape} and dtype {vector.dtype}",
                "pass scores of shape (rows, classes), or one class index for each row",
            )
        return check_decisions(vector, len(vector), int(vector.max()) + 1, name), None
    report = Report.of(values, name)
    chosen = np.empty(report.rows, dtype=np.intp)
    for at, block in report.blocks():
        chosen[at] = first = arrays.first_argmax(block)
        # A NaN wins NumPy's argmax, so looking at the winners finds every row that has one.
        if np.isnan(block[np.arange(len(block)), first]).any():
            refuse(nan_refusal(report.values, name))
    return chosen, report.classes


def decision_pair(original: Any, evaluated: Any) -> tuple[Classes, Classes, int | None]:
    """Read the decisions of both sides and the number of classes."""
    before, classes = read_decisions(original, "original")
    after, other_classes = read_decisions(evaluated, "evaluated")
    if len(before) != len(after) or (classes and other_classes and classes != other_classes):
        raise Refusal(
            "original",
            f"has shape {np.shape(original)} but evaluated has shape {np.shape(evaluated)}",
            "both must hold the same rows and classes",
        )
    known = classes or other_classes
    if known:
        before = check_decisions(before, len(before), known, "original")
        after = check_decisions(after, len(after), known, "evaluated")
    return before, after, known


@documented
def decision_changes(
    original: Any,
    evaluated: Any,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    axis: int | None = None,
    ignore_index: int | None = None,
) -> DecisionChanges:
    """Count the decisions an evaluated report changes, and with labels, which way.

    Parameters
    ----------
    original, evaluated : array_like
        Probabilities or logits of shape (n, K), of which the argmax is read, the smallest
        index on ties; or n class indices, the decisions as the caller's system reads them.
    labels : array_like of int, optional
        The true class of each row; splits the changes into C⁺, C⁻ and C⁰.
    sample_weight : array_like, optional
        Weights of the rows; they enter the rates, not the counts.
    {axis, ignore_index}

    Returns
    -------
    changes : DecisionChanges
        Counts, rates and the net change of accuracy.

    Examples
    --------
    >>> original = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.5, 0.4, 0.1], [0.1, 0.2, 0.7]]
    >>> evaluated = [[0.4, 0.5, 0.1], [0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.1, 0.2, 0.7]]
    >>> changes = decision_changes(original, evaluated, [0, 0, 1, 2])
    >>> changes.n_gained, changes.n_lost, changes.n_neutral
    (1, 1, 1)
    >>> changes.tpcr, changes.delta_accuracy
    (0.75, 0.0)
    """
    # Labels count the columns of the original.
    evaluated = in_column_order(evaluated, "evaluated", column_names(original), "original")
    stream = fed(
        DecisionChangesStream(),
        original,
        evaluated,
        labels=labels,
        sample_weight=sample_weight,
        axis=axis,
        ignore_index=ignore_index,
    )
    return stream.result()


@documented
def tpcr(
    original: Any, evaluated: Any, *, sample_weight: Any = None, axis: int | None = None
) -> float:
    """Return the top-1 prediction change rate: the share of rows whose decision differs.

    Parameters
    ----------
    original, evaluated : array_like
        Probabilities or logits of shape (n, K), or n class indices, as for
        `decision_changes`.
    sample_weight : array_like, optional
        Weights of the rows.
    {axis}

    Returns
    -------
    tpcr : float
        Between 0 and 1.

    Examples
    --------
    >>> tpcr([[0.6, 0.4], [0.3, 0.7]], [[0.4, 0.6], [0.2, 0.8]])
    0.5
    >>> tpcr([0, 1], [[0.4, 0.6], [0.2, 0.8]])
    0.5
    """
    return decision_changes(original, evaluated, sample_weight=sample_weight, axis=axis).tpcr
