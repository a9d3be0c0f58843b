"""Streams: update, merge and result of every metric, and how callers' arrays reach them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

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
from cordcal._numeric.types import Classes, Labels, Vector
from cordcal._validation import layouts
from cordcal._validation.alignment import align_rows
from cordcal._validation.labels import zero_weight_error
from cordcal.metrics.rows import LabelledRows, Report


class Stream(ABC):
    """A measure in progress: add blocks of rows, merge states, read the result."""

    def update(self, probabilities: Any, labels: Any, *, sample_weight: Any = None) -> Self:
        """Add a block of rows.

        Parameters
        ----------
        probabilities : array_like of shape (n, K)
            The report to measure.
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
        report = Report.of(probabilities, "probabilities")
        self.read(report, *report.beside(labels, sample_weight))
        return self

    @abstractmethod
    def read(self, report: Report, labels: Labels, weight: Vector | None) -> None:
        """Add a report that was taken in already, with labels and weights that were checked."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Add what another stream of the same kind has seen; return this stream."""

    @abstractmethod
    def result(self) -> Any:
        """Return the measure of all rows seen so far."""


class RowStream(Stream):
    """A measure that needs only the few numbers a row."""

    def read(self, report: Report, labels: Labels, weight: Vector | None) -> None:
        """Add a report that was taken in already, with labels and weights that were checked."""
        self.add(report.labelled(labels, weight))

    @abstractmethod
    def add(self, rows: LabelledRows) -> None:
        """Add rows that were reduced already."""


class BlockStream(Stream):
    """A measure that needs whole rows: it visits each block while the report is read."""

    def read(self, report: Report, labels: Labels, weight: Vector | None) -> None:
        """Add a report that was taken in already, with labels and weights that were checked."""
        report.labelled(labels, weight, visit=self.visit)

    @abstractmethod
    def visit(self, block: npt.NDArray[Any], wide: Vector, labels: Classes, weight: Vector) -> None:
        """Add a checked block, as given and in float64."""


class WeightedSums:
    """Sums over weighted rows in one unit, a power of two that follows the largest weight.

    The unit is one unless weights are so large or so small that sums or products of them
    would leave the range of float64.  A subclass names its sums.
    """

    # Attributes, each with the power of the weights that it sums.
    _sums: ClassVar[tuple[tuple[str, int], ...]]
    # The binary exponent of the largest weight seen.
    _exponent: int | None = None

    def _in_unit(self, weight: Vector | None, rows: int) -> Vector:
        """Return the weights of more rows, ones where there are none, divided by the unit."""
        weight = np.ones(rows) if weight is None else weight
        self._raise_unit(weight_exponent(weight))
        unit = weight_unit(self._exponent)
        return weight if unit == 0 else np.asarray(np.ldexp(weight, -unit))

    def _raise_unit(self, exponent: int | None) -> None:
        if exponent is None or (self._exponent is not None and exponent <= self._exponent):
            return
        shift = weight_unit(self._exponent) - weight_unit(exponent)
        self._exponent = exponent
        if shift:
            for name, power in self._sums:
                setattr(self, name, _shifted(getattr(self, name), power * shift))

    def _same_unit(self, other: Self) -> Self:
        """Return the other sums in a unit that both have from now on."""
        other = copy.copy(other)  # sums are replaced and not overwritten
        self._raise_unit(other._exponent)
        other._raise_unit(self._exponent)
        return other


def _shifted(total: Any, bits: int) -> Any:
    """Return a sum times 2^bits; None where there is no sum yet."""
    if total is None:
        return None
    return total.scaled(bits) if isinstance(total, ExactSum) else np.ldexp(total, bits)


class WeightedMean(WeightedSums):
    """An exact weighted mean in progress: its bits do not depend on order or blocks."""

    _sums = (("total", 1), ("weight", 1))

    def __init__(self) -> None:
        self.total = self.weight = ExactSum()

    def add(self, values: Vector, weight: Vector | None) -> None:
        """Add one value a row."""
        if weight is not None or weight_unit(self._exponent):
            weight = self._in_unit(weight, len(values))
        self.total += weighted(values, weight)
        self.weight += total_weight(len(values), weight)

    def merge(self, other: WeightedMean) -> None:
        """Add what another mean has seen."""
        other = self._same_unit(other)
        self.total += other.total
        self.weight += other.weight

    def result(self) -> float:
        """Return the mean."""
        require_rows(self.weight.units)
        return self.total.mean(self.weight)


