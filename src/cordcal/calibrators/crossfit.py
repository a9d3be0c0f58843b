"""Cross-fitting: probabilities of rows from calibrators that were not fitted on them.

Three numbers per row are stored: the probability of its label, of its prediction, and of all
other classes.  The shares of a blend and a Lift need no more.

A calibrator is fitted once on all rows and once without each of five folds.  That these six fits
share work halves the time of the default, in four ways:

- `FitCache` fits each key once, for the blend, for Lift and for a comparison.
- `FoldRows` sorts the rows by fold once, so that a fold is a slice, and converts them once to each
  domain for all calibrators that work on it.
- `SharedResults` is what calibrators of the same rows compute once, such as a temperature that
  several of them begin with.  `Calibrator._share` reads it.  A fit that has it (`_shared`) also
  leaves in private attributes what its own folds can use, until `Calibrator._forget`.
- `Calibrator._fit_folds` may start from the fit on all rows, share work between the folds, and
  stop when log-likelihoods of other rows are accurate to about 1e-6: a choice between
  calibrators needs no more.  With few entries (`MIN_ENTRIES_TO_SHARE`) every fold is fitted from
  scratch.
"""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, collect_warnings, warn
from cordcal._numeric.arrays import BLOCK_ENTRIES, row_digests
from cordcal._numeric.parallel import default_threads, one_blas_thread, run_tasks
from cordcal._numeric.types import Labels, Matrix, Vector
from cordcal._validation.caveats import suppress_repeats
from cordcal._validation.labels import check_labels, check_two_classes
from cordcal._validation.scores import LOG_FLOOR, CheckedScores
from cordcal.calibrators._base import MIN_ENTRIES_TO_SHARE, Calibrator, FoldRows, SharedResults
from cordcal.calibrators._newton import progress
from cordcal.calibrators.adapters import fit_calibrator, predict_calibrated
from cordcal.calibrators.registry import calibrator_class, make
from cordcal.repair.lift import Masses, prediction_masses

Scores = npt.NDArray[Any]

# With five folds each fit uses four fifths of the rows; with the final one there are six fits.
FOLDS = 5
# Each thread needs a few copies of the scores.
_MAX_THREADS = 4
# These need two copies of the scores, others little more than one.
_LARGE = ("vs", "svs", "mono")
# Passes over the scores of a fit and its folds, for the progress bar.
_PASSES = 30


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Held-out probabilities of the rows' labels, and masses on and off their predictions."""

    likelihood: Vector
    masses: Masses

    @classmethod
    def empty(cls, rows: int) -> HeldOut:
        """Allocate the arrays."""
        return cls(np.empty(rows), Masses(np.empty(rows), np.empty(rows)))

    def first(self, count: int) -> HeldOut:
        """Return those of the first rows."""
        masses = Masses(self.masses.mass[:count], self.masses.rest[:count])
        return HeldOut(self.likelihood[:count], masses)

    def store(
        self, rows: Labels | slice, direct: Matrix, labels: Labels, prediction: Labels
    ) -> None:
        """Store what the direct probabilities of some rows say."""
        self.likelihood[rows] = direct[np.arange(len(direct)), labels[rows]]
        masses = prediction_masses(direct, prediction[rows])
        self.masses.mass[rows], self.masses.rest[rows] = masses.mass, masses.rest


