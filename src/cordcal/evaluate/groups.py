"""Metrics per group of rows, the worst group first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import refuse_masked
from cordcal._numeric.types import Classes, NumPyArray
from cordcal.metrics import METRICS
from cordcal.metrics.registry import leading_metrics
from cordcal.metrics.rows import LabelledRows
from cordcal.report.data import GroupReport

Groups = npt.NDArray[np.str_]

# A column with more values identifies rows, not groups, and does not fit a table.
_MAX_GROUPS = 200


def as_groups(groups: Any, rows: int) -> NumPyArray:
    """Return one group per row, checked.

    Examples
    --------
    >>> as_groups(["north", "south"], 2).tolist()
    ['north', 'south']
    """
    refuse_masked(groups, "groups")
    values = np.asarray(groups)
    if values.shape != (rows,):
        raise InputError(
            "groups",
            f"has shape {values.shape} but there are {rows} rows",
            "pass one group for each row",
        )
    if values.dtype.kind == "f" and np.all(values == np.rint(values)):
        values = values.astype(np.int64)  # integers read as floats: region 1, not 1.0
    return values


def few_groups(groups: Any, rows: int) -> Groups:
    """Return the group names, one per row; raise if there are too many for a table."""
    names = as_groups(groups, rows).astype(str)
    count = len(np.unique(names))
    if count > _MAX_GROUPS:
        raise InputError(
            "groups",
            f"has {count:,} different values",
            f"pass a column of at most {_MAX_GROUPS}, such as a region or a source",
        )
    return names


def parts_of(groups: NumPyArray) -> Iterator[tuple[str, Classes]]:
    """Yield each group's name and rows."""
    for name in np.unique(groups).tolist():
        yield str(name), np.flatnonzero(groups == name)


def by_group(
    groups: Groups, outputs: Mapping[str, LabelledRows], decision: Classes
) -> tuple[GroupReport, ...]:
    """Compute metrics per group: the worst by NLL first, small groups last.

    Parameters
    ----------
    groups : ndarray of str
        The group of each row.
    outputs : mapping of str to LabelledRows
        The outputs of one calibrator, including ``"direct"``.
    decision : ndarray of int
        The decisions to keep.
    """
    changed = outputs["direct"].prediction != decision
    keys = ("accuracy", *leading_metrics())
    reports = [
        GroupReport(
            name,
            len(members),
            float(changed[members].mean()),
            {
                output: {key: METRICS[key].value(rows.take(members)) for key in keys}
                for output, rows in outputs.items()
            },
        )
        for name, members in parts_of(groups)
    ]
    output = "repaired" if "repaired" in outputs else "direct"
    reports.sort(key=lambda group: (group.small, -group.measures[output]["nll"]))
    return tuple(reports)
