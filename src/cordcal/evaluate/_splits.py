"""Rows to fit on and rows to evaluate on: given, or drawn."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal._door.names import check_class_names
from cordcal._door.original import Original
from cordcal._door.scores import as_scores
from cordcal._door.types import Classes, Labels
from cordcal._door.vectors import check_labels
from cordcal.calibrators._crossfit import FOLDS, Folds, Workshop
from cordcal.evaluate.groups import Groups, few_groups


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to fit on, rows to evaluate on, and which rows of the resamples those are."""

    fit: Original
    fit_labels: Labels
    fit_features: npt.NDArray[Any] | None
    original: Original
    labels: Labels
    features: npt.NDArray[Any] | None
    rows: Classes
    groups: Groups | None

    @functools.cached_property
    def workshop(self) -> Workshop:
        """The rows to fit on, and what was fitted on them: blend and lift share it."""
        folds = Folds.of(self.fit_labels, FOLDS, seed=0)
        return Workshop(self.fit, self.fit_labels, None, folds)


def make_splits(
    scores: Original,
    labels: Labels,
    features: Any,
    evaluation: float | tuple[Any, Any],
    splits: int,
    seed: int,
    groups: Any,
) -> tuple[list[Split], int]:
    """Return the splits, and how many rows a resample draws from."""
    if splits < 1:
        raise Refusal("splits", f"is {splits}", "pass 1 or more")
    held = None if features is None else np.asarray(features)
    if isinstance(evaluation, tuple):
        if splits > 1:
            raise Refusal(
                "splits",
                "is above 1 but the evaluation rows are given",
                "there is one way to split: pass 1",
            )
        if held is not None:
            raise Refusal(
                "features",
                "cannot be used with evaluation rows of their own",
                "pass all rows together and a share as evaluation",
            )
        test = as_scores(evaluation[0])
        if test.shape[1] != scores.classes:
            raise Refusal(
                "evaluation",
                f"has {test.shape[1]} classes but scores has {scores.classes}",
                "pass the same columns in both",
            )
        truth = check_labels(evaluation[1], *test.shape)
        rows = np.arange(len(truth))
        original = Original.of(test, scores.kind)
        by = None if groups is None else few_groups(groups, len(truth))
        return [Split(scores, labels, None, original, truth, None, rows, by)], len(truth)
    count = len(labels)
    by = None if groups is None else few_groups(groups, count)
    held_out = min(max(1, round(evaluation * count)), count - 1)
    if count < 2:
        raise Refusal("scores", "has one row", "at least two are needed to fit and to evaluate")
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
    remedy = "pass a share between 0 and 1, or a tuple of scores and labels"
    if isinstance(evaluation, tuple):
        if len(evaluation) != 2:
            raise Refusal("evaluation", f"is a tuple of {len(evaluation)}", remedy)
    elif not isinstance(evaluation, Real):
        raise Refusal("evaluation", f"is of type {type(evaluation).__name__}", remedy)
    elif not 0.0 < float(evaluation) < 1.0:
        raise Refusal(
            "evaluation", f"is {evaluation}", "pass a share between 0 and 1, or rows of their own"
        )


def checked_names(names: Sequence[Any] | None, classes: int) -> tuple[str, ...] | None:
    return None if names is None else check_class_names(names, classes)
