"""What all readers share: one file of named columns, and some of its rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from cordcal._numeric.types import Kind, NumPyArray, NumPyDType
from cordcal.files.columns import ColumnType


class ColumnSlice(Protocol):
    """Some rows of one file."""

    def __len__(self) -> int: ...

    def matrix(self, columns: Sequence[str]) -> NumPyArray:
        """Return columns of numbers, or one that holds whole rows, as a matrix; null is NaN."""

    def numbers(self, name: str) -> NumPyArray:
        """Return a column of numbers."""

    def values(self, name: str) -> NumPyArray:
        """Return a column of words or numbers: of text, what is written there."""


class ColumnFile(ABC):
    """One file of named columns: a table, or arrays by name.

    Attributes
    ----------
    path, format : str
        The file and its format.
    """

    path: str
    format: str

    @property
    @abstractmethod
    def types(self) -> Mapping[str, ColumnType]:
        """What each column holds; of text, judged by the first rows."""

    @property
    def names(self) -> Sequence[str]:
        """The columns."""
        return list(self.types)

    @property
    def kind(self) -> Kind | None:
        """What the file states that its scores are."""
        return None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The class names that it stores next to the scores."""
        return None

    @property
    def has_rows(self) -> bool:
        """Whether there is a row."""
        return True

    @abstractmethod
    def listed(self) -> str:
        """Return what the file holds, for messages."""

    @abstractmethod
    def dtype(self, columns: Sequence[str]) -> NumPyDType:
        """Return the dtype of the scores in some columns."""

    @abstractmethod
    def width(self, columns: Sequence[str]) -> int | None:
        """Return the number of classes; None if only the rows show it."""

    @abstractmethod
    def count(self, columns: Sequence[str]) -> int | None:
        """Return the number of rows; None if it is not known before they are read."""

    @abstractmethod
    def slices(self, columns: Sequence[str] | None) -> Iterator[ColumnSlice]:
        """Yield some columns, or all of a table, in slices of rows."""
