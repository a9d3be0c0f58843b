"""Cross-fitting: what a calibrator reports on rows that it was not fitted on.

Of every row three numbers are kept, not its report: what is put on the label, on the
decision, and on all other classes.  They are all that shares of a blend and a Lift need.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Labels, Vector
from cordcal._validation.caveats import suppress_repeats
from cordcal._validation.probabilities import as_matrix, check_same_shape
from cordcal._validation.scores import CheckedScores
from cordcal.calibrators._base import Calibrator
from cordcal.calibrators.registry import make
from cordcal.repair.kernels import Stopwatch
from cordcal.repair.lift import Masses, decision_masses

Scores = npt.NDArray[Any]

# With five folds a fit sees four fifths of the rows, and all fits together cost six single ones.
FOLDS = 5


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """What reports of models that had not seen the rows put on labels and on decisions."""

    likelihood: Vector
    masses: Masses

    @classmethod
    def empty(cls, rows: int) -> HeldOut:
        """Return room for some rows."""
        return cls(np.empty(rows), Masses(np.empty(rows), np.empty(rows)))


@dataclass(frozen=True, eq=False)
class Folds:
    """Which fold each calibration row is held out in.

    Attributes
    ----------
    number : ndarray of int
        The fold of each row.
    count : int
        How many folds there are.
    """

    number: npt.NDArray[np.intp]
    count: int

    @classmethod
    def of(cls, labels: Labels, count: int, seed: int) -> Folds:
        """Deal the rows out class by class, so that a class of two rows or more is in training.

        Examples
        --------
        >>> Folds.of(np.array([0, 0, 1, 1]), 2, seed=0).number.tolist() in (
        ...     [0, 1, 0, 1], [0, 1, 1, 0], [1, 0, 0, 1], [1, 0, 1, 0])
        True
        """
        rows = len(labels)
        count = min(count, rows)
        order = np.random.default_rng(seed).permutation(rows)
        order = order[np.argsort(labels[order], kind="stable")]
        number = np.empty(rows, dtype=np.intp)
        number[order] = np.arange(rows) % count
        return cls(number, count)


def check_folds(folds: Any, rows: int) -> None:
    """Refuse a number of folds that holds nothing out, and rows that cannot be divided."""
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2:
        raise InputError("folds", f"is {folds!r}", "pass an integer of 2 or more, such as 5")
    if rows < 2:
        raise InputError("scores", "has one row, which cannot be held out", "pass more rows")


def fit_calibrator(
    calibrator: Any,
    original: CheckedScores,
    labels: Any,
    weight: Vector | None,
    features: Any = None,
) -> Any:
    """Fit a calibrator on checked rows; a foreign one is given them as they came."""
    if isinstance(calibrator, Calibrator):
        return calibrator._fit_checked(original, labels, weight, **_given(features=features))
    beside = _given(sample_weight=weight, features=features)
    return calibrator.fit(original.raw, labels, **beside)


def predict_calibrated(calibrator: Any, original: CheckedScores, features: Any = None) -> Scores:
    """Return a fitted calibrator's report of checked rows."""
    if isinstance(calibrator, Calibrator):
        return calibrator._predict_checked(original, **_given(features=features))
    report = calibrator.predict_proba(original.raw, **_given(features=features))
    direct = np.asarray(as_matrix(np.asarray(report), "direct"))
    check_same_shape(original.raw, "scores", direct, "direct")
    return direct


def _given(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that were given, so that a foreign calibrator sees no others."""
    return {name: value for name, value in arguments.items() if value is not None}


def cross_fit(
    new: Callable[[], Any],
    original: CheckedScores,
    labels: Labels,
    weight: Vector | None,
    folds: Folds,
    features: Scores | None = None,
) -> HeldOut:
    """Fit a new calibrator for every fold on the other rows; report on those of the fold.

    Parameters
    ----------
    new : callable
        Returns an unfitted calibrator.
    original, labels, weight, features
        The calibration rows.
    folds : Folds
        Which rows are held out together.
    """
    found = HeldOut.empty(len(labels))
    for number in range(folds.count):
        out = np.flatnonzero(folds.number == number)
        seen = np.flatnonzero(folds.number != number)
        model = new()
        others = original.take(seen), labels[seen], _rows(weight, seen), _rows(features, seen)
        fit_calibrator(model, *others)
        held = original.take(out)
        direct = predict_calibrated(model, held, _rows(features, out)).astype(np.float64)
        found.likelihood[out] = direct[np.arange(len(out)), labels[out]]
        masses = decision_masses(direct, held.decision)
        found.masses.mass[out], found.masses.rest[out] = masses.mass, masses.rest
    return found


def _rows(values: Scores | None, at: Labels) -> Scores | None:
    return None if values is None else values[at]


@dataclass(frozen=True, eq=False)
class Fit:
    """A calibrator fitted on all rows, what it warned of, and how long it took."""

    model: Calibrator
    warnings: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, eq=False)
class Candidate:
    """A calibrator fitted on all rows, what it says of rows held out, and how long all took."""

    model: Calibrator
    held_out: HeldOut
    seconds: float


class FitCache:
    """Calibration rows, and the calibrators that were fitted on them, each once.

    Parameters
    ----------
    original, labels, weight
        The calibration rows.
    folds : Folds
        Which rows are held out together.
    """

    def __init__(
        self, original: CheckedScores, labels: Labels, weight: Vector | None, folds: Folds
    ) -> None:
        self.original, self.labels, self.weight, self.folds = original, labels, weight, folds
        self._fits: dict[str, Fit] = {}
        self._made: dict[str, tuple[Candidate | None, str | None]] = {}

    def fit(self, key: str) -> Fit:
        """Return a calibrator fitted on all rows."""
        if key not in self._fits:
            watch = Stopwatch()
            with _recorded() as caught:
                model = fit_calibrator(self._new(key)(), self.original, self.labels, self.weight)
            told = tuple(str(each.message) for each in caught)
            self._fits[key] = Fit(model, told, watch.seconds())
        return self._fits[key]

    def candidate(self, key: str) -> tuple[Candidate | None, str | None]:
        """Return a calibrator with its rows held out, or None, and what there is to note."""
        if key not in self._made:
            self._made[key] = self._make(key)
        return self._made[key]

    def _make(self, key: str) -> tuple[Candidate | None, str | None]:
        watch = Stopwatch()
        rows = (self.original, self.labels, self.weight)
        try:
            whole = self.fit(key)
            with _recorded() as caught:
                held_out = cross_fit(self._new(key), *rows, self.folds)
        except (ValueError, ArithmeticError, RuntimeError) as error:
            return None, str(error)
        told = [*whole.warnings, *(str(each.message) for each in caught)]
        found = Candidate(whole.model, held_out, watch.seconds())
        return found, told[0] if told else None

    def _new(self, key: str) -> Callable[[], Calibrator]:
        return partial(make, key, input=self.original.kind)


@contextmanager
def _recorded() -> Iterator[list[warnings.WarningMessage]]:
    """Record every warning, also of what the rows were doubted for: a blend chooses by them."""
    with warnings.catch_warnings(record=True) as caught, suppress_repeats(()):
        warnings.simplefilter("always")
        yield caught
