"""What every calibrator shares: facts, the scikit-learn contract, checks, model state."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import raise_first
from cordcal._numeric import arrays
from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.expressions import in_domain
from cordcal._numeric.parallel import one_blas_thread
from cordcal._numeric.types import Array, Domain, Kind, Labels, Matrix, Parameters, Vector
from cordcal._validation.alignment import align_rows
from cordcal._validation.caveats import already_warned
from cordcal._validation.estimator import Estimator, as_seed
from cordcal._validation.labels import check_labels, check_two_classes, check_weights
from cordcal._validation.scores import (
    LOG_FLOOR,
    CheckedScores,
    as_scores,
    check_kind,
    check_labels_unmasked,
    masked_class_error,
    read_scores,
    rescale_large_weights,
)

Role = Literal["base", "rival"]
"""A base may change decisions and is repaired; a rival keeps them by design."""

# What an isotonic curve of a few thousand rows comes to: some twenty knots of two numbers.
_CURVE = 40


@dataclass(frozen=True, slots=True)
class Size:
    """How many numbers a map is fitted with, as a function of the number of classes K.

    Attributes
    ----------
    fixed, per_class, squared : int
        Their number is fixed + per_class·K + squared·K².
    curves, curves_per_class : int
        Curves with as many knots as the rows ask for; each counts as forty numbers.
    uncounted : str
        What no formula counts, in a word: ``"networks"``.  Larger than all that is counted.

    Examples
    --------
    >>> size = Size(fixed=1, per_class=2)
    >>> str(size), size.at(10)
    ('2K + 1', 21)
    """

    fixed: int = 0
    per_class: int = 0
    squared: int = 0
    curves: int = 0
    curves_per_class: int = 0
    uncounted: str = ""

    def at(self, classes: int) -> float:
        """Return the number of fitted numbers with so many classes; simpler maps have fewer."""
        if self.uncounted:
            return math.inf
        curves = self.curves + self.curves_per_class * classes
        return self.fixed + self.per_class * classes + self.squared * classes**2 + _CURVE * curves

    def __str__(self) -> str:
        terms = (
            (self.uncounted, bool(self.uncounted)),
            ("K²", self.squared),
            ("K", self.per_class),
            ("K curves", self.curves_per_class),
            ("curve", self.curves),
            ("", self.fixed),
        )
        return " + ".join(_term(word, count) for word, count in terms if count)


def _term(word: str, count: int) -> str:
    """Write a count before a word; a one is not written where there is a word."""
    return word if word and count == 1 else f"{count}{word}"


@dataclass(frozen=True)
class Facts:
    """What there is to know about a calibrator before using it."""

    key: str
    title: str
    parameters: str
    works_on: str
    keeps_argmax: bool
    keeps_order: bool
    takes_masked: bool
    cost: str
    reference: str

    def to_dict(self) -> dict[str, Any]:
        """Return the facts by name."""
        return asdict(self)


class FactTable(tuple[Facts, ...]):
    """The facts of several calibrators; prints as a table."""

    __slots__ = ()

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns by name, ready for a data frame."""
        rows = [facts.to_dict() for facts in self]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def __repr__(self) -> str:
        columns = {
            name.replace("_", " "): [_cell(value) for value in values]
            for name, values in self.to_dict().items()
        }
        widths = {name: max(map(len, [name, *values])) for name, values in columns.items()}
        lines = ["  ".join(name.ljust(width) for name, width in widths.items())]
        lines.append("  ".join("-" * width for width in widths.values()))
        for row in zip(*columns.values(), strict=True):
            cells = zip(row, widths.values(), strict=True)
            lines.append("  ".join(cell.ljust(width) for cell, width in cells))
        return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


