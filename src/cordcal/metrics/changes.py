"""What a calibrator changes: predictions, top-k classes, flows between classes, mean mass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first, renumber_rows
from cordcal._numeric import arrays
from cordcal._numeric.exact import ExactSum, total_weight
from cordcal._numeric.types import Array, ArrayLike, Classes, Floats, Record, Vector
from cordcal._validation.labels import check_predictions, check_weights
from cordcal._validation.names import Name
from cordcal._validation.scores import check_same_shape, nan_error
from cordcal._validation.table import RememberedColumns, match
from cordcal.metrics.base import (
    ProbabilityMatrix,
    WeightedMean,
    check_mergeable,
    fill_docstring,
    require_rows,
    update_stream,
)


@dataclass(frozen=True)
class PredictionChanges(Record):
    """How evaluated predictions differ from the original ones.

    Counts are numbers of rows; rates are shares of the total weight.  Fields that need labels
    are None without them.

    Attributes
    ----------
    n : int
        Rows compared.
    n_changed : int
        Rows whose prediction changed.
    tpcr : float
        Their share: the top-1 prediction change rate.
    n_gained, n_lost, n_neutral : int or None
        C⁺ (wrong → correct), C⁻ (correct → wrong), C⁰ (wrong → another wrong class).
    gained, lost, neutral : float or None
        Their shares; they add up to ``tpcr``.
    delta_accuracy : float or None
        Accuracy of the evaluated predictions minus that of the original: ``gained - lost``.
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


