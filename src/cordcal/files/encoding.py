"""Base class of the output formats.

An encoder turns a block of rows into a *piece*, on any thread.  Pieces are finished, immutable
bytes: an interrupted run keeps them, and the next one continues after the last.  In most
formats the pieces one after the other are the output; Parquet and Feather pieces are joined.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal, Protocol

import numpy as np
import numpy.typing as npt

from cordcal.files.passthrough import Passthrough

Layout = Literal["wide", "list"]
"""Probabilities as one column per class, or as one column of lists."""


@dataclass(frozen=True, eq=False)
class OutputBlock:
    """Rows of an output: probabilities by name, the predictions they keep, and more columns.

    ``passthrough`` comes first: the columns of the input that are passed through.
    """

    probabilities: Mapping[str, npt.NDArray[Any]]
    decision: npt.NDArray[np.integer[Any]]
    extra: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    passthrough: Passthrough | None = None

    def __len__(self) -> int:
        return int(self.decision.shape[0])


@dataclass(frozen=True, eq=False)
class Piece:
    """The bytes of a block of rows.

    Attributes
    ----------
    body : bytes-like
        The rows.
    rows : int
        How many there are.
    head : bytes
        What precedes the first piece of a file.
    digest : str
        SHA-256 of the body, to detect damage.
    """

    body: bytes | memoryview
    rows: int
    head: bytes = b""
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", sha256(self.body))


def sha256(data: bytes | memoryview) -> str:
    """Return the SHA-256 of some bytes as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


class Joiner(Protocol):
    """Writes pieces to an output that is more than their bytes in a row."""

    def append(self, body: bytes | memoryview) -> None:
        """Write the rows of a piece."""


class Encoder(ABC):
    """One output format.

    Attributes
    ----------
    joins : bool
        Whether a file is more than its pieces in a row, and `joiner` writes it.
    """

    joins = False

    def __init__(
        self,
        class_names: Sequence[str] | None = None,
        *,
        spreadsheet: bool = False,
        layout: Layout = "list",
    ) -> None:
        self.names = None if class_names is None else list(class_names)
        self.spreadsheet, self.layout = spreadsheet, layout

    def headings(self, name: str, classes: int) -> list[str]:
        """Return the names of the columns of probabilities, one per class."""
        return [f"{name}:{class_name}" for class_name in self.names or range(classes)]

    @abstractmethod
    def encode(self, block: OutputBlock) -> Piece:
        """Return a block's piece."""

    def finish(self, file: BinaryIO, rows: int) -> None:  # noqa: B027 - most formats need nothing
        """Complete a file of all pieces in a row."""

    def joiner(self, file: BinaryIO) -> AbstractContextManager[Joiner]:
        """Return a `Joiner` for formats whose pieces are not simply concatenated."""
        raise NotImplementedError

    def write(self, file: BinaryIO, block: OutputBlock) -> None:
        """Write a file of one block."""
        piece = self.encode(block)
        if self.joins:
            with self.joiner(file) as joiner:
                joiner.append(piece.body)
        else:
            file.write(piece.head)
            file.write(piece.body)
            self.finish(file, piece.rows)
