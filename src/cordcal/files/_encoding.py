"""How reports are laid out in a file: CSV, npy and Parquet, block after block.

An encoder turns a block of rows into bytes that are appended to the output, on any
thread, and ends the file when all blocks are there.  The bytes depend on the blocks
alone, so that an output which was cut short is continued to the same file.
"""

from __future__ import annotations

import csv
import io
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal.files import _footers
from cordcal.files._memory import Sink

# A quarter of Arrow's default: pages in the making are memory too.
_PAGE_BYTES = 2**18

# What makes a spreadsheet take a cell for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

SUFFIXES = (".npz", ".npy", ".csv", ".parquet")


@dataclass(frozen=True, eq=False)
class ReportBlock:
    """Rows of an output: reports by name, the decisions they keep, and more columns."""

    reports: Mapping[str, npt.NDArray[Any]]
    decision: npt.NDArray[np.integer[Any]]
    extra: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)

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
        self, class_names: Sequence[str] | None = None, *, spreadsheet: bool = False
    ) -> None:
        self.names = None if class_names is None else list(class_names)
        self.spreadsheet = spreadsheet

    @abstractmethod
    def encode(self, block: ReportBlock) -> Encoded:
        """Return a block's bytes."""

    @abstractmethod
    def finish(self, file: BinaryIO, parts: Sequence[tuple[int, bytes]], rows: int) -> None:
        """End the file; ``parts`` are the blocks' positions and footers."""


def encoder_for(
    path: Any, class_names: Sequence[str] | None = None, *, spreadsheet: bool = False
) -> Encoder:
    """Return the encoder of a path by its suffix; ``-`` is CSV."""
    kinds: dict[str, type[Encoder]] = {".csv": CSV, ".npy": Npy, ".parquet": Parquet}
    suffix = ".csv" if str(path) == "-" else Path(path).suffix.lower()
    if suffix not in kinds:
        raise Refusal(
            str(path),
            f"has the suffix {suffix!r}, which names no format that reports are written in",
            f"use one of {', '.join(SUFFIXES)}",
        )
    return kinds[suffix](class_names, spreadsheet=spreadsheet)


class CSV(Encoder):
    """A line a row: the decision, the reports class by class, and the other columns.

    With ``spreadsheet`` words that a spreadsheet would run as formulas begin with an
    apostrophe; numbers stay as they are.
    """

    def _head(self, block: ReportBlock) -> bytes:
        classes = next(iter(block.reports.values())).shape[1]
        columns = self.names or [str(index) for index in range(classes)]
        header = [f"{report}:{column}" for report in block.reports for column in columns]
        return _lines([["decision", *header, *block.extra]])

    def _words(self) -> list[str] | None:
        if self.names is None or not self.spreadsheet:
            return self.names
        return [f"'{name}" if name.startswith(_FORMULA) else name for name in self.names]

    def encode(self, block: ReportBlock) -> Encoded:
        """Return the lines, with the shortest digits that read back as the same numbers."""
        kept = block.decision.tolist()
        names = self._words()
        if names is not None:
            kept = [names[index] for index in kept]
        rows = [report.astype(np.str_) for report in block.reports.values()]
        more = [np.asarray(column).astype(np.str_) for column in block.extra.values()]
        lines = (
            [name, *(cell for row in rows for cell in row[at]), *(column[at] for column in more)]
            for at, name in enumerate(kept)
        )
        return Encoded([_lines(lines)], self._head(block), rows=len(block))

    def finish(self, file: BinaryIO, parts: Sequence[tuple[int, bytes]], rows: int) -> None:
        """Do nothing: the last line ends the file."""


def _lines(rows: Any) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue().encode()


class Npy(Encoder):
    """The first report alone, as a plain array."""

    def encode(self, block: ReportBlock) -> Encoded:
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


class Parquet(Encoder):
    """A row group a block; reports are columns of fixed-size lists."""

    _encoding = threading.Lock()

    def encode(self, block: ReportBlock) -> Encoded:
        """Return a row group and its footer."""
        arrow, parquet = import_arrow()
        columns: dict[str, Any] = {"decision": arrow.array(block.decision)}
        names = self.names
        if names is not None:
            columns["decision_name"] = arrow.array([names[index] for index in block.decision])
        for key, report in block.reports.items():
            flat = arrow.array(np.ascontiguousarray(report).reshape(-1))
            columns[key] = arrow.FixedSizeListArray.from_arrays(flat, report.shape[1])
        columns |= {key: arrow.array(column) for key, column in block.extra.items()}
        table = arrow.table(columns)
        if names is not None:
            table = table.replace_schema_metadata({"class_names": json.dumps(names)})
        beside = [key for key in columns if key not in block.reports]
        sink = Sink()
        # One at a time: Arrow takes several times a block's memory to encode a list column.
        with self._encoding:
            parquet.write_table(
                table,
                sink,
                row_group_size=max(1, len(block)),
                data_page_size=_PAGE_BYTES,
                # Probabilities hardly repeat, and nobody looks for their smallest.
                use_dictionary=[key for key in beside if key == "decision_name"],
                write_statistics=beside,
            )
            arrow.default_memory_pool().release_unused()
        body, footer = _footers.split(sink.parts)
        return Encoded(body, _footers.MAGIC, footer, len(block))

    def finish(self, file: BinaryIO, parts: Sequence[tuple[int, bytes]], rows: int) -> None:
        """Write one footer for all row groups."""
        starts, footers = zip(*parts, strict=True)
        file.write(_footers.joined(footers, starts))


def import_arrow() -> tuple[Any, Any]:
    """Return pyarrow and its Parquet module, or say how to get them."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            "Parquet files need pyarrow; install it with: pip install 'cordcal[parquet]'"
        ) from error
    return pyarrow, pyarrow.parquet