@dataclass(frozen=True, eq=False)
class Folds:
    """The fold in which each calibration row is held out.

    Attributes
    ----------
    number : ndarray of int
        The fold of each row.
    count : int
        Number of folds.
    note : str or None
        Why copies of a row are not held out together, if they are not.
    """

    number: npt.NDArray[np.intp]
    count: int
    note: str | None = None

    @classmethod
    def of_rows(
        cls,
        original: CheckedScores,
        labels: Labels,
        count: int,
        seed: int,
        weight: Vector | None = None,
    ) -> Folds:
        """Divide rows by their clusters, or if there are none as `of` does."""
        if original.clusters is not None:
            return cls.of_clusters(original.clusters, labels, count, seed, weight)
        return cls.of(original.comparable(), labels, count, seed, weight)

    @classmethod
    def of_clusters(
        cls, clusters: Labels, labels: Labels, count: int, seed: int, weight: Vector | None = None
    ) -> Folds:
        """Divide whole clusters, every class as evenly as they allow.

        The folds depend neither on the order of the rows nor on whether a row is repeated or has
        a weight; rows of weight zero have no effect.

        Parameters
        ----------
        clusters : ndarray of int of shape (n,)
            Rows with the same number are held out together.
        labels, count, seed, weight
            As for `of`.

        Examples
        --------
        >>> folds = Folds.of_clusters(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), 5, seed=0)
        >>> folds.number.tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
        True
        """
        counted = np.flatnonzero(np.ones(len(labels)) if weight is None else weight)
        number = np.zeros(len(labels), dtype=np.intp)
        truth, mass = labels[counted], np.ones(counted.size) if weight is None else weight[counted]
        values, cluster = np.unique(clusters[counted], return_inverse=True)
        count = min(count, values.size)
        if count < 2:
            raise InputError(
                "clusters",
                "has the same value in every row, so no rows can be held out",
                "pass the patient, user or session of each row, or leave clusters out",
            )
        drawn = np.random.default_rng(seed).permutation(values.size).astype(np.uint64)
        number[counted] = _deal(drawn[cluster], truth, mass, count)
        if not _leaves_two_classes(number[counted], truth, count):
            raise InputError(
                "clusters",
                "are so large that without one fold of them a single class remains",
                "pass rows of more clusters, or leave clusters out",
            )
        return cls(number, count)

    @classmethod
    def of(
        cls, scores: Scores, labels: Labels, count: int, seed: int, weight: Vector | None = None
    ) -> Folds:
        """Divide every class evenly, with rows of equal scores in the same fold.

        A copy in the training part would make its row easy to predict, so copies are held out
        together, whatever their labels.  The folds depend neither on the order of the rows nor
        on whether a row is repeated or has a weight; rows of weight zero have no effect.
        Copies that outweigh a fold, such as the rows of a tree's largest leaf, are divided over
        all folds: else most rows would be predicted without having seen their kind.
        With fewer distinct rows than folds, copies are divided like other rows.

        Parameters
        ----------
        scores : ndarray of shape (n, K)
            The rows; −0 equals 0.
        labels : ndarray of int of shape (n,)
            The true classes.
        count : int
            Number of folds.
        seed : int
            Determines which rows share a fold.
        weight : ndarray of shape (n,), optional
            Weights of the rows.

        Examples
        --------
        >>> scores = np.array([[0.2], [0.5], [0.2], [0.7], [0.9]])
        >>> folds = Folds.of(scores, np.array([0, 1, 1, 1, 0]), 2, seed=0)
        >>> bool(folds.number[0] == folds.number[2])
        True
        """
        counted = np.flatnonzero(np.ones(len(labels)) if weight is None else weight)
        number = np.zeros(len(labels), dtype=np.intp)
        digest = row_digests(scores, seed)[counted]
        truth, mass = labels[counted], np.ones(counted.size) if weight is None else weight[counted]
        distinct = np.unique(digest).size
        if distinct >= count:
            number[counted] = _deal(_divided(digest, truth, mass, count), truth, mass, count)
            if _leaves_two_classes(number[counted], truth, count):
                return cls(number, count)
        count = min(count, counted.size)
        number[counted[np.lexsort((mass, digest, truth))]] = np.arange(counted.size) % count
        if distinct == counted.size:
            return cls(number, count)
        return cls(
            number,
            count,
            f"only {distinct} rows are distinct, so their copies are in several folds",
        )

    def rows(self, original: CheckedScores, labels: Labels, weight: Vector | None) -> FoldRows:
        """Sort calibration rows by their folds; without any of these there must be two classes."""
        order = np.argsort(self.number, kind="stable")
        ends = np.cumsum(np.bincount(self.number, minlength=self.count)).tolist()
        folds = [slice(start, end) for start, end in itertools.pairwise([0, *ends])]
        labels, weight = labels[order], _take(weight, order)
        for fold in folds:
            check_two_classes(
                np.delete(labels, fold), None if weight is None else np.delete(weight, fold)
            )
        return FoldRows(original, order, labels, weight, folds)


def _divided(
    digest: npt.NDArray[np.uint64], labels: Labels, weight: Vector, count: int
) -> npt.NDArray[np.uint64]:
    """Return other digests for copies that outweigh a fold, as many as there are folds."""
    _, group, copies = np.unique(digest, return_inverse=True, return_counts=True)
    heavy = np.bincount(group, weight) * count > weight.sum()
    divided = digest.copy()
    for tie in np.flatnonzero(heavy & (copies > 1)):
        rows = np.flatnonzero(group == tie)
        rows = rows[np.lexsort((weight[rows], labels[rows]))]
        # An odd constant, so that the sums are distinct.
        divided[rows] += (np.arange(rows.size) % count).astype(np.uint64) * np.uint64(2**61 - 1)
    return divided


