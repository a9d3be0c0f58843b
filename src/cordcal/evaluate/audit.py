"""Audit one pair of reports: what the calibrator changes, and what the repair makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cordcal._door import dense, lazy
from cordcal._door.errors import Refusal
from cordcal._door.labels import as_columns
from cordcal._door.names import column_names, in_column_order, whole_headings
from cordcal._door.reports import as_matrix, check_same_shape
from cordcal._door.rows import same_rows
from cordcal._door.seeds import as_seed
from cordcal.evaluate._audit_result import Audit, ChangedRow, GroupChanges, MeasureComparison
from cordcal.evaluate._audit_rows import AuditStream, names_or_numbers
from cordcal.repair import CORD, Lift
from cordcal.repair._arguments import check_fitted

__all__ = ["Audit", "ChangedRow", "GroupChanges", "MeasureComparison", "audit"]


def audit(
    original: Any,
    direct: Any,
    labels: Any = None,
    *,
    class_names: Sequence[str] | None = None,
    decision: Any = None,
    sample_weight: Any = None,
    cord: CORD | Lift | None = None,
    axis: int | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int | np.random.Generator = 0,
) -> Audit:
    """Find out what a calibrator does to a classifier's decisions, and what the repair does.

    The repaired report is that of ``cord``, a repair fitted on calibration rows.  Without
    one, a CORD is fitted on the audited rows themselves: it needs no labels and learns a
    single number, but its retained mean is then exact by construction, and the audit says
    that it was so.

    Parameters
    ----------
    original, direct : array_like of shape (n, K)
        The classifier's and the calibrator's probabilities for the same rows.  Rows of pandas
        objects are matched by index, those of the other arguments as well.
    labels : array_like of int, optional
        The true class of each row, as column indices, or as names where ``class_names`` are
        given; without them only decisions are compared.
    class_names : sequence of str, optional
        Names of the columns, for tables and words.
    decision : array_like of int, optional
        The classifier's decisions as the caller's system reads them, where they are not the
        argmax of ``original``.
    sample_weight : array_like, optional
        Weights of the rows.
    cord : CORD, Lift or Preserved, optional
        A fitted repair.
    axis : int, optional
        The dimension of the classes, for dense reports such as (B, K, H, W); every position is
        a row then.
    level : float
        Level of the paired bootstrap intervals.
    resamples : int
        Bootstrap resamples.
    seed : int or numpy.random.Generator
        Seed of the resampling; a generator is asked for one.

    Returns
    -------
    audit : Audit
        Counts, tables, intervals and a reading in plain words.

    Warns
    -----
    UserWarning
        If a report's dtype cannot hold probabilities that the log loss tells from zero, or
        if ``cord`` was fitted on these very rows.

    Examples
    --------
    >>> import numpy as np
    >>> original = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.5, 0.4, 0.1]])
    >>> direct = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.4, 0.5, 0.1]])
    >>> audit(original, direct)
    Audit(3 rows × 3 classes: 1 decision changed, 33.33%)
    >>> print(audit(original, direct, class_names=["cat", "dog", "owl"]).interpret())
    The calibrator changes 1 of 3 decisions (33.33%); the repaired report changes none.
    Most changes are among decisions for class cat: 1 of 2 (50.00%).
    Most changes are among rows with original confidence (0, 0.5]: 1 of 2 (50.00%).
    The order of the first 2 classes changes in 66.67% of the rows.
    In the repaired report: 33.33%; preserve=2 keeps it.
    Keeping the decisions costs 0.0020 nats a row, if the direct report is believed.
    Without labels, nothing can be said about accuracy or calibration.
    """
    if not 0.0 < level < 1.0:
        raise Refusal("level", f"is {level}", "pass a number between 0 and 1, such as 0.95")
    if resamples < 1:
        raise Refusal("resamples", f"is {resamples}", "pass at least 1")
    seed = as_seed(seed)
    if cord is not None:
        cord = _repair_of(cord, decision)
    original, direct, labels, decision, sample_weight = same_rows(
        original=original,
        direct=direct,
        labels=labels,
        decision=decision,
        sample_weight=sample_weight,
    )
    (original, direct), (labels, decision, sample_weight) = dense.flat_rows(
        axis, (original, direct), (labels, decision, sample_weight)
    )
    names: Sequence[Any] | None = class_names
    given: dict[str, Any] = {"decision": decision, "sample_weight": sample_weight}
    audited: Callable[..., AuditStream] = _audited
    collection = lazy.handler(original, direct)
    if collection is not None:
        audited = collection.audited
    else:
        if class_names is None:
            names = whole_headings(original) or whole_headings(direct)
        direct = in_column_order(direct, "direct", column_names(original), "original")
        original, direct = (
            as_matrix(original, "original"),
            as_matrix(direct, "direct"),
        )
        check_same_shape(original, "original", direct, "direct")
        names_or_numbers(names, direct.shape[1])
        labels = as_columns(labels, direct.shape, names)
    repair = CORD().fit(original, direct, **given) if cord is None else cord
    stream = audited(repair, original, direct, labels, **given)
    noticed: list[str] = []
    if isinstance(cord, CORD) and stream.rows == cord.construction_.n:
        # A repair fitted with weights is recognised by the same weights only.
        for weight in [None] if sample_weight is None else [None, sample_weight]:
            again = CORD(cord.preserve)
            again.fit(original, direct, decision=decision, sample_weight=weight)
            noticed = noticed or seen_before(cord, again)
    return stream.result(
        class_names=None if names is None else [str(name) for name in names],
        fitted_here=cord is None,
        level=level,
        resamples=resamples,
        seed=seed,
        noticed=noticed,
    )


def _repair_of(model: Any, decision: Any) -> CORD | Lift:
    """Return a fitted repair, also that of a `Preserved`, if the decisions it needs are there."""
    cord: CORD | Lift = getattr(model, "repair_", model)
    check_fitted(cord)
    if decision is None and cord.construction_.decision_given:
        raise Refusal(
            "decision",
            "is missing: cord was fitted with decisions of its own (a Preserved keeps the argmax "
            "of its scores)",
            "pass decision=, e.g. scores.argmax(axis=1)",
        )
    return cord


def _audited(
    cord: CORD | Lift, original: Any, direct: Any, labels: Any, **given: Any
) -> AuditStream:
    return AuditStream(cord).update(original, direct, labels, **given)


def seen_before(cord: CORD, again: CORD) -> list[str]:
    """Say if a given repair was fitted on these very rows, as ``again`` was.

    A construction's means are exact sums, the same for any order of the rows: two
    constructions that agree in every figure saw the same rows.
    """
    if again.construction_ != cord.construction_:
        return []
    return [
        "These are the rows that cord was fitted on: the numbers describe the fit, not new data. "
        "Pass evaluation rows that no model has seen."
    ]
