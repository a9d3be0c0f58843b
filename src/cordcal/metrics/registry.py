"""The metrics that comparisons and reports compute, in the order they are shown."""

from __future__ import annotations

from cordcal.metrics.binned import CLASSWISE_ECE, ECE
from cordcal.metrics.equal_mass import EQUAL_MASS_ECE
from cordcal.metrics.proper import ACCURACY, BRIER, NLL
from cordcal.metrics.record import Metric
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
