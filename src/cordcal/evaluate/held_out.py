"""Metrics of a model on held-out rows, before it is used on new ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Classes, Floats, Kind, Labels, NumPyArray, Record, Vector
from cordcal._validation.labels import check_labels, cluster_numbers
from cordcal._validation.scores import original_probabilities
from cordcal.calibrators.crossfit import FOLDS, Folds
from cordcal.evaluate.results.values import Interval, Measures
from cordcal.evaluate.statistics import interval_of, resampled
from cordcal.metrics.base import ProbabilityMatrix
from cordcal.metrics.registry import measure_probabilities
from cordcal.preserving import PreservingCalibrator
from cordcal.repair import ConfidenceGap

# From this many entries on, one fold has enough rows and five more fits take too long.
_MANY_ENTRIES = 1_000_000
# The metrics whose change has an interval, and how often they are resampled.
_COMPARED, _RESAMPLES = ("nll", "brier", "ece"), 500


@dataclass(frozen=True)
class HeldOutMeasures(Record):
    """Metrics of the original and the repaired probabilities on held-out rows.

    Attributes
    ----------
    n : int
        Number of held-out rows.
    fits : int
        Number of models, each fitted without a fifth of the rows and applied to it.
    original, repaired : mapping of str to float
        The metrics of both, over all held-out rows.
    change : mapping of str to Interval
        Repaired minus original of NLL, Brier score and ECE, with the 95 % bootstrap interval.
    confidence : ConfidenceGap
        Confidence minus accuracy before and after.
    """

    n: int
    fits: int
    original: Measures
    repaired: Measures
    change: Mapping[str, Interval]
    confidence: ConfidenceGap

    def for_file(self) -> dict[str, Any]:
        """Return what a model file stores (``measured_``)."""
        metrics = {
            key: {
                "before": self.original[key],
                "after": self.repaired[key],
                "change": [change.estimate, change.low, change.high],
            }
            for key, change in self.change.items()
        }
        before, after = list(self.confidence.before), list(self.confidence.after)
        gap = {"before": before, "after": after}
        return {"rows": self.n, "fits": self.fits, "metrics": metrics, "confidence": gap}


def measure_held_out(
    new: Callable[[], PreservingCalibrator],
    scores: Floats,
    labels: npt.ArrayLike,
    *,
    input: Kind,
    sample_weight: Vector | None = None,
    clusters: npt.ArrayLike | None = None,
    context: Mapping[str, NumPyArray] | None = None,
    progress: Callable[[str], None] | None = None,
) -> HeldOutMeasures:
    """Measure a model on rows that it was not fitted on.

    The rows are divided into five stratified folds.  For each fold a model is fitted on the other
    rows and applied to the fold; from a million entries on, only for the first fold.

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
    sample_weight : ndarray of shape (n,), optional
        Weights of the rows.
    clusters : array_like of shape (n,), optional
        Rows with the same value are held out together.
    context : mapping of str to ndarray, optional
        Columns next to the scores.
    progress : callable, optional
        Called with the name of each fold as it begins.

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
    cluster = None if clusters is None else cluster_numbers(clusters, len(truth))
    if cluster is None:
        folds = Folds.of(scores, truth, FOLDS, seed=0, weight=sample_weight)
    else:
        folds = Folds.of_clusters(cluster, truth, FOLDS, seed=0, weight=sample_weight)
    fits = 1 if scores.size >= _MANY_ENTRIES else folds.count
    fold_rows, repaired = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit on all rows has warned already
        for number in range(fits):
            if progress is not None:
                progress(f"fold {number + 1} of {fits}, to evaluate on rows held out")
            fold_rows.append(np.flatnonzero(folds.number == number))
            part = fold_rows[-1]
            repaired.append(
                _predict_fold(new(), scores, truth, part, sample_weight, cluster, context)
            )
    rows = np.concatenate(fold_rows)
    outputs = {
        "original": original_probabilities(scores[rows], input),
        "repaired": np.concatenate(repaired),
    }
    weight = None if sample_weight is None else sample_weight[rows]
    measured = {
        name: measure_probabilities(
            ProbabilityMatrix.from_array(probabilities, name), truth[rows], weight
        )
        for name, probabilities in outputs.items()
    }
    values = {name: output.metrics.values for name, output in measured.items()}
    drawn = resampled(
        {name: [output.rows] for name, output in measured.items()},
        [np.arange(len(rows))],
        len(rows),
        resamples=_RESAMPLES,
        measures=_COMPARED,
        clusters=None if cluster is None else np.unique(cluster[rows], return_inverse=True)[1],
    )
    change = {}
    for metric in _COMPARED:
        estimate = values["repaired"][metric] - values["original"][metric]
        differences = drawn["repaired"][metric] - drawn["original"][metric]
        # Resamples repeat rows, which inflates binned errors: shift by this bias.
        change[metric] = interval_of(estimate, differences - differences.mean() + estimate)
    prediction = scores[rows].argmax(axis=1)
    original, after = outputs["original"], outputs["repaired"]
    gap = ConfidenceGap.of(original, after, after, prediction, truth[rows], weight, at_bound=0.0)
    return HeldOutMeasures(len(rows), fits, values["original"], values["repaired"], change, gap)


def _predict_fold(
    model: PreservingCalibrator,
    scores: Floats,
    labels: Labels,
    rows: npt.NDArray[np.intp],
    sample_weight: Vector | None,
    clusters: Classes | None,
    context: Mapping[str, NumPyArray] | None,
) -> Floats:
    """Fit on the other rows; return the repaired probabilities of these."""
    others = np.ones(len(labels), dtype=bool)
    others[rows] = False
    before, later = (
        None if context is None else {name: values[part] for name, values in context.items()}
        for part in (others, rows)
    )
    model.fit(
        scores[others],
        labels[others],
        sample_weight=None if sample_weight is None else sample_weight[others],
        clusters=None if clusters is None else clusters[others],
        context=before,
    )
    probabilities: Floats = model.predict_proba(scores[rows], context=later, dtype=np.float64)
    return probabilities
