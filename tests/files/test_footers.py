"""Row groups that were encoded apart make one Parquet file."""

from __future__ import annotations

import io

import numpy as np
import pytest

from cordcal.files import _footers, _memory

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def encoded(table: object) -> list[memoryview]:
    sink = _memory.Sink()
    parquet.write_table(table, sink, use_dictionary=["word"])
    return sink.parts


def table_of(rows: int, seed: int) -> object:
    values = np.random.default_rng(seed).random((rows, 7), dtype=np.float32)
    columns = {
        "count": arrow.array(values.argmax(axis=1)),
        "word": arrow.array([f"class {index}" for index in values.argmax(axis=1)]),
        "list": arrow.FixedSizeListArray.from_arrays(arrow.array(values.reshape(-1)), 7),
    }
    return arrow.table(columns).replace_schema_metadata({"class_names": "[]"})


def test_a_footer_survives_decoding_and_encoding() -> None:
    _, footer = _footers.split(encoded(table_of(50, 0)))
    assert _footers.encode(_footers.decode(footer)) == footer


def test_pieces_of_any_size() -> None:
    whole = b"".join(encoded(table_of(50, 0)))
    body, footer = _footers.split([whole])
    for size in (1, 3, 1000):
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        cut, found = _footers.split(pieces)
        assert (b"".join(cut), found) == (b"".join(body), footer)


def test_a_sink_keeps_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "_PIECE", 10)
    sink = _memory.Sink()
    for data in (b"abc", b"", b"0123456789012345678901234", b"x"):
        assert sink.write(data) == len(data)
    assert b"".join(sink.parts) == b"abc0123456789012345678901234x"


@pytest.mark.parametrize("parts", [1, 2, 40])
def test_joined_row_groups_read_like_one_file(parts: int) -> None:
    tables = [table_of(1 + seed % 9, seed) for seed in range(parts)]
    out, footers, starts = bytearray(_footers.MAGIC), [], []
    for table in tables:
        body, footer = _footers.split(encoded(table))
        starts.append(len(out))
        out += b"".join(body)
        footers.append(footer)
    out += _footers.joined(footers, starts)
    file = parquet.ParquetFile(io.BytesIO(bytes(out)))
    assert file.num_row_groups == parts
    assert file.schema_arrow.metadata[b"class_names"] == b"[]"
    assert file.read().equals(arrow.concat_tables(tables))
    for index, table in enumerate(tables):
        assert file.read_row_group(index).equals(table)
