"""Probabilities as Arrow tables: Parquet and Feather."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from cordcal.files._arrow import import_arrow
from cordcal.files.encoding import Encoder, OutputBlock, Piece

# A quarter of Arrow's default: pages in the making are memory too.
_PAGE_BYTES = 2**18


class _Tables(Encoder, ABC):
    """A format of Arrow tables.  A piece is a table as an Arrow stream, not compressed.

    Probabilities are columns of fixed-size lists, or one column per class.
    """

    joins = True

    def encode(self, block: OutputBlock) -> Piece:
        """Return an Arrow stream of one table."""
        arrow, _ = import_arrow()
        table = self._table(arrow, block)
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return Piece(memoryview(sink.getvalue()) if len(block) else b"", len(block))

    @contextmanager
    def joiner(self, file: BinaryIO) -> Iterator[_TableJoiner]:
        """Yield what writes the tables of pieces to one file."""
        joiner = _TableJoiner(file, self)
        try:
            yield joiner
        except BaseException:
            with suppress(Exception):  # the file is removed
                joiner.close()
            raise
        joiner.close()

    @abstractmethod
    def open_writer(self, file: BinaryIO, schema: Any) -> Any:
        """Return pyarrow's writer of a file of such tables."""

    def prepare(self, table: Any) -> Any:
        """Return a table as the format can hold it."""
        return table

    def _table(self, arrow: Any, block: OutputBlock) -> Any:
        passed = {} if block.rest is None else block.rest.columns
        columns = {name: column.to_arrow(name) for name, column in passed.items()}
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
        headings = self.headings(key, report.shape[1])
        return {name: arrow.array(report[:, at]) for at, name in enumerate(headings)}


class _TableJoiner:
    """Writes each table as one row group or record batch."""

    def __init__(self, file: BinaryIO, encoder: _Tables) -> None:
        self._file, self._encoder = file, encoder
        self._writer: Any = None

    def append(self, body: bytes | memoryview) -> None:
        """Write the table of a piece."""
        arrow, _ = import_arrow()
        with arrow.ipc.open_stream(arrow.py_buffer(body)) as stream:
            table = self._encoder.prepare(stream.read_all())
        if self._writer is None:
            self._writer = self._encoder.open_writer(self._file, table.schema)
        self._writer.write_table(table, max(1, len(table)))
        arrow.default_memory_pool().release_unused()

    def close(self) -> None:
        """Write the end of the file."""
        if self._writer is not None:
            self._writer.close()


class Parquet(_Tables):
    """A row group per piece."""

    def open_writer(self, file: BinaryIO, schema: Any) -> Any:
        """Return a writer that spends no dictionaries and statistics on probabilities."""
        arrow, parquet = import_arrow()
        types = {
            field.name: field.type
            for field in schema
            if not arrow.types.is_nested(field.type)
            and field.name.partition(":")[0] not in ("repaired", "direct")
        }
        return parquet.ParquetWriter(
            file,
            schema,
            data_page_size=_PAGE_BYTES,
            # Floating numbers and row numbers hardly repeat.
            use_dictionary=[
                name
                for name, kind in types.items()
                if not arrow.types.is_floating(kind) and name not in ("decision", "row")
            ],
            write_statistics=list(types),
        )


class Feather(_Tables):
    """A record batch per piece, in Arrow's own file format, not compressed.

    Categories become their values: the format has one dictionary for the whole file, which no
    piece knows.
    """

    def open_writer(self, file: BinaryIO, schema: Any) -> Any:
        """Return a writer of Arrow's file format."""
        return import_arrow()[0].ipc.new_file(file, schema)

    def prepare(self, table: Any) -> Any:
        """Return a table of one chunk without dictionaries."""
        arrow, _ = import_arrow()
        for at, field in enumerate(table.schema):
            if arrow.types.is_dictionary(field.type):
                plain = table.column(at).cast(field.type.value_type)
                table = table.set_column(at, field.with_type(field.type.value_type), plain)
        return table.combine_chunks()
