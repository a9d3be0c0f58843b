"""The table of metrics, in the order they are shown, and all of them in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from cordcal._numeric.types import ArrayLike, Classes, Floats, Labels, Matrix, Vector
from cordcal._validation.names import Name
from cordcal.metrics.base import (
    BlockStream,
    LabelledRows,
    Metric,
    ProbabilityMatrix,
    RowCollector,
    Stream,
    fill_docstring,
    update_stream,
)
from cordcal.metrics.binned import (
    CLASSWISE_ECE,
    ECE,
    ClassBins,
    ClasswiseECEStream,
    Reliability,
    ReliabilityStream,
    equal_mass_bins,
)
from cordcal.metrics.equal_mass import EQUAL_MASS_ECE
from cordcal.metrics.proper import ACCURACY, BRIER, NLL
from cordcal.metrics.smooth import SMOOTH_ECE

_BUILT_IN = (ACCURACY, NLL, BRIER, ECE, EQUAL_MASS_ECE, SMOOTH_ECE, CLASSWISE_ECE)

METRICS: dict[str, Metric] = {metric.key: metric for metric in _BUILT_IN}


def register(metric: Metric) -> Metric:
    """Add a metric to those that comparisons, reports and studies compute.

    Parameters
    ----------
    metric : Metric
        Its record; it replaces a metric with the same key.

    Returns
    -------
    metric : Metric
        The same record.

    Examples
    --------
    >>> from cordcal.metrics import BrierStream, Metric, brier, measure_all
    >>> half = Metric("half_brier", "half the Brier score", "½ Brier", "Brier in [0, 1].",
    ...               lambda p, y: brier(p, y) / 2, BrierStream,
    ...               of_rows=lambda rows: float(rows.squared_error.mean()) / 2)
    >>> _ = register(half)
    >>> measure_all([[0.5, 0.5], [0.0, 1.0]], [0, 0]).half_brier
    0.625
    >>> unregister("half_brier")
    """
    METRICS[metric.key] = metric
    return metric


def unregister(key: str) -> None:
    """Remove a metric.

    Parameters
    ----------
    key : str
        Its key.
    """
    del METRICS[key]


def leading_metrics() -> list[str]:
    """Return the keys of the metrics to show where there is room for only a few."""
    return [key for key, metric in METRICS.items() if metric.leading]


def custom_metrics() -> list[Metric]:
    """Return the metrics that were added or replaced, for worker processes to register."""
    return [metric for metric in METRICS.values() if metric not in _BUILT_IN]


@dataclass(frozen=True)
class MetricValues:
    """The value of every metric, as the function of the same name defines it.

    Every metric is an attribute, such as ``values.nll``, including registered ones.

    Attributes
    ----------
    n : int
        The number of rows.
    values : mapping of str to float
        The values by key, with default settings, in the order they are shown.
    """

    n: int
    values: Mapping[str, float]

    def __getattr__(self, name: str) -> float:
        # Unpickling looks up attributes before ``values`` is set.
        values: Mapping[str, float] = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"there is no metric {name!r}; there are {', '.join(values)}")

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return {"n": self.n, **self.values}


@dataclass(frozen=True)
class MeasuredProbabilities:
    """All metrics, the rows they were computed from, and the bins of every class.

    ``classes`` is None if another metric replaced classwise ECE.
    """

    metrics: MetricValues
    rows: LabelledRows
    classes: ClassBins | None

    def reliability(self) -> Reliability:
        """Return the bins of the reliability diagram."""
        stream = ReliabilityStream()
        stream.add(self.rows)
        return stream.result()

    def diagram(self) -> Reliability:
        """Return bins that hold equally many rows, which figures show."""
        return equal_mass_bins(self.rows)


class MetricsStream(Stream):
    """`measure_all` of blocks of rows; it keeps the reduced rows, not the probabilities."""

    def __init__(self) -> None:
        self._rows = RowCollector()
        streams = {key: metric.stream() for key, metric in METRICS.items()}
        self._block_streams = {
            key: stream for key, stream in streams.items() if isinstance(stream, BlockStream)
        }

    def update_checked(
        self, probabilities: ProbabilityMatrix, labels: Labels, weight: Vector | None
    ) -> None:
        """Add a block of rows whose labels and weights are already checked."""
        self._rows.add(probabilities.reduce(labels, weight, visit=self._visit))

    def _visit(self, block: Floats, wide: Matrix, labels: Classes, weight: Vector) -> None:
        for stream in self._block_streams.values():
            stream.visit(block, wide, labels, weight)

    def merge(self, other: Self) -> Self:
        """Add the rows of another stream; return this stream."""
        self._rows.merge(other._rows)
        for key, stream in self._block_streams.items():
            stream.merge(other._block_streams[key])
        return self

    def result(self) -> MeasuredProbabilities:
        """Return the metrics of all rows added so far, and the rows."""
        rows = self._rows.result()
        values = {
            key: self._block_streams[key].result()
            if key in self._block_streams
            else metric.value(rows)
            for key, metric in METRICS.items()
        }
        classwise = self._block_streams.get(CLASSWISE_ECE.key)
        classes = classwise.by_class() if isinstance(classwise, ClasswiseECEStream) else None
        return MeasuredProbabilities(MetricValues(len(rows), values), rows, classes)


def measure_probabilities(
    probabilities: ProbabilityMatrix, labels: Labels, weight: Vector | None
) -> MeasuredProbabilities:
    """Compute all metrics and keep the rows, for resampling and diagrams."""
    stream = MetricsStream()
    stream.update_checked(probabilities, labels, weight)
    return stream.result()


@fill_docstring
def measure_all(
    probabilities: ArrayLike,
    labels: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    axis: int | None = None,
    ignore_index: int | None = None,
    class_names: Sequence[Name] | None = None,
) -> MetricValues:
    """Compute every metric in one pass over the probabilities.

    Parameters
    ----------
    {probabilities, labels}
    {sample_weight, axis, ignore_index, class_names}

    Returns
    -------
    values : MetricValues
        Every metric with its default settings.

    Examples
    --------
    >>> values = measure_all([[0.8, 0.2], [0.4, 0.6]], [0, 0])
    >>> values.accuracy, round(values.ece, 6), round(values.brier, 6)
    (0.5, 0.4, 0.4)
    """
    return (
        update_stream(
            MetricsStream(), [probabilities], labels, sample_weight, axis, ignore_index, class_names
        )
        .result()
        .metrics
    )
