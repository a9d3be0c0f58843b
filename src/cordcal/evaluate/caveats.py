"""Reasons to doubt a comparison or an audit, such as too few rows or shared rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Classes, Floats, Vector
from cordcal._validation.caveats import Caveat, label_caveat

__all__ = ["Caveat", "audit_caveats", "overlap", "split_caveats"]

# With fewer rows, an interval of the accuracy spans up to twenty points.
MIN_ROWS_FOR_ADVICE = 100
# Continuous scores never coincide; coarse ones do, within each part as across.
_MAX_SHARED, _TIMES_DUPLICATES = 0.01, 3.0


def audit_caveats(
    decision: Classes,
    labels: Classes,
    *,
    classes: int,
    names: Sequence[str] | None,
    weight: Vector | None = None,
) -> list[Caveat]:
    """Return the reasons to doubt an audit.

    Parameters
    ----------
    decision, labels : ndarray of int
        The classifier's decisions, and the true classes.
    classes : int
        Number of classes.
    names : sequence of str, optional
        The columns' names.
    weight : ndarray, optional
        Weights of the rows.
    """
    mislabelled = label_caveat(decision, labels, classes, names=names, weight=weight)
    return [
        *([] if mislabelled is None else [mislabelled]),
        *_few_audited_rows(len(labels)),
        *_absent_classes(labels, "audited", classes, names),
    ]


def split_caveats(
    calibration: Classes, evaluation: Classes, *, classes: int, names: Sequence[str] | None
) -> list[Caveat]:
    """Return the caveats from the numbers of calibration and evaluation rows.

    Parameters
    ----------
    calibration, evaluation : ndarray of int
        The true classes of both.
    classes : int
        Number of classes.
    names : sequence of str, optional
        The columns' names.
    """
    return [
        *_few_rows(len(calibration), len(evaluation)),
        *_absent_classes(calibration, "calibration", classes, names),
        *_absent_classes(evaluation, "evaluation", classes, names),
    ]


def _few_rows(calibration: int, evaluation: int) -> Iterator[Caveat]:
    if min(calibration, evaluation) < MIN_ROWS_FOR_ADVICE:
        yield Caveat(
            "rows",
            f"too few rows for advice: {calibration:,} to calibrate on and {evaluation:,} to "
            f"evaluate on, where at least {MIN_ROWS_FOR_ADVICE} of each are needed",
            {"calibration": calibration, "evaluation": evaluation, "needed": MIN_ROWS_FOR_ADVICE},
            blocks_advice=True,
        )


def _few_audited_rows(rows: int) -> Iterator[Caveat]:
    if rows < MIN_ROWS_FOR_ADVICE:
        yield Caveat(
            "rows",
            f"too few rows to judge by: {rows:,}, where at least {MIN_ROWS_FOR_ADVICE} are needed",
            {"evaluation": rows, "needed": MIN_ROWS_FOR_ADVICE},
            blocks_advice=True,
        )


def _absent_classes(
    labels: Classes, role: str, classes: int, names: Sequence[str] | None
) -> Iterator[Caveat]:
    absent = np.flatnonzero(np.bincount(labels, minlength=classes) == 0)
    if not absent.size:
        return
    shown = [str(index) if names is None else names[index] for index in absent[:3].tolist()]
    more = ", …" if absent.size > len(shown) else ""
    have = "has" if absent.size == 1 else "have"
    yield Caveat(
        "classes",
        f"{absent.size:,} of {classes:,} classes {have} no {role} row ({', '.join(shown)}{more})",
        {"absent": int(absent.size), "classes": classes},
    )


def overlap(calibration: Floats, evaluation: Floats) -> list[Caveat]:
    """Return a caveat if evaluation rows are also calibration rows.

    Scores of a coarse classifier coincide by chance: both parts then contain about as many
    duplicates among themselves.
    """
    fitted, tested = _row_keys(calibration), _row_keys(evaluation)
    shared = float(np.isin(tested, fitted).mean())
    duplicates = float(
        np.mean([1.0 - len(np.unique(part)) / len(part) for part in (fitted, tested)])
    )
    if shared <= _MAX_SHARED + _TIMES_DUPLICATES * duplicates:
        return []
    return [
        Caveat(
            "overlap",
            f"{shared:.1%} of the evaluation rows are also calibration rows: their metrics are too "
            f"optimistic; pass rows that were not used for fitting",
            {"shared": shared},
            blocks_advice=True,
        )
    ]


def _row_keys(scores: Floats) -> npt.NDArray[np.void]:
    """Return one opaque value per row, equal for equal rows."""
    # Adding zero turns −0.0 into 0.0, which is the same number.
    wide = np.ascontiguousarray(scores, dtype=np.float64) + 0.0
    return wide.view(np.dtype((np.void, wide.dtype.itemsize * wide.shape[1]))).ravel()
