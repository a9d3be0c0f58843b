"""Recognise rows: `Fingerprint` of a whole set, and `Baseline`, to compare with row by row.

A fingerprint is a short hash that does not depend on the order of the rows.  A baseline holds the
rows of an earlier check.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import raise_first, row_error
from cordcal._numeric.arrays import refuse_masked, row_digests, to_numpy
from cordcal._numeric.types import ArrayLike, Arrays, Classes, Flags, NumPyArray, Vector
from cordcal._validation.labels import is_missing
from cordcal._validation.scores import as_matrix
from cordcal.files.models import read_state, write_state
from cordcal.metrics.base import LabelledRows

_MASK = (1 << 64) - 1
# A second seed for the mixing: the golden ratio in 64 bits.
_OTHER_HALF = np.uint64(0x9E3779B97F4A7C15)
# 4 MB of float64 per block.
_BLOCK_ENTRIES = 2**19


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A 128-bit digest of a multiset of rows; fingerprints of blocks merge with ``+``.

    It does not depend on the order of the rows or on the dtype of equal numbers.  A row consists
    of all its columns: scores and others, such as its label.  A fingerprint identifies a whole
    set of rows, not a part of it: single rows of a coarse classifier (a small forest) coincide
    by chance.

    Examples
    --------
    >>> rows = [[0.5, 0.5], [0.2, 0.8], [0.1, 0.9]]
    >>> Fingerprint.of(rows) == Fingerprint.of(rows[::-1])
    True
    >>> Fingerprint.of(rows[:1]) + Fingerprint.of(rows[1:]) == Fingerprint.of(rows)
    True
    """

    rows: int
    digest: int

    @classmethod
    def of(cls, original: ArrayLike, *others: NumPyArray) -> Fingerprint:
        """Hash the classifier's scores, and further vectors or matrices with the same rows."""
        values = to_numpy(as_matrix(original, "original"))
        rows, _ = values.shape
        parts = [values, *(array.reshape(rows, -1) for array in others)]
        width = sum(part.shape[1] for part in parts)
        # A multilinear hash: fixed random odd multipliers, one per column, modulo 2^64.
        factors = np.random.default_rng(0).integers(0, 2**64, width, dtype=np.uint64)
        factors |= np.uint64(1)
        high = low = 0
        size = max(1, _BLOCK_ENTRIES // width)
        for start in range(0, rows, size):
            hashed = np.zeros(min(size, rows - start), dtype=np.uint64)
            column = 0
            for part in parts:
                # Adding zero turns -0.0 into 0.0, which is the same number.
                bits = (part[start : start + size].astype(np.float64) + 0.0).view(np.uint64)
                hashed += np.einsum("ij,j->i", bits, factors[column : column + part.shape[1]])
                column += part.shape[1]
            # Mixed before adding, so that swapping parts between rows changes the sum.
            high += int(_mix(hashed).sum(dtype=np.uint64))
            low += int(_mix(hashed ^ _OTHER_HALF).sum(dtype=np.uint64))
        return cls(rows, (high & _MASK) << 64 | (low & _MASK))

    def __add__(self, other: Fingerprint) -> Fingerprint:
        high = (self.digest >> 64) + (other.digest >> 64)
        low = (self.digest & _MASK) + (other.digest & _MASK)
        return Fingerprint(self.rows + other.rows, (high & _MASK) << 64 | (low & _MASK))

    def __str__(self) -> str:
        return f"{self.rows}:{self.digest:032x}"


def codes_of(names: NumPyArray) -> Vector:
    """Return a number for each name, the same for equal names in any data set.

    Examples
    --------
    >>> import numpy as np
    >>> north, south, again = codes_of(np.array(["north", "south", "north"]))
    >>> bool(north == again), bool(north == south)
    (True, False)
    """
    unique, index = np.unique(names, return_inverse=True)
    digests = (
        # Six bytes are an integer that float64 holds exactly.
        hashlib.blake2b(str(name).encode("utf-8", "surrogatepass"), digest_size=6).digest()
        for name in unique.tolist()
    )
    codes = np.array([int.from_bytes(digest) for digest in digests], dtype=np.float64)
    return np.asarray(codes[index])


def as_ids(ids: Any) -> NumPyArray:
    """Return ids as an array in which no number became text."""
    refuse_masked(ids, "ids")
    values = np.asarray(ids)
    if values.dtype.kind in "US" and not isinstance(ids, np.ndarray):
        return np.asarray(list(ids), dtype=object)
    return values


def id_digests(ids: NumPyArray, argument: str = "ids") -> npt.NDArray[np.uint64]:
    """Return a 64-bit digest of each id, the same for equal ids in any data set.

    An id is its text as written: ``007`` is not ``7``.  Numbers are equal by value.

    Examples
    --------
    >>> first, second, again = id_digests(np.array(["r1", "r2", "r1"]))
    >>> bool(first == again), bool(first == second)
    (True, False)
    """
    raise_first(
        row_error(
            is_missing(ids),
            argument,
            "has no id",
            "give every row an id, or pass no ids",
        )
    )
    if ids.dtype.kind == "f":
        raise_first(
            row_error(
                np.abs(ids) >= 2.0**53,
                argument,
                "has an id that was rounded: numbers of a text file are exact up to 2^53",
                "store the ids as JSON lines or Parquet, or put a letter before the digits",
            )
        )
    texts = (id_text(value).encode("utf-8", "surrogatepass") for value in ids.tolist())
    digests = [hashlib.blake2b(text, digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def id_text(value: object) -> str:
    """Return an id as text; a file format may have turned the integer 7 into 7.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread every bit over the word (the finaliser of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


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
        return read_state(path, _STATE_KIND, cls._from_state, remedy=_REMEDY)

    @classmethod
    def _from_state(cls, arrays: Arrays, body: dict[str, Any]) -> Self:
        rows = LabelledRows(**{name: arrays[name] for name in _VECTORS}, weight=None)
        names = body["class_names"]
        return cls(rows, arrays["keys"], body["keyed_by"], None if names is None else tuple(names))

    def shared_rows(self, other: Baseline) -> tuple[Classes, Classes] | None:
        """Return the numbers of the shared rows in both baselines; None if too few.

        Rows with the same scores are paired in the order of their labels.  Rows with the same id
        are not paired: they cannot be told apart.
        """
        if self.keyed_by != other.keyed_by:
            return None
        first, second = _numbered_keys(self), _numbered_keys(other)
        _, own, others = np.intersect1d(first, second, assume_unique=True, return_indices=True)
        if self.keyed_by == "ids":
            once = _occurs_once(self.keys)[own] & _occurs_once(other.keys)[others]
            own, others = own[once], others[once]
        if len(own) < _MIN_SHARED * max(len(first), len(second)):
            return None
        return own, others


def keys_of_scores(scores: Any) -> Keys:
    """Return a digest of each row of scores, in which equal numbers are equal."""
    return row_digests(to_numpy(scores, "original"))


def _occurs_once(keys: Keys) -> Flags:
    _, number, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(counts[number] == 1)


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
