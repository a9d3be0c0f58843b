"""What identifies rows: ids as digests."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import raise_first, row_error
from cordcal._numeric.arrays import refuse_masked
from cordcal._numeric.types import NumPyArray
from cordcal._validation.labels import as_texts, is_missing


def as_ids(ids: Any) -> NumPyArray:
    """Return ids as an array in which no number became text."""
    refuse_masked(ids, "ids")
    values = np.asarray(ids)
    if values.dtype.kind in "US" and not isinstance(ids, np.ndarray):
        return np.asarray(list(ids), dtype=object)
    return values


def id_digests(ids: Any, argument: str = "ids") -> npt.NDArray[np.uint64]:
    """Return a 64-bit digest of each id, the same for equal ids in any data set.

    An id is its text as written: ``007`` is not ``7``.  Numbers are equal by value.

    Examples
    --------
    >>> first, second, again = id_digests(np.array(["r1", "r2", "r1"]))
    >>> bool(first == again), bool(first == second)
    (True, False)
    """
    ids = as_ids(ids)
    raise_first(
        row_error(is_missing(ids), argument, "has no id", "give every row an id, or pass no ids")
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
    texts = (text.encode("utf-8", "surrogatepass") for text in as_texts(ids).tolist())
    digests = [hashlib.blake2b(text, digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)
