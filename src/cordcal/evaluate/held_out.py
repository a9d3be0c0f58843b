"""Metrics of a model on held-out rows, before it is used on new ones."""

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

# From this many entries on, one fold has enough rows and five more fits take too long.
_MANY_ENTRIES = 1_000_000


@dataclass(frozen=True)
class HeldOutMeasures:
    """Metrics of the original and the repaired probabilities on held-out rows.

    Attributes
    ----------
    n : int
        Number of held-out rows.
    fits : int
        Number of models, each fitted without a fifth of the rows and applied to it.
    original, repaired : mapping of str to float
        The metrics of both, over all held-out rows.
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
    **columns: npt.NDArray[Any] | None,
) -> HeldOutMeasures:
    """Measure a model on rows that it was not fitted on.

    The rows are divided into five folds, copies of a row together.  For each fold a model is
    fitted on the other rows and applied to the fold; with ``one_fold``, or from a million entries
    on, only for the first fold.

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
        Whether to use one fold only, as for models that cross-fit themselves.
    **columns : ndarray or None
        Further arguments of ``fit`` with one entry per row: ``sample_weight``, ``features``.

    Returns
    -------
    measures : HeldOutMeasures
        For the original and the repaired probabilities.

    Examples
    --------
    >>> from cordcal import PreservingCalibrator
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=500)
    >>> scores = 6 * np.eye(3)[labels] + 4 * rng.normal(size=(500, 3))
    >>> new = lambda: PreservingCalibrator("ts")
    >>> result = measure_held_out(new, scores, labels, input="logits")
    >>> result.n, result.fits, result.repaired["nll"] < result.original["nll"]
    (500, 5, True)
    """
    truth = check_labels(labels, *scores.shape)
    folds = Folds.of(scores, truth, FOLDS, seed=0, weight=columns.get("sample_weight"))
    fits = 1 if one_fold or scores.size >= _MANY_ENTRIES else folds.count
    fold_rows = [np.flatnonzero(folds.number == number) for number in range(fits)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit on all rows has warned already
        repaired = [_predict_fold(new(), scores, truth, rows, columns) for rows in fold_rows]
    rows = np.concatenate(fold_rows)
    weight = columns.get("sample_weight")
    row_weight = None if weight is None else weight[rows]
    measured = (
        measure_all(probabilities, truth[rows], sample_weight=row_weight).values
        for probabilities in (
            original_probabilities(scores[rows], input),
            np.concatenate(repaired),
        )
    )
    return HeldOutMeasures(len(rows), fits, *measured)


def _predict_fold(
    model: Any,
    scores: npt.NDArray[Any],
    labels: Labels,
    rows: npt.NDArray[np.intp],
    columns: Mapping[str, npt.NDArray[Any] | None],
) -> npt.NDArray[Any]:
    """Fit on the other rows; return the repaired probabilities of these."""
    others = np.ones(len(labels), dtype=bool)
    others[rows] = False
    fit_columns = {
        name: None if column is None else column[others] for name, column in columns.items()
    }
    model.fit(scores[others], labels[others], **fit_columns)
    features = columns.get("features")
    fold_features = None if features is None else features[rows]
    probabilities: npt.NDArray[Any] = model.predict_proba(scores[rows], features=fold_features)
    return probabilities
