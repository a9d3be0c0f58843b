"""Every measure of one report in one pass over it: `measure_all`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from cordcal._numeric.types import Labels, Vector
from cordcal.metrics.binned import (
    CLASSWISE_ECE,
    ClassBins,
    ClasswiseECEStream,
    Reliability,
    ReliabilityStream,
)
from cordcal.metrics.record import documented
from cordcal.metrics.registry import MEASURES
from cordcal.metrics.rows import LabelledRows, Report
from cordcal.metrics.stream import BlockStream, RowsStream, Stream, fed_report


@dataclass(frozen=True)
class Measures:
    """Every measure of one labelled report, as the function of the same name defines it.

    Each is an attribute: ``measures.nll``; those registered since are there too.

    Attributes
    ----------
    n : int
        Rows measured.
    values : mapping of str to float
        The measures by key, with their default settings, in the order they are shown.
    """

    n: int
    values: Mapping[str, float]

    def __getattr__(self, name: str) -> float:
        # Unpickling asks for names before there is anything to look them up in.
        values: Mapping[str, float] = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"there is no measure {name!r}; there are {', '.join(values)}")

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return {"n": self.n, **self.values}


@dataclass(frozen=True)
class MeasuredReport:
    """A report's measures, with the rows they were computed from, and the bins of its classes.

    ``classes`` is None where another measure has taken the place of classwise ECE.
    """

    measures: Measures
    rows: LabelledRows
    classes: ClassBins | None

    def reliability(self) -> Reliability:
        """Return the bins of the report's diagram."""
        bins = ReliabilityStream()
        bins.add(self.rows)
        return bins.result()


class MeasuresStream(Stream):
    """`measure_all` of blocks of rows; the few numbers a row are kept, not the reports."""

    def __init__(self) -> None:
        self._rows = RowsStream()
        streams = {key: measure.stream() for key, measure in MEASURES.items()}
        self._whole = {
            key: stream for key, stream in streams.items() if isinstance(stream, BlockStream)
        }

    def read(self, report: Report, labels: Labels, weight: Vector | None) -> None:
        """Add a report that was taken in already, with labels and weights that were checked."""
        self._rows.add(report.labelled(labels, weight, visit=self._visit))

    def _visit(self, *block: Any) -> None:
        for stream in self._whole.values():
            stream.visit(*block)

    def merge(self, other: Self) -> Self:
        """Add what another stream has seen; return this stream."""
        self._rows.merge(other._rows)
        for key, stream in self._whole.items():
            stream.merge(other._whole[key])
        return self

    def result(self) -> MeasuredReport:
        """Return the measures of all rows seen so far, and the rows."""
        rows = self._rows.result()
        values = {
            key: self._whole[key].result() if key in self._whole else measure.value(rows)
            for key, measure in MEASURES.items()
        }
        classwise = self._whole.get(CLASSWISE_ECE.key)
        classes = classwise.by_class() if isinstance(classwise, ClasswiseECEStream) else None
        return MeasuredReport(Measures(len(rows), values), rows, classes)


def measure_report(report: Report, labels: Labels, weight: Vector | None) -> MeasuredReport:
    """Measure a report and keep its rows, for resampling and diagrams."""
    stream = MeasuresStream()
    stream.read(report, labels, weight)
    return stream.result()


@documented
def measure_all(
    probabilities: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    axis: int | None = None,
    ignore_index: int | None = None,
) -> Measures:
    """Return every measure of one report, reading it once.

    Parameters
    ----------
    {report}
    {rows}

    Returns
    -------
    measures : Measures
        Each measure with its default settings.

    Examples
    --------
    >>> measures = measure_all([[0.8, 0.2], [0.4, 0.6]], [0, 0])
    >>> measures.accuracy, round(measures.ece, 6), round(measures.brier, 6)
    (0.5, 0.4, 0.4)
    """
    given = (probabilities, labels, sample_weight, axis, ignore_index)
    return fed_report(MeasuresStream(), *given).result().measures
