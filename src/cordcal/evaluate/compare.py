"""Compare calibrators on one data set: each direct, repaired, and beside the plain rivals."""

from __future__ import annotations

import functools
import hashlib
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import first_argmax, to_numpy
from cordcal._numeric.types import Classes, Kind, Labels
from cordcal._validation.alignment import same_rows
from cordcal._validation.estimator import as_seed
from cordcal._validation.labels import as_columns, check_labels
from cordcal._validation.names import (
    check_class_names,
    column_names,
    in_column_order,
    whole_headings,
)
from cordcal._validation.sanity import doubts, warn_of
from cordcal._validation.scores import CheckedScores, as_scores, check_kind
from cordcal.calibrators import available, calibrator_class
from cordcal.calibrators.adapters import adapted
from cordcal.calibrators.blend import Blend, masses_held_out
from cordcal.calibrators.crossfit import FOLDS, FitCache, Folds, predict_calibrated
from cordcal.calibrators.registry import is_network, takes_features
from cordcal.evaluate.caveats import Caveat, overlap, split_caveats
from cordcal.evaluate.comparison import Comparison, Entry, Interval, interval_of
from cordcal.evaluate.constraint_cost import ConstraintCost, measure_constraint_cost, share_at_end
from cordcal.evaluate.fingerprint import Fingerprint, codes_of
from cordcal.evaluate.groups import Groups, few_groups
from cordcal.evaluate.likelihood_ratio import calibration_tests
from cordcal.evaluate.pictures import Pictures
from cordcal.evaluate.precomputed import PrecomputedProbabilities, in_order_of
from cordcal.evaluate.statistics import ORIGINAL, Evidence, Replicates
from cordcal.metrics import DecisionChanges, DecisionChangesStream
from cordcal.metrics.rows import LabelledRows, Report
from cordcal.metrics.summary import MeasuredReport, measure_report
from cordcal.preserving import Outputs, PreservingCalibrator
from cordcal.repair import Lift
from cordcal.repair.kernels import Stopwatch
from cordcal.repair.lift import Masses


@dataclass(frozen=True)
class _Chosen:
    """The calibrators to run by name, and whether the caller named them."""

    maps: dict[str, Any]
    explicit: bool

    @property
    def has_given(self) -> bool:
        """Whether some of them are reports that were computed elsewhere."""
        return any(isinstance(each, PrecomputedProbabilities) for each in self.maps.values())


def choose(calibrators: Any, input: Kind) -> _Chosen:
    """Return the calibrators to compare, by name."""
    if isinstance(calibrators, str) and calibrators in ("default", "all"):
        keys = [key for key in available() if calibrators == "all" or not is_network(key)]
        return _Chosen({key: key for key in keys}, explicit=False)
    maps: dict[str, Any] = {}
    for name, each in _named(calibrators):
        if name in maps:
            raise InputError("calibrators", f"names {name!r} twice", "name each once")
        if isinstance(each, str):
            calibrator_class(each)  # refuses an unknown key before anything is fitted
        elif not isinstance(each, PrecomputedProbabilities):
            each = adapted(each, input, f"calibrators[{name!r}]")
        maps[name] = each
    return _Chosen(maps, explicit=True)


def _named(calibrators: Any) -> list[tuple[str, Any]]:
    """Return the calibrators with their names; objects without one are called as their class."""
    if isinstance(calibrators, Mapping):
        pairs = [(str(name), each) for name, each in calibrators.items()]
    else:
        single = isinstance(calibrators, str) or not isinstance(calibrators, Iterable)
        wanted = [calibrators] if single else list(calibrators)
        pairs = [each if _is_pair(each) else ("", each) for each in wanted]
    if not pairs:
        raise InputError("calibrators", "is empty", 'pass keys such as ["ts", "svs"], or "default"')
    counts = Counter(_own_name(each) for name, each in pairs if not name)
    numbers: Counter[str] = Counter()
    named = []
    for name, each in pairs:
        own = name or _own_name(each)
        if not name and counts[own] > 1 and not isinstance(each, str):
            numbers[own] += 1
            own = f"{own} {numbers[own]}"
        named.append((own, each))
    return named


def _is_pair(each: Any) -> bool:
    return isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str)


