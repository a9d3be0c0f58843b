"""Streaming forms of the metrics, and how the callers' arrays reach them.

A stream has ``update``, ``merge`` and ``result``.  `RowStream` and `BlockStream` are the two kinds
of streams of labelled probabilities; `WeightedSums` and `WeightedMean` are what they add up;
`update_stream` passes arrays of any layout to a stream.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np

from cordcal._errors import InputError, renumber_rows
from cordcal._numeric import arrays
from cordcal._numeric.exact import (
    ExactSum,
    ordinary_weights,
    total_weight,
    weight_exponent,
    weight_unit,
    weighted,
)
from cordcal._numeric.types import ArrayLike, Classes, Floats, Labels, Matrix, Vector
from cordcal._validation import layouts
from cordcal._validation.labels import zero_weight_error
from cordcal._validation.layouts import align_rows
from cordcal._validation.names import column_names, in_column_order
from cordcal.metrics.rows import LabelledRows, ProbabilityMatrix


class Stream(ABC):
    """A metric in progress: add blocks of rows, merge streams, read the result."""

    def update(
        self, probabilities: ArrayLike, labels: ArrayLike, *, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Add a block of rows.

        Parameters
        ----------
        probabilities : array_like of shape (n, K)
            The predicted probabilities.
        labels : array_like of int
            The true class of each row, 0..K-1.
        sample_weight : array_like, optional
            Weights of the rows.

        Returns
        -------
        self
            The stream, so that calls can be chained.
        """
        probabilities, labels, sample_weight = align_rows(
            probabilities=probabilities, labels=labels, sample_weight=sample_weight
        )
        matrix = ProbabilityMatrix.from_array(probabilities, "probabilities")
        self.update_checked(matrix, *matrix.check_labels(labels, sample_weight))
        return self

    @abstractmethod
    def update_checked(
        self, probabilities: ProbabilityMatrix, labels: Labels, weight: Vector | None
    ) -> None:
        """Add a block of rows whose labels and weights are already checked."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Add the rows of another stream of the same kind; return this stream."""

    @abstractmethod
    def result(self) -> Any:
        """Return the metric of all rows added so far."""


class RowStream(Stream):
    """A metric that needs only the reduced rows."""

    def update_checked(
        self, probabilities: ProbabilityMatrix, labels: Labels, weight: Vector | None
    ) -> None:
        """Add a block of rows whose labels and weights are already checked."""
        self.add(probabilities.reduce(labels, weight))

    @abstractmethod
    def add(self, rows: LabelledRows) -> None:
        """Add reduced rows."""


class BlockStream(Stream):
    """A metric that needs all classes of a row: it visits the blocks while they are read."""

    def update_checked(
        self, probabilities: ProbabilityMatrix, labels: Labels, weight: Vector | None
    ) -> None:
        """Add a block of rows whose labels and weights are already checked."""
        probabilities.reduce(labels, weight, visit=self.visit)

    @abstractmethod
    def visit(self, block: Floats, wide: Matrix, labels: Classes, weight: Vector) -> None:
        """Add a checked block, in its own dtype and in float64."""


def require_rows(weight: float) -> None:
    """Raise an error if no row was added yet."""
    if not weight:
        raise InputError("the stream", "has seen no rows yet", "call update(...) first")


def merge_error(settings: str) -> InputError:
    """Return the error of merging streams that were made with different settings."""
    return InputError(
        "other", f"cannot be merged: streams of {settings}", "make both streams alike"
    )


class WeightedSums:
    """Sums over weighted rows in one unit, a power of two that follows the largest weight.

    The unit is one unless weights are so large or so small that their sums or products
    would leave the range of float64.  A subclass names its sums.
    """

    # Attributes, each with the power of the weights that it sums.
    _sums: ClassVar[tuple[tuple[str, int], ...]]
    # The binary exponent of the largest weight so far.
    _exponent: int | None = None

    def _in_unit(self, weight: Vector | None, rows: int) -> Vector:
        """Return the weights of new rows (ones if there are none) divided by the unit."""
        weight = np.ones(rows) if weight is None else weight
        self._raise_unit(weight_exponent(weight))
        unit = weight_unit(self._exponent)
        return weight if unit == 0 else np.asarray(np.ldexp(weight, -unit))

    def _raise_unit(self, exponent: int | None) -> None:
        """Express the sums in the unit of a weight of this exponent, if that is larger."""
        if exponent is None or (self._exponent is not None and exponent <= self._exponent):
            return
        shift = weight_unit(self._exponent) - weight_unit(exponent)
        self._exponent = exponent
        if shift:
            for name, power in self._sums:
                setattr(self, name, _times_power_of_two(getattr(self, name), power * shift))

    def _in_common_unit(self, other: Self) -> Self:
        """Bring these sums and a copy of the other ones to one unit; return the copy."""
        other = copy.copy(other)  # shallow: sums are replaced, never changed in place
        self._raise_unit(other._exponent)
        other._raise_unit(self._exponent)
        return other