def _deal(
    digest: npt.NDArray[np.uint64], labels: Labels, weight: Vector, count: int
) -> npt.NDArray[np.intp]:
    """Return the folds of rows with equal digests together, the heaviest first.

    Each group goes to the fold that has the least of its classes, relative to their totals.
    """
    # Sorted, so that sums do not depend on the order of the rows.
    order = np.lexsort((weight, labels, digest))
    digest, labels, weight = digest[order], labels[order], weight[order]
    starts_group = np.append(True, digest[1:] != digest[:-1])
    group = np.cumsum(starts_group) - 1
    # A cell is what a group has of one class.
    cell = np.flatnonzero(starts_group | np.append(True, labels[1:] != labels[:-1]))
    cell_mass, cell_class = np.add.reduceat(weight, cell), labels[cell]
    first_cell = np.searchsorted(cell, np.flatnonzero(starts_group))
    group_mass = np.add.reduceat(cell_mass, first_cell)
    sequence = np.lexsort((digest[starts_group], cell_class[first_cell], -group_mass))
    fold = np.empty(group_mass.size, dtype=np.intp)
    if cell.size == group_mass.size and np.ptp(group_mass) == 0.0:
        fold[sequence] = np.arange(sequence.size) % count  # what the loop below returns
    else:
        share = cell_mass / np.bincount(cell_class, cell_mass)[cell_class]
        cells = list(zip(cell_class.tolist(), share.tolist(), strict=True))
        bounds = [*first_cell.tolist(), len(cells)]
        loads: defaultdict[int, list[float]] = defaultdict(lambda: [0.0] * count)
        totals = [0.0] * count
        for index in sequence.tolist():
            parts = cells[bounds[index] : bounds[index + 1]]
            cost = [sum(part * loads[c][k] for c, part in parts) for k in range(count)]
            _, _, best = min(zip(cost, totals, range(count), strict=True))
            for c, part in parts:
                loads[c][best] += part
            totals[best] += float(group_mass[index])
            fold[index] = best
    number = np.empty(len(order), dtype=np.intp)
    number[order] = fold[group]
    return number


def _leaves_two_classes(number: npt.NDArray[np.intp], labels: Labels, count: int) -> bool:
    """Return whether at least two classes remain without any one of the folds."""
    rows = np.bincount(number + count * labels, minlength=count * (labels.max() + 1))
    present = rows.reshape(-1, count) > 0
    # A class is missing without a fold if all its rows are in that fold.
    missing = present[present.sum(axis=1) == 1].sum(axis=0)
    return bool(present.any(axis=1).sum() - missing.max() >= 2)


def check_folds(folds: Any, rows: int) -> None:
    """Check that there are at least two folds and two rows."""
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2:
        raise InputError("folds", f"is {folds!r}", "pass an integer of 2 or more, such as 5")
    if rows < 2:
        raise InputError("scores", "has one row, and cross-fitting needs two", "pass more rows")


def cross_fit(fitted: Calibrator, rows: FoldRows) -> HeldOut:
    """Fit a calibrator per fold on the other rows, and apply it to the rows of the fold.

    Parameters
    ----------
    fitted : Calibrator
        The calibrator, fitted on all rows; the folds start from it.
    rows : FoldRows
        The calibration rows.
    """
    sorted_rows, held_out = (HeldOut.empty(len(rows.order)) for _ in range(2))
    prediction = rows.original.prediction[rows.order]
    parts: list[Matrix] = []
    start = 0
    for fold, direct in _fold_predictions(fitted, rows):
        parts.append(direct)
        # Few rows are stored together.
        if fold.stop == len(prediction) or sum(part.size for part in parts) >= BLOCK_ENTRIES:
            some = direct if len(parts) == 1 else np.concatenate(parts)
            sorted_rows.store(slice(start, fold.stop), some, rows.labels, prediction)
            start = fold.stop
            parts.clear()
            del some
        del direct  # frees memory for the next fold
    held_out.likelihood[rows.order] = sorted_rows.likelihood
    held_out.masses.mass[rows.order] = sorted_rows.masses.mass
    held_out.masses.rest[rows.order] = sorted_rows.masses.rest
    return held_out


def _fold_predictions(fitted: Calibrator, rows: FoldRows) -> Iterator[tuple[slice, Matrix]]:
    """Yield each fold, and its rows' direct probabilities fitted on the others."""
    with one_blas_thread():
        for fold, model in zip(rows.folds, fitted._fit_folds(rows), strict=True):
            yield fold, model._predict_in_domain(rows.of(fold, fitted.works_on))


