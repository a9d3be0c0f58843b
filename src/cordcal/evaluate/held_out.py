"""What a model is worth on rows that it was not fitted on, before it is used on others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Kind, Labels
from cordcal._validation.labels import check_labels
from cordcal._validation.scores import original_probabilities
from cordcal.calibrators.crossfit import FOLDS, Folds
from cordcal.metrics import measure_all

# From this many entries on, one fold has rows enough and five more fits take too long.
_MANY_ENTRIES = 1_000_000


@dataclass(frozen=True)
class HeldOutMeasures:
    """Measures of the original and the repaired report on rows held out.

    Attributes
    ----------
    n : int
        Rows that were held out.
    fits : int
        Models that were fitted, each without a fifth of the rows, which it then reported on.
    original, repaired : mapping of str to float
        The measures of both reports, over all rows held out.
    """

    n: int
    fits: int
    original: Mapping[str, float]
    repaired: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return asdict(self)

    def __str__(self) -> str:
        before, after = self.original, self.repaired
        how = f"in {self.fits} folds" if self.fits > 1 else "by a second fit"
        return (
            f"NLL {before['nll']:.4f} before, {after['nll']:.4f} after; ECE {before['ece']:.2%} "
            f"before, {after['ece']:.2%} after; on {self.n:,} rows held out {how}"
        )


def measure_held_out(
    new: Callable[[], Any],
    scores: npt.NDArray[Any],
    labels: Any,
    *,
    input: Kind,
    one_fold: bool = False,
    **beside: npt.NDArray[Any] | None,
) -> HeldOutMeasures:
    """Measure reports of rows that their models were not fitted on.

    The rows are dealt out into five folds, class by class.  For each fold a model is fitted on
    the other rows and reports on the fold; with ``one_fold``, or from a million entries on,
    for the first fold only.

    Parameters
    ----------
    new : callable
        Returns an unfitted `PreservingCalibrator`.
    scores : ndarray of shape (n, K)
        The calibration rows.
    labels : array_like of int of shape (n,)
        The true classes, as column indices.
    input : {"logits", "probabilities"}
        What the scores are.
    one_fold : bool
        Whether one fold is enough: for models that cross-fit by themselves.
    **beside : ndarray or None
        What ``fit`` takes a row of each: ``sample_weight``, ``features``.

    Returns
    -------
    measures : HeldOutMeasures
        Of the original and the repaired report.

    Examples
    --------
    >>> from cordcal import PreservingCalibrator
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=500)
    >>> scores = 6 * np.eye(3)[labels] + 4 * rng.normal(size=(500, 3))
    >>> found = measure_held_out(lambda: PreservingCalibrator("ts"), scores, labels, input="logits")
    >>> found.n, found.fits, found.repaired["nll"] < found.original["nll"]
    (500, 5, True)
    """
    truth = check_labels(labels, *scores.shape)
    folds = Folds.of(truth, FOLDS, seed=0)
    fits = 1 if one_fold or scores.size >= _MANY_ENTRIES else folds.count
    held = [np.flatnonzero(folds.number == number) for number in range(fits)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit on all rows has said what there is to say
        repaired = [_reported(new(), scores, truth, rows, beside) for rows in held]
    rows = np.concatenate(held)
    weight = beside.get("sample_weight")
    own = None if weight is None else weight[rows]
    original, report = original_probabilities(scores[rows], input), np.concatenate(repaired)
    measured = (
        measure_all(each, truth[rows], sample_weight=own).values for each in (original, report)
    )
    return HeldOutMeasures(len(rows), fits, *measured)


def _reported(
    model: Any,
    scores: npt.NDArray[Any],
    labels: Labels,
    rows: npt.NDArray[np.intp],
    beside: Mapping[str, npt.NDArray[Any] | None],
) -> npt.NDArray[Any]:
    """Fit on the other rows; return the repaired report of these."""
    others = np.ones(len(labels), dtype=bool)
    others[rows] = False
    seen = {name: None if each is None else each[others] for name, each in beside.items()}
    model.fit(scores[others], labels[others], **seen)
    features = beside.get("features")
    here = None if features is None else features[rows]
    report: npt.NDArray[Any] = model.predict_proba(scores[rows], features=here)
    return report
