"""Compare calibrators on one data set: direct, repaired by CORD, and repaired by Lift."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.progress import line_of_progress, shown
from cordcal._numeric.types import ArrayLike, Kind, NumPyArray
from cordcal._validation.caveats import Caveat, warn_about
from cordcal._validation.context import check_context, split_context
from cordcal._validation.context_caveats import context_caveats
from cordcal._validation.data_caveats import find_caveats, overlap, split_caveats
from cordcal._validation.estimator import as_seed
from cordcal._validation.labels import check_labels, cluster_numbers
from cordcal._validation.names import Name, check_class_names
from cordcal._validation.scores import CheckedScores, as_scores, check_kind
from cordcal._validation.table import MatchedRows, match
from cordcal.calibrators.adapters import PrecomputedProbabilities
from cordcal.evaluate.baseline import Fingerprint, codes_of
from cordcal.evaluate.bounds import act_shares
from cordcal.evaluate.candidates import AnyCalibrator, choose_calibrators, unsuited_calibrators
from cordcal.evaluate.comparison import Comparison
from cordcal.evaluate.fitting import FittedCalibrator, fit_and_measure, is_lifted, means, measure_on
from cordcal.evaluate.need import calibration_tests
from cordcal.evaluate.results.calibrators import Entry
from cordcal.evaluate.results.values import ORIGINAL, Interval, Output
from cordcal.evaluate.splits import (
    EvaluationRows,
    Split,
    check_evaluation,
    random_splits,
    separate_split,
)
from cordcal.evaluate.statistics import Replicates, interval_of, resampled


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
    check_evaluation(evaluation, splits)
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
    left_out = {}
    if not selection.explicit:
        left_out = unsuited_calibrators(selection.by_name, classes)
    started = time.perf_counter()
    if held_out is not None:
        parts = [separate_split(checked, truth, held_out)]
    else:
        assert not isinstance(evaluation, tuple)
        parts = random_splits(checked, truth, evaluation, splits, seed, matched.groups)
    caveats = find_caveats(checked, truth, names=names)
    if contexts[0] is not None:
        first = check_context(matched, contexts[0], input)
        second = None if held_out is None else check_context(held_out, contexts[1], input)
        parts = [part.with_context(first, second, rows) for part in parts]
        caveats += context_caveats(first, checked.prediction, truth, None)
    if held_out is not None and not caveats:
        caveats = find_caveats(parts[0].original, parts[0].labels, names=names)
    warn_about(caveats)
    original = [measure_on(part.original.probabilities, part, "original") for part in parts]
    columns = list(names) if names is not None else [str(index) for index in range(classes)]
    running = {name: candidate for name, candidate in candidates.items() if name not in left_out}
    with _steps(progress, len(running) + 1) as advance:
        _fit_together(running, parts, preserve, advance)
        fitted: list[FittedCalibrator] = []
        for name, candidate in running.items():
            advance(name)
            try:
                fitted.append(
                    fit_and_measure(name, candidate, parts, input, preserve, columns, original[0])
                )
            except ValueError as error:
                if selection.explicit:
                    raise
                left_out[name] = str(error)
        if contexts[0] is not None and all(result.entry.context is None for result in fitted):
            unused = Caveat("context", _UNUSED_CONTEXT)
            warn_about([unused])
            caveats = [*caveats, unused]
        advance("intervals")
        rows_by_output = {ORIGINAL: [measured.rows for measured in original]}
        for result in fitted:
            rows_by_output |= result.rows
        # Splits at random are drawn from all rows, others from the rows to evaluate on.
        drawn = checked if held_out is None else parts[0].original
        replicates = resampled(
            rows_by_output,
            [part.rows for part in parts],
            drawn.rows,
            seed=seed,
            clusters=drawn.clusters,
        )
    part_clusters = [part.original.clusters for part in parts]
    return Comparison(
        entries=tuple(_with_gains(result.entry, replicates) for result in fitted),
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
        needed=calibration_tests(parts[0].fit_cache, [result.entry.key for result in fitted]),
        resampled=replicates,
        act={
            output: act_shares(rows, seed, part_clusters) for output, rows in rows_by_output.items()
        },
    )


_UNUSED_CONTEXT = (
    "the context was not used: it is measured for blend + lift only, which was not compared"
)


def _fit_together(
    running: Mapping[str, AnyCalibrator],
    parts: Sequence[Split],
    preserve: int | Literal["ranking"],
    advance: Callable[[str], None],
) -> None:
    """Fit on threads the calibrators of which Lift needs held-out probabilities."""
    names = {str(key): name for name, key in running.items() if is_lifted(key, preserve)}
    for part in parts:
        part.fit_cache.fit_all(list(names), lambda key: advance(names[key]))


@contextmanager
def _steps(progress: Callable[[str], None] | None, count: int) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with the name of a step; only its first call counts."""
    seen: set[str] = set()

    def once(show: Callable[[str], None]) -> Callable[[str], None]:
        def advance(name: str) -> None:
            if name not in seen:
                seen.add(name)
                show(name)

        return advance

    if progress is not None:
        with shown():
            yield once(progress)
        return
    with line_of_progress("comparing", count) as show:
        yield once(lambda name: show(len(seen) - 1, name))


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
        split_context(context) for context in contexts
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


def _with_gains(entry: Entry, replicates: Mapping[Output, Replicates]) -> Entry:
    """Compare a calibrator's repairs with its direct probabilities, by the same resamples."""
    of_direct = replicates[entry.key, "direct"]

    def gain(output: str, measures: Mapping[str, float]) -> dict[str, Interval]:
        of_output = replicates.get((entry.key, output), of_direct)
        return {
            measure: interval_of(
                entry.direct[measure] - measures[measure], values - of_output[measure]
            )
            for measure, values in of_direct.items()
        }

    return replace(
        entry,
        gain=gain("repaired", entry.repaired),
        lift_gain={} if entry.lift is None else gain("lift", entry.lift),
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
