"""Which rows a comparison fits on and which it evaluates on."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.arrays import row_digests
from cordcal._numeric.types import ArrayLike, Classes, Floats, Labels
from cordcal._validation.context import ContextValues
from cordcal._validation.labels import Groups, check_labels, cluster_numbers, few_groups
from cordcal._validation.scores import CheckedScores, as_scores
from cordcal._validation.table import MatchedRows
from cordcal.calibrators.crossfit import FOLDS, FitCache, Folds
from cordcal.repair import Lift
from cordcal.repair.lift import Masses

EvaluationRows = tuple[ArrayLike, ArrayLike]
"""Scores and labels of the rows to evaluate on."""


def check_evaluation(evaluation: object, splits: int) -> None:
    """Require a share of the rows, or a pair of scores and labels, which has one split."""
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
    if splits < 1:
        raise InputError("splits", f"is {splits}", "pass 1 or more")
    if splits > 1 and isinstance(evaluation, tuple):
        raise InputError(
            "splits",
            "is above 1 but the evaluation rows are given",
            "there is one way to split: pass 1",
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

    def fit_lift(
        self, lift: Lift, direct: Floats, held_out: Masses, context: ContextValues | None = None
    ) -> Lift:
        """Fit a Lift on the rows to fit on, with their direct probabilities."""
        return lift.fit_checked(
            self.fit.probabilities,
            direct,
            self.fit_labels,
            self.fit.prediction,
            None,
            held_out=held_out,
            context=context,
        )

    def repair(self, lift: Lift, direct: Floats, context: ContextValues | None = None) -> Floats:
        """Repair the rows to evaluate on."""
        original = self.original
        return lift.transform_checked(
            original.probabilities, direct, original.prediction, np.float64, context
        )


def separate_split(scores: CheckedScores, labels: Labels, held_out: MatchedRows) -> Split:
    """Return the split of rows to fit on and separate rows to evaluate on."""
    test = as_scores(held_out.matrices[0])
    if test.shape[1] != scores.classes:
        raise InputError(
            "evaluation",
            f"has {test.shape[1]} classes but scores has {scores.classes}",
            "pass the same columns in both",
        )
    truth = check_labels(held_out.labels, *test.shape)
    rows = np.arange(len(truth))
    original = CheckedScores.from_scores(test, scores.kind)
    if held_out.clusters is not None:
        original = replace(original, clusters=cluster_numbers(held_out.clusters, len(truth)))
    groups = None if held_out.groups is None else few_groups(held_out.groups, len(truth))
    return Split(scores, labels, original, truth, rows, groups)


def random_splits(
    scores: CheckedScores,
    labels: Labels,
    share: float,
    splits: int,
    seed: int,
    groups: ArrayLike,
) -> list[Split]:
    """Return splits that evaluate on a share of the rows; copies and clusters stay together."""
    count = len(labels)
    all_groups = None if groups is None else few_groups(groups, count)
    held_out = min(max(1, round(share * count)), count - 1)
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
    return parts


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
