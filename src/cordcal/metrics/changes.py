"""What a calibrator changes: predictions, top-k lists, where predictions go, mean mass."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first, renumber_rows
from cordcal._numeric import arrays
from cordcal._numeric.exact import ExactSum, total_weight
from cordcal._numeric.types import Classes, Vector
from cordcal._validation.alignment import align_rows
from cordcal._validation.labels import check_decisions, check_weights
from cordcal._validation.names import column_names, in_column_order
from cordcal._validation.probabilities import check_same_shape, nan_error
from cordcal.metrics.record import documented
from cordcal.metrics.rows import Report
from cordcal.metrics.stream import WeightedMean, fed, require_rows, unlike


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
        original, evaluated, labels, sample_weight = align_rows(
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
    """Count flagged rows, and sum their weights exactly."""
    count = int(np.count_nonzero(flags))
    return count, total_weight(count, None if weight is None else weight[flags])


def added(
    first: list[tuple[int, ExactSum]], second: list[tuple[int, ExactSum]]
) -> list[tuple[int, ExactSum]]:
    """Add two lists of tallies, entry by entry."""
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
            raise InputError(
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
            raise_first(nan_error(report.values, name))
    return chosen, report.classes


def decision_pair(original: Any, evaluated: Any) -> tuple[Classes, Classes, int | None]:
    """Read the decisions of both sides and the number of classes."""
    before, classes = read_decisions(original, "original")
    after, other_classes = read_decisions(evaluated, "evaluated")
    if len(before) != len(after) or (classes and other_classes and classes != other_classes):
        raise InputError(
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


@dataclass(frozen=True, eq=False)
class Flows:
    """The moves between classes, the most frequent first.

    Attributes
    ----------
    source, target : ndarray of int
        The class a decision leaves, and the one it goes to.
    count : ndarray of int
        The rows that make this move.
    n : int
        All rows.
    n_classes : int
        The number of classes.
    """

    source: Classes
    target: Classes
    count: Classes
    n: int
    n_classes: int

    def matrix(self) -> Classes:
        """Return the counts as a (K, K) array: rows are sources, columns targets."""
        counts = np.zeros((self.n_classes, self.n_classes), dtype=np.intp)
        counts[self.source, self.target] = self.count
        return counts

    def to_dict(self) -> dict[str, Any]:
        """Return the moves as plain Python values."""
        return {
            "source": self.source.tolist(),
            "target": self.target.tolist(),
            "count": self.count.tolist(),
            "n": self.n,
            "n_classes": self.n_classes,
        }

    def __repr__(self) -> str:
        return f"Flows({int(self.count.sum()):,} of {self.n:,} rows, {len(self.count):,} moves)"


def decision_flows(original: Any, report: Any) -> Flows:
    """Count the rows whose decision a report moves, by where it leaves and where it goes.

    Parameters
    ----------
    original : array_like of shape (n, K) or (n,)
        The original report, or the decisions themselves.
    report : array_like of shape (n, K) or (n,)
        The report whose decisions are compared, or these decisions.

    Returns
    -------
    flows : Flows
        The moves, the most frequent first.

    Examples
    --------
    >>> flows = decision_flows([0, 0, 1], [[0.4, 0.6], [0.3, 0.7], [0.1, 0.9]])
    >>> flows, flows.matrix().tolist()
    (Flows(2 of 3 rows, 1 moves), [[0, 2], [0, 0]])
    """
    original, report = align_rows(original=original, report=report)
    before, after, known = decision_pair(original, report)
    return flows_between(before, after, known or int(max(before.max(), after.max())) + 1)


def flows_between(before: Classes, after: Classes, classes: int) -> Flows:
    """Count the moves between decisions that were read already."""
    moved = before != after
    moves, count = np.unique(before[moved] * classes + after[moved], return_counts=True)
    order = np.argsort(-count, kind="stable")
    source, target = np.divmod(moves[order], classes)
    return Flows(source, target, count[order], len(before), classes)


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
            raise InputError("k", f"is {k!r}", "pass a whole number of classes, at least 1")
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
        original, evaluated, sample_weight = align_rows(
            original=original, evaluated=evaluated, sample_weight=sample_weight
        )
        before, after = Report.of(original, "original"), Report.of(evaluated, "evaluated")
        check_same_shape(before.values, "original", after.values, "evaluated")
        if self.k > before.classes:
            raise InputError(
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
        with renumber_rows(first):
            raise_first(nan_error(scores, name))
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


class MeanRetentionStream:
    """`mean_retention` of blocks of rows, exact for any blocks and order."""

    def __init__(self) -> None:
        self._direct, self._repaired = WeightedMean(), WeightedMean()

    def update(
        self, original: Any, direct: Any, repaired: Any, *, sample_weight: Any = None
    ) -> Self:
        """Add a block of rows; the arguments are those of `mean_retention`.

        Parameters
        ----------
        original : array_like
            Scores of shape (n, K), or n decisions.
        direct, repaired : array_like of shape (n, K)
            The two reports.
        sample_weight : array_like, optional
            Weights of the rows.

        Returns
        -------
        self : MeanRetentionStream
            The stream, so that calls can be chained.
        """
        original, direct, repaired, sample_weight = align_rows(
            original=original, direct=direct, repaired=repaired, sample_weight=sample_weight
        )
        before, after = Report.of(direct, "direct"), Report.of(repaired, "repaired")
        check_same_shape(before.values, "direct", after.values, "repaired")
        decision, _ = read_decisions(original, "original")
        decision = check_decisions(decision, before.rows, before.classes, "original")
        weight = (
            None if sample_weight is None else check_weights(sample_weight, before.rows, some=False)
        )
        self._direct.add(before.mass_on(decision), weight)
        self._repaired.add(after.mass_on(decision), weight)
        return self

    def merge(self, other: Self) -> Self:
        """Add what another stream has seen; return this stream."""
        self._direct.merge(other._direct)
        self._repaired.merge(other._repaired)
        return self

    def result(self) -> float:
        """Return the difference of the two means over all rows seen so far."""
        return abs(self._repaired.result() - self._direct.result())


@documented
def mean_retention(
    original: Any, direct: Any, repaired: Any, *, sample_weight: Any = None, axis: int | None = None
) -> float:
    """Return how far the repaired reports' mean mass on the decisions is from the direct ones'.

    This is ``|s̄ − b̄|``: zero up to rounding on the rows CORD was fitted on (where the mean is
    attainable), and the held-out discrepancy on others.

    Parameters
    ----------
    original : array_like
        The classifier's scores of shape (n, K), or its n decisions.
    direct, repaired : array_like of shape (n, K)
        The calibrator's probabilities, and the repaired ones.
    sample_weight : array_like, optional
        Weights of the rows.
    {axis}

    Returns
    -------
    discrepancy : float
        Between 0 and 1.

    Examples
    --------
    >>> original = [[0.6, 0.4], [0.3, 0.7]]
    >>> direct, repaired = [[0.4, 0.6], [0.1, 0.9]], [[0.5, 0.5], [0.25, 0.75]]
    >>> round(mean_retention(original, direct, repaired), 6)
    0.025
    """
    stream = fed(
        MeanRetentionStream(), original, direct, repaired, sample_weight=sample_weight, axis=axis
    )
    return stream.result()