def cross_fit_any(
    new: Callable[[], Any],
    original: CheckedScores,
    labels: Labels,
    weight: Vector | None,
    folds: Folds,
) -> HeldOut:
    """Fit a calibrator per fold on the other rows, and apply it to the rows of the fold.

    Parameters
    ----------
    new : callable
        Returns an unfitted calibrator.
    original, labels, weight
        The calibration rows.
    folds : Folds
        Which rows are held out together.
    """
    held_out = HeldOut.empty(len(labels))
    for number in range(folds.count):
        test = np.flatnonzero(folds.number == number)
        train = np.flatnonzero(folds.number != number)
        model = new()
        fit_calibrator(model, original.take(train), labels[train], _take(weight, train))
        scores = original.take(test)
        direct = predict_calibrated(model, scores).astype(np.float64)
        held_out.store(test, direct, labels, original.prediction)
    return held_out


def masses_held_out(
    fitted: Any,
    new: Callable[[], Any],
    original: CheckedScores,
    labels: Any,
    weight: Vector | None,
) -> Masses:
    """Return the held-out masses on and off the predictions, for a Lift.

    A fitted blend has them already; others are cross-fitted, with calibrators from ``new()``.
    """
    known = getattr(fitted, "held_out_", None)
    if isinstance(known, HeldOut):
        return known.masses
    truth = check_labels(labels, original.rows, original.classes)
    folds = Folds.of_rows(original, truth, FOLDS, seed=0, weight=weight)
    if folds.note is not None:
        warn(f"lift is fitted on held-out rows, but {folds.note}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit on all rows has issued them
            if isinstance(fitted, Calibrator):
                return cross_fit(fitted, folds.rows(original, truth, weight)).masses
            return cross_fit_any(new, original, truth, weight, folds).masses
    except ValueError as error:
        raise InputError(
            "labels",
            f"cannot be cross-fitted: without one fold of the rows, {error}",
            "pass more rows, or write {option}",
            option=("repair", "cord"),
        ) from error


def _take(values: Scores | None, rows: npt.NDArray[Any]) -> Scores | None:
    return None if values is None else values[rows]


@dataclass(frozen=True, eq=False)
class Fit:
    """A calibrator fitted on all rows, its warnings, and the seconds it took."""

    model: Calibrator
    warnings: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, eq=False)
class Candidate:
    """A calibrator fitted on all rows, its held-out probabilities, and the seconds both took."""

    model: Calibrator
    held_out: HeldOut
    seconds: float


