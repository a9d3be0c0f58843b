"""Whether a repair keeps the mean mass on the decisions: `mean_retention`."""

from __future__ import annotations

from typing import Any, Self

from cordcal._door.reports import check_same_shape
from cordcal._door.rows import same_rows
from cordcal._door.vectors import check_decisions, check_weights
from cordcal.metrics._changes import read_decisions
from cordcal.metrics._documented import documented
from cordcal.metrics._feeding import fed
from cordcal.metrics._rows import Report
from cordcal.metrics._stream import WeightedMean


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
        original, direct, repaired, sample_weight = same_rows(
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
