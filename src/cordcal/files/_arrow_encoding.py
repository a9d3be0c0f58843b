"""Reports as Arrow tables: Parquet and Feather."""

from __future__ import annotations

import json
import struct
import threading
from abc import ABC
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from cordcal.files import _footers
from cordcal.files._arrow import import_arrow
from cordcal.files._encoding import Encoded, Encoder, OutputBlock
from cordcal.files._memory import Sink

# A quarter of Arrow's default: pages in the making are memory too.
_PAGE_BYTES = 2**18


class _Tables(Encoder, ABC):
    """A format that holds Arrow tables; reports are columns of fixed-size lists, or one a class."""

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


class Parquet(_Tables):
    """A row group a block."""

    _encoding = threading.Lock()

    def encode(self, block: OutputBlock) -> Encoded:
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

    def finish(self, file: BinaryIO, parts: Sequence[tuple[int, bytes]], rows: int) -> None:
        """Write one footer for all row groups."""
        starts, footers = zip(*parts, strict=True)
        file.write(_footers.joined(footers, starts))


def _is_report(name: str, block: OutputBlock) -> bool:
    return name.partition(":")[0] in block.reports


class Feather(_Tables):
    """A record batch a block, in Arrow's own file format, not compressed.

    A message of the format holds one batch and can be appended to a file; what lists them at
    the end is written when all are there.  Categories become what they stand for: the format
    has one dictionary for the whole file, which no block knows.
    """

    _MAGIC = b"ARROW1"

    def encode(self, block: OutputBlock) -> Encoded:
        """Return a record batch, and what its place in the list needs."""
        arrow, _ = import_arrow()
        table = _without_dictionaries(arrow, self._table(arrow, block)).combine_chunks()
        # Of no rows there is no batch: the schema alone is wanted then.
        batches = table.to_batches() or [arrow.RecordBatch.from_pylist([], table.schema)]
        message = batches[0].serialize()
        described = 8 + int.from_bytes(memoryview(message)[4:8], "little")
        place = struct.pack("<qq", described, len(message) - described)
        # The magic, filled up to eight bytes.
        head = self._MAGIC + bytes(2) + table.schema.serialize().to_pybytes()
        footer = place + self._template(arrow, batches[0])
        return Encoded([memoryview(message)], head, footer, len(block))

    def _template(self, arrow: Any, batch: Any) -> bytes:
        """Return the list at the end of a file that holds one batch."""
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch.slice(0, 0))
        data = sink.getvalue().to_pybytes()
        size = int.from_bytes(data[-10:-6], "little")
        return bytes(data[-10 - size : -10])

    def finish(self, file: BinaryIO, parts: Sequence[tuple[int, bytes]], rows: int) -> None:
        """List the batches."""
        places = [(start, *struct.unpack("<qq", footer[:16])) for start, footer in parts]
        listed = with_blocks(parts[0][1][16:], places)
        file.write(b"\xff\xff\xff\xff" + bytes(4))  # no more messages
        file.write(listed + len(listed).to_bytes(4, "little") + self._MAGIC)


def _without_dictionaries(arrow: Any, table: Any) -> Any:
    for at, field in enumerate(table.schema):
        if arrow.types.is_dictionary(field.type):
            plain = table.column(at).cast(field.type.value_type)
            table = table.set_column(at, field.with_type(field.type.value_type), plain)
    return table


# The field of the list's table that names the record batches, in File.fbs of Arrow's format.
_RECORD_BATCHES = 3


def with_blocks(footer: bytes, blocks: Sequence[tuple[int, int, int]]) -> bytes:
    """Return a Feather file's footer that lists other record batches.

    It is a FlatBuffer: a table's fields point forward to what they hold, so a longer list is
    put behind everything else and the field is turned to it.

    Parameters
    ----------
    footer : bytes
        The footer of a file with the same columns.
    blocks : sequence of (int, int, int)
        Where each batch begins, and the bytes of its description and of its values.
    """
    data = bytearray(footer)
    (table,) = struct.unpack_from("<I", data, 0)
    (back,) = struct.unpack_from("<i", data, table)
    (field,) = struct.unpack_from("<H", data, table - back + 4 + 2 * _RECORD_BATCHES)
    # The list's length takes four bytes, and its entries begin at a multiple of eight.
    data += bytes(-(len(data) + 4) % 8)
    struct.pack_into("<I", data, table + field, len(data) - (table + field))
    data += struct.pack("<I", len(blocks))
    for block in blocks:
        data += struct.pack("<qi4xq", *block)
    return bytes(data)
