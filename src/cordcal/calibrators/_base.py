"""The base class of calibrators: class-level facts, validation, fit, predict and saved state."""

from __future__ import annotations

import math
import pickle
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, Self
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, collected, raise_first, stacklevel_outside_package
from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.parallel import one_blas_thread
from cordcal._numeric.types import Array, Domain, Kind, Labels, Matrix, Record, Vector
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
from cordcal._validation.table import match
from cordcal.calibrators._curves import CurveSearch
from cordcal.expressions import Parameters, in_domain, softmax

Rows = npt.NDArray[np.intp]
"""Indices of rows."""

Role = Literal["base", "rival"]
"""A base may change predictions and is repaired; a rival preserves them by design."""

# Fits on fewer entries take milliseconds: folds are fitted from scratch, to the last digit.
MIN_ENTRIES_TO_SHARE = 2**15
# With more entries, 32 MB, scores in a calibrator's domain are converted again for each of them.
_MAX_ENTRIES_TO_KEEP = 2**22

# The module of each extra that calibrators need.
_MODULES = {"torch": "torch", "boost": "lightgbm"}

# Entries to map at a time: some copies of a block stay in the processor's cache.
CACHED_ENTRIES = 2**15

# What the last prediction was prepared for, a calibrator's values, and what was prepared.  Not
# stored in the calibrator: a prediction must not change what pickle, copies and model files see.
_last_prepared: WeakKeyDictionary[Calibrator, tuple[list[Any], Any]] = WeakKeyDictionary()

# An isotonic curve fitted on a few thousand rows has about twenty knots of two numbers each.
_CURVE_SIZE = 40


@dataclass(frozen=True, slots=True)
class Size:
    """The number of fitted parameters, as a function of the number of classes K.

    Attributes
    ----------
    fixed, per_class, squared : int
        The number is fixed + per_class·K + squared·K².
    curves, curves_per_class : int
        Curves whose number of knots depends on the data; each counts as forty parameters.
    uncounted : str
        What has no formula, in a word, such as ``"network"``.  Ranks above every counted size.

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
        """Return the number of fitted parameters for this number of classes."""
        if self.uncounted:
            return math.inf
        numbers = self.fixed + self.per_class * classes + self.squared * classes**2
        return numbers + _CURVE_SIZE * (self.curves + self.curves_per_class * classes)

    def __str__(self) -> str:
        terms = (
            (self.uncounted, bool(self.uncounted)),
            ("K²", self.squared),
            ("K", self.per_class),
            ("K curves", self.curves_per_class),
            ("curve", self.curves),
            ("", self.fixed),
        )
        return " + ".join(_format_term(word, count) for word, count in terms if count)


_IMMUTABLE = (str, float, int, type(None))


def _frozen(value: Any) -> Any:
    """Return something that equals only what this value is now, even after an edit in place."""
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    return value if isinstance(value, _IMMUTABLE) else pickle.dumps(value)


def _format_term(word: str, count: int) -> str:
    """Return ``2K`` for two of ``K``, and ``K`` for one."""
    return word if word and count == 1 else f"{count}{word}"


@dataclass(frozen=True)
class Facts(Record):
    """The properties of a calibrator, as `describe` lists them."""

    key: str
    title: str
    parameters: str
    works_on: str
    keeps_argmax: bool
    keeps_order: bool
    takes_masked: bool
    cost: str
    reference: str


class FactTable(tuple[Facts, ...]):
    """The facts of several calibrators; prints as a table."""

    __slots__ = ()

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns by name, as a data frame takes them."""
        rows = [facts.to_dict() for facts in self]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def __repr__(self) -> str:
        columns = {
            name.replace("_", " "): [_format_cell(value) for value in values]
            for name, values in self.to_dict().items()
        }
        widths = {name: max(map(len, [name, *values])) for name, values in columns.items()}
        lines = ["  ".join(name.ljust(width) for name, width in widths.items())]
        lines.append("  ".join("-" * width for width in widths.values()))
        for row in zip(*columns.values(), strict=True):
            cells = zip(row, widths.values(), strict=True)
            lines.append("  ".join(cell.ljust(width) for cell, width in cells))
        return "\n".join(line.rstrip() for line in lines)


