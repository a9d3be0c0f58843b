"""Whether a comparison or an audit can be trusted: what to look at before any advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from cordcal._numeric.types import Classes, Floats, Vector
from cordcal._validation.sanity import Caveat, label_doubt

__all__ = ["Caveat", "audit_caveats", "overlap", "split_caveats"]

# Below this an interval of the accuracy spans up to twenty points, and advice is a guess.
MIN_ROWS_FOR_ADVICE = 100
# Rows of continuous scores never coincide; those of coarse ones do, within a set as across.
_SHARED, _TIMES_OWN = 0.01, 3.0


def audit_caveats(
    decision: Classes,
    labels: Classes,
    *,
    classes: int,
    names: Sequence[str] | None,
    weight: Vector | None = None,
) -> list[Caveat]:
    """Return what audited rows give reason to doubt.

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
    doubt = label_doubt(decision, labels, classes, names=names, weight=weight)
    return [
        *([] if doubt is None else [doubt]),
        *_few_audited(len(labels)),
        *_absent(labels, "audited", classes, names),
    ]


def split_caveats(
    calibration: Classes, evaluation: Classes, *, classes: int, names: Sequence[str] | None
) -> list[Caveat]:
    """Return what the numbers of calibration and evaluation rows give reason to doubt.

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
        *_few(len(calibration), len(evaluation)),
        *_absent(calibration, "calibration", classes, names),
        *_absent(evaluation, "evaluation", classes, names),
    ]


def _few(calibration: int, evaluation: int) -> Iterator[Caveat]:
    if min(calibration, evaluation) < MIN_ROWS_FOR_ADVICE:
        yield Caveat(
            "rows",
            f"too few rows for advice: {calibration:,} to calibrate on and {evaluation:,} to "
            f"evaluate on, where at least {MIN_ROWS_FOR_ADVICE} of each are needed",
            {"calibration": calibration, "evaluation": evaluation, "needed": MIN_ROWS_FOR_ADVICE},
            blocks_advice=True,
        )


def _few_audited(rows: int) -> Iterator[Caveat]:
    if rows < MIN_ROWS_FOR_ADVICE:
        yield Caveat(
            "rows",
            f"too few rows to judge by: {rows:,}, where at least {MIN_ROWS_FOR_ADVICE} are needed",
            {"evaluation": rows, "needed": MIN_ROWS_FOR_ADVICE},
            blocks_advice=True,
        )


def _absent(
    labels: Classes, where: str, classes: int, names: Sequence[str] | None
) -> Iterator[Caveat]:
    absent = np.flatnonzero(np.bincount(labels, minlength=classes) == 0)
    if not absent.size:
        return
    shown = [str(index) if names is None else names[index] for index in absent[:3].tolist()]
    more = ", …" if absent.size > len(shown) else ""
    have = "has" if absent.size == 1 else "have"
    yield Caveat(
        "classes",
        f"{absent.size:,} of {classes:,} classes {have} no {where} row ({', '.join(shown)}{more})",
        {"absent": int(absent.size), "classes": classes},
    )


def overlap(calibration: Floats, evaluation: Floats) -> list[Caveat]:
    """Find rows that were calibrated on and are evaluated on again.

    Scores of a coarse classifier coincide by chance: as many rows then have twins within the
    calibration rows as across.
    """
    fitted, tested = _keys(calibration), _keys(evaluation)
    shared = float(np.isin(tested, fitted).mean())
    own = 1.0 - len(np.unique(fitted)) / len(fitted)
    if shared <= _SHARED + _TIMES_OWN * own:
        return []
    return [
        Caveat(
            "overlap",
            f"{shared:.1%} of the evaluation rows are among the calibration rows: what is measured "
            f"on them flatters; pass rows that no map was fitted on",
            {"shared": shared},
            blocks_advice=True,
        )
    ]


def _keys(scores: Floats) -> npt.NDArray[np.void]:
    # Adding zero turns −0.0 into 0.0, which is the same number.
    wide = np.ascontiguousarray(scores, dtype=np.float64) + 0.0
    return wide.view(np.dtype((np.void, wide.dtype.itemsize * wide.shape[1]))).ravel()
