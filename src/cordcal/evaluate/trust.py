"""Whether a comparison or an audit can be trusted: what to look at before any advice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import numpy.typing as npt

from cordcal._door.types import Classes, Floats

# Below this an interval of the accuracy spans up to twenty points, and advice is a guess.
FEWEST_ROWS = 100
# A count of rows that speak for other labels, in standard errors of a fair coin: as rare as
# one in thirty thousand.
_CLEAR = 4.0
# Rows of continuous scores never coincide; those of coarse ones do, within a set as across.
_SHARED, _TIMES_OWN = 0.01, 3.0


@dataclass(frozen=True)
class Concern:
    """A reason to doubt what a comparison says.

    Attributes
    ----------
    key : str
        Its kind: ``"labels"``, ``"columns"``, ``"chance"``, ``"rows"``, ``"overlap"``,
        ``"classes"`` or ``"indistinct"``.
    sentence : str
        What was found, with its figures.
    figures : mapping of str to float
        The figures.
    withholds : bool
        Whether no advice is given because of it.
    """

    key: str
    sentence: str
    figures: Mapping[str, float] = field(default_factory=dict)
    withholds: bool = False

    @property
    def ended(self) -> str:
        """The sentence with its full stop, unless it asks."""
        return self.sentence if self.sentence.endswith("?") else f"{self.sentence}."

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain Python values."""
        return asdict(self)


def concerns_about(
    decision: Classes,
    labels: Classes,
    *,
    calibration_labels: Classes | None = None,
    classes: int,
    names: Sequence[str] | None,
) -> list[Concern]:
    """Return what the labels and the number of rows give reason to doubt.

    Parameters
    ----------
    decision, labels : ndarray of int
        The classifier's decisions of the evaluation rows, and their true classes.
    calibration_labels : ndarray of int, optional
        The true classes of the calibration rows; an audit has none.
    classes : int
        Number of classes.
    names : sequence of str, optional
        The columns' names.
    """
    found = [*mislabelled(decision, labels, classes, names)]
    if calibration_labels is None:
        found += [*_few_audited(len(labels)), *_absent(labels, "audited", classes, names)]
        return found
    found += _few(len(calibration_labels), len(labels))
    for rows, where in ((calibration_labels, "calibration"), (labels, "evaluation")):
        found += _absent(rows, where, classes, names)
    return found


def mislabelled(
    decision: Classes, labels: Classes, classes: int, names: Sequence[str] | None
) -> Iterator[Concern]:
    """Find labels that a shift, or another order of the columns, would mend; or mere chance."""
    right = decision == labels
    own = float(right.mean())
    chance = 1.0 / classes
    below = f"accuracy {own:.1%} is {'below' if own < chance else 'at'} chance ({chance:.1%})"
    start = below if own <= chance else f"accuracy is {own:.1%}"
    for shift in (-1, 1):
        mended = decision == labels + shift
        if _clearly_more(mended, right):
            sign = "−" if shift < 0 else "+"
            numbered = "are they numbered from 1?" if shift < 0 else "is a class missing in front?"
            then = float(mended.mean())
            yield Concern(
                "labels",
                f"{start}; with labels {sign} 1 it would be {then:.1%}: {numbered}",
                {"accuracy": own, "shift": shift, "accuracy_with_shift": then},
                withholds=True,
            )
            return
    for order, words in _orders(names):
        mended = order[decision] == labels
        if _clearly_more(mended, right):
            then = float(mended.mean())
            yield Concern(
                "columns",
                f"{start}; if labels number the columns {words} it would be {then:.1%}: bring the "
                f"columns into the order of the labels",
                {"accuracy": own, "accuracy_with_order": then},
                withholds=True,
            )
            return
    if own <= chance:
        yield Concern(
            "chance",
            f"{below}: are the labels those of these rows, and the columns in their order?",
            {"accuracy": own, "chance": chance},
            withholds=True,
        )


def _clearly_more(first: npt.NDArray[np.bool_], second: npt.NDArray[np.bool_]) -> bool:
    """Tell whether more rows are right in the first way than in the second (McNemar)."""
    gained, lost = int((first & ~second).sum()), int((second & ~first).sum())
    return gained - lost > _CLEAR * math.sqrt(gained + lost)


def _orders(names: Sequence[str] | None) -> Iterator[tuple[Classes, str]]:
    """Yield the orders that the columns' names suggest: each column's number in that order."""
    if names is None:
        return
    by_name = np.argsort(np.array(names), kind="stable")
    yield np.argsort(by_name), "in the order of their sorted names"
    try:
        by_number = np.argsort([float(name) for name in names], kind="stable")
    except ValueError:
        return
    yield np.argsort(by_number), "by the numbers that are their names"


def _few(calibration: int, evaluation: int) -> Iterator[Concern]:
    if min(calibration, evaluation) < FEWEST_ROWS:
        yield Concern(
            "rows",
            f"too few rows for advice: {calibration:,} to calibrate on and {evaluation:,} to "
            f"evaluate on, where at least {FEWEST_ROWS} of each are needed",
            {"calibration": calibration, "evaluation": evaluation, "needed": FEWEST_ROWS},
            withholds=True,
        )


def _few_audited(rows: int) -> Iterator[Concern]:
    if rows < FEWEST_ROWS:
        yield Concern(
            "rows",
            f"too few rows to judge a report by: {rows:,}, where at least {FEWEST_ROWS} are needed",
            {"evaluation": rows, "needed": FEWEST_ROWS},
            withholds=True,
        )


def _absent(
    labels: Classes, where: str, classes: int, names: Sequence[str] | None
) -> Iterator[Concern]:
    absent = np.flatnonzero(np.bincount(labels, minlength=classes) == 0)
    if not absent.size:
        return
    shown = [str(index) if names is None else names[index] for index in absent[:3].tolist()]
    more = ", …" if absent.size > len(shown) else ""
    have = "has" if absent.size == 1 else "have"
    yield Concern(
        "classes",
        f"{absent.size:,} of {classes:,} classes {have} no {where} row ({', '.join(shown)}{more})",
        {"absent": int(absent.size), "classes": classes},
    )


def overlap(calibration: Floats, evaluation: Floats) -> list[Concern]:
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
        Concern(
            "overlap",
            f"{shared:.1%} of the evaluation rows are among the calibration rows: what is measured "
            f"on them flatters; pass rows that no map was fitted on",
            {"shared": shared},
            withholds=True,
        )
    ]


def _keys(scores: Floats) -> npt.NDArray[np.void]:
    # Adding zero turns −0.0 into 0.0, which is the same number.
    wide = np.ascontiguousarray(scores, dtype=np.float64) + 0.0
    return wide.view(np.dtype((np.void, wide.dtype.itemsize * wide.shape[1]))).ravel()