def _own_name(each: Any) -> str:
    if isinstance(each, str):
        return each
    return str(getattr(each, "key", getattr(each, "__name__", type(each).__name__)))


def left_out_by(maps: Iterable[str], classes: int, has_features: bool) -> dict[str, str]:
    """Return the calibrators that the data do not allow, each with the reason."""
    reasons = {key: calibrator_class(key).unsuited(classes, features=has_features) for key in maps}
    return {key: reason for key, reason in reasons.items() if reason is not None}


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to fit on, rows to evaluate on, and which rows of the resamples those are."""

    fit: CheckedScores
    fit_labels: Labels
    fit_features: npt.NDArray[Any] | None
    original: CheckedScores
    labels: Labels
    features: npt.NDArray[Any] | None
    rows: Classes
    groups: Groups | None

    @functools.cached_property
    def fit_cache(self) -> FitCache:
        """The rows to fit on, and what was fitted on them: blend and lift share it."""
        folds = Folds.of(self.fit_labels, FOLDS, seed=0)
        return FitCache(self.fit, self.fit_labels, None, folds)


def make_splits(
    scores: CheckedScores,
    labels: Labels,
    features: Any,
    evaluation: float | tuple[Any, Any],
    splits: int,
    seed: int,
    groups: Any,
) -> tuple[list[Split], int]:
    """Return the splits, and how many rows a resample draws from."""
    if splits < 1:
        raise InputError("splits", f"is {splits}", "pass 1 or more")
    held = None if features is None else np.asarray(features)
    if isinstance(evaluation, tuple):
        if splits > 1:
            raise InputError(
                "splits",
                "is above 1 but the evaluation rows are given",
                "there is one way to split: pass 1",
            )
        if held is not None:
            raise InputError(
                "features",
                "cannot be used with evaluation rows of their own",
                "pass all rows together and a share as evaluation",
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
        by = None if groups is None else few_groups(groups, len(truth))
        return [Split(scores, labels, None, original, truth, None, rows, by)], len(truth)
    count = len(labels)
    by = None if groups is None else few_groups(groups, count)
    held_out = min(max(1, round(evaluation * count)), count - 1)
    if count < 2:
        raise InputError("scores", "has one row", "at least two are needed to fit and to evaluate")
    generator = np.random.default_rng(seed)
    parts = []
    for _ in range(splits):
        order = generator.permutation(count)
        fit, test_rows = np.sort(order[held_out:]), np.sort(order[:held_out])
        parts.append(
            Split(
                scores.take(fit),
                labels[fit],
                None if held is None else held[fit],
                scores.take(test_rows),
                labels[test_rows],
                None if held is None else held[test_rows],
                test_rows,
                None if by is None else by[test_rows],
            )
        )
    return parts, count


def check_evaluation(evaluation: Any) -> None:
    """Refuse what is neither a share of the rows nor a pair of scores and labels."""
    hint = "pass a share between 0 and 1, or a tuple of scores and labels"
    if isinstance(evaluation, tuple):
        if len(evaluation) != 2:
            raise InputError("evaluation", f"is a tuple of {len(evaluation)}", hint)
    elif not isinstance(evaluation, Real):
        raise InputError("evaluation", f"is of type {type(evaluation).__name__}", hint)
    elif not 0.0 < float(evaluation) < 1.0:
        raise InputError(
            "evaluation", f"is {evaluation}", "pass a share between 0 and 1, or rows of their own"
        )


def checked_names(names: Sequence[Any] | None, classes: int) -> tuple[str, ...] | None:
    """Return class names as text, one per class, or None where there are none."""
    return None if names is None else check_class_names(names, classes)


@dataclass(frozen=True, eq=False)
class Fitted:
    """One calibrator, fitted and measured on every split."""

    key: str
    name: str
    keeps_decisions: bool
    direct: list[MeasuredReport]
    repaired: list[MeasuredReport]
    lift: list[MeasuredReport]
    changes: DecisionChanges
    fit_seconds: float
    apply_seconds: float
    notes: tuple[str, ...]
    pictures: Pictures
    size: Any
    price: ConstraintCost | None
    at_bound: float
    shares: dict[str, float]

    def reports(self) -> dict[tuple[str, str], list[LabelledRows]]:
        """Return the rows to resample; a map that keeps decisions has one report, not three."""
        rows = {(self.key, "direct"): [measured.rows for measured in self.direct]}
        if not self.keeps_decisions:
            rows[self.key, "repaired"] = [measured.rows for measured in self.repaired]
        if self.lift:
            rows[self.key, "lift"] = [measured.rows for measured in self.lift]
        return rows


def fit_and_measure(
    name: str,
    candidate: Any,
    parts: list[Split],
    input: Kind,
    preserve: int | Literal["ranking"],
    columns: list[str],
    original: MeasuredReport,
) -> Fitted:
    """Fit one calibrator on every split and measure its reports."""
    changes = DecisionChangesStream()
    direct, repaired, lift = [], [], []
    first: tuple[PreservingCalibrator, Outputs] | None = None
    keeps = True
    bounds: list[float] = []
    fit_seconds, apply_seconds = 0.0, 0.0
    notes: list[str] = []
    given = candidate if isinstance(candidate, PrecomputedProbabilities) else None
    with_features = given is None and takes_features(candidate)
    for split in parts:
        if given is not None:
            candidate, on_evaluation = given.between(split.fit.raw, split.original.raw)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model, seconds, told = _model(candidate, split, input, preserve, with_features)
            if given is not None:
                model.calibrator_ = on_evaluation
            watch = Stopwatch()
            features = split.features if with_features else None
            reports = model._reports_of(split.original, features)
            fit_seconds += seconds
            apply_seconds += watch.seconds()
            lifted = None
            kept = _keeps_decisions(model, reports, split)
            keeps = keeps and kept
            if preserve == 1 and given is None and not kept:
                lifted = _lifted(candidate, model, split, reports.direct, with_features)
        notes += [*told, *(str(warning.message) for warning in caught)]
        if lifted is not None:
            lift.append(measure_on(lifted, split, "lift"))
            bounds.append(share_at_end(reports.direct, lifted, reports.decision))
        direct.append(measure_on(reports.direct, split, "direct"))
        repaired.append(measure_on(reports.repaired, split, "repaired"))
        changes.add(reports.decision, first_argmax(reports.direct), split.labels)
        first = first or (model, reports)
    assert first is not None
    if keeps or len(lift) < len(parts):
        lift = []
    measured = {"original": original, "direct": direct[0]}
    measured |= {} if keeps else {"repaired": repaired[0]}
    measured |= {"lift": lift[0]} if lift else {}
    return Fitted(
        key=name,
        name=str(getattr(model.calibrator_, "title", name)),
        keeps_decisions=keeps,
        direct=direct,
        repaired=repaired,
        lift=lift,
        changes=changes.result(),
        fit_seconds=fit_seconds / len(parts),
        apply_seconds=apply_seconds / len(parts),
        notes=tuple(dict.fromkeys(notes)),
        pictures=_pictures(parts[0], first[1], columns, measured),
        size=getattr(model.calibrator_, "size", None),
        price=None if keeps else _price(first[1], parts[0], measured),
        at_bound=float(np.mean(bounds)) if bounds else 0.0,
        shares=_shares(first[0]),
    )


def _model(
    candidate: Any,
    split: Split,
    input: Kind,
    preserve: int | Literal["ranking"],
    with_features: bool,
) -> tuple[PreservingCalibrator, float, tuple[str, ...]]:
    """Return a model with CORD, the seconds that fitting took, and what that told."""
    watch = Stopwatch()
    told: tuple[str, ...] = ()
    if not isinstance(candidate, str) or with_features:
        model = PreservingCalibrator(candidate, input=input, preserve=preserve)
        features = split.fit_features if with_features else None
        model._fit_checked(split.fit, split.fit_labels, None, features)
        return model, watch.seconds(), told
    fitted: Any
    if candidate == Blend.key:
        fitted = Blend(input=input)
        fitted._fit_from(split.fit_cache)
        before = fitted.seconds_
    else:
        made = split.fit_cache.fit(candidate)
        fitted, told, before = made.model, made.warnings, made.seconds
    watch = Stopwatch()
    model = PreservingCalibrator(fitted, input=input, preserve=preserve, prefit=True)
    model._fit_checked(split.fit, split.fit_labels, None)
    return model, before + watch.seconds(), told


def _lifted(
    candidate: Any,
    model: PreservingCalibrator,
    split: Split,
    direct: npt.NDArray[Any],
    with_features: bool,
) -> npt.NDArray[Any] | None:
    """Return the report repaired by Lift; None where rows cannot be held out."""
    features = split.fit_features if with_features else None
    masses: Masses | None
    if isinstance(candidate, str) and not with_features and candidate != Blend.key:
        found, _ = split.fit_cache.candidate(candidate)
        masses = None if found is None else found.held_out.masses
    else:
        unfitted = PreservingCalibrator(candidate, input=split.fit.kind)
        new = functools.partial(unfitted._new_calibrator, split.fit.kind)
        beside = (None, features)
        try:
            masses = masses_held_out(model.calibrator_, new, split.fit, split.fit_labels, *beside)
        except (ValueError, ArithmeticError, RuntimeError) as error:  # of one's own, anything may
            warnings.warn(f"no lift: {error}", UserWarning, stacklevel=2)
            masses = None
    if masses is None:
        return None
    rows = (split.fit.probabilities, predict_calibrated(model.calibrator_, split.fit, features))
    lift = Lift()._fit(*rows, split.fit_labels, split.fit.decision, None, held_out=masses)
    at = split.original
    return lift._transform_rows(at.probabilities, direct, at.decision, np.float64)


def _keeps_decisions(model: PreservingCalibrator, reports: Outputs, split: Split) -> bool:
    """Tell whether a map keeps decisions by itself, by its kind and on these very rows.

    A map that keeps every argmax may still tie classes that the scores tell apart, by rounding
    or because it makes every row uniform; a tie is a decision only by the rule that breaks it.
    """
    if not getattr(model.calibrator_, "keeps_argmax", False):
        return False
    direct, decision = reports.direct, reports.decision
    rows = np.arange(len(decision))
    on_top = direct == direct.max(axis=1, keepdims=True)
    if not on_top[rows, decision].all():
        return False
    tied = np.flatnonzero(on_top.sum(axis=1) > 1)
    scores = split.original.raw[tied]
    apart = scores < scores[np.arange(len(tied)), decision[tied]][:, None]
    return not (on_top[tied] & apart).any()


def _shares(model: PreservingCalibrator) -> dict[str, float]:
    """Return what a blend is made of, the largest share first."""
    if not isinstance(model.calibrator_, Blend):
        return {}
    members = zip(model.calibrator_.members_, model.calibrator_.weights_.tolist(), strict=True)
    return dict(sorted(members, key=lambda member: -member[1]))


def _price(
    reports: Outputs, split: Split, measured: Mapping[str, MeasuredReport]
) -> ConstraintCost | None:
    """Return what keeping the decisions costs."""
    nll = {name: float(found.measures.values["nll"]) for name, found in measured.items()}
    return measure_constraint_cost(
        reports.direct, reports.decision, split.labels, cord=nll["repaired"], lift=nll.get("lift")
    )


def _pictures(
    split: Split,
    reports: Outputs,
    columns: list[str],
    measured: Mapping[str, MeasuredReport],
) -> Pictures:
    return Pictures.of(
        split.original.probabilities,
        reports,
        columns,
        measured,
        labels=split.labels,
        row_numbers=split.rows,
        groups=split.groups,
    )


def measure_on(report: npt.NDArray[Any], split: Split, name: str) -> MeasuredReport:
    """Compute every metric of some probabilities on the evaluation rows of a split."""
    return measure_report(Report.of(report, name), split.labels, None)


def means(measured: Sequence[MeasuredReport]) -> dict[str, float]:
    """Return each measure's mean over the splits."""
    values = [each.measures.values for each in measured]
    return {name: float(np.mean([each[name] for each in values])) for name in values[0]}


