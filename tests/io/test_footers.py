"""Row groups that were encoded apart make one Parquet file."""

from __future__ import annotations

import io

import numpy as np
import pytest

from cordcal.io import _footers

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def encoded(table: object) -> memoryview:
    sink = arrow.BufferOutputStream()
    parquet.write_table(table, sink, use_dictionary=["word"])
    return memoryview(sink.getvalue())


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


@pytest.mark.parametrize("parts", [1, 2, 40])
def test_joined_row_groups_read_like_one_file(parts: int) -> None:
    tables = [table_of(1 + seed % 9, seed) for seed in range(parts)]
    out, footers, starts = bytearray(_footers.MAGIC), [], []
    for table in tables:
        body, footer = _footers.split(encoded(table))
        starts.append(len(out))
        out += body
        footers.append(footer)
    out += _footers.joined(footers, starts)
    file = parquet.ParquetFile(io.BytesIO(bytes(out)))
    assert file.num_row_groups == parts
    assert file.schema_arrow.metadata[b"class_names"] == b"[]"
    assert file.read().equals(arrow.concat_tables(tables))
    for index, table in enumerate(tables):
        assert file.read_row_group(index).equals(table)
