"""Compare calibrators on one data set: direct, repaired by CORD, and repaired by Lift."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from typing import Literal, NamedTuple

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.arrays import first_argmax, row_digests
from cordcal._numeric.progress import line_of_progress, shown
from cordcal._numeric.types import (
    ArrayLike,
    Classes,
    Flags,
    Floats,
    Kind,
    Labels,
    NumPyArray,
)
from cordcal._validation.caveats import (
    Caveat,
    context_caveats,
    find_caveats,
    overlap,
    split_caveats,
    warn_about,
)
from cordcal._validation.context import ContextValues, check_context, is_present, split_context
from cordcal._validation.estimator import as_seed
from cordcal._validation.labels import (
    MAX_GROUPS,
    Groups,
    check_labels,
    cluster_numbers,
    few_groups,
    rows_by_group,
)
from cordcal._validation.names import Name, check_class_names
from cordcal._validation.scores import CheckedScores, as_scores, check_kind
from cordcal._validation.table import MatchedRows, match
from cordcal.calibrators import Calibrator, Size, available, calibrator_class
from cordcal.calibrators.adapters import PrecomputedProbabilities, adapted, predict_calibrated
from cordcal.calibrators.blend import Blend
from cordcal.calibrators.crossfit import FOLDS, FitCache, Folds, masses_held_out
from cordcal.calibrators.learnt_rule import learn_rule
from cordcal.calibrators.registry import canonical_key, default_keys
from cordcal.evaluate.baseline import Fingerprint, codes_of
from cordcal.evaluate.comparison import Comparison
from cordcal.evaluate.pictures import pictures_of
from cordcal.evaluate.results.calibrators import (
    ConstraintCost,
    ContextOffer,
    Entry,
    GroupGap,
    KeptPredictions,
    RuleOffer,
)
from cordcal.evaluate.results.pictures import Pictures
from cordcal.evaluate.results.values import ORIGINAL, Interval, Output
from cordcal.evaluate.statistics import (
    Replicates,
    act_shares,
    calibration_tests,
    interval_of,
    measure_constraint_cost,
    paired_interval,
    resampled,
    standard_error,
)
from cordcal.metrics import PredictionChanges, PredictionChangesStream, ece, risk_coverage
from cordcal.metrics.base import LabelledRows, ProbabilityMatrix
from cordcal.metrics.proper import NLL_FLOOR
from cordcal.metrics.registry import MeasuredProbabilities, measure_probabilities
from cordcal.preserving import Outputs, PreservingCalibrator
from cordcal.repair import ConfidenceGap, Lift
from cordcal.repair.lift import Masses

AnyCalibrator = object
"""A key, or an object of any library that `compare` can fit."""

EvaluationRows = tuple[ArrayLike, ArrayLike]
"""Scores and labels of the rows to evaluate on."""


def compare(
    scores: ArrayLike,
    labels: ArrayLike,
    calibrators: AnyCalibrator = "default",
    *,
    input: Kind = "logits",
    evaluation: float | EvaluationRows = 0.5,
    splits: int = 1,
    seed: int | np.random.Generator = 0,
    preserve: int | Literal["ranking"] = 1,
    class_names: Sequence[str] | None = None,
    groups: ArrayLike = None,
    clusters: ArrayLike | tuple[ArrayLike, ArrayLike] = None,
    context: ArrayLike | tuple[ArrayLike, ArrayLike] = None,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Fit calibrators on one part of the rows and compare their probabilities on the other.

    Rows of pandas objects are matched by index; arguments without an index are matched with
    the scores by position.

    Parameters
    ----------
    scores : array_like of shape (n, K)
        The classifier's logits or probabilities; ``input`` states which.
    labels : array_like of shape (n,)
        The true classes, as column indices or as class names.
    calibrators : "default", "all", str, object, mapping or sequence
        Keys of `cordcal.calibrators`, or objects: calibrators of cordcal, scikit-learn,
        netcal, probmetrics or verified_calibration, functions of ``(fit_scores, fit_labels,
        scores)`` that return probabilities, torch modules, or `PrecomputedProbabilities`.  A
        mapping ``{name: calibrator}`` or pairs ``(name, calibrator)`` name them.  ``"default"``
        runs those of cordcal except those that need an extra and those that were never ahead in
        the benchmark, ``"all"`` runs every one; both omit calibrators that the
        data do not allow and give the reason in ``left_out``.
    input : {"logits", "probabilities"}
        What the scores are.
    evaluation : float or tuple of arrays
        The share of rows to evaluate on, drawn at random; or ``(scores, labels)`` of other
        rows, in which case all rows of ``scores`` are used for fitting.
    splits : int
        How many random splits to average over.
    seed : int or numpy.random.Generator
        Seed of the splits and of the bootstrap; one is drawn from a generator.
    preserve : int or "ranking"
        How many of the top classes the repair keeps in place.
    class_names : sequence of str, optional
        One name per column; by default the columns of a data frame.  Labels may be among
        them.  If the names are integers other than 0..K-1 in order, numeric labels are names.
    groups : array_like of shape (n,), optional
        The group of each row, such as a region: metrics are then also computed per group.
        If ``evaluation`` is a tuple, these are the groups of its rows.
    clusters : array_like of shape (n,), optional
        What rows belong to, such as a patient, user or session: rows of one cluster are either
        fitted or evaluated on, held out together, and drawn together for intervals.  If
        ``evaluation`` is a tuple, pass a tuple too, of the rows of both.
    context : data frame or mapping, optional
        Columns next to the scores, as for `PreservingCalibrator.fit`: what they bring the default
        is measured, and no other option has it.  If ``evaluation`` is a tuple, pass a tuple too, of
        the rows of both.
    progress : callable, optional
        Called with a calibrator's name when its fit begins, and with ``"intervals"`` at the end.

    Returns
    -------
    comparison : Comparison
        Every metric of every calibrator, and a recommendation.

    Warns
    -----
    UserWarning
        If scores or labels look like a mistake, as for `PreservingCalibrator.fit`; there is
        no recommendation then.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=600)
    >>> logits = 3.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(600, 3))
    >>> comparison = compare(logits, labels, ["ts", "irova"])
    >>> comparison["irova"].repaired["accuracy"] == comparison.uncalibrated["accuracy"]
    True
    """
    check_kind(input)
    check_evaluation(evaluation)
    selection = choose_calibrators(calibrators, input)
    if not isinstance(evaluation, tuple) and selection.has_precomputed:
        raise InputError(
            "evaluation",
            f"is the share {evaluation} of rows to draw at random, but PrecomputedProbabilities "
            "belong to fixed rows",
            "pass the rows of direct_evaluation as evaluation=(scores, labels)",
        )
    contexts = _as_pair_of("context", context, evaluation)
    matched, held_out, candidates = _match(
        scores,
        labels,
        class_names,
        evaluation,
        groups,
        _as_pair_of("clusters", clusters, evaluation),
        selection.by_name,
        contexts,
    )
    array = as_scores(matched.matrices[0])
    rows, classes = array.shape
    names = None
    if matched.class_names is not None:
        names = check_class_names(matched.class_names, classes)
    truth = check_labels(matched.labels, rows, classes)
    checked = CheckedScores.from_scores(array, input, fitting=True)
    if matched.clusters is not None:
        checked = replace(checked, clusters=cluster_numbers(matched.clusters, rows))
    seed = as_seed(seed)
    later_clusters = None
    if held_out is not None:
        evaluation, groups = (held_out.matrices[0], held_out.labels), held_out.groups
        later_clusters = held_out.clusters
    else:
        groups = matched.groups
    left_out = {}
    if not selection.explicit:
        left_out = unsuited_calibrators(selection.by_name, classes)
    started = time.perf_counter()
    parts, population = make_splits(
        checked, truth, evaluation, splits, seed, groups, later_clusters
    )
    caveats = find_caveats(checked, truth, names=names)
    if contexts[0] is not None:
        first = check_context(matched, contexts[0], input)
        second = None if held_out is None else check_context(held_out, contexts[1], input)
        parts = [part.with_context(first, second, rows) for part in parts]
        caveats += context_caveats(first, checked.prediction, truth, None)
    if isinstance(evaluation, tuple) and not caveats:
        caveats = find_caveats(parts[0].original, parts[0].labels, names=names)
    warn_about(caveats)
    original = [measure_on(part.original.probabilities, part, "original") for part in parts]
    columns = list(names) if names is not None else [str(index) for index in range(classes)]
    fitted: list[FittedCalibrator] = []
    running = {name: candidate for name, candidate in candidates.items() if name not in left_out}
    waiting = set(running)

    with _steps(progress, len(running) + 1) as advance:

        def report(name: str) -> None:
            if name in waiting:
                waiting.remove(name)
                advance(name)

        # Lift needs held-out probabilities of these: they are fitted together, on threads.
        lifted = {str(key): name for name, key in running.items() if _is_lifted(key, preserve)}
        for part in parts:
            part.fit_cache.fit_all(list(lifted), lambda key: report(lifted[key]))
        for name, candidate in running.items():
            report(name)
            try:
                fitted.append(
                    fit_and_measure(name, candidate, parts, input, preserve, columns, original[0])
                )
            except ValueError as error:
                if selection.explicit:
                    raise
                left_out[name] = str(error)
        if contexts[0] is not None and all(result.context is None for result in fitted):
            unused = Caveat("context", _UNUSED_CONTEXT)
            warn_about([unused])
            caveats = [*caveats, unused]
        advance("intervals")
        rows_by_output = {ORIGINAL: [measured.rows for measured in original]}
        for result in fitted:
            rows_by_output |= result.rows_by_output()
        replicates = resampled(
            rows_by_output,
            [part.rows for part in parts],
            population,
            seed=seed,
            clusters=(checked if held_out is None else parts[0].original).clusters,
        )
    part_clusters = [part.original.clusters for part in parts]
    return Comparison(
        entries=tuple(_entry(result, replicates, classes) for result in fitted),
        uncalibrated=means(original),
        left_out=left_out,
        n_calibration=len(parts[0].fit_labels),
        n_evaluation=len(parts[0].labels),
        n_classes=classes,
        class_names=names,
        input=input,
        splits=splits,
        seed=seed,
        preserve=preserve,
        fingerprint=_fingerprint(parts, input, preserve, seed),
        seconds=time.perf_counter() - started,
        data_caveats=_caveats(parts[0], caveats, names),
        needed=calibration_tests(parts[0].fit_cache, [result.key for result in fitted]),
        resampled=replicates,
        act={
            output: act_shares(rows, seed, part_clusters) for output, rows in rows_by_output.items()
        },
    )


