"""Reports measured group by group, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import refuse_masked
from cordcal._numeric.types import Classes
from cordcal.metrics import MEASURES
from cordcal.metrics.registry import leading
from cordcal.metrics.rows import LabelledRows

Groups = npt.NDArray[np.str_]

# A measure of fewer rows says more about chance than about a group.
MIN_ROWS_PER_GROUP = 30
# More than a table can tell; a column of so many values names rows, not groups.
_MOST_GROUPS = 200


@dataclass(frozen=True)
class GroupReport:
    """One group of the evaluated rows, in every report of a calibrator.

    Attributes
    ----------
    name : str
        The group.
    n : int
        Its rows.
    tpcr : float
        The share of them whose decision the direct report changes.
    measures : mapping of str to mapping of str to float
        By report, accuracy and the leading measures on these rows.
    """

    name: str
    n: int
    tpcr: float
    measures: Mapping[str, Mapping[str, float]]

    @property
    def small(self) -> bool:
        """Whether the group has too few rows to say much."""
        return self.n < MIN_ROWS_PER_GROUP

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return {
            "name": self.name,
            "n": self.n,
            "small": self.small,
            "tpcr": self.tpcr,
            "measures": {name: dict(each) for name, each in self.measures.items()},
        }


def as_groups(groups: Any, rows: int) -> npt.NDArray[Any]:
    """Return one group a row, checked.

    Examples
    --------
    >>> as_groups(["north", "south"], 2).tolist()
    ['north', 'south']
    """
    refuse_masked(groups, "groups")
    by = np.asarray(groups)
    if by.shape != (rows,):
        raise InputError(
            "groups",
            f"has shape {by.shape} but there are {rows} rows",
            "pass one group for each row",
        )
    if by.dtype.kind == "f" and np.all(by == np.rint(by)):
        by = by.astype(np.int64)  # whole numbers of a table of floats: region 1, not 1.0
    return by


def few_groups(groups: Any, rows: int) -> Groups:
    """Return the groups' names, one a row, if there are few enough to be told one by one."""
    by = as_groups(groups, rows).astype(str)
    found = len(np.unique(by))
    if found > _MOST_GROUPS:
        raise InputError(
            "groups",
            f"has {found:,} different values",
            f"pass a column of at most {_MOST_GROUPS}, such as a region or a source",
        )
    return by


def parts_of(by: npt.NDArray[Any]) -> Iterator[tuple[str, Classes]]:
    """Yield each group's name and rows."""
    for name in np.unique(by).tolist():
        yield str(name), np.flatnonzero(by == name)


def by_group(
    groups: Groups, reports: Mapping[str, LabelledRows], decision: Classes
) -> tuple[GroupReport, ...]:
    """Measure the reports on each group: by NLL the worst first, but small groups last.

    Parameters
    ----------
    groups : ndarray of str
        The group of each row.
    reports : mapping of str to LabelledRows
        The reports of one calibrator, the direct one among them.
    decision : ndarray of int
        The decisions to keep.
    """
    moved = reports["direct"].prediction != decision
    keys = ("accuracy", *leading())
    found = [
        GroupReport(
            name,
            len(chosen),
            float(moved[chosen].mean()),
            {
                report: {key: MEASURES[key].value(rows.take(chosen)) for key in keys}
                for report, rows in reports.items()
            },
        )
        for name, chosen in parts_of(groups)
    ]
    shown = "repaired" if "repaired" in reports else "direct"
    found.sort(key=lambda group: (group.small, -group.measures[shown]["nll"]))
    return tuple(found)