def _format_cell(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def check_positive_integer(name: str, value: Any) -> None:
    """Raise an error unless the parameter is an integer of at least 1."""
    if not (isinstance(value, int | np.integer) and value >= 1):
        raise InputError(name, f"is {value!r}", "pass a whole number from 1 on")


class SharedResults:
    """Results that calibrators fitted on the same rows share; each is computed once.

    Examples
    --------
    >>> shared = SharedResults()
    >>> shared.get("two", lambda: 1 + 1), shared.get("two", lambda: 0)
    (2, 2)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._results: dict[str, Any] = {}

    def get(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return a result; if another thread is computing it, wait for it."""
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self._results:
                self._results[name] = compute()
            return self._results[name]


@dataclass(frozen=True, eq=False)
class FoldRows:
    """Calibration rows in the order of their folds, so that each fold is a slice.

    Attributes
    ----------
    original : CheckedScores
        The scores, in their own order.
    order : ndarray of int of shape (n,)
        The indices of the rows in the order of the folds.
    labels, weight : ndarray of shape (n,)
        In that order; the weight may be None.
    folds : sequence of slice
        The rows of each fold.
    """

    original: CheckedScores
    order: Rows
    labels: Labels
    weight: Vector | None
    folds: Sequence[slice]
    # What several calibrators compute from these rows.
    shared: SharedResults = field(default_factory=SharedResults)

    @property
    def many(self) -> bool:
        """Whether sharing work between folds pays; the folds of few rows are fitted one by one."""
        return self.original.raw.size >= MIN_ENTRIES_TO_SHARE

    def scores(self, domain: Domain) -> Matrix:
        """Return all rows in a calibrator's domain, in a new array."""
        return self._convert(domain, [slice(0, len(self.order))])

    def of(self, fold: slice, domain: Domain) -> Matrix:
        """Return the scores of one fold, in a new array."""
        return self._convert(domain, [fold])

    def without(
        self, fold: slice, domain: Domain, memory: Matrix | None = None
    ) -> tuple[Matrix, Labels, Vector | None]:
        """Return the scores, labels and weights of the other folds, the scores in ``memory``."""
        others = slice(0, fold.start), slice(fold.stop, len(self.order))
        weight = None if self.weight is None else np.delete(self.weight, fold)
        return self._convert(domain, others, memory), np.delete(self.labels, fold), weight

    def clusters_without(self, fold: slice) -> Labels | None:
        """Return the clusters of the rows of the other folds."""
        clusters = self.original.clusters
        return None if clusters is None else clusters[np.delete(self.order, fold)]

    def _convert(
        self, domain: Domain, parts: Sequence[slice], memory: Matrix | None = None
    ) -> Matrix:
        convert = partial(self.original.in_domain, domain, LOG_FLOOR)
        if self.original.raw.size >= _MAX_ENTRIES_TO_KEEP:
            rows = np.concatenate([self.order[part] for part in parts])
            return convert(rows=rows, memory=memory)
        every = self.shared.get(domain, lambda: convert(rows=self.order))
        count = sum(part.stop - part.start for part in parts)
        memory = np.empty((count, self.original.classes)) if memory is None else memory[:count]
        return np.concatenate([every[part] for part in parts], out=memory)


class Calibrator(Estimator, ABC):
    """Base class of calibrators: fitted on scores and labels, they return direct probabilities.

    Calibrators follow scikit-learn's contract: the constructor only stores its parameters,
    `fit` validates and learns, and fitted attributes end in an underscore.  Classes are columns:
    K is the number of columns of the scores, and a class may have no calibration row.  A weight
    counts rows: weight 2 equals the row twice.  Most maps depend only on the ratios of weights.
    A map that weighs rows against a prior, or needs a minimum number of rows, treats weights
    that sum to one as a single row.

    To add a calibrator, derive from this class, set the class attributes listed first below,
    and implement two methods:

    `fit_parameters`
        Learns from validated rows and sets the fitted attributes.
    `logits`
        Returns, from scores and fitted attributes, what the softmax is taken of: one expression
        that NumPy, torch and ONNX share.  A map that does not end in a softmax implements
        `probabilities` instead.

    Both receive float64 scores in the domain `works_on`: the base class validates and converts
    them.  `register` makes the key usable wherever a key is; comparisons, reports, exports
    and the documentation read the class attributes.

    Attributes
    ----------
    key, title, short : str
        Key, name, and name in narrow tables.
    size : Size
        Number of fitted parameters; among equally good calibrators the smaller is recommended.
    works_on : str
        The domain of the map: ``"logits"``; ``"shifted"``, logits whose largest entry is 0;
        ``"log-probabilities"`` or ``"probabilities"``.
    keeps_argmax, keeps_order : bool
        Whether the map by itself preserves every prediction; the order of all classes.
    takes_masked : bool
        Whether logits may be −inf.
    role : {"base", "rival"}
        Whether the method may change predictions, or is designed to preserve them.
    cost, reference : str
        The cost of a fit, and the publication of the method.
    extra : str or None
        The extra of cordcal that a fit needs, ``"torch"`` or ``"boost"``; None if none.
    most_classes : tuple of int and str, or None
        With more classes it runs only if it is named; the string is the reason.
    square_work : float
        Work per row of a fit that grows with K², relative to the work that grows with K.
    parameter_names : tuple of str
        The fitted attributes that `logits` or `probabilities` receives as ``params``.
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
    extra: ClassVar[str | None] = None
    most_classes: ClassVar[tuple[int, str] | None] = None
    square_work: ClassVar[float] = 0.0
    parameter_names: ClassVar[tuple[str, ...]] = ()

    # Set by `FitCache`: what calibrators fitted on the same rows share (see `crossfit`).
    _shared: SharedResults | None = None
    # Which rows of a fit are held out together, for calibrators that hold rows out.
    _clusters: Labels | None = None

    input: Kind
    n_classes_: int
    # The class names of the data frame in fit; later ones are matched by name.
    columns_: list[str] | None = None
    log_floor_: float

    def __init__(self, *, input: Kind = "logits") -> None:
        self.input = input

    def fit(self, scores: Any, labels: Any, *, sample_weight: Any = None) -> Self:
        """Fit the map on calibration rows; pandas objects are aligned by index.

        Parameters
        ----------
        scores : array_like of shape (n, K)
            The classifier's logits or probabilities, depending on ``input``.
        labels : array_like of shape (n,)
            The true classes, as column indices or names of a data frame's columns.
        sample_weight : array_like of shape (n,), optional
            Weights of the rows.

        Returns
        -------
        self : Calibrator
            The fitted calibrator.
        """
        check_kind(self.input)
        rows = match({"scores": scores}, labels=labels, sample_weight=sample_weight)
        raw = as_scores(rows.matrices[0])
        y = check_labels(rows.labels, *raw.shape)
        weight = None if sample_weight is None else check_weights(rows.sample_weight, len(raw))
        check_two_classes(y, weight)
        check_labels_unmasked(raw, y, self.input)
        self._fit_in_domain(self._to_domain(raw, fitting=True), y, weight)
        if rows.columns is not None:
            self.columns_ = rows.columns
        return self

    def predict_proba(self, scores: Any) -> Matrix:
        """Return the direct probabilities in float64.

        Parameters
        ----------
        scores : array_like of shape (n, K)
            Scores of the same kind as in `fit`; columns of data frames are matched by name.

        Returns
        -------
        direct : ndarray of shape (n, K)
            Rows that sum to one.
        """
        self._check_fitted("n_classes_")
        (values,) = match({"scores": scores}, fitted_names=self.columns_).matrices
        return self._predict_in_domain(self._to_domain(as_scores(values, self.n_classes_)))

    @classmethod
    def has_expression(cls) -> bool:
        """Return whether the map can be exported to torch and ONNX as an expression."""
        return cls._implements("probabilities") or cls._implements("logits")

    @classmethod
    def _implements(cls, name: str) -> bool:
        return getattr(cls, name).__func__ is not getattr(Calibrator, name).__func__

    @classmethod
    def unsuited(cls, classes: int) -> str | None:
        """Return why a comparison skips the calibrator unless it is named, or None.

        Parameters
        ----------
        classes : int
            Number of classes.

        Returns
        -------
        reason : str or None
            The reason for skipping it.
        """
        if cls.most_classes is not None and classes > cls.most_classes[0]:
            return f"{cls.most_classes[1]} at K = {classes}; name it to run it"
        if cls.extra is not None and find_spec(_MODULES[cls.extra]) is None:
            return (
                f"needs {_MODULES[cls.extra]}; install it with: pip install {_MODULES[cls.extra]}"
            )
        return None

    # Implemented by each calibrator.

    @abstractmethod
    def fit_parameters(self, scores: Any, labels: Labels, weight: Vector | None) -> None:
        """Set the fitted attributes, whose names end in an underscore, from validated rows.

        Parameters
        ----------
        scores : ndarray of shape (n, K)
            In the domain `works_on`; may be overwritten.
        labels : ndarray of int of shape (n,)
            The true classes.
        weight : ndarray of shape (n,) or None
            Weights of the rows.
        """

    @classmethod
    def logits(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return logits whose softmax is the map.

        Parameters
        ----------
        scores : array of shape (n, K)
            In the domain `works_on`; may be overwritten.
        params : mapping of str to array
            What `parameters` returns, as arrays of the namespace ``xp``.
        xp : module
            The array namespace: NumPy, torch's, or the one that records an ONNX graph.

        Notes
        -----
        One expression serves every namespace, so it must not branch on data.  The functions of
        `cordcal.expressions` work in all of them, and in place in NumPy.
        """
        raise NotImplementedError(f"{cls.__name__} has no map as an expression")

    @classmethod
    def probabilities(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the direct probabilities; override it if they are not the softmax of `logits`."""
        return softmax(cls.logits(scores, params, xp=xp), xp)

    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays that the map receives as ``params``; override it to derive some."""
        return {name: np.asarray(getattr(self, name)) for name in self.parameter_names}

    def _prepared(self) -> Any:
        """Return what predictions with NumPy need, prepared once while no attribute changes."""
        values = self._values()
        known = _last_prepared.get(self)
        if known is None or known[0] != values:
            known = _last_prepared[self] = values, self._prepare()
        return known[1]

    def _values(self) -> list[Any]:
        """Return the values of all attributes; a single row waits for this."""
        return [_frozen(value) for name, value in vars(self).items() if name[0] != "_"]

    def _prepare(self) -> Any:
        # NumPy is faster with Python's numbers than with arrays without dimensions.
        arrays = {name: x if x.ndim else x.item() for name, x in self.parameters().items()}
        return Parameters(arrays, curves=CurveSearch.of(arrays) if "begin_x_" in arrays else None)

    def is_complete(self) -> bool:
        """Return whether it can predict; override it if that needs what model files do not hold."""
        return True

    def accepts_masked(self) -> bool:
        """Return whether the fitted map accepts −inf logits; override it if the fit decides."""
        return self.takes_masked

    # Entry points of other packages, whose scores are validated already.

    def fit_checked(self, original: CheckedScores, labels: Labels, weight: Vector | None) -> Self:
        """Fit on validated rows; see `fit`."""
        self._check_fit_rows(original, labels, weight)
        scores = original.in_domain(self.works_on, LOG_FLOOR)
        return self._fit_in_domain(scores, labels, weight, original.clusters)

    def predict_checked(self, original: CheckedScores) -> Matrix:
        """Return the direct probabilities of validated rows; see `predict_proba`."""
        if not hasattr(self, "n_classes_"):
            raise self._not_fitted_error()
        self._check_masked(original)
        return self._predict_in_domain(original.in_domain(self.works_on, self.log_floor_))

    def map_parameters(self) -> Parameters:
        """Return the arrays that `map_scores` receives, in NumPy."""
        return Parameters({**self.parameters(), "log_floor_": np.asarray(self.log_floor_)})

    @classmethod
    def map_scores(cls, scores: Array, kind: Kind, params: Parameters, *, xp: Any) -> Array:
        """Convert float64 scores of either kind to `works_on` and map them, as one expression."""
        scores = in_domain(scores, kind, cls.works_on, params["log_floor_"], xp)
        return cls.probabilities(scores, params, xp=xp)

    def to_state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return the fitted arrays, and everything else as JSON-able metadata."""
        self._check_fitted("n_classes_")
        fitted = {
            name: value
            for name, value in vars(self).items()
            if name.endswith("_") and not name.startswith("_")
        }
        arrays = {name: value for name, value in fitted.items() if isinstance(value, np.ndarray)}
        plain = {name: value for name, value in fitted.items() if name not in arrays}
        return arrays, {"key": self.key, "params": self.get_params(), "fitted": plain}

    @classmethod
    def from_state(cls, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> Self:
        """Rebuild a fitted calibrator from the result of `to_state`."""
        # JSON has only lists; a constructor parameter that is a sequence is a tuple.
        params: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in meta["params"].items()
        }
        calibrator = cls(**params)
        for name, value in {**meta["fitted"], **arrays}.items():
            setattr(calibrator, name, value)
        return calibrator

    # Steps of fit and predict_proba.

    def _check_fit_rows(
        self, original: CheckedScores, labels: Labels, weight: Vector | None
    ) -> None:
        """Raise if this map cannot be fitted on these validated rows."""
        check_two_classes(labels, weight)
        if original.kind == "logits" and original.masked.any():
            check_labels_unmasked(original.raw, labels, original.kind)
        self._check_masked(original)

    def _check_masked(self, original: CheckedScores) -> None:
        if original.kind == "logits" and not self.takes_masked and original.masked.any():
            raise_first(masked_class_error(original.masked, self.key))

    def _to_domain(self, scores: npt.NDArray[Any], *, fitting: bool = False) -> Any:
        """Validate the values and convert them to the domain `works_on`."""
        return read_scores(
            scores,
            self.input,
            self.works_on,
            masked=self.takes_masked,
            owner=self.key,
            log_floor=LOG_FLOOR if fitting else self.log_floor_,
            fitting=fitting,
        )

    def _fit_in_domain(
        self,
        scores: Any,
        labels: Labels,
        weight: Vector | None,
        clusters: Labels | None = None,
    ) -> Self:
        """Fit an unfitted copy, and adopt its state: a failed fit changes nothing."""
        weight = None if weight is None else rescale_large_weights(weight)
        model = self._unfitted_copy(scores.shape[1])
        model._shared, model._clusters = self._shared, clusters
        with one_blas_thread():
            model.fit_parameters(scores, labels, weight)
        if self._shared is None:
            model._forget()
        # Attributes that others set, such as scikit-learn's of a pipeline, stay.
        unfitted = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        self.__dict__ = unfitted | vars(model)
        return self

    def _fit_folds(self, rows: FoldRows) -> Iterator[Self]:
        """Yield copies fitted without one fold each of the rows this calibrator was fitted on.

        Here every fold is fitted like any rows; `crossfit` says what a family may share instead.
        """
        for fold in rows.folds:
            model = self._unfitted_copy(rows.original.classes)
            model._clusters = rows.clusters_without(fold)
            model.fit_parameters(*rows.without(fold, self.works_on))
            yield model

    def _share(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return what other calibrators of the same rows compute, too."""
        return compute() if self._shared is None else self._shared.get(name, compute)

    def _unfitted_copy(self, classes: int) -> Self:
        params = self.get_params(deep=False)
        if "seed" in params:  # a generator becomes an integer, which model files can store
            params["seed"] = as_seed(params["seed"])
        model = type(self)(**params)
        model.n_classes_, model.log_floor_ = classes, LOG_FLOOR
        return model

    def _forget(self) -> None:
        """Drop the private attributes of a fit."""
        self.__dict__ = {k: value for k, value in vars(self).items() if not k.startswith("_")}

    @classmethod
    def _is_mapped(cls) -> bool:
        """Whether a prediction is `probabilities` block by block, and nothing else."""
        return cls._predict_in_domain is Calibrator._predict_in_domain

    @classmethod
    def _is_softmax(cls) -> bool:
        """Whether the map is the softmax of `logits`."""
        return cls._is_mapped() and not cls._implements("probabilities")

    def _predict_in_domain(self, scores: Any) -> Matrix:
        """Map validated scores block by block, in place."""
        params = self._prepared()
        for rows in row_blocks(*scores.shape, entries=CACHED_ENTRIES):
            block = scores[rows]
            direct = self.probabilities(block, params, xp=np)
            if direct is not block:
                block[:] = direct
        direct_rows: Matrix = scores
        return direct_rows

    def _warn(self, message: str, *, blames_labels: bool = False) -> None:
        """Warn once, at the caller's line, that a fit did not reach an optimum."""
        message = f"{self.key}: {message}"
        if already_warned(by_labels=blames_labels) or collected(message):
            return
        from sklearn.exceptions import ConvergenceWarning

        warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel_outside_package())