_UNUSED_CONTEXT = (
    "the context was not used: it is measured for blend + lift only, which was not compared"
)


@contextmanager
def _steps(progress: Callable[[str], None] | None, count: int) -> Iterator[Callable[[str], None]]:
    """Yield a function to call at the start of each step: the caller's, or one that counts."""
    if progress is not None:
        with shown():
            yield progress
        return
    numbers = itertools.count()
    with line_of_progress("comparing", count) as advance:
        yield lambda name: advance(next(numbers), name)


def _match(
    scores: ArrayLike,
    labels: ArrayLike,
    class_names: Sequence[Name] | None,
    evaluation: float | EvaluationRows,
    groups: ArrayLike,
    clusters: tuple[ArrayLike, ArrayLike],
    candidates: Mapping[str, AnyCalibrator],
    contexts: tuple[ArrayLike, ArrayLike],
) -> tuple[MatchedRows, MatchedRows | None, dict[str, AnyCalibrator]]:
    """Match the rows to fit on, and those to evaluate on with them, and what was computed before.

    Returns both sets of rows, and the calibrators with their precomputed probabilities matched.
    """
    precomputed = {
        name: candidate
        for name, candidate in candidates.items()
        if isinstance(candidate, PrecomputedProbabilities)
    }
    calibration = {
        f"direct_calibration of {name}": candidate.direct_calibration
        for name, candidate in precomputed.items()
    }
    is_pair = isinstance(evaluation, tuple)
    (vectors, opinions), (later_vectors, later_opinions) = (
        split_context({} if context is None else context) for context in contexts
    )
    rows = match(
        {"scores": scores, **opinions, **calibration},
        class_names=class_names,
        labels=labels,
        groups=None if is_pair else groups,
        clusters=clusters[0],
        others=vectors,
    )
    if not isinstance(evaluation, tuple):
        return rows, None, dict(candidates)
    direct = {
        f"direct_evaluation of {name}": candidate.direct_evaluation
        for name, candidate in precomputed.items()
    }
    held_out = match(
        {"evaluation[0]": evaluation[0], **later_opinions, **direct},
        fitted_names=rows.class_names or rows.columns,
        fitted_source="scores",
        labels=evaluation[1],
        labels_argument="evaluation[1]",
        groups=groups,
        clusters=clusters[1],
        others=later_vectors,
    )
    before, later = 1 + len(opinions), 1 + len(later_opinions)
    pairs = zip(rows.matrices[before:], held_out.matrices[later:], strict=True)
    replaced = {
        name: PrecomputedProbabilities(*pair) for name, pair in zip(precomputed, pairs, strict=True)
    }
    return rows, held_out, {**candidates, **replaced}


