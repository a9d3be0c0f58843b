"""What every calibrator shares: the scikit-learn contract, the checks, and its model state."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from cordcal._door import arrays
from cordcal._door.scores import (
    LOG_FLOOR,
    Domain,
    Kind,
    Labels,
    Matrix,
    Vector,
    as_scores,
    check_kind,
    check_labels,
    check_own_scores,
    check_variety,
    read_scores,
)


class Calibrator(BaseEstimator, ABC):  # type: ignore[misc]
    """Base of the calibrators: scores and labels in, a direct report out.

    A calibrator's constructor only stores, `fit` checks and learns, and fitted names
    end in an underscore.  Classes are columns: K is the number of columns of the scores,
    and a class without a calibration row is normal.  A weight counts rows: weight 2 is
    the row twice.

    Attributes
    ----------
    n_classes_ : int
        K, the number of columns seen by `fit`.
    log_floor_ : float
        The smallest probability whose logarithm is taken, with ``input="probabilities"``.
    """

    key: ClassVar[str]
    title: ClassVar[str]
    parameters: ClassVar[str]
    works_on: ClassVar[Domain]
    keeps_argmax: ClassVar[bool]
    keeps_order: ClassVar[bool]
    takes_masked: ClassVar[bool]
    cost: ClassVar[str]
    reference: ClassVar[str]

    input: Kind
    n_classes_: int
    log_floor_: float

    def __init__(self, *, input: Kind = "logits") -> None:
        self.input = input

    def fit(self, scores: Any, labels: Any, *, sample_weight: Any = None) -> Self:
        """Learn the map from calibration rows.

        Parameters
        ----------
        scores : array_like of shape (n, K)
            The classifier's logits or probabilities, as ``input`` says.
        labels : array_like of int of shape (n,)
            The true classes, as column indices.
        sample_weight : array_like of shape (n,), optional
            Weights of the rows.

        Returns
        -------
        self : Calibrator
            The fitted calibrator.
        """
        given, y, weight = self._checked(scores, labels, sample_weight)
        self._fit(self._read(given, fitting=True), y, weight)
        return self

    def predict_proba(self, scores: Any) -> Matrix:
        """Return the direct report: calibrated probabilities in float64.

        Parameters
        ----------
        scores : array_like of shape (n, K)
            Scores of the kind that `fit` was given.

        Returns
        -------
        direct : ndarray of shape (n, K)
            Rows that sum to one.
        """
        return self._predict(self._read(self._checked_again(scores)))

    @abstractmethod
    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Learn from checked rows in the domain `works_on`."""

    @abstractmethod
    def _predict(self, working: Matrix) -> Matrix:
        """Map checked rows, which may be overwritten."""

    def _checked(
        self, scores: Any, labels: Any, sample_weight: Any
    ) -> tuple[npt.NDArray[Any], Labels, Vector | None]:
        check_kind(self.input)
        given = as_scores(scores)
        rows, classes = given.shape
        y = check_labels(labels, rows, classes)
        weight = None if sample_weight is None else arrays.check_weights(sample_weight, rows)
        check_variety(y, weight)
        check_own_scores(given, y, self.input)
        self.n_classes_ = classes
        self.log_floor_ = LOG_FLOOR
        return given, y, weight

    def _checked_again(self, scores: Any) -> npt.NDArray[Any]:
        check_is_fitted(self, "n_classes_")
        given = as_scores(scores)
        if given.shape[1] != self.n_classes_:
            raise ValueError(
                f"scores has {given.shape[1]} columns but fit saw {self.n_classes_}; "
                f"pass the same classes as in fit"
            )
        return given

    def _read(self, given: npt.NDArray[Any], *, fitting: bool = False) -> Matrix:
        return read_scores(
            given,
            self.input,
            self.works_on,
            masked=self.takes_masked,
            owner=self.key,
            log_floor=self.log_floor_,
            fitting=fitting,
        )

    def _warn(self, message: str) -> None:
        """Warn once about a fit that did not end at an optimum, at the caller's own line."""
        warnings.warn(
            f"{self.key}: {message}",
            ConvergenceWarning,
            stacklevel=arrays._stacklevel_outside_package(),
        )

    def _state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return the fitted arrays, and the rest as JSON-able metadata."""
        check_is_fitted(self, "n_classes_")
        fitted = {
            name: value
            for name, value in vars(self).items()
            if name.endswith("_") and not name.startswith("_")
        }
        held = {name: value for name, value in fitted.items() if isinstance(value, np.ndarray)}
        plain = {name: value for name, value in fitted.items() if name not in held}
        return held, {"key": self.key, "params": self.get_params(), "fitted": plain}

    @classmethod
    def _from_state(cls, held: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> Self:
        """Rebuild a fitted calibrator from what `_state` returned."""
        # JSON knows lists only; a parameter that is a sequence is a tuple.
        params: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in meta["params"].items()
        }
        calibrator = cls(**params)
        for name, value in {**meta["fitted"], **held}.items():
            setattr(calibrator, name, value)
        return calibrator