class MeanStream(RowStream):
    """A measure that is the mean of one number a row."""

    def __init__(self) -> None:
        self._mean = WeightedMean()

    @staticmethod
    @abstractmethod
    def of_rows(rows: LabelledRows) -> Vector:
        """Return each row's number."""

    def add(self, rows: LabelledRows) -> None:
        """Add rows that were reduced already."""
        self._mean.add(self.of_rows(rows), rows.weight)

    def merge(self, other: Self) -> Self:
        """Add what another stream of the same kind has seen; return this stream."""
        self._mean.merge(other._mean)
        return self

    def result(self) -> float:
        """Return the mean over all rows seen so far."""
        return self._mean.result()


def require_rows(weight: float) -> None:
    """Refuse to answer before any row was added."""
    if not weight:
        raise InputError("the stream", "has seen no rows yet", "call update(...) first")


def unlike(settings: str) -> InputError:
    """Return the refusal to merge streams that were made with other settings."""
    return InputError(
        "other", f"cannot be merged: streams of {settings}", "make both streams alike"
    )


Fed = TypeVar("Fed")

# What streams call the reports that their ``update`` takes, by how many there are.
_REPORTS = {
    1: ("probabilities",),
    2: ("original", "evaluated"),
    3: ("original", "direct", "repaired"),
}


def fed(
    stream: Fed,
    *reports: Any,
    labels: Any = None,
    sample_weight: Any = None,
    axis: int | None = None,
    ignore_index: int | None = None,
) -> Fed:
    """Return the stream after it has seen all rows.

    Parameters
    ----------
    stream : Stream, DecisionChangesStream, ...
        Has ``update(*reports, labels, sample_weight=...)`` and ``merge``.
    reports : array_like
        What its ``update`` takes before the labels.
    labels, sample_weight : array_like, optional
        One entry for each row or position.
    axis : int, optional
        The dimension of the classes in dense reports.
    ignore_index : int, optional
        The label of positions that have none.
    """
    collection = layouts.lazy_handler(*reports, labels)
    if collection is not None:
        if axis is not None:
            raise InputError("axis", "is not served for dask collections", "pass blocks of rows")
        whole: Fed = collection.fed(stream, reports, labels, sample_weight, ignore_index)
        return whole
    named = dict(zip(_REPORTS[len(reports)], reports, strict=True))
    *rows, labels, sample_weight = align_rows(**named, labels=labels, sample_weight=sample_weight)
    if sample_weight is not None and not np.any(arrays.to_numpy(sample_weight)):
        raise zero_weight_error()
    update: Any = stream.update  # type: ignore[attr-defined]
    blocks = layouts.labelled_blocks(axis, ignore_index, rows, labels, sample_weight)
    for numbers, block, truth, weight in blocks:
        given = block if truth is None else [*block, truth]
        with renumber_rows(numbers):
            update(*given, sample_weight=weight)
    return stream


def fed_report(
    stream: Fed,
    probabilities: Any,
    labels: Any,
    sample_weight: Any,
    axis: int | None,
    ignore_index: int | None,
) -> Fed:
    """Return the stream of a measure of one labelled report after it has seen all rows."""
    return fed(
        stream,
        probabilities,
        labels=labels,
        sample_weight=sample_weight,
        axis=axis,
        ignore_index=ignore_index,
    )


class RowsStream(RowStream):
    """The reduced rows themselves, for measures that need all of them at once."""

    def __init__(self) -> None:
        self._parts: list[LabelledRows] = []

    def add(self, rows: LabelledRows) -> None:
        """Add rows that were reduced already."""
        self._parts.append(rows)

    def merge(self, other: Self) -> Self:
        """Add what another stream of the same kind has seen; return this stream."""
        self._parts += other._parts
        return self

    def result(self) -> LabelledRows:
        """Return all rows seen so far; extreme weights relative to the largest one."""
        require_rows(len(self._parts))
        rows = joined_rows(self._parts)
        return rows if rows.weight is None else replace(rows, weight=ordinary_weights(rows.weight))


def joined_rows(parts: list[LabelledRows]) -> LabelledRows:
    """Put the rows of several blocks together."""
    if len(parts) == 1:
        return parts[0]

    # A block without weights among others with weights counts each of its rows once.
    weighted = any(part.weight is not None for part in parts)
    columns = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in LabelledRows.__dataclass_fields__
        if name != "weight"
    }
    weight = np.concatenate([part.weights for part in parts]) if weighted else None
    return LabelledRows(**columns, weight=weight)