def _as_pair_of(
    name: str, values: ArrayLike | tuple[ArrayLike, ArrayLike], evaluation: object
) -> tuple[ArrayLike, ArrayLike]:
    """Return what belongs to the rows to fit on, and to separate rows to evaluate on."""
    is_pair = isinstance(values, tuple)
    if values is not None and is_pair != isinstance(evaluation, tuple):
        raise InputError(
            name,
            "is a tuple, but evaluation is a share" if is_pair else "is of the rows to fit on only",
            f"pass one {name}" if is_pair else "pass a tuple of both, as for evaluation",
        )
    return values if isinstance(values, tuple) else (values, None)


@dataclass(frozen=True)
class _Selection:
    """The calibrators to run by name, and whether the caller named them."""

    by_name: dict[str, AnyCalibrator]
    explicit: bool

    @property
    def has_precomputed(self) -> bool:
        """Whether some of them are probabilities that were computed elsewhere."""
        return any(isinstance(item, PrecomputedProbabilities) for item in self.by_name.values())


def choose_calibrators(calibrators: AnyCalibrator, input: Kind) -> _Selection:
    """Return the calibrators to compare, by name."""
    if isinstance(calibrators, str) and calibrators in ("default", "all"):
        keys = available() if calibrators == "all" else default_keys()
        return _Selection({key: key for key in keys}, explicit=False)
    by_name: dict[str, AnyCalibrator] = {}
    for name, calibrator in _named(calibrators):
        if name in by_name:
            raise InputError("calibrators", f"names {name!r} twice", "name each once")
        if isinstance(calibrator, str):
            calibrator = canonical_key(calibrator)
        elif not isinstance(calibrator, PrecomputedProbabilities):
            calibrator = adapted(calibrator, input, f"calibrators[{name!r}]")
        by_name[name] = calibrator
    return _Selection(by_name, explicit=True)


