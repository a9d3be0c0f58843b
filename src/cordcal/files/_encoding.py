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
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal.files import _footers
from cordcal.files._arrow import import_arrow
from cordcal.files._csv import is_number
from cordcal.files._memory import Sink
from cordcal.files._rest import Rest

# A quarter of Arrow's default: pages in the making are memory too.
_PAGE_BYTES = 2**18

# What makes a spreadsheet take a cell for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

SUFFIXES = (".npz", ".npy", ".csv", ".parquet")


Layout = Literal["wide", "list"]
"""Reports as one column a class, or as one column of lists."""


@dataclass(frozen=True, eq=False)
class ReportBlock:
    """Rows of an output: reports by name, the decisions they keep, and more columns.

    ``rest`` stands before them: the columns of the input that are passed on.
    """

    reports: Mapping[str, npt.NDArray[Any]]
    decision: npt.NDArray[np.integer[Any]]
    extra: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    rest: Rest | None = None

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

    def _headings(self, report: str, classes: int) -> list[str]:
        """Return what the columns of a report are called, one a class."""
        return [f"{report}:{name}" for name in self.names or range(classes)]

    @abstractmethod
    def encode(self, block: ReportBlock) -> Encoded:
        """Return a block's bytes."""

    @abstractmethod
    def finish(self, file: BinaryIO, parts: Sequence[tuple[int, bytes]], rows: int) -> None:
        """End the file; ``parts`` are the blocks' positions and footers."""


def encoder_for(
    path: Any,
    class_names: Sequence[str] | None = None,
    *,
    spreadsheet: bool = False,
    layout: Layout = "list",
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
    return kinds[suffix](class_names, spreadsheet=spreadsheet, layout=layout)


class CSV(Encoder):
    """A line a row: what is passed on, the decision, the reports class by class, and the rest.

    With ``spreadsheet`` words that a spreadsheet would run as formulas begin with an
    apostrophe; numbers stay as they are.
    """

    def _head(self, block: ReportBlock) -> bytes:
        header = [
            heading
            for report, values in block.reports.items()
            for heading in self._headings(report, values.shape[1])
        ]
        passed = () if block.rest is None else block.rest.names
        return _lines([[*passed, "decision", *header, *block.extra]])

    def _words(self, words: list[str]) -> list[str]:
        return list(map(_guarded, words)) if self.spreadsheet else words

    def encode(self, block: ReportBlock) -> Encoded:
        """Return the lines, with the shortest digits that read back as the same numbers."""
        kept = block.decision.tolist()
        if self.names is not None:
            names = self._words(self.names)
            kept = [names[index] for index in kept]
        passed = [] if block.rest is None else block.rest.columns.values()
        before = [self._words(column.texts()) for column in passed]
        rows = [report.astype(np.str_) for report in block.reports.values()]
        more = [np.asarray(column).astype(np.str_) for column in block.extra.values()]
        lines = (
            [
                *(column[at] for column in before),
                name,
                *(cell for row in rows for cell in row[at]),
                *(column[at] for column in more),
            ]
            for at, name in enumerate(kept)
        )
        return Encoded([_lines(lines)], self._head(block), rows=len(block))

    def finish(self, file: BinaryIO, parts: Sequence[tuple[int, bytes]], rows: int) -> None:
        """Do nothing: the last line ends the file."""


def _guarded(cell: str) -> str:
    """Return a cell that no spreadsheet runs."""
    return f"'{cell}" if cell.startswith(_FORMULA) and not is_number(cell) else cell


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
        table = self._table(arrow, block)
        flat = [
            field.name
            for field in table.schema
            if not (arrow.types.is_nested(field.type) or _is_report(field.name, block))
        ]
        sink = Sink()
        # One at a time: Arrow takes several times a block's memory to encode a list column.
        with self._encoding:
            parquet.write_table(
                table,
                sink,
                row_group_size=max(1, len(block)),
                data_page_size=_PAGE_BYTES,
                # Probabilities hardly repeat, and nobody looks for their smallest.
                use_dictionary=[name for name in flat if name not in ("decision", *block.extra)],
                write_statistics=flat,
            )
            arrow.default_memory_pool().release_unused()
        body, footer = _footers.split(sink.parts)
        return Encoded(body, _footers.MAGIC, footer, len(block))

    def _table(self, arrow: Any, block: ReportBlock) -> Any:
        passed = {} if block.rest is None else block.rest.columns
        columns = {name: column.arrow(name) for name, column in passed.items()}
        own: dict[str, Any] = {"decision": arrow.array(block.decision)}
        if self.names is not None:
            own["decision_name"] = arrow.array([self.names[index] for index in block.decision])
        for key, report in block.reports.items():
            own |= self._report(arrow, key, report)
        own |= {key: arrow.array(column) for key, column in block.extra.items()}
        columns |= {key: (arrow.field(key, array.type), array) for key, array in own.items()}
        fields, arrays = zip(*columns.values(), strict=True)
        metadata = None if self.names is None else {"class_names": json.dumps(self.names)}
        return arrow.table(list(arrays), schema=arrow.schema(fields, metadata))

    def _report(self, arrow: Any, key: str, report: npt.NDArray[Any]) -> dict[str, Any]:
        """Return a report as one column of lists, or as one column a class."""
        if self.layout == "list":
            flat = arrow.array(np.ascontiguousarray(report).reshape(-1))
            return {key: arrow.FixedSizeListArray.from_arrays(flat, report.shape[1])}
        headings = self._headings(key, report.shape[1])
        return {name: arrow.array(report[:, at]) for at, name in enumerate(headings)}

    def finish(self, file: BinaryIO, parts: Sequence[tuple[int, bytes]], rows: int) -> None:
        """Write one footer for all row groups."""
        starts, footers = zip(*parts, strict=True)
        file.write(_footers.joined(footers, starts))


def _is_report(name: str, block: ReportBlock) -> bool:
    return name.partition(":")[0] in block.reports
