"""The streaming form every measure of a labelled report shares: update, merge, result."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal._door.rows import same_rows
from cordcal._door.types import Classes, Labels, Vector
from cordcal._numeric.exact import (
    ExactSum,
    total_weight,
    weight_exponent,
    weight_unit,
    weighted,
)
from cordcal.metrics._rows import LabelledRows, Report


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
        probabilities, labels, sample_weight = same_rows(
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
        raise Refusal("the stream", "has seen no rows yet", "call update(...) first")


def unlike(settings: str) -> Refusal:
    """Return the refusal to merge streams that were made with other settings."""
    return Refusal("other", f"cannot be merged: streams of {settings}", "make both streams alike")