def _named(calibrators: AnyCalibrator) -> list[tuple[str, AnyCalibrator]]:
    """Return pairs of name and calibrator; an object without a name gets its class's name."""
    if isinstance(calibrators, Mapping):
        pairs = [(str(name), calibrator) for name, calibrator in calibrators.items()]
    elif isinstance(calibrators, Iterable) and not isinstance(calibrators, str):
        pairs = [_as_pair(item) for item in calibrators]
    else:
        pairs = [("", calibrators)]
    if not pairs:
        raise InputError("calibrators", "is empty", 'pass keys such as ["ts", "svs"], or "default"')
    counts = Counter(_default_name(calibrator) for name, calibrator in pairs if not name)
    numbers: Counter[str] = Counter()
    named = []
    for name, calibrator in pairs:
        full_name = name or _default_name(calibrator)
        if not name and counts[full_name] > 1 and not isinstance(calibrator, str):
            numbers[full_name] += 1
            full_name = f"{full_name} {numbers[full_name]}"
        named.append((full_name, calibrator))
    return named


def _as_pair(item: AnyCalibrator) -> tuple[str, AnyCalibrator]:
    """Return a pair of name and calibrator as it is, and a calibrator with an empty name."""
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
        return item
    return "", item


def _default_name(calibrator: AnyCalibrator) -> str:
    if isinstance(calibrator, str):
        return canonical_key(calibrator)  # an unknown key fails before anything is fitted
    class_name = type(calibrator).__name__
    return str(getattr(calibrator, "key", getattr(calibrator, "__name__", class_name)))


def unsuited_calibrators(keys: Iterable[str], classes: int) -> dict[str, str]:
    """Return the calibrators that the data do not allow, each with the reason."""
    reasons = {key: calibrator_class(key).unsuited(classes) for key in keys}
    return {key: reason for key, reason in reasons.items() if reason is not None}