class Calibrator(Estimator, ABC):
    """Base of the calibrators: scores and labels in, a direct report out.

    A calibrator's constructor only stores, `fit` checks and learns, and fitted names
    end in an underscore.  Classes are columns: K is the number of columns of the scores,
    and a class without a calibration row is normal.  A weight counts rows: weight 2 is
    the row twice.  Most maps see the ratios of weights alone; one that weighs rows against a
    prior, or needs a number of them, takes weights that sum to one for a single row.

    A class states its facts below, and everything that speaks of calibrators reads them
    there.  It implements `_fit`, and `_map`: the map as one expression, which NumPy, torch
    and ONNX share.  `register` adds a class of your own.

    Attributes
    ----------
    key, title, short : str
        Its key, its name, and its name in narrow tables.
    size : Size
        How many numbers it is fitted with; of maps that do as well, the smaller is advised.
    works_on : str
        What the map sees: ``"logits"``; ``"shifted"``, whose largest entry is 0;
        ``"log-probabilities"`` or ``"probabilities"``.
    keeps_argmax, keeps_order : bool
        Whether the map by itself keeps every decision, every order.
    takes_masked : bool
        Whether logits may be −inf.
    role : {"base", "rival"}
        Whether the method may change decisions, or is meant to keep them.
    cost, reference : str
        What a fit costs, and where the method is published.
    needs_features, needs_torch : bool
        Whether it is fitted on features as well; whether torch must be installed.
    most_classes : tuple of int and str, or None
        With more classes it runs only when it is named, and why.
    square_work : float
        The part of a fit that grows with K² a row, against the part that grows with K.
    n_classes_ : int
        K, the number of columns seen by `fit`.
    log_floor_ : float
        The smallest probability whose logarithm is taken, with ``input="probabilities"``.
    """

    key: ClassVar[str]
    title: ClassVar[str]
    short: ClassVar[str]
    size: ClassVar[Size]
    works_on: ClassVar[Domain]
    keeps_argmax: ClassVar[bool]
    keeps_order: ClassVar[bool]
    takes_masked: ClassVar[bool]
    role: ClassVar[Role]
    cost: ClassVar[str]
    reference: ClassVar[str]
    needs_features: ClassVar[bool] = False
    needs_torch: ClassVar[bool] = False
    most_classes: ClassVar[tuple[int, str] | None] = None
    square_work: ClassVar[float] = 0.0

    # The fitted attributes that the map uses.
    _holds: ClassVar[tuple[str, ...]] = ()
    # Rows mapped at a time, at least; a map with overhead a class asks for more.
    _least_rows: ClassVar[int] = 1

    input: Kind
    n_classes_: int
    log_floor_: float

    def __init__(self, *, input: Kind = "logits") -> None:
        self.input = input

    def fit(self, scores: Any, labels: Any, *, sample_weight: Any = None) -> Self:
        """Learn the map from calibration rows; those of pandas objects are matched by index.

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
        return self._fit_in_domain(self._read(given, fitting=True), y, weight)

    def _fit_checked(self, original: CheckedScores, labels: Labels, weight: Vector | None) -> Self:
        """Learn from rows that were checked at another door; see `fit`."""
        self._check_rows(original, labels, weight)
        return self._fit_in_domain(original.in_domain(self.works_on, LOG_FLOOR), labels, weight)

    def _fit_in_domain(self, working: Matrix, labels: Labels, weight: Vector | None) -> Self:
        weight = None if weight is None else rescale_large_weights(weight)
        with one_blas_thread(), self._fitting(working.shape[1]) as learner:
            learner._fit(working, labels, weight)
        return self

    @contextmanager
    def _fitting(self, classes: int) -> Iterator[Self]:
        """Yield a copy to fit, and become it at the end: a fit that fails changes nothing."""
        params = self.get_params(deep=False)
        if "seed" in params:  # a generator's number is kept, so that model files can hold it
            params["seed"] = as_seed(params["seed"])
        learner = type(self)(**params)
        learner.n_classes_, learner.log_floor_ = classes, LOG_FLOOR
        yield learner
        own = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        self.__dict__ = own | vars(learner)

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

    def _predict_checked(self, original: CheckedScores) -> Matrix:
        """Return the direct report of rows that were checked at another door."""
        self._check_fitted("n_classes_")
        self._check_masked(original)
        return self._predict(original.in_domain(self.works_on, self.log_floor_))

    @abstractmethod
    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Learn from checked rows in the domain `works_on`."""

    @classmethod
    def _map(cls, working: Array, held: Parameters, *, xp: Any) -> Array:
        """Return the direct report of float64 rows in the domain `works_on`.

        One expression for every array library: no branches on data, functions of
        `cordcal._numeric.expressions`, which overwrite NumPy's arrays, for speed.
        """
        raise NotImplementedError(f"{cls.__name__} has no map as an expression")

    @classmethod
    def _report(cls, scores: Array, kind: Kind, held: Parameters, *, xp: Any) -> Array:
        """Return the direct report of float64 scores of either kind, as an expression."""
        working = in_domain(scores, kind, cls.works_on, held["log_floor_"], xp)
        return cls._map(working, held, xp=xp)

    def _held(self) -> dict[str, npt.NDArray[Any]]:
        """Return the numbers that `_map` uses, as NumPy arrays."""
        return {name: np.asarray(getattr(self, name)) for name in self._holds}

    def _predict(self, working: Matrix) -> Matrix:
        """Map checked rows, which are overwritten, block by block."""
        held = self._held()
        for at in row_blocks(*working.shape, least=self._least_rows):
            block = working[at]
            report = self._map(block, held, xp=np)
            if report is not block:
                block[:] = report
        return working

    @classmethod
    def has_expression(cls) -> bool:
        """Tell whether the map can leave NumPy, for torch and ONNX."""
        return cls._map.__func__ is not Calibrator._map.__func__  # type: ignore[attr-defined]

    @classmethod
    def unsuited(cls, classes: int, *, features: bool) -> str | None:
        """Say why the map is not tried on such data unless it is named; None if it is.

        Parameters
        ----------
        classes : int
            Number of classes.
        features : bool
            Whether there are features.

        Returns
        -------
        reason : str or None
            What stands against it.
        """
        if cls.most_classes is not None and classes > cls.most_classes[0]:
            return f"{cls.most_classes[1]} at K = {classes}; name it to run it"
        if cls.needs_features and not features:
            return "needs the penultimate features beside the scores"
        if cls.needs_torch and find_spec("torch") is None:
            return "needs torch; install it with: pip install 'cordcal[torch]'"
        return None

    def _serves_masked(self) -> bool:
        """Tell whether the fitted map takes −inf logits."""
        return self.takes_masked

    def _checked(
        self, scores: Any, labels: Any, sample_weight: Any
    ) -> tuple[npt.NDArray[Any], Labels, Vector | None]:
        check_kind(self.input)
        scores, labels, sample_weight = align_rows(
            scores=scores, labels=labels, sample_weight=sample_weight
        )
        given = as_scores(scores)
        rows, classes = given.shape
        y = check_labels(labels, rows, classes)
        weight = None if sample_weight is None else check_weights(sample_weight, rows)
        check_two_classes(y, weight)
        check_labels_unmasked(given, y, self.input)
        return given, y, weight

    def _check_rows(self, original: CheckedScores, labels: Labels, weight: Vector | None) -> None:
        """Refuse checked rows that this map cannot be fitted on."""
        check_two_classes(labels, weight)
        if original.kind == "logits" and original.masked.any():
            check_labels_unmasked(original.raw, labels, original.kind)
        self._check_masked(original)

    def _check_masked(self, original: CheckedScores) -> None:
        if original.kind == "logits" and not self.takes_masked:
            raise_first(masked_class_error(original.masked, self.key))

    def _checked_again(self, scores: Any) -> npt.NDArray[Any]:
        self._check_fitted("n_classes_")
        return as_scores(scores, self.n_classes_)

    def _read(self, given: npt.NDArray[Any], *, fitting: bool = False) -> Matrix:
        return read_scores(
            given,
            self.input,
            self.works_on,
            masked=self.takes_masked,
            owner=self.key,
            log_floor=LOG_FLOOR if fitting else self.log_floor_,
            fitting=fitting,
        )

    def _warn(self, message: str, *, blames_labels: bool = False) -> None:
        """Warn once about a fit that did not end at an optimum, at the caller's own line."""
        if already_warned(by_labels=blames_labels):
            return
        from sklearn.exceptions import ConvergenceWarning

        warnings.warn(
            f"{self.key}: {message}",
            ConvergenceWarning,
            stacklevel=arrays.stacklevel_outside_package(),
        )

    def _state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return the fitted arrays, and the rest as JSON-able metadata."""
        self._check_fitted("n_classes_")
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
