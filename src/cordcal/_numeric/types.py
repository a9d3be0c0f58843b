"""Type aliases for arrays and for objects of other libraries; `Record` and `StoredRecord`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

Array = Any
"""An array of any array-API library: NumPy, torch or JAX."""

ArrayLike = Any
"""What a caller passes as an array, before it is checked: an array of any library, nested lists,
a data frame, a dask collection.  Their type stubs share no protocol."""

Namespace = Any
"""The functions of an array library: NumPy itself, torch, or those of a tracer."""

DType = Any
"""A dtype of any array library, or its name."""

NumPyDType = np.dtype[Any]
NumPyArray = npt.NDArray[Any]
"""A NumPy array of any dtype."""

Kind = Literal["logits", "probabilities"]
"""What the caller's scores are."""

Domain = Literal["logits", "shifted", "log-probabilities", "probabilities"]
"""What a calibrator's map takes; ``shifted`` logits have maximum 0 in every row."""

Floats = npt.NDArray[np.floating]
"""Scores or probabilities in their original dtype."""

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

Classes = npt.NDArray[np.intp]
"""Class indices 0..K-1, one per row."""

Labels = Classes
Predictions = Classes

Arrays = dict[str, NumPyArray]
"""The arrays of a model file by name."""

Meta = dict[str, Any]
"""The JSON metadata of a model file."""


class Record:
    """A result as a frozen dataclass, which code and JSON can read as plain values."""

    __slots__ = ()
    # Properties that the plain values include.
    _computed: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        stored = (entry.name for entry in fields(self))  # type: ignore[arg-type]
        return {name: _plain(getattr(self, name)) for name in (*stored, *self._computed)}


class StoredRecord(Record):
    """A record that a model file holds as JSON, and that can be rebuilt from it.

    Its fields are numbers, text, arrays, other stored records, tuples of these, or None.
    """

    __slots__ = ()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Rebuild a record from the values of `to_dict`, also after a JSON round trip."""
        types = get_type_hints(cls)
        return cls(**{name: _as_type(value, types[name]) for name, value in values.items()})


def _as_type(value: Any, kind: Any) -> Any:
    """Return a plain value as the type of a record's field."""
    origin, inner = get_origin(kind), get_args(kind)
    if NoneType in inner:
        return None if value is None else _as_type(value, inner[0])
    if origin is tuple:
        kinds = inner[:1] * len(value) if inner[-1] is ... else inner
        return tuple(_as_type(*pair) for pair in zip(value, kinds, strict=True))
    if origin is np.ndarray:
        return np.array(value)
    if isinstance(kind, type) and issubclass(kind, StoredRecord):
        return kind.from_dict(value)
    if isinstance(kind, type) and issubclass(kind, tuple):
        return kind(*value)
    return float(value) if kind is float else value


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
