"""`Baseline`: the rows of an earlier check, which later checks compare with row by row."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import row_digests, to_numpy
from cordcal._numeric.types import Classes
from cordcal.files.models import read_state, write_state
from cordcal.metrics.rows import LabelledRows

Keys = npt.NDArray[np.uint64]
KeyedBy = Literal["ids", "scores"]
_STATE_KIND = "baseline"
_REMEDY = "write it again with `cordcal check --write-baseline`"
# Rows are compared one by one if they are at least this share of both files.
_MIN_SHARED = 0.5
_VECTORS = tuple(entry.name for entry in fields(LabelledRows) if entry.name != "weight")


@dataclass(frozen=True, eq=False)
class Baseline:
    """What a later check needs of the rows of this one.

    Attributes
    ----------
    rows : LabelledRows
        Confidence, correctness and losses of each row.
    keys : ndarray of uint64
        What identifies each row: a digest of its id, or of its original scores.
    keyed_by : {"ids", "scores"}
        What the keys are made of.
    class_names : tuple of str or None
        Names of the classes.
    """

    rows: LabelledRows
    keys: Keys
    keyed_by: KeyedBy
    class_names: tuple[str, ...] | None = None

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write the baseline to one file.

        Parameters
        ----------
        path : path
            Where to.
        overwrite : bool
            Whether a file of that name may be replaced.
        """
        arrays = {name: getattr(self.rows, name) for name in _VECTORS}
        body = {"keyed_by": self.keyed_by, "class_names": self.class_names}
        write_state(path, _STATE_KIND, {**arrays, "keys": self.keys}, body, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a baseline that `save` wrote.

        Parameters
        ----------
        path : path
            The file.

        Returns
        -------
        baseline : Baseline
            The baseline.
        """
        arrays, body = read_state(path, _STATE_KIND, remedy=_REMEDY)
        try:
            rows = LabelledRows(**{name: arrays[name] for name in _VECTORS}, weight=None)
            names = body["class_names"]
            return cls(
                rows, arrays["keys"], body["keyed_by"], None if names is None else tuple(names)
            )
        except (LookupError, TypeError) as error:
            raise InputError(
                os.path.basename(path),
                f"is not a whole baseline ({error!r})",
                _REMEDY,
            ) from error

    def shared_rows(self, other: Baseline) -> tuple[Classes, Classes] | None:
        """Return the numbers of the shared rows in both baselines; None if too few.

        Rows with the same key are paired in the order of their labels.
        """
        if self.keyed_by != other.keyed_by:
            return None
        first, second = _numbered_keys(self), _numbered_keys(other)
        _, own, others = np.intersect1d(first, second, assume_unique=True, return_indices=True)
        if len(own) < _MIN_SHARED * max(len(first), len(second)):
            return None
        return own, others


def keys_of_scores(scores: Any) -> Keys:
    """Return a digest of each row of scores, in which equal numbers are equal."""
    return row_digests(to_numpy(scores, "original"))


def _numbered_keys(baseline: Baseline) -> npt.NDArray[Any]:
    """Return unique keys: the key, and its number among equal ones in the order of labels."""
    order = np.lexsort((baseline.rows.labels, baseline.keys))
    ordered = baseline.keys[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    counts = np.diff(np.r_[starts, len(ordered)])
    number = np.empty(len(ordered), dtype=np.uint64)
    number[order] = np.arange(len(ordered)) - np.repeat(starts, counts)
    numbered = np.empty(len(ordered), dtype=[("key", np.uint64), ("number", np.uint64)])
    numbered["key"], numbered["number"] = baseline.keys, number
    return numbered
