"""Arrow's own files (Feather): a record batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from cordcal.files._arrow import group_fields, import_arrow, not_readable
from cordcal.files.columns import ColumnSpec
from cordcal.files.contents import Contents, table_contents
from cordcal.files.opening import no_rows
from cordcal.files.passthrough import PartColumns
from cordcal.files.sources import (
    SAMPLE_ROWS,
    Source,
    Span,
    row_bytes,
    schema_columns,
    spans_of_rows,
)

MAGIC = b"ARROW1"


class Ipc(Source):
    """A Feather file: its record batches, or parts of them where they are large."""

    def __init__(self, path: str, spec: ColumnSpec) -> None:
        self.path = path
        self.arrow, _ = import_arrow()
        with self._named():
            reader = self._reader(None)
            self.schema, self.batches = reader.schema, reader.num_record_batches
            # One column tells how many rows a batch has; the others are not decoded for it.
            counter = self._reader([self.schema.names[0]]) if self.schema.names else reader
            sizes = [counter.get_batch(at).num_rows for at in range(self.batches)]
            filled = next((at for at, size in enumerate(sizes) if size), None)
            if filled is None:
                raise no_rows(path)
            first = reader.get_batch(filled)
            first.validate(full=True)
            self.first = first.slice(0, SAMPLE_ROWS)
        self.grouping = group_fields(self.schema, spec, path)
        size = row_bytes(self.sample(), self.first if spec.rest else None)
        self.groups: list[list[Span]] = []
        for rows in sizes:
            done = self.groups[-1][-1][1] if any(self.groups) else 0
            self.groups.append(spans_of_rows(rows, size, done) if rows else [(done, done)])
        self.spans = tuple(span for group in self.groups for span in group if span[0] < span[1])

    def sample(self) -> Contents:
        """Return the first rows."""
        return table_contents(self.path, "feather", self.first, self.grouping)

    def part_columns(self, matrix: str) -> list[PartColumns]:
        """Return the columns of the schema."""
        scores = self.grouping.matrices[matrix]
        return schema_columns(self.path, self.schema, scores, partial(_column_chunks, self.path))

    def pieces(
        self, first: int, wanted: Sequence[str], *, rest: bool = False
    ) -> Iterator[Contents]:
        """Yield the spans' rows; batches before the first span are not touched."""
        matrices = self.grouping.matrices
        columns = [column for name in wanted for column in matrices.get(name, (name,))]
        row = self.spans[first][0] if first < len(self.spans) else 0
        with self._named(f"{self.path}, from row {row} on,"):
            reader = self._reader(None if rest else columns)
            done = 0
            for at, spans in enumerate(self.groups):
                filled = [span for span in spans if span[0] < span[1]]
                late = filled[max(0, first - done) :]
                done += len(filled)
                if late:
                    yield from self._batch(reader.get_batch(at), spans[0][0], late, wanted, rest)

    def _batch(
        self, batch: Any, begin: int, spans: list[Span], wanted: Sequence[str], rest: bool
    ) -> Iterator[Contents]:
        batch.validate(full=True)  # Arrow trusts lengths and offsets, which may be damaged
        for start, stop in spans:
            part = batch.slice(start - begin, stop - start)
            found = table_contents(self.path, "feather", part, self.grouping)
            if rest and found.others is not None:
                found = replace(found, rest=found.others(wanted[0]))
            yield found

    def _reader(self, columns: list[str] | None) -> Any:
        fields = None
        if columns is not None:
            fields = sorted(self.schema.get_field_index(name) for name in set(columns))
        return _open_file(self.path, fields)

    def _named(self, where: str | None = None) -> AbstractContextManager[None]:
        return _readable(where or self.path)


def _open_file(path: str, fields: list[int] | None) -> Any:
    arrow, _ = import_arrow()
    options = None if fields is None else arrow.ipc.IpcReadOptions(included_fields=fields)
    return arrow.ipc.open_file(arrow.OSFile(path), options=options)


def _column_chunks(path: str, column: str) -> Iterator[Any]:
    """Read one column of a Feather file."""
    with _readable(path):
        reader = _open_file(path, [_open_file(path, None).schema.get_field_index(column)])
        for at in range(reader.num_record_batches):
            batch = reader.get_batch(at)
            batch.validate(full=True)
            yield batch.column(0)


@contextmanager
def _readable(where: str) -> Iterator[None]:
    arrow, _ = import_arrow()
    try:
        yield
    except (arrow.ArrowException, OSError, OverflowError) as error:
        raise not_readable(where, error, "Feather") from error


def read_ipc(name: str, data: bytes, spec: ColumnSpec) -> Contents:
    """Read a whole file."""
    arrow, _ = import_arrow()
    try:
        table = arrow.ipc.open_file(arrow.BufferReader(data)).read_all()
        table.validate(full=True)  # Arrow trusts lengths and offsets, which may be damaged
    except (arrow.ArrowException, OSError, OverflowError) as error:
        raise not_readable(name, error, "Feather") from error
    return table_contents(name, "feather", table, group_fields(table.schema, spec, name))