def _times_power_of_two(total: Any, bits: int) -> Any:
    """Return a sum times 2^bits; None if there is no sum yet."""
    if total is None:
        return None
    return total.scaled(bits) if isinstance(total, ExactSum) else np.ldexp(total, bits)


class WeightedMean(WeightedSums):
    """An exact weighted mean in progress: its bits do not depend on order or blocks."""

    _sums = (("total", 1), ("weight", 1))

    def __init__(self) -> None:
        self.total = self.weight = ExactSum()

    def add(self, values: Vector, weight: Vector | None) -> None:
        """Add one value per row."""
        if weight is not None or weight_unit(self._exponent):
            weight = self._in_unit(weight, len(values))
        self.total += weighted(values, weight)
        self.weight += total_weight(len(values), weight)

    def merge(self, other: WeightedMean) -> None:
        """Add the rows of another mean."""
        other = self._in_common_unit(other)
        self.total += other.total
        self.weight += other.weight

    def result(self) -> float:
        """Return the mean."""
        require_rows(self.weight.units)
        return self.total.mean(self.weight)


class MeanStream(RowStream):
    """A metric that is the mean of one number per row."""

    def __init__(self) -> None:
        self._mean = WeightedMean()

    @staticmethod
    @abstractmethod
    def of_rows(rows: LabelledRows) -> Vector:
        """Return the number of each row."""

    def add(self, rows: LabelledRows) -> None:
        """Add reduced rows."""
        self._mean.add(self.of_rows(rows), rows.weight)

    def merge(self, other: Self) -> Self:
        """Add the rows of another stream of the same kind; return this stream."""
        self._mean.merge(other._mean)
        return self

    def result(self) -> float:
        """Return the mean over all rows added so far."""
        return self._mean.result()


class RowCollector(RowStream):
    """The reduced rows themselves, for metrics that need all of them at once."""

    def __init__(self) -> None:
        self._parts: list[LabelledRows] = []

    def add(self, rows: LabelledRows) -> None:
        """Add reduced rows."""
        self._parts.append(rows)

    def merge(self, other: Self) -> Self:
        """Add the rows of another stream of the same kind; return this stream."""
        self._parts += other._parts
        return self

    def result(self) -> LabelledRows:
        """Return all rows added so far; extreme weights are relative to the largest one."""
        require_rows(len(self._parts))
        rows = _concatenate(self._parts)
        return rows if rows.weight is None else replace(rows, weight=ordinary_weights(rows.weight))


def _concatenate(parts: list[LabelledRows]) -> LabelledRows:
    if len(parts) == 1:
        return parts[0]

    # If any block has weights, rows of blocks without weights count once.
    weighted = any(part.weight is not None for part in parts)
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in LabelledRows.__dataclass_fields__
        if name != "weight"
    }
    weight = np.concatenate([part.weights for part in parts]) if weighted else None
    return LabelledRows(**columns, weight=weight)


class _Updatable(Protocol):
    @property
    def update(self) -> Callable[..., Any]: ...


AnyStream = TypeVar("AnyStream", bound=_Updatable)

# How streams name the arrays that their ``update`` takes before the labels, by their number.
_ARGUMENT_NAMES = {
    1: ("probabilities",),
    2: ("original", "evaluated"),
    3: ("original", "direct", "repaired"),
}


def update_stream(
    stream: AnyStream,
    scores: Sequence[Any],
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    ignore_index: int | None = None,
) -> AnyStream:
    """Add all rows of the callers' arrays to a stream, and return the stream.

    Parameters
    ----------
    stream : Stream, DecisionChangesStream, ...
        Has ``update(*scores, labels, sample_weight=...)`` and ``merge``.
    scores : sequence of array_like
        What its ``update`` takes before the labels: probabilities, logits or predictions.
    labels, sample_weight : array_like, optional
        One entry per row or position.
    axis : int, optional
        The dimension of the classes in dense arrays.
    ignore_index : int, optional
        The label of positions without a true class.
    """
    names = _ARGUMENT_NAMES[len(scores)]
    # Columns of data frames are matched by name; labels are indices of the first one's columns.
    expected = column_names(scores[0])
    scores = [
        in_column_order(matrix, name, expected, names[0])
        for name, matrix in zip(names, scores, strict=True)
    ]
    handler = layouts.lazy_handler(*scores, labels)
    if handler is not None:
        if axis is not None:
            raise InputError("axis", "is not served for dask collections", "pass blocks of rows")
        updated: AnyStream = handler.update_stream(
            stream, scores, labels, sample_weight, ignore_index
        )
        return updated
    arguments = dict(zip(names, scores, strict=True))
    *rows, labels, sample_weight = align_rows(
        **arguments, labels=labels, sample_weight=sample_weight
    )
    if sample_weight is not None and not np.any(arrays.to_numpy(sample_weight)):
        raise zero_weight_error()
    blocks = layouts.labelled_blocks(axis, ignore_index, rows, labels, sample_weight)
    for numbers, block, block_labels, weight in blocks:
        block_arguments = block if block_labels is None else [*block, block_labels]
        with renumber_rows(numbers):
            stream.update(*block_arguments, sample_weight=weight)
    return stream
