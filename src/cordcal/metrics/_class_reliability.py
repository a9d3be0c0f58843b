"""The reliability of one class's probability, against all others: `class_reliability`."""

from __future__ import annotations

from typing import Any

import numpy as np

from cordcal._door.rows import same_rows
from cordcal.metrics._bins import BINS, Reliability, ReliabilityStream
from cordcal.metrics._rows import LabelledRows, Report


def class_reliability(
    probabilities: Any,
    labels: Any,
    index: int,
    *,
    bins: int = BINS,
    sample_weight: Any = None,
) -> Reliability:
    """Return the bins behind a reliability diagram of one class.

    Where `reliability` asks how often the predicted class is right, this asks how often the
    class is the true one among rows that give it some probability.

    Parameters
    ----------
    probabilities : array_like of shape (n, K)
        The report to measure.
    labels : array_like of int
        The true class of each row, 0..K-1.
    index : int
        The class.
    bins : int
        Number of bins.
    sample_weight : array_like, optional
        Weights of the rows.

    Returns
    -------
    reliability : Reliability
        Counts, shares of the class, probabilities and intervals by bin.

    Examples
    --------
    >>> found = class_reliability([[0.8, 0.2], [0.4, 0.6]], [0, 0], 1, bins=5)
    >>> found.count.tolist(), found.accuracy[[0, 2]].tolist()
    ([1, 0, 1, 0, 0], [0.0, 0.0])
    """
    probabilities, labels, sample_weight = same_rows(
        probabilities=probabilities, labels=labels, sample_weight=sample_weight
    )
    report = Report.of(probabilities, "probabilities")
    if not 0 <= index < report.classes:
        raise ValueError(f"index is {index}; pass a class, 0..{report.classes - 1}")
    rows = report.labelled(*report.beside(labels, sample_weight))
    chosen = np.full(len(rows), index, dtype=np.intp)
    own = LabelledRows(
        confidence=report.mass_on(chosen),
        prediction=chosen,
        true_mass=rows.true_mass,
        squared_error=rows.squared_error,
        labels=rows.labels,
        weight=rows.weight,
    )
    stream = ReliabilityStream(bins)
    stream.add(own)
    return stream.result()
