"""Reports that were computed elsewhere, in place of a calibrator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._validation.alignment import align_rows


@dataclass(frozen=True, eq=False)
class PrecomputedProbabilities:
    """The direct reports of a calibrator that ran elsewhere, for `compare`.

    Parameters
    ----------
    direct_calibration : array_like of shape (n, K)
        Its report of the calibration rows, in their order.
    direct_evaluation : array_like of shape (m, K)
        Its report of the evaluation rows; `compare` must be given these rows as
        ``evaluation=(scores, labels)``.

    Examples
    --------
    >>> import numpy as np
    >>> import cordcal
    >>> p = np.tile([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.1, 0.9]], (50, 1))
    >>> labels = np.tile([0, 1, 1, 1], 50)
    >>> given = PrecomputedProbabilities(p, p)
    >>> rows = cordcal.compare(p, labels, {"mine": given}, input="probabilities",
    ...                        evaluation=(p, labels))
    >>> rows["mine"].repaired["accuracy"]
    0.75
    """

    direct_calibration: Any
    direct_evaluation: Any

    def between(
        self, fit_scores: npt.NDArray[Any], scores: npt.NDArray[Any]
    ) -> tuple[GivenRows, GivenRows]:
        """Return a calibrator that reports on each of the two sets of rows; refuse other shapes.

        There are two because the same scores can occur in both sets with other reports.
        """
        pairs = (
            ("direct_calibration", self.direct_calibration, fit_scores),
            ("direct_evaluation", self.direct_evaluation, scores),
        )
        for name, report, rows in pairs:
            if np.shape(report) != rows.shape:
                raise InputError(
                    name,
                    f"has shape {np.shape(report)} but its scores have shape {rows.shape}",
                    "pass the report of these rows, in their order",
                )
        calibration, evaluation = (np.asarray(report) for _, report, _ in pairs)
        return GivenRows(calibration), GivenRows(evaluation)


def in_order_of(
    scores: Any, evaluation: Any, given: PrecomputedProbabilities
) -> PrecomputedProbabilities:
    """Return the reports with their rows in the order of the scores' rows."""
    _, calibration = align_rows(scores=scores, direct_calibration=given.direct_calibration)
    rows = evaluation[0] if isinstance(evaluation, tuple) else None
    matched = {"evaluation[0]": rows, "direct_evaluation": given.direct_evaluation}
    return PrecomputedProbabilities(calibration, align_rows(**matched)[1])


class GivenRows:
    """Answers with the report of one set of rows."""

    def __init__(self, report: npt.NDArray[Any]) -> None:
        self.report = report

    def fit(self, scores: Any, labels: Any) -> Self:
        """Do nothing: the report is there."""
        return self

    def predict_proba(self, scores: Any) -> npt.NDArray[Any]:
        """Return the report, whose rows are those of the scores."""
        return self.report