class FitCache:
    """Calibration rows and the calibrators fitted on them, each fitted only once.

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
        self._shared = SharedResults()
        self._fits: dict[str, Fit] = {}
        self._candidates: dict[str, tuple[Candidate | None, str | None]] = {}

    @functools.cached_property
    def _of_log_probabilities(self) -> FitCache:
        """The same rows with log-probabilities as logits."""
        original = self.original
        logs = original.in_domain("log-probabilities", LOG_FLOOR)
        if original.has_masked:
            logs[np.isneginf(original.raw)] = -np.inf
        scores = CheckedScores(
            logs, "logits", original.prediction, original.probabilities, original.clusters
        )
        return FitCache(scores, self.labels, self.weight, self.folds)

    @functools.cached_property
    def with_absent_classes(self) -> FitCache:
        """A cache with a pseudo-row of each class that has no rows; this one if all have.

        Without it calibrators would take such a class for impossible, however large its score.
        It is the row in which the classifier gives the class the largest probability p, once more
        with that label.  Its weight is p divided by the number of such classes, so that all of
        them together count as one row at most.
        """
        original, number = self.original, self.folds.number
        weight = np.ones(original.rows) if self.weight is None else self.weight
        absent = np.flatnonzero(np.bincount(self.labels, weight, original.classes) == 0.0)
        if not absent.size:
            return self
        counted = np.flatnonzero(weight)
        mass = original.probabilities[np.ix_(counted, absent)]
        largest = mass.max(axis=0)
        sources = []
        for column, top in zip(mass.T, largest, strict=True):
            tied = counted[column == top]
            # Of rows that tie, one that does not depend on their order.
            sources.append(max(tied, key=lambda row: (*original.raw[row].tolist(), number[row])))
        possible = largest > 0.0
        rows = np.append(np.arange(original.rows), np.array(sources)[possible])
        return FitCache(
            original.take(rows),
            np.append(self.labels, absent[possible]),
            np.append(weight, largest[possible] / absent.size),
            Folds(number[rows], self.folds.count, self.folds.note),
        )

    def for_member(self, key: str) -> FitCache:
        """Return the cache to fit a blend's member with.

        A constant added to a row of logits must not change a blend, so members that work on
        logits are fitted on log-probabilities.
        """
        depends = self.original.kind == "logits" and calibrator_class(key).works_on == "logits"
        return self._of_log_probabilities if depends else self

    def _fold_rows(self) -> FoldRows:
        rows: FoldRows = self._shared.get(
            "folds", lambda: self.folds.rows(self.original, self.labels, self.weight)
        )
        return rows

    def fit(self, key: str) -> Fit:
        """Return a calibrator fitted on all rows."""
        if key not in self._fits:
            self._fits[key] = self._fit(make(key, input=self.original.kind))
        return self._fits[key]

    def _fit(self, model: Calibrator) -> Fit:
        started = perf_counter()
        with _record_warnings() as messages:
            model.fit_checked(self.original, self.labels, self.weight)
        return Fit(model, tuple(messages), perf_counter() - started)

    def fit_all(
        self,
        keys: Sequence[str],
        started: Callable[[str], None] = lambda key: None,
        *,
        members: bool = False,
    ) -> None:
        """Fit and cross-fit several calibrators, on threads; the results are those of one thread.

        Parameters
        ----------
        keys : sequence of str
            Keys of calibrators; `candidate` then returns each.
        started : callable
            Called with each key when its fit begins, in the caller's thread.
        members : bool
            Fit them as members of a blend; see `for_member`.
        """
        caches = {key: self.for_member(key) if members else self for key in keys}
        missing = [key for key in keys if key not in caches[key]._candidates]
        # The longest fits first, so that no thread ends with one; then those that need most memory.
        missing.sort(key=lambda key: (-calibrator_class(key).square_work, key not in _LARGE))
        entries, classes = self.original.raw.size, self.original.classes
        passes = sum(_PASSES + calibrator_class(key).square_work * classes for key in missing)
        threads = min(default_threads(), _MAX_THREADS) if entries >= MIN_ENTRIES_TO_SHARE else 1
        begun: deque[str] = deque()
        with progress("blend", int(entries * passes), len(missing)) as report:

            def show(done: int) -> None:
                while begun:
                    started(begun.popleft())
                report(done, math.nan, math.nan)

            def fit(key: str) -> None:
                (started if threads == 1 else begun.append)(key)
                caches[key].candidate(key)

            run_tasks([functools.partial(fit, key) for key in missing], threads, show)

    def candidate(self, key: str) -> tuple[Candidate | None, str | None]:
        """Return a cross-fitted calibrator, and its first warning; or None and the error."""
        if key not in self._candidates:
            self._candidates[key] = self._cross_fit(key)
        return self._candidates[key]

    def held_out_matrix(self, key: str) -> Matrix:
        """Return all held-out probabilities of a calibrator, which `candidate` does not keep."""
        model = make(key, input=self.original.kind)
        model._shared = self._shared
        self._fit(model)
        direct, rows = np.empty(self.original.raw.shape), self._fold_rows()
        with _record_warnings():
            for fold, part in _fold_predictions(model, rows):
                direct[rows.order[fold]] = part
        return direct

    def _cross_fit(self, key: str) -> tuple[Candidate | None, str | None]:
        started = perf_counter()
        try:
            if key not in self._fits:
                model = make(key, input=self.original.kind)
                model._shared = self._shared
                self._fits[key] = self._fit(model)
            fit = self._fits[key]
            with _record_warnings() as messages:
                known = getattr(fit.model, "held_out_", None)
                held_out = known or cross_fit(fit.model, self._fold_rows())
            fit.model._forget()
            if not np.isfinite(held_out.likelihood).all():
                return None, "it overflows on scores of this size"
        except (ValueError, ArithmeticError, RuntimeError) as error:
            return None, str(error)
        note = next(iter([*fit.warnings, *messages]), None)
        return Candidate(fit.model, held_out, perf_counter() - started), note


@contextmanager
def _record_warnings() -> Iterator[list[str]]:
    """Record the calibrators' warnings in this thread, also repeated ones: a blend chooses by them.

    The standard library's filters belong to the process, so threads cannot use them.  Scores of
    any size overflow in some maps; these are left out by their results, not by NumPy's warnings.
    """
    with (
        collect_warnings() as messages,
        suppress_repeats(()),
        np.errstate(over="ignore", invalid="ignore"),
    ):
        yield messages
