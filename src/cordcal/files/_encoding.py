"""How reports are laid out in a file, block after block.

An encoder turns a block of rows into bytes that are appended to the output, on any
thread, and ends the file when all blocks are there.  The bytes depend on the blocks
alone, so that an output which was cut short is continued to the same file.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from cordcal.files._passthrough import Passthrough

Layout = Literal["wide", "list"]
"""Reports as one column a class, or as one column of lists."""


@dataclass(frozen=True, eq=False)
class OutputBlock:
    """Rows of an output: reports by name, the decisions they keep, and more columns.

    ``rest`` stands before them: the columns of the input that are passed on.
    """

    reports: Mapping[str, npt.NDArray[Any]]
    decision: npt.NDArray[np.integer[Any]]
    extra: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    rest: Passthrough | None = None

    def __len__(self) -> int:
        return int(self.decision.shape[0])


@dataclass(frozen=True, eq=False)
class Encoded:
    """Bytes to append, what would stand before them at the head of a file, and a footer.

    The body comes in pieces; the footer is what the encoder needs to know of the block at
    the end.
    """

    body: Sequence[bytes | memoryview]
    head: bytes
    footer: bytes = b""
    rows: int = 0


class Encoder(ABC):
    """One format of report files."""

    def __init__(
        self,
        class_names: Sequence[str] | None = None,
        *,
        spreadsheet: bool = False,
        layout: Layout = "list",
    ) -> None:
        self.names = None if class_names is None else list(class_names)
        self.spreadsheet, self.layout = spreadsheet, layout

    def headings(self, report: str, classes: int) -> list[str]:
        """Return what the columns of a report are called, one a class."""
        return [f"{report}:{name}" for name in self.names or range(classes)]

    @abstractmethod
    def encode(self, block: OutputBlock) -> Encoded:
        """Return a block's bytes."""

    @abstractmethod
    def finish(self, file: BinaryIO, parts: Sequence[tuple[int, bytes]], rows: int) -> None:
        """End the file; ``parts`` are the blocks' positions and footers."""


class Npy(Encoder):
    """The first report alone, as a plain array."""

    def encode(self, block: OutputBlock) -> Encoded:
        """Return the rows as they lie in memory."""
        report = np.ascontiguousarray(next(iter(block.reports.values())))
        # A header for no rows yet; NumPy leaves room for the number to grow.
        head = _npy_header(report.dtype, 0, report.shape[1])
        body = [report.data.cast("B")] if len(block) else []
        return Encoded(body, head, rows=len(block))

    def finish(self, file: BinaryIO, parts: Sequence[tuple[int, bytes]], rows: int) -> None:
        """Write the number of rows into the header."""
        file.seek(0)
        np.lib.format.read_magic(file)
        (_, classes), _, dtype = np.lib.format.read_array_header_1_0(file)
        file.seek(0)
        file.write(_npy_header(dtype, rows, classes))


def _npy_header(dtype: np.dtype[Any], rows: int, classes: int) -> bytes:
    described = np.lib.format.dtype_to_descr(dtype)
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": described, "fortran_order": False, "shape": (rows, classes)}
    )
    return buffer.getvalue()