def check_evaluation(evaluation: object) -> None:
    """Require a share of the rows, or a pair of scores and labels."""
    hint = "pass a share between 0 and 1, or a tuple of scores and labels"
    if isinstance(evaluation, tuple):
        if len(evaluation) != 2:
            raise InputError("evaluation", f"is a tuple of {len(evaluation)}", hint)
    elif not isinstance(evaluation, Real):
        raise InputError("evaluation", f"is of type {type(evaluation).__name__}", hint)
    elif not 0.0 < float(evaluation) < 1.0:
        raise InputError(
            "evaluation", f"is {evaluation}", "pass a share between 0 and 1, or separate rows"
        )


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to fit on and rows to evaluate on.

    Attributes
    ----------
    fit, fit_labels
        The rows to fit on.
    original, labels
        The rows to evaluate on.
    rows : ndarray of int
        The numbers of the rows to evaluate on in the population, from which resamples draw.
    groups : ndarray of str or None
        The group of each row to evaluate on.
    contexts : tuple of ContextValues or None
        Columns next to the scores, of the rows to fit on and of those to evaluate on.
    """

    fit: CheckedScores
    fit_labels: Labels
    original: CheckedScores
    labels: Labels
    rows: Classes
    groups: Groups | None
    contexts: tuple[ContextValues, ContextValues] | None = None

    def with_context(self, first: ContextValues, second: ContextValues | None, count: int) -> Split:
        """Return the split with the context of ``count`` rows, or of fitted and other rows."""
        if second is not None:
            return replace(self, contexts=(first, second))
        fit = np.setdiff1d(np.arange(count), self.rows)
        return replace(self, contexts=(first.take(fit), first.take(self.rows)))

    @functools.cached_property
    def fit_cache(self) -> FitCache:
        """The rows to fit on and the fits so far, which blend and lift share."""
        folds = Folds.of_rows(self.fit, self.fit_labels, FOLDS, seed=0)
        return FitCache(self.fit, self.fit_labels, None, folds)


def make_splits(
    scores: CheckedScores,
    labels: Labels,
    evaluation: float | EvaluationRows,
    splits: int,
    seed: int,
    groups: ArrayLike,
    later_clusters: ArrayLike = None,
) -> tuple[list[Split], int]:
    """Return the splits, and the size of the population that resamples draw from.

    ``later_clusters`` are those of separate rows to evaluate on.
    """
    if splits < 1:
        raise InputError("splits", f"is {splits}", "pass 1 or more")
    if isinstance(evaluation, tuple):
        if splits > 1:
            raise InputError(
                "splits",
                "is above 1 but the evaluation rows are given",
                "there is one way to split: pass 1",
            )
        test = as_scores(evaluation[0])
        if test.shape[1] != scores.classes:
            raise InputError(
                "evaluation",
                f"has {test.shape[1]} classes but scores has {scores.classes}",
                "pass the same columns in both",
            )
        truth = check_labels(evaluation[1], *test.shape)
        rows = np.arange(len(truth))
        original = CheckedScores.from_scores(test, scores.kind)
        if later_clusters is not None:
            original = replace(original, clusters=cluster_numbers(later_clusters, len(truth)))
        test_groups = None if groups is None else few_groups(groups, len(truth))
        return [Split(scores, labels, original, truth, rows, test_groups)], len(truth)
    count = len(labels)
    all_groups = None if groups is None else few_groups(groups, count)
    held_out = min(max(1, round(evaluation * count)), count - 1)
    if count < 2:
        raise InputError("scores", "has one row", "at least two are needed to fit and to evaluate")
    generator = np.random.default_rng(seed)
    parts = []
    copies = copies_of_rows(scores.raw) if scores.clusters is None else scores.clusters
    most = max(_MAX_COPIES * count, 2) if scores.clusters is None else count
    for _ in range(splits):
        order, end = keep_copies_together(generator.permutation(count), copies, held_out, most)
        if scores.clusters is not None and np.isin(copies[order[end:]], copies[order[:end]]).any():
            raise InputError(
                "clusters",
                "are too large to be divided into rows to fit and to evaluate on",
                "pass rows of more clusters, or leave clusters out",
            )
        fit, test_rows = np.sort(order[end:]), np.sort(order[:end])
        parts.append(
            Split(
                scores.take(fit),
                labels[fit],
                scores.take(test_rows),
                labels[test_rows],
                test_rows,
                None if all_groups is None else all_groups[test_rows],
            )
        )
    return parts, count


# A row that makes up more of a set is not a duplicate but what a coarse classifier returns.
_MAX_COPIES = 0.01


def copies_of_rows(scores: Floats) -> Classes:
    """Return a number for each row, the same for rows with equal scores."""
    return np.unique(row_digests(scores, 0), return_inverse=True)[1].astype(np.intp)


def keep_copies_together(
    order: Classes, copies: Classes, end: int, most: float
) -> tuple[Classes, int]:
    """Return an order with copies next to each other, and where to divide it near ``end``.

    Rows with more than ``most`` copies stay where they are.

    Examples
    --------
    >>> keep_copies_together(np.array([0, 1, 2, 3]), np.array([5, 6, 5, 7]), 1, 2)
    (array([0, 2, 1, 3]), 2)
    """
    group = copies[order]
    size = np.bincount(group)[group]
    few = size <= most
    position = np.arange(len(order))
    first = np.full(group.max() + 1, len(order))
    np.minimum.at(first, group, position)
    position = np.where(few, first[group], position)
    sequence = np.argsort(position, kind="stable")
    order, position = order[sequence], position[sequence]
    ends = np.flatnonzero(np.diff(position)) + 1
    if ends.size:
        end = int(ends[min(int(np.searchsorted(ends, end)), ends.size - 1)])
    return order, end


@dataclass(frozen=True, eq=False)
class FittedCalibrator:
    """One calibrator, fitted and measured on every split."""

    key: str
    name: str
    keeps_predictions: bool
    direct: list[MeasuredProbabilities]
    repaired: list[MeasuredProbabilities]
    lift: list[MeasuredProbabilities]
    changes: PredictionChanges
    fit_seconds: float
    apply_seconds: float
    notes: tuple[str, ...]
    pictures: Pictures
    size: Size | None
    constraint_cost: ConstraintCost | None
    at_bound: float
    kept: KeptPredictions | None
    shares: dict[str, float]
    rule: RuleOffer | None
    context: ContextOffer | None

    def rows_by_output(self) -> dict[Output, list[LabelledRows]]:
        """Return the rows to resample; a calibrator that keeps predictions has no repaired ones."""
        rows = {(self.key, "direct"): [measured.rows for measured in self.direct]}
        if not self.keeps_predictions:
            rows[self.key, "repaired"] = [measured.rows for measured in self.repaired]
        if self.lift:
            rows[self.key, "lift"] = [measured.rows for measured in self.lift]
        return rows


def fit_and_measure(
    name: str,
    candidate: AnyCalibrator,
    parts: list[Split],
    input: Kind,
    preserve: int | Literal["ranking"],
    columns: list[str],
    original: MeasuredProbabilities,
) -> FittedCalibrator:
    """Fit one calibrator on every split and measure its direct and repaired probabilities."""
    changes = PredictionChangesStream()
    direct, repaired, lift = [], [], []
    first: tuple[PreservingCalibrator, Outputs] | None = None
    keeps = True
    bounds: list[float] = []
    gap: KeptPredictions | None = None
    fit_seconds, apply_seconds = 0.0, 0.0
    notes: list[str] = []
    precomputed = candidate if isinstance(candidate, PrecomputedProbabilities) else None
    for split in parts:
        if precomputed is not None:
            candidate, on_evaluation = precomputed.between(split.fit.raw, split.original.raw)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model, seconds, messages = _fit_model(candidate, split, input, preserve)
            if precomputed is not None:
                model.calibrator_ = on_evaluation
            started = time.perf_counter()
            outputs = model.predict_checked(split.original)
            fit_seconds += seconds
            apply_seconds += time.perf_counter() - started
            lifted = None
            keeps_here = _keeps_predictions(model, outputs, split)
            keeps = keeps and keeps_here
            if preserve == 1 and precomputed is None and not keeps_here:
                lifted = _apply_lift(candidate, model, split, outputs.direct)
        notes += [*messages, *(str(warning.message) for warning in caught)]
        if lifted is not None:
            lift.append(measure_on(lifted.confidence, split, "lift"))
            bounds.append(lifted.at_bound)
            if gap is None:
                gap = _confidence_gap(lifted, split, outputs)
        direct.append(measure_on(outputs.direct, split, "direct"))
        repaired.append(measure_on(outputs.repaired, split, "repaired"))
        changes.add(outputs.prediction, first_argmax(outputs.direct), split.labels)
        first = first or (model, outputs)
    assert first is not None
    (first_model, first_outputs), first_split = first, parts[0]
    if keeps or len(lift) < len(parts):
        lift = []
    measured = {"original": original, "direct": direct[0]}
    measured |= {} if keeps else {"repaired": repaired[0]}
    measured |= {"lift": lift[0]} if lift else {}
    cost = None
    if not keeps:
        cost = measure_constraint_cost(
            first_outputs.direct,
            first_outputs.prediction,
            first_split.labels,
            cord=float(measured["repaired"].metrics.values["nll"]),
            lift=float(lift[0].metrics.values["nll"]) if lift else None,
        )
    pictures = pictures_of(
        first_split.original.probabilities,
        first_outputs,
        columns,
        measured,
        labels=first_split.labels,
        row_numbers=first_split.rows,
        groups=first_split.groups,
    )
    return FittedCalibrator(
        key=name,
        name=str(getattr(model.calibrator_, "title", name)),
        keeps_predictions=keeps,
        direct=direct,
        repaired=repaired,
        lift=lift,
        changes=changes.result(),
        fit_seconds=fit_seconds / len(parts),
        apply_seconds=apply_seconds / len(parts),
        notes=tuple(dict.fromkeys(notes)),
        pictures=pictures,
        size=getattr(model.calibrator_, "size", None),
        constraint_cost=cost,
        at_bound=float(np.mean(bounds)) if bounds else 0.0,
        kept=gap if lift else None,
        shares=_blend_shares(first_model),
        rule=_offer_rule(first_model, first_split, first_outputs, lift[0]) if lift else None,
        context=_offer_context(first_model, first_split, first_outputs) if lift else None,
    )


def _fit_model(
    candidate: AnyCalibrator,
    split: Split,
    input: Kind,
    preserve: int | Literal["ranking"],
) -> tuple[PreservingCalibrator, float, tuple[str, ...]]:
    """Return a model with CORD, the seconds that fitting took, and its warnings."""
    started = time.perf_counter()
    messages: tuple[str, ...] = ()
    if not isinstance(candidate, str):
        model = PreservingCalibrator(candidate, input=input, preserve=preserve)
        model.fit_checked(split.fit, split.fit_labels, None)
        return model, time.perf_counter() - started, messages
    fitted: Calibrator
    if candidate == Blend.key:
        fitted = Blend(input=input)
        fitted.fit_from(split.fit_cache)
        fit_seconds = fitted.seconds_
    else:
        fit = split.fit_cache.fit(candidate)
        fitted, messages, fit_seconds = fit.model, fit.warnings, fit.seconds
    started = time.perf_counter()
    model = PreservingCalibrator(fitted, input=input, preserve=preserve, prefit=True)
    model.fit_checked(split.fit, split.fit_labels, None)
    return model, fit_seconds + time.perf_counter() - started, messages


def _is_lifted(candidate: AnyCalibrator, preserve: int | Literal["ranking"]) -> bool:
    """Return whether a candidate is a key whose fits on folds lift will need."""
    if preserve != 1 or not isinstance(candidate, str) or candidate == Blend.key:
        return False
    return not calibrator_class(candidate).keeps_argmax


def _apply_lift(
    candidate: AnyCalibrator,
    model: PreservingCalibrator,
    split: Split,
    direct: NumPyArray,
) -> _Lifted | None:
    """Return the probabilities repaired by Lift; None if rows cannot be held out."""
    masses: Masses | None
    if isinstance(candidate, str) and candidate != Blend.key:
        cached, _ = split.fit_cache.candidate(candidate)
        masses = None if cached is None else cached.held_out.masses
    else:
        unfitted = PreservingCalibrator(candidate, input=split.fit.kind)
        new = functools.partial(unfitted.make_calibrator, split.fit.kind)
        try:
            masses = masses_held_out(model.calibrator_, new, split.fit, split.fit_labels, None)
        # A user's own calibrator may fail in any of these ways.
        except (ValueError, ArithmeticError, RuntimeError) as error:
            warnings.warn(f"no lift: {error}", UserWarning, stacklevel=2)
            masses = None
    if masses is None:
        return None
    fit_direct = predict_calibrated(model.calibrator_, split.fit)
    original = split.original
    rows = {}
    for prefer in ("confidence", "likelihood"):
        lift = Lift(prefer).fit_checked(
            split.fit.probabilities,
            fit_direct,
            split.fit_labels,
            split.fit.prediction,
            None,
            held_out=masses,
        )
        rows[prefer] = lift.transform_checked(
            original.probabilities, direct, original.prediction, np.float64
        )
    at_bound = lift.explain_checked(original.probabilities, direct, original.prediction).at_bound
    return _Lifted(rows["confidence"], rows["likelihood"], float((at_bound < 0).mean()))


class _Lifted(NamedTuple):
    """Probabilities repaired by Lift with both preferences, and the share at the bound."""

    confidence: NumPyArray
    likelihood: NumPyArray
    at_bound: float


def _confidence_gap(lifted: _Lifted, split: Split, outputs: Outputs) -> KeptPredictions:
    """Return how honest the confidence is on the evaluation rows, and what it costs."""
    gap = ConfidenceGap.of(
        split.original.probabilities,
        outputs.direct,
        lifted.confidence,
        outputs.prediction,
        split.labels,
        at_bound=lifted.at_bound,
    )
    values = measure_on(lifted.likelihood, split, "likelihood").metrics.values
    return KeptPredictions(gap, {key: float(values[key]) for key in ("nll", "ece")})


def _offer_rule(
    model: PreservingCalibrator, split: Split, outputs: Outputs, lifted: MeasuredProbabilities
) -> RuleOffer | None:
    """Return what a learnt rule saves a blend over Lift; None for others, or without weights."""
    if not isinstance(model.calibrator_, Blend):
        return None
    fit = split.fit
    direct = predict_calibrated(model.calibrator_, fit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit with the rule issues them
        rule, _ = learn_rule(direct, fit.prediction)
    if rule.is_argmax:
        return None
    lift = Lift(rule=rule).fit_checked(
        fit.probabilities,
        direct,
        split.fit_labels,
        fit.prediction,
        None,
        held_out=model.calibrator_.held_out_.masses,
    )
    repaired = lift.transform_checked(
        split.original.probabilities, outputs.direct, outputs.prediction, np.float64
    )
    true_mass = repaired[np.arange(len(repaired)), split.labels]
    losses, ruled = (
        -np.log(np.maximum(mass, NLL_FLOOR)) for mass in (lifted.rows.true_mass, true_mass)
    )
    mean = float(np.mean(losses - ruled))
    error = 1.96 * standard_error(losses - ruled, split.original.clusters)
    return RuleOffer(
        nll=float(ruled.mean()),
        saving=paired_interval(mean, mean - error, mean + error),
        share=float(np.mean(first_argmax(repaired) != outputs.prediction)),
    )


def _offer_context(
    model: PreservingCalibrator, split: Split, outputs: Outputs
) -> ContextOffer | None:
    """Return what context brings a blend with Lift; None for others, or without context."""
    if split.contexts is None or not isinstance(model.calibrator_, Blend):
        return None
    fit, (first, second) = split.fit, split.contexts
    lift = Lift().fit_checked(
        fit.probabilities,
        predict_calibrated(model.calibrator_, fit),
        split.fit_labels,
        fit.prediction,
        None,
        held_out=model.calibrator_.held_out_.masses,
        context=first,
    )
    assert lift.context_ is not None
    rows, right = np.arange(len(split.labels)), outputs.prediction == split.labels
    losses, eces, areas, masses = [], [], [], []
    for context in (None, second):
        repaired = lift.transform_checked(
            split.original.probabilities, outputs.direct, outputs.prediction, np.float64, context
        )
        mass = repaired[rows, outputs.prediction]
        losses.append(-np.log(np.maximum(np.where(right, mass, 1.0 - mass), NLL_FLOOR)))
        eces.append(float(ece(repaired, split.labels)))
        areas.append(risk_coverage(repaired, split.labels).aurc)
        masses.append(mass)
    saving = losses[0] - losses[1]
    mean = float(saving.mean())
    error = 1.96 * standard_error(saving, split.original.clusters)
    return ContextOffer(
        columns=tuple(column.name for column in lift.context_.columns),
        loss=float(losses[1].mean()),
        saving=paired_interval(mean, mean - error, mean + error),
        ece=(eces[0], eces[1]),
        aurc=(areas[0], areas[1]),
        gaps=_group_gaps(masses[0], masses[1], right, second, split.groups),
    )


def _group_gaps(
    before: Floats, after: Floats, right: Flags, context: ContextValues, groups: Groups | None
) -> tuple[GroupGap, ...]:
    """Return confidence minus accuracy per category and group, the largest before first."""
    columns = {
        name: values
        for name, values in context.columns.items()
        if values.dtype == object and len(set(values)) <= MAX_GROUPS
    }
    if groups is not None:
        columns["group"] = np.asarray(groups, dtype=object)
    gaps = []
    for name, values in columns.items():
        present = np.flatnonzero(is_present(values))
        for value, at in rows_by_group(values[present].astype(str)):
            part = present[at]
            own, later, accuracy = before[part], after[part], float(right[part].mean())
            # The mean distance from zero of a normal variable with this variance.
            noise = math.sqrt(2.0 / math.pi * float((later * (1.0 - later)).sum())) / len(part)
            distances = float(own.mean()) - accuracy, float(later.mean()) - accuracy
            gaps.append(GroupGap(name, value, len(part), *distances, noise))
    return tuple(sorted(gaps, key=lambda gap: -abs(gap.before)))


def _keeps_predictions(model: PreservingCalibrator, outputs: Outputs, split: Split) -> bool:
    """Return whether a calibrator keeps predictions without a repair, by design and on these rows.

    A calibrator that keeps every argmax may still tie classes with different scores, by rounding
    or because it makes every row uniform.  Such a tie keeps the prediction only by the tie rule.
    """
    if not getattr(model.calibrator_, "keeps_argmax", False):
        return False
    direct, prediction = outputs.direct, outputs.prediction
    rows = np.arange(len(prediction))
    on_top = direct == direct.max(axis=1, keepdims=True)
    if not on_top[rows, prediction].all():
        return False
    tied = np.flatnonzero(on_top.sum(axis=1) > 1)
    scores = split.original.raw[tied]
    lower = scores < scores[np.arange(len(tied)), prediction[tied]][:, None]
    return not (on_top[tied] & lower).any()


def _blend_shares(model: PreservingCalibrator) -> dict[str, float]:
    """Return the weights of a blend's members, the largest first; empty for others."""
    if not isinstance(model.calibrator_, Blend):
        return {}
    members = zip(model.calibrator_.members_, model.calibrator_.weights_.tolist(), strict=True)
    return dict(sorted(members, key=lambda member: -member[1]))


