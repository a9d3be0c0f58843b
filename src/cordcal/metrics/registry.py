"""The measures there are, in the order they are shown; more can be registered."""

from __future__ import annotations

from cordcal.metrics.binned import CLASSWISE_ECE, ECE
from cordcal.metrics.equal_mass import EQUAL_MASS_ECE
from cordcal.metrics.proper import ACCURACY, BRIER, NLL
from cordcal.metrics.record import Measure
from cordcal.metrics.smooth import SMOOTH_ECE

_BUILT_IN = (ACCURACY, NLL, BRIER, ECE, EQUAL_MASS_ECE, SMOOTH_ECE, CLASSWISE_ECE)

MEASURES: dict[str, Measure] = {measure.key: measure for measure in _BUILT_IN}


def register(measure: Measure) -> Measure:
    """Add a measure to those that comparisons, reports and studies compute.

    Parameters
    ----------
    measure : Measure
        Its record; one of the same key is replaced.

    Returns
    -------
    measure : Measure
        The same.

    Examples
    --------
    >>> from cordcal.metrics import BrierStream, Measure, brier, measure_all
    >>> mine = Measure("half_brier", "half the Brier score", "½ Brier", "Brier in [0, 1].",
    ...                lambda p, y: brier(p, y) / 2, BrierStream,
    ...                of_rows=lambda rows: float(rows.squared_error.mean()) / 2)
    >>> _ = register(mine)
    >>> measure_all([[0.5, 0.5], [0.0, 1.0]], [0, 0]).half_brier
    0.625
    >>> unregister("half_brier")
    """
    MEASURES[measure.key] = measure
    return measure


def unregister(key: str) -> None:
    """Take a measure out again.

    Parameters
    ----------
    key : str
        Its key.
    """
    del MEASURES[key]


def leading() -> list[str]:
    """Return the measures that are shown where there is room for few."""
    return [key for key, measure in MEASURES.items() if measure.leading]


def registered() -> list[Measure]:
    """Return the measures that were added or replaced, for processes that start without them."""
    return [measure for measure in MEASURES.values() if measure not in _BUILT_IN]