def compare(
    scores: Any,
    labels: Any,
    calibrators: Any = "default",
    *,
    input: Kind = "logits",
    evaluation: float | tuple[Any, Any] = 0.5,
    splits: int = 1,
    seed: int | np.random.Generator = 0,
    preserve: int | Literal["ranking"] = 1,
    class_names: Sequence[str] | None = None,
    features: Any = None,
    groups: Any = None,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Fit calibrators on one part of the rows and compare their reports on the other.

    Rows of pandas objects are matched by index; what has no index goes by position with
    the scores.

    Parameters
    ----------
    scores : array_like of shape (n, K)
        The classifier's logits or probabilities, as ``input`` says.
    labels : array_like of int of shape (n,)
        The true classes, as column indices, or as names where ``class_names`` are given.
    calibrators : "default", "all", str, object, mapping or sequence
        Keys of `cordcal.calibrators`, or objects: calibrators of cordcal, scikit-learn,
        netcal, probmetrics or verified_calibration, functions of ``(fit_scores, fit_labels,
        scores)`` that return probabilities, torch modules, or `PrecomputedProbabilities`.  A
        mapping ``{name: calibrator}`` or pairs ``(name, calibrator)`` name them.  ``"default"``
        runs those of cordcal except networks, ``"all"`` runs every one; both omit calibrators
        that the data do not allow and give the reason in ``left_out``.
    input : {"logits", "probabilities"}
        What the scores are.
    evaluation : float or tuple of arrays
        The share of rows to evaluate on, drawn at random; or ``(scores, labels)`` of
        other rows, and then all of ``scores`` are fitted on.
    splits : int
        How many random splits to average over.
    seed : int or numpy.random.Generator
        Seed of the splits and of the bootstrap; a generator is asked for one.
    preserve : int or "ranking"
        How many of the top classes the repair keeps in place.
    class_names : sequence of str, optional
        One name a column, for tables and reports.  Where names are whole numbers other than
        0..K-1 in order, numeric labels are names, too.
    features : array_like of shape (n, D), optional
        Penultimate features of the rows of ``scores``, for ``adats``.
    groups : array_like of shape (n,), optional
        A group of each row, such as a region: reports are then also measured group by group.
        Where ``evaluation`` are rows of their own, it is their groups.
    progress : callable, optional
        Called with a calibrator's key before it is fitted.

    Returns
    -------
    comparison : Comparison
        Every measure of every report, and a recommendation in words.

    Warns
    -----
    UserWarning
        If scores or labels look like a mistake, as for `PreservingCalibrator.fit`; then there
        is no recommendation.

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
    scores, labels, features, evaluation, groups = _same_rows(
        scores, labels, features, evaluation, groups
    )
    given = as_scores(scores)
    rows, classes = given.shape
    # Labels are looked up among the names as they came: numbers among numbers.
    own_names = whole_headings(scores) if class_names is None else class_names
    names = checked_names(own_names, classes)
    truth = check_labels(as_columns(labels, given.shape, own_names), rows, classes)
    whole = CheckedScores.from_scores(given, input, fitting=True)
    seed = as_seed(seed)
    if isinstance(evaluation, tuple):
        evaluation = _in_order_of(scores, *evaluation)
        evaluation = evaluation[0], as_columns(evaluation[1], np.shape(evaluation[0]), own_names)
    chosen = choose(calibrators, input)
    if not isinstance(evaluation, tuple) and chosen.has_given:
        raise InputError(
            "evaluation",
            f"is the share {evaluation} of rows to draw at random, but Given reports are of rows "
            "that are known",
            "pass the rows of direct_evaluation as evaluation=(scores, labels)",
        )
    maps = {
        name: in_order_of(scores, evaluation, each)
        if isinstance(each, PrecomputedProbabilities)
        else each
        for name, each in chosen.maps.items()
    }
    left_out = {} if chosen.explicit else left_out_by(chosen.maps, classes, features is not None)
    started = time.perf_counter()
    parts, population = make_splits(whole, truth, features, evaluation, splits, seed, groups)
    columns_of = names or column_names(scores)
    doubted = doubts(whole, truth, names=columns_of)
    if isinstance(evaluation, tuple) and not doubted:
        doubted = doubts(parts[0].original, parts[0].labels, names=columns_of)
    warn_of(doubted)
    original = [measure_on(part.original.probabilities, part, "original") for part in parts]
    columns = list(names) if names is not None else [str(index) for index in range(classes)]
    fitted: list[Fitted] = []
    for name, candidate in maps.items():
        if name in left_out:
            continue
        if progress is not None:
            progress(name)
        try:
            fitted.append(
                fit_and_measure(name, candidate, parts, input, preserve, columns, original[0])
            )
        except ValueError as error:
            if chosen.explicit:
                raise
            left_out[name] = str(error)
    if progress is not None:
        progress("intervals")
    reports = {ORIGINAL: [measured.rows for measured in original]}
    for each in fitted:
        reports |= each.reports()
    evidence = Evidence.of(reports, [part.rows for part in parts], population, seed)
    return Comparison(
        entries=tuple(_entry(each, evidence.replicates, classes) for each in fitted),
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
        checks=_checks(parts[0], doubted, columns_of),
        needed=calibration_tests(parts[0].fit_cache, [each.key for each in fitted]),
        evidence=evidence,
    )


def _in_order_of(first: Any, scores: Any, labels: Any) -> tuple[Any, Any]:
    """Return evaluation rows with the columns of a data frame in the order of the first scores'."""
    ordered = in_column_order(scores, "evaluation", column_names(first), "scores")
    numbered = whole_headings(first) is None and to_numpy(labels).dtype.kind in "iufb"
    if ordered is not scores and numbered:
        raise InputError(
            "evaluation",
            "has numbers for labels, but its columns come in another order than those of scores",
            "bring the columns into the same order, or pass class names as labels",
        )
    return ordered, labels


def _fingerprint(splits: Sequence[Split], input: Kind, preserve: int | str, seed: int) -> str:
    """Digest the rows of every split, and the options that change what is measured on them."""
    rows = 0
    digest = hashlib.blake2b(f"{input} {preserve} {seed}".encode(), digest_size=16)
    for split in splits:
        fit = [each for each in (split.fit_labels, split.fit_features) if each is not None]
        test = [each for each in (split.labels, split.features) if each is not None]
        if split.groups is not None:
            test.append(codes_of(split.groups))
        for part in (
            Fingerprint.of(split.fit.raw, *fit),
            Fingerprint.of(split.original.raw, *test),
        ):
            rows += part.rows
            digest.update(f" {part}".encode())
    return f"{rows // len(splits)}:{digest.hexdigest()}"


def _same_rows(
    scores: Any, labels: Any, features: Any, evaluation: float | tuple[Any, Any], groups: Any
) -> tuple[Any, Any, Any, float | tuple[Any, Any], Any]:
    """Match the rows of what belongs to the scores, and of what belongs to evaluation rows."""
    if not isinstance(evaluation, tuple):
        scores, labels, features, groups = same_rows(
            scores=scores, labels=labels, features=features, groups=groups
        )
        return scores, labels, features, evaluation, groups
    scores, labels, features = same_rows(scores=scores, labels=labels, features=features)
    pair = {"evaluation[0]": evaluation[0], "evaluation[1]": evaluation[1]}
    test, truth, groups = same_rows(**pair, groups=groups)
    return scores, labels, features, (test, truth), groups


def _checks(
    split: Split, doubted: Sequence[Caveat], names: Sequence[str] | None
) -> tuple[Caveat, ...]:
    """Return what the rows of a split give reason to doubt."""
    numbers = split_caveats(
        split.fit_labels, split.labels, classes=split.original.classes, names=names
    )
    # How many rows there are is said of both parts.
    row_error = [concern for concern in doubted if concern.key != "rows"]
    return (*row_error, *numbers, *overlap(split.fit.raw, split.original.raw))


def _entry(fitted: Fitted, replicates: Mapping[tuple[str, str], Replicates], classes: int) -> Entry:
    direct, repaired = means(fitted.direct), means(fitted.repaired)
    lift = means(fitted.lift) if fitted.lift else None
    first = replicates[fitted.key, "direct"]

    def gain(report: str, measures: Mapping[str, float]) -> dict[str, Interval]:
        second = replicates.get((fitted.key, report), first)
        return {
            measure: interval_of(direct[measure] - measures[measure], values - second[measure])
            for measure, values in first.items()
        }

    return Entry(
        key=fitted.key,
        name=fitted.name,
        keeps_decisions=fitted.keeps_decisions,
        numbers=math.inf if fitted.size is None else float(fitted.size.at(classes)),
        direct=direct,
        repaired=repaired,
        lift=lift,
        changes=fitted.changes,
        gain=gain("repaired", repaired),
        lift_gain={} if lift is None else gain("lift", lift),
        fit_seconds=fitted.fit_seconds,
        apply_seconds=fitted.apply_seconds,
        notes=fitted.notes,
        price=fitted.price,
        at_bound=fitted.at_bound,
        shares=fitted.shares,
        pictures=fitted.pictures,
    )