def measure_on(probabilities: NumPyArray, split: Split, name: str) -> MeasuredProbabilities:
    """Compute every metric of some probabilities on the evaluation rows of a split."""
    return measure_probabilities(
        ProbabilityMatrix.from_array(probabilities, name), split.labels, None
    )


def means(measured: Sequence[MeasuredProbabilities]) -> dict[str, float]:
    """Return each metric's mean over the splits."""
    splits = [result.metrics.values for result in measured]
    return {name: float(np.mean([values[name] for values in splits])) for name in splits[0]}


def _entry(
    fitted: FittedCalibrator, replicates: Mapping[Output, Replicates], classes: int
) -> Entry:
    """Average a calibrator's metrics over the splits and compare its repairs with it."""
    direct, repaired = means(fitted.direct), means(fitted.repaired)
    lift = means(fitted.lift) if fitted.lift else None
    of_direct = replicates[fitted.key, "direct"]

    def gain(output: str, measures: Mapping[str, float]) -> dict[str, Interval]:
        of_output = replicates.get((fitted.key, output), of_direct)
        return {
            measure: interval_of(direct[measure] - measures[measure], values - of_output[measure])
            for measure, values in of_direct.items()
        }

    return Entry(
        key=fitted.key,
        name=fitted.name,
        keeps_predictions=fitted.keeps_predictions,
        parameters=math.inf if fitted.size is None else float(fitted.size.at(classes)),
        direct=direct,
        repaired=repaired,
        lift=lift,
        changes=fitted.changes,
        gain=gain("repaired", repaired),
        lift_gain={} if lift is None else gain("lift", lift),
        fit_seconds=fitted.fit_seconds,
        apply_seconds=fitted.apply_seconds,
        notes=fitted.notes,
        constraint_cost=fitted.constraint_cost,
        at_bound=fitted.at_bound,
        kept=fitted.kept,
        shares=fitted.shares,
        rule=fitted.rule,
        context=fitted.context,
        pictures=fitted.pictures,
    )


