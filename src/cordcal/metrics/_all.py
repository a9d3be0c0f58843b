"""Every measure of one report in one pass over it: `measure_all`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from cordcal.metrics._bins import BINS, ECEStream, Reliability, ReliabilityStream
from cordcal.metrics._classwise import ClasswiseECEStream
from cordcal.metrics._equal_mass import equal_mass_gap
from cordcal.metrics._feeding import RowsStream, fed
from cordcal.metrics._rows import LabelledRows, Report
from cordcal.metrics._scores import AccuracyStream, BrierStream, NLLStream
from cordcal.metrics._smooth import smooth_gap
from cordcal.metrics._stream import RowStream, Stream


@dataclass(frozen=True)
class Measures:
    """Every measure of one labelled report, as the function of the same name defines it.

    Attributes
    ----------
    n : int
        Rows measured.
    accuracy, nll, brier, ece, ece_equal_mass, smooth_ece, classwise_ece : float
        The measures, with their default settings.
    """

    n: int
    accuracy: float
    nll: float
    brier: float
    ece: float
    ece_equal_mass: float
    smooth_ece: float
    classwise_ece: float

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return asdict(self)


@dataclass(frozen=True)
class MeasuredReport:
    """A report's measures, with the rows they were computed from."""

    measures: Measures
    rows: LabelledRows

    def reliability(self) -> Reliability:
        """Return the bins of the report's diagram."""
        bins = ReliabilityStream()
        bins.add(self.rows)
        return bins.result()


def _value(stream: RowStream, rows: LabelledRows) -> float:
    stream.add(rows)
    return float(stream.result())


class MeasuresStream(Stream):
    """`measure_all` of blocks of rows; the few numbers a row are kept, not the reports."""

    def __init__(self) -> None:
        self._rows, self._classwise = RowsStream(), ClasswiseECEStream()

    def read(self, report: Report, labels: Any, sample_weight: Any) -> None:
        """Add a report that was taken in already."""
        self._rows.add(report.labelled(labels, sample_weight, visit=self._classwise.visit))

    def merge(self, other: Self) -> Self:
        """Add what another stream has seen; return this stream."""
        self._rows.merge(other._rows)
        self._classwise.merge(other._classwise)
        return self

    def result(self) -> MeasuredReport:
        """Return the measures of all rows seen so far, and the rows."""
        rows = self._rows.result()
        measures = Measures(
            n=len(rows),
            accuracy=_value(AccuracyStream(), rows),
            nll=_value(NLLStream(), rows),
            brier=_value(BrierStream(), rows),
            ece=_value(ECEStream(), rows),
            ece_equal_mass=equal_mass_gap(rows, BINS),
            smooth_ece=smooth_gap(rows)[0],
            classwise_ece=self._classwise.result(),
        )
        return MeasuredReport(measures, rows)


def measure_report(report: Report, labels: Any, sample_weight: Any) -> MeasuredReport:
    """Measure a report and keep its rows, for resampling and diagrams."""
    stream = MeasuresStream()
    stream.read(report, labels, sample_weight)
    return stream.result()


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
    probabilities : array_like of shape (n, K)
        The report to measure.
    labels : array_like of int
        The true class of each row, 0..K-1.
    sample_weight : array_like, optional
        Weights of the rows.
    axis : int, optional
        The dimension of the classes, for dense reports such as (B, K, H, W); labels and
        weights then have the shape that is left.
    ignore_index : int, optional
        The label of rows or positions that have none; they are left out.

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
    stream = fed(
        MeasuresStream(),
        probabilities,
        labels=labels,
        sample_weight=sample_weight,
        axis=axis,
        ignore_index=ignore_index,
    )
    return stream.result().measures
