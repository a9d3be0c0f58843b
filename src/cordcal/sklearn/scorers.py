"""Scorers of probabilities, for `cross_validate`, `GridSearchCV` and other tools of scikit-learn.

Each scorer calls ``predict_proba`` and returns a metric of `cordcal.metrics`, negated as
scikit-learn does with losses: greater is better.  With three classes or more, several scorers in
one call share one ``predict_proba``.  With metadata routing, ``params={"context": frame}`` reaches
``predict_proba``, which each scorer then calls by itself.

Examples
--------
>>> from sklearn.datasets import load_iris
>>> from sklearn.model_selection import cross_validate
>>> from sklearn.naive_bayes import GaussianNB
>>> from cordcal.sklearn import scorers
>>> X, y = load_iris(return_X_y=True)
>>> results = cross_validate(GaussianNB(), X, y, scoring={"ece": scorers.ece})
>>> bool((results["test_ece"] <= 0.0).all())
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics._scorer import _BaseScorer

from cordcal import metrics
from cordcal._numeric.types import Array
from cordcal.sklearn._members import normalised, positions, to_numpy


class _ProbabilityScorer(_BaseScorer):  # type: ignore[misc]
    """A scorer that knows the columns of ``predict_proba``, also of two classes."""

    # A model with context cannot be scored without it; for other models none is passed.
    __metadata_request__score: ClassVar = {"context": True}

    def __init__(self, metric: Callable[..., Any]) -> None:
        super().__init__(metric, -1, {}, "predict_proba")

    def __repr__(self) -> str:
        return f"cordcal.sklearn.scorers: -{self._score_func.__name__}"

    def _score(
        self,
        method_caller: Callable[..., Array],
        estimator: Any,
        X: object,
        y_true: object,
        context: object = None,
        **kwargs: object,
    ) -> float:
        """Return the negated metric; a class that the estimator does not know has probability 0."""
        labels, classes = to_numpy(y_true), to_numpy(estimator.classes_)
        if context is not None:  # the caller takes no arguments of `predict_proba`
            proba = to_numpy(estimator.predict_proba(X, context=context))
        elif len(classes) == 2:  # the caller returns one column, whose complement is rounded
            proba = to_numpy(estimator.predict_proba(X))
        else:
            proba = to_numpy(method_caller(estimator, "predict_proba", X))
        new = np.setdiff1d(labels, classes)
        proba = np.pad(normalised(proba), ((0, 0), (0, len(new))))
        truth = positions(labels, np.concatenate([classes, new]), "y")
        return -float(self._score_func(proba, truth, **kwargs))


def _set_score_request(self: _ProbabilityScorer, **requests: object) -> Any:
    """Set requested parameters; the context is requested as long as this does not say otherwise."""
    return _BaseScorer.set_score_request(self, **{"context": True, **requests})


# Not in the class: older versions of scikit-learn replace it there by one that knows no weights.
_ProbabilityScorer.set_score_request = _set_score_request

ece = _ProbabilityScorer(metrics.ece)
"""Minus the expected calibration error of predictions, in 15 bins."""
classwise_ece = _ProbabilityScorer(metrics.classwise_ece)
"""Minus the expected calibration error of all classes."""
smooth_ece = _ProbabilityScorer(metrics.smooth_ece)
"""Minus the calibration error of predictions without bins."""
brier = _ProbabilityScorer(metrics.brier)
"""Minus the squared distance between probabilities and one-hot labels."""
log_loss = _ProbabilityScorer(metrics.nll)
"""Minus the mean negative log-likelihood."""

__all__ = ["brier", "classwise_ece", "ece", "log_loss", "smooth_ece"]
