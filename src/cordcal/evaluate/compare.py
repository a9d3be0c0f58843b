"""Compare calibrators on one data set: each direct, repaired, and beside the plain rivals."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from cordcal._door.arrays import to_numpy
from cordcal._door.doubts import doubts, warn_of
from cordcal._door.errors import Refusal
from cordcal._door.labels import as_columns
from cordcal._door.names import column_names, in_column_order, whole_headings
from cordcal._door.original import Original
from cordcal._door.rows import same_rows
from cordcal._door.scores import as_scores, check_kind
from cordcal._door.seeds import as_seed
from cordcal._door.types import Kind
from cordcal._door.vectors import check_labels
from cordcal.evaluate._choice import choose, left_out_by
from cordcal.evaluate._fitting import Fitted, fit_and_measure, means, measure_on
from cordcal.evaluate._splits import Split, check_evaluation, checked_names, make_splits
from cordcal.evaluate.bootstrap import Replicates
from cordcal.evaluate.comparison import Comparison, Entry, Interval, interval_of
from cordcal.evaluate.evidence import ORIGINAL, Evidence
from cordcal.evaluate.fingerprint import Fingerprint, codes_of
from cordcal.evaluate.given import Given, in_order_of
from cordcal.evaluate.needed import calibration_tests
from cordcal.evaluate.trust import Concern, overlap, split_concerns


def compare(
    scores: Any,
    labels: Any,
    calibrators: Any = "all",
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
    calibrators : "all", "every", str, object, mapping or sequence
        Keys of `cordcal.calibrators`, or objects: calibrators of cordcal, scikit-learn,
        netcal, probmetrics or verified_calibration, functions of ``(fit_scores, fit_labels,
        scores)`` that return probabilities, torch modules, or `Given` reports.  A mapping
        ``{name: calibrator}`` or pairs ``(name, calibrator)`` name them.  ``"all"`` are
        those of cordcal but networks, ``"every"`` is all of them; both leave out what the data
        do not allow, and say so in ``left_out``.
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
        If scores or labels look like a mistake, as for `Preserved.fit`; no advice is given then.

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
    whole = Original.of(given, input, fitting=True)
    seed = as_seed(seed)
    if isinstance(evaluation, tuple):
        evaluation = _in_order_of(scores, *evaluation)
        evaluation = evaluation[0], as_columns(evaluation[1], np.shape(evaluation[0]), own_names)
    chosen = choose(calibrators, input)
    if not isinstance(evaluation, tuple) and chosen.has_given:
        raise Refusal(
            "evaluation",
            f"is the share {evaluation} of rows to draw at random, but Given reports are of rows "
            "that are known",
            "pass the rows of direct_evaluation as evaluation=(scores, labels)",
        )
    maps = {
        name: in_order_of(scores, evaluation, each) if isinstance(each, Given) else each
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
        needed=calibration_tests(parts[0].workshop, [each.key for each in fitted]),
        evidence=evidence,
    )


def _in_order_of(first: Any, scores: Any, labels: Any) -> tuple[Any, Any]:
    """Return evaluation rows with the columns of a data frame in the order of the first scores'."""
    ordered = in_column_order(scores, "evaluation", column_names(first), "scores")
    numbered = whole_headings(first) is None and to_numpy(labels).dtype.kind in "iufb"
    if ordered is not scores and numbered:
        raise Refusal(
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
            Fingerprint.of(split.fit.given, *fit),
            Fingerprint.of(split.original.given, *test),
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
    split: Split, doubted: Sequence[Concern], names: Sequence[str] | None
) -> tuple[Concern, ...]:
    """Return what the rows of a split give reason to doubt."""
    numbers = split_concerns(
        split.fit_labels, split.labels, classes=split.original.classes, names=names
    )
    # How many rows there are is said of both parts.
    about_rows = [concern for concern in doubted if concern.key != "rows"]
    return (*about_rows, *numbers, *overlap(split.fit.given, split.original.given))


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
