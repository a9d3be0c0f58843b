"""Probabilities that were computed elsewhere, in place of a calibrator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray
from cordcal._validation.layouts import align_rows


@dataclass(frozen=True, eq=False)
class PrecomputedProbabilities:
    """The direct probabilities of a calibrator that ran elsewhere, for `compare`.

    Parameters
    ----------
    direct_calibration : array_like of shape (n, K)
        Its probabilities for the calibration rows, in their order.
    direct_evaluation : array_like of shape (m, K)
        Its probabilities for the evaluation rows; pass these rows to `compare` as
        ``evaluation=(scores, labels)``.

    Examples
    --------
    >>> import numpy as np
    >>> import cordcal
    >>> p = np.tile([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.1, 0.9]], (50, 1))
    >>> labels = np.tile([0, 1, 1, 1], 50)
    >>> mine = PrecomputedProbabilities(p, p)
    >>> result = cordcal.compare(p, labels, {"mine": mine}, input="probabilities",
    ...                          evaluation=(p, labels))
    >>> result["mine"].repaired["accuracy"]
    0.75
    """

    direct_calibration: Any
    direct_evaluation: Any

    def between(
        self, fit_scores: NumPyArray, scores: NumPyArray
    ) -> tuple[FixedProbabilities, FixedProbabilities]:
        """Return a calibrator for each of the two sets of rows, after checking the shapes.

        There are two because the same scores may have other probabilities in the other set.
        """
        pairs = (
            ("direct_calibration", self.direct_calibration, fit_scores),
            ("direct_evaluation", self.direct_evaluation, scores),
        )
        for name, probabilities, rows in pairs:
            if np.shape(probabilities) != rows.shape:
                raise InputError(
                    name,
                    f"has shape {np.shape(probabilities)} but its scores have shape {rows.shape}",
                    "pass the probabilities of these rows, in their order",
                )
        calibration, evaluation = (np.asarray(array) for _, array, _ in pairs)
        return FixedProbabilities(calibration), FixedProbabilities(evaluation)


def match_rows(
    scores: Any, evaluation: Any, precomputed: PrecomputedProbabilities
) -> PrecomputedProbabilities:
    """Return the probabilities with their rows in the order of the scores' rows."""
    _, calibration = align_rows(scores=scores, direct_calibration=precomputed.direct_calibration)
    rows = evaluation[0] if isinstance(evaluation, tuple) else None
    matched = {"evaluation[0]": rows, "direct_evaluation": precomputed.direct_evaluation}
    return PrecomputedProbabilities(calibration, align_rows(**matched)[1])


class FixedProbabilities:
    """A calibrator that returns the probabilities of one set of rows."""

    def __init__(self, probabilities: NumPyArray) -> None:
        self.probabilities = probabilities

    def fit(self, scores: Any, labels: Any) -> Self:
        """Do nothing: the probabilities exist."""
        return self

    def predict_proba(self, scores: Any) -> NumPyArray:
        """Return the probabilities, whose rows are those of the scores."""
        return self.probabilities