class PredictionChangesStream:
    """`prediction_changes` of blocks of rows, exact for any blocks and order.

    Examples
    --------
    >>> stream = PredictionChangesStream()
    >>> stream.update([0, 1], [[0.4, 0.6], [0.1, 0.9]], [1, 1]).result().tpcr
    0.5
    """

    def __init__(self) -> None:
        self._columns = RememberedColumns()
        self._n = self._changed = 0
        self._weight = self._changed_weight = ExactSum()
        # Of C⁺, C⁻, C⁰.  None after a block without labels.
        self._kinds: list[tuple[int, ExactSum]] | None = [(0, ExactSum())] * 3

    def update(
        self,
        original: ArrayLike,
        evaluated: ArrayLike,
        labels: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add a block of rows; the arguments are those of `prediction_changes`.

        Parameters
        ----------
        original, evaluated : array_like
            Scores of shape (n, K), or n predictions.
        labels : array_like of int, optional
            The true class of each row.
        sample_weight : array_like, optional
            Weights of the rows.

        Returns
        -------
        self : PredictionChangesStream
            The stream, so that calls can be chained.
        """
        rows = self._columns.match(
            {"original": original, "evaluated": evaluated}, labels, sample_weight
        )
        before, after = rows.matrices
        return self.update_arrays(before, after, rows.labels, rows.sample_weight)

    def update_arrays(
        self,
        original: Array,
        evaluated: Array,
        labels: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add a block of rows whose rows and columns are matched; see `match`."""
        before, after, classes = _read_both(original, evaluated)
        weight = _check_weights(sample_weight, len(before))
        if labels is not None:
            if classes is None:  # unknown if both sides are vectors of predictions
                classes = 1 + int(np.max(arrays.to_numpy(labels), initial=0))
            labels = check_predictions(labels, len(before), classes, "labels")
        return self.add(before, after, labels, weight)

    def add(
        self,
        before: Classes,
        after: Classes,
        labels: Classes | None = None,
        weight: Vector | None = None,
    ) -> Self:
        """Add predictions, labels and weights that are already checked."""
        changed = before != after
        self._n += len(before)
        self._weight += total_weight(len(before), weight)
        count, changed_weight = _count(changed, weight)
        self._changed += count
        self._changed_weight += changed_weight
        if labels is None:
            self._kinds = None
            return self
        if self._kinds is not None:
            gained, lost = changed & (after == labels), changed & (before == labels)
            kinds = (gained, lost, changed & ~gained & ~lost)
            self._kinds = _add_counts(self._kinds, [_count(kind, weight) for kind in kinds])
        return self

    def merge(self, other: Self) -> Self:
        """Add the rows of another stream; return this stream."""
        self._n += other._n
        self._changed += other._changed
        self._weight += other._weight
        self._changed_weight += other._changed_weight
        if self._kinds is not None and other._kinds is not None:
            self._kinds = _add_counts(self._kinds, other._kinds)
        else:
            self._kinds = None
        return self

    def result(self) -> PredictionChanges:
        """Return the changes among all rows; split into kinds only if every block had labels."""
        require_rows(self._n)
        tpcr = self._changed_weight.mean(self._weight)
        if self._kinds is None:
            return PredictionChanges(self._n, self._changed, tpcr)
        (n_gained, gained), (n_lost, lost), (n_neutral, neutral) = self._kinds
        return PredictionChanges(
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


def _count(flags: npt.NDArray[np.bool_], weight: Vector | None) -> tuple[int, ExactSum]:
    """Count flagged rows, and sum their weights exactly."""
    count = int(np.count_nonzero(flags))
    return count, total_weight(count, None if weight is None else weight[flags])


def _add_counts(
    first: list[tuple[int, ExactSum]], second: list[tuple[int, ExactSum]]
) -> list[tuple[int, ExactSum]]:
    """Add two lists of counts and weights, entry by entry."""
    return [(n + m, a + b) for (n, a), (m, b) in zip(first, second, strict=True)]


def read_predictions(values: ArrayLike, name: str) -> tuple[Classes, int | None]:
    """Return predictions and the number of classes, from class indices or from scores.

    The prediction of scores, probabilities or logits, is their argmax, the smallest index on
    ties.  For a vector of class indices the number of classes is None.
    """
    if np.ndim(values) == 1:
        vector = arrays.to_numpy(values, name)
        is_integer = vector.dtype.kind in "iu" or (
            vector.dtype.kind == "f" and np.array_equal(vector, np.round(vector))
        )
        if not is_integer or not vector.size:
            raise InputError(
                name,
                f"has shape {vector.shape} and dtype {vector.dtype}",
                "pass scores of shape (rows, classes), or one class index for each row",
            )
        return check_predictions(vector, len(vector), int(vector.max()) + 1, name), None
    scores = ProbabilityMatrix.from_array(values, name)
    prediction = np.empty(scores.rows, dtype=np.intp)
    for at, block in scores.blocks():
        prediction[at] = best = arrays.first_argmax(block)
        # NumPy's argmax of a row with NaN is the NaN.
        if np.isnan(block[np.arange(len(block)), best]).any():
            raise_first(nan_error(scores.values, name))
    return prediction, scores.classes


def _read_both(original: ArrayLike, evaluated: ArrayLike) -> tuple[Classes, Classes, int | None]:
    """Return the predictions of both sides and the number of classes, if known."""
    before, classes = read_predictions(original, "original")
    after, other_classes = read_predictions(evaluated, "evaluated")
    if len(before) != len(after) or (classes and other_classes and classes != other_classes):
        raise InputError(
            "original",
            f"has shape {np.shape(original)} but evaluated has shape {np.shape(evaluated)}",
            "pass the same rows and classes in both",
        )
    classes = classes or other_classes
    if classes:
        before = check_predictions(before, len(before), classes, "original")
        after = check_predictions(after, len(after), classes, "evaluated")
    return before, after, classes


def _check_weights(sample_weight: ArrayLike | None, rows: int) -> Vector | None:
    return None if sample_weight is None else check_weights(sample_weight, rows, some=False)


@fill_docstring
def prediction_changes(
    original: ArrayLike,
    evaluated: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[Name] | None = None,
) -> PredictionChanges:
    """Count the predictions that change and, with labels, whether they gain or lose accuracy.

    Parameters
    ----------
    original, evaluated : array_like
        Probabilities or logits of shape (n, K), whose argmax is the prediction, the smallest
        index on ties; or n class indices, the predictions themselves.
    labels : array_like of int, optional
        The true class of each row; needed to split the changes into C⁺, C⁻ and C⁰.
    sample_weight : array_like, optional
        Weights of the rows; they enter the rates, not the counts.
    {axis, ignore_index, class_names}

    Returns
    -------
    changes : PredictionChanges
        Counts, rates and the net change of accuracy.

    Examples
    --------
    >>> original = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.5, 0.4, 0.1], [0.1, 0.2, 0.7]]
    >>> evaluated = [[0.4, 0.5, 0.1], [0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.1, 0.2, 0.7]]
    >>> changes = prediction_changes(original, evaluated, [0, 0, 1, 2])
    >>> changes.n_gained, changes.n_lost, changes.n_neutral
    (1, 1, 1)
    >>> changes.tpcr, changes.delta_accuracy
    (0.75, 0.0)
    """
    return update_stream(
        PredictionChangesStream(),
        [original, evaluated],
        labels,
        sample_weight,
        axis,
        ignore_index,
        class_names,
    ).result()


@fill_docstring
def tpcr(
    original: ArrayLike,
    evaluated: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
) -> float:
    """Return the share of predictions changed (top-1 prediction change rate, TPCR).

    Parameters
    ----------
    original, evaluated : array_like
        Probabilities or logits of shape (n, K), or n class indices, as for
        `prediction_changes`.
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
    return prediction_changes(original, evaluated, sample_weight=sample_weight, axis=axis).tpcr


@dataclass(frozen=True, eq=False)
class Flows(Record):
    """How many predictions move from one class to another, the most frequent moves first.

    Attributes
    ----------
    source, target : ndarray of int
        The original and the new class of a move.
    count : ndarray of int
        The number of rows with this move.
    n : int
        The number of all rows.
    n_classes : int
        The number of classes.
    class_names : tuple or None
        The names of the classes, if a data frame had them.
    """

    source: Classes
    target: Classes
    count: Classes
    n: int
    n_classes: int
    class_names: tuple[Name, ...] | None = None

    def matrix(self) -> Classes:
        """Return the counts as a (K, K) array: rows are sources, columns targets."""
        counts = np.zeros((self.n_classes, self.n_classes), dtype=np.intp)
        counts[self.source, self.target] = self.count
        return counts

    def __repr__(self) -> str:
        return f"Flows({int(self.count.sum()):,} of {self.n:,} rows, {len(self.count):,} moves)"


def prediction_flows(original: ArrayLike, report: ArrayLike) -> Flows:
    """Count the rows whose prediction changes, by original and new class.

    Parameters
    ----------
    original : array_like of shape (n, K) or (n,)
        The original probabilities or logits, or their predictions.
    report : array_like of shape (n, K) or (n,)
        The probabilities or logits to compare with, or their predictions.

    Returns
    -------
    flows : Flows
        The moves, the most frequent first.

    Examples
    --------
    >>> flows = prediction_flows([0, 0, 1], [[0.4, 0.6], [0.3, 0.7], [0.1, 0.9]])
    >>> flows, flows.matrix().tolist()
    (Flows(2 of 3 rows, 1 moves), [[0, 2], [0, 0]])
    """
    rows = match({"original": original, "report": report})
    before, after, classes = _read_both(*rows.matrices)
    flows = flows_between(before, after, classes or int(max(before.max(), after.max())) + 1)
    names = None if rows.class_names is None else tuple(rows.class_names)
    return replace(flows, class_names=names)


def flows_between(before: Classes, after: Classes, classes: int) -> Flows:
    """Count the moves between two vectors of predictions."""
    changed = before != after
    moves, count = np.unique(before[changed] * classes + after[changed], return_counts=True)
    order = np.argsort(-count, kind="stable")
    source, target = np.divmod(moves[order], classes)
    return Flows(source, target, count[order], len(before), classes)


@dataclass(frozen=True)
class TopkChanges(Record):
    """How the top k classes of evaluated scores differ from the original ones.

    Attributes
    ----------
    n, k : int
        Rows compared, and classes per row.
    n_set_changed, n_order_changed : int
        Rows whose top k classes differ as a set; rows where they differ as a set or in their
        order.
    set_changed, order_changed : float
        Their shares of the total weight.
    """

    n: int
    k: int
    n_set_changed: int
    n_order_changed: int
    set_changed: float
    order_changed: float


class TopkChangesStream:
    """`topk_changes` of blocks of rows, exact for any blocks and order.

    Parameters
    ----------
    k : int
        The number of top classes to compare.
    """

    def __init__(self, k: int) -> None:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise InputError("k", f"is {k!r}", "pass a whole number of classes, at least 1")
        self.k = int(k)
        self._columns = RememberedColumns()
        self._n = 0
        self._weight = ExactSum()
        # Of rows whose set changed, and whose order changed.
        self._changed = [(0, ExactSum())] * 2

    def update(
        self, original: ArrayLike, evaluated: ArrayLike, *, sample_weight: ArrayLike | None = None
    ) -> Self:
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
        rows = self._columns.match(
            {"original": original, "evaluated": evaluated}, None, sample_weight
        )
        before, after = rows.matrices
        return self.update_arrays(before, after, None, rows.sample_weight)

    def update_arrays(
        self,
        original: Array,
        evaluated: Array,
        _labels: None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add a block of rows whose rows and columns are matched; see `match`."""
        before, after = (
            ProbabilityMatrix.from_array(original, "original"),
            ProbabilityMatrix.from_array(evaluated, "evaluated"),
        )
        check_same_shape(before.values, "original", after.values, "evaluated")
        if self.k > before.classes:
            raise InputError(
                "k",
                f"is {self.k} but there are {before.classes} classes",
                f"pass k between 1 and {before.classes}",
            )
        weight = _check_weights(sample_weight, before.rows)
        for (at, first), (_, second) in zip(before.blocks(), after.blocks(), strict=True):
            top = _top_classes(first, self.k, "original", at.start)
            new_top = _top_classes(second, self.k, "evaluated", at.start)
            order_changed = (top != new_top).any(axis=1)
            set_changed = (np.sort(top, axis=1) != np.sort(new_top, axis=1)).any(axis=1)
            block_weight = None if weight is None else weight[at]
            counts = [_count(flags, block_weight) for flags in (set_changed, order_changed)]
            self._changed = _add_counts(self._changed, counts)
        self._n += before.rows
        self._weight += total_weight(before.rows, weight)
        return self

    def merge(self, other: Self) -> Self:
        """Add the rows of another stream; return this stream."""
        check_mergeable(self, other, "k")
        self._n += other._n
        self._weight += other._weight
        self._changed = _add_counts(self._changed, other._changed)
        return self

    def result(self) -> TopkChanges:
        """Return the changes among all rows added so far."""
        require_rows(self._n)
        (n_set, set_weight), (n_order, order_weight) = self._changed
        return TopkChanges(
            n=self._n,
            k=self.k,
            n_set_changed=n_set,
            n_order_changed=n_order,
            set_changed=set_weight.mean(self._weight),
            order_changed=order_weight.mean(self._weight),
        )


def _top_classes(scores: Floats, k: int, name: str, first_row: int) -> Classes:
    """Return the k best classes per row, best first, the smallest index on ties."""
    rows, classes = scores.shape
    # NaN sorts last, so it is among the best.
    threshold = np.partition(scores, classes - k, axis=1)[:, classes - k :]
    if np.isnan(threshold).any():
        with renumber_rows(first_row):
            raise_first(nan_error(scores, name))
    inside = scores >= threshold[:, :1]
    # A tie at the k-th place selects too many classes; the smallest indices win.
    tied = np.flatnonzero(inside.sum(axis=1) > k)
    if tied.size:
        ranked = np.argsort(-scores[tied], axis=1, kind="stable")[:, :k]
        inside[tied] = False
        inside[tied[:, None], ranked] = True
    members = np.nonzero(inside)[1].reshape(rows, k)
    order = np.argsort(-np.take_along_axis(scores, members, axis=1), axis=1, kind="stable")
    return np.take_along_axis(members, order, axis=1)


@fill_docstring
def topk_changes(
    original: ArrayLike,
    evaluated: ArrayLike,
    k: int,
    *,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
) -> TopkChanges:
    """Count the rows whose top k classes change, as a set and in their order.

    Parameters
    ----------
    original, evaluated : array_like of shape (n, K)
        Probabilities or logits; ties rank the smallest index first.
    k : int
        The number of top classes to compare.
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
    return update_stream(
        TopkChangesStream(k), [original, evaluated], sample_weight=sample_weight, axis=axis
    ).result()


class MeanRetentionStream:
    """`mean_retention` of blocks of rows, exact for any blocks and order."""

    def __init__(self) -> None:
        self._columns = RememberedColumns()
        self._direct, self._repaired = WeightedMean(), WeightedMean()

    def update(
        self,
        original: ArrayLike,
        direct: ArrayLike,
        repaired: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add a block of rows; the arguments are those of `mean_retention`.

        Parameters
        ----------
        original : array_like
            Scores of shape (n, K), or n predictions.
        direct, repaired : array_like of shape (n, K)
            The calibrator's probabilities, and the repaired ones.
        sample_weight : array_like, optional
            Weights of the rows.

        Returns
        -------
        self : MeanRetentionStream
            The stream, so that calls can be chained.
        """
        matrices = {"original": original, "direct": direct, "repaired": repaired}
        rows = self._columns.match(matrices, None, sample_weight)
        before, calibrated, after = rows.matrices
        return self.update_arrays(before, calibrated, after, None, rows.sample_weight)

    def update_arrays(
        self,
        original: Array,
        direct: Array,
        repaired: Array,
        _labels: None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add a block of rows whose rows and columns are matched; see `match`."""
        before, after = (
            ProbabilityMatrix.from_array(direct, "direct"),
            ProbabilityMatrix.from_array(repaired, "repaired"),
        )
        check_same_shape(before.values, "direct", after.values, "repaired")
        prediction, _ = read_predictions(original, "original")
        prediction = check_predictions(prediction, before.rows, before.classes, "original")
        weight = _check_weights(sample_weight, before.rows)
        self._direct.add(before.mass_on(prediction), weight)
        self._repaired.add(after.mass_on(prediction), weight)
        return self

    def merge(self, other: Self) -> Self:
        """Add the rows of another stream; return this stream."""
        self._direct.merge(other._direct)
        self._repaired.merge(other._repaired)
        return self

    def result(self) -> float:
        """Return the absolute difference of the two means over all rows added so far."""
        return abs(self._repaired.result() - self._direct.result())


@fill_docstring
def mean_retention(
    original: ArrayLike,
    direct: ArrayLike,
    repaired: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
) -> float:
    """Return how much the repair changes the mean probability of the predicted classes.

    This is ``|s̄ − b̄|``, the difference of the means of repaired and direct probabilities.  On
    the rows CORD was fitted on it is zero up to rounding, if the mean is attainable; on other
    rows it is the held-out discrepancy.

    Parameters
    ----------
    original : array_like
        The classifier's scores of shape (n, K), or its n predictions.
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
    return update_stream(
        MeanRetentionStream(),
        [original, direct, repaired],
        sample_weight=sample_weight,
        axis=axis,
    ).result()