def _caveats(
    split: Split, input_caveats: Sequence[Caveat], names: Sequence[str] | None
) -> tuple[Caveat, ...]:
    """Return the reasons to doubt a comparison on this split."""
    counts = split_caveats(
        split.fit_labels, split.labels, classes=split.original.classes, names=names
    )
    # Rows and classes are counted for both parts by `split_caveats`.
    others = [caveat for caveat in input_caveats if caveat.key not in ("rows", "classes")]
    return (*others, *counts, *overlap(split.fit.raw, split.original.raw))


def _fingerprint(splits: Sequence[Split], input: Kind, preserve: int | str, seed: int) -> str:
    """Hash the rows of every split, and the options that change the results on them."""
    rows = 0
    digest = hashlib.blake2b(f"{input} {preserve} {seed}".encode(), digest_size=16)
    for split in splits:
        test: list[NumPyArray] = [split.labels]
        if split.groups is not None:
            test.append(codes_of(split.groups))
        fit = [split.fit_labels]
        if split.fit.clusters is not None:
            fit.append(split.fit.clusters)
        for part in (
            Fingerprint.of(split.fit.raw, *fit),
            Fingerprint.of(split.original.raw, *test),
        ):
            rows += part.rows
            digest.update(f" {part}".encode())
    return f"{rows // len(splits)}:{digest.hexdigest()}"
