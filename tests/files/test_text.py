"""CSV and JSONL: the header, quotes, blank lines, encodings and values that stay as written."""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cordcal
from cordcal.files import inspect, open_scores, read_scores
from cordcal.files.columns import TextOptions
from cordcal.files.disk import InputFile
from errors import refused

pa = pytest.importorskip("pyarrow")

LOGITS = np.random.default_rng(7).normal(size=(20, 3))
BELOW = "\n0.5,1.5,2.25\n-1.0,0.25,3.5\n"
TWO = "\n0.5,0.5\n0.25,0.75\n"


def write(folder: Path, text: str, name: str = "s.csv") -> Path:
    path = folder / name
    path.write_text(text, newline="")
    return path


def table_of(path: Path, **options: Any) -> Any:
    """Return all columns of a text file."""
    from cordcal.files.tables import open_file

    file = open_file(InputFile(str(path)), TextOptions(**options))
    return pa.concat_tables(file.tables(), promote_options="default")


@pytest.mark.parametrize(
    ("text", "rows", "names"),
    [
        ("p_ant,p_bee,p_cat" + BELOW, 2, ("ant", "bee", "cat")),
        ("0,1,2" + BELOW, 2, None),
        ('"0","1","2"' + BELOW, 2, None),
        ("0;1;2" + BELOW.replace(",", ";"), 2, None),
        ("0\t1\t2" + BELOW.replace(",", "\t"), 2, None),
        ("1_1,1_2,1_3" + BELOW, 2, ("1", "2", "3")),
        (",0,1,2\n0,0.5,1.5,2.5\n1,3.5,0.5,1.5\n", 2, None),  # the index of pandas
        ("text,0,1\nred,0.5,0.5\nblue,0.25,0.75\n", 2, None),
        ("prediction,p0,p1,p2\nx,1,2,3\ny,4,5,6\n", 2, None),
        ("\r\n0,1,2" + BELOW, 2, None),
        ("0,1,2" + BELOW.replace("\n", "\r\n"), 2, None),
        ("0,1,2" + BELOW.replace("\n", "\r"), 2, None),
        ('"p_an\nt",p_bee,p_cat' + BELOW, 2, ("an\nt", "bee", "cat")),
    ],
)
def test_the_first_line_names_the_columns(
    tmp_path: Path, text: str, rows: int, names: object
) -> None:
    path = write(tmp_path, text)
    result = read_scores(path)
    assert len(result.values) == rows
    assert result.class_names == names
    assert sum(len(batch) for batch in open_scores(path)) == rows


@pytest.mark.parametrize(
    "text",
    [
        "1,0" + TWO,
        "1,0,0\n0.5,0.25,0.25\n",
        "1,2,3" + BELOW,
        "2,1,0" + BELOW,
        "-1,0,1" + BELOW,
        "0.5,1,2" + BELOW,
        "1e0,2e0,3e0" + BELOW,
        "1,1,2" + BELOW,
        "0,1,2\n4,5,6\n7,8,10\n",
        "7,1,0\n8,0.5,0.5\n9,0.25,0.75\n",
        "0,1,2\n",
        "0.5,O.5" + TWO,
        "ant\nbee\nant\n",
    ],
)
def test_a_line_that_may_be_a_row_is_settled_by_the_caller(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    for read in (read_scores, open_scores, inspect):
        with pytest.raises(cordcal.InputError) as error:
            read(path)
        assert error.value.argument == str(path)
        assert error.value.option == ("header", "True or False")


def test_the_caller_decides(tmp_path: Path) -> None:
    path = write(tmp_path, "1,0" + TWO)
    assert read_scores(path, header=True, columns="1,0").values.shape == (2, 2)
    assert read_scores(path, header=False).values.shape == (3, 2)
    # A word above numbers is a header in any case: it may be that of another file.
    path = write(tmp_path, "p_a,p_b" + TWO)
    assert read_scores(path, header=False).values.shape == (2, 2)
    with refused(naming="no rows"):
        read_scores(write(tmp_path, "0,1,2\n"), header=True)


@pytest.mark.parametrize("index", [False, True])
def test_what_pandas_writes(tmp_path: Path, index: bool) -> None:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame(LOGITS).to_csv(tmp_path / "s.csv", index=index)
    result = read_scores(tmp_path / "s.csv")
    np.testing.assert_array_equal(result.values, LOGITS)
    assert result.class_names is None
    names = np.array(["ant", "bee", "cat"])
    frame = pandas.DataFrame(LOGITS, columns=names)
    frame["label"] = names[LOGITS.argmax(axis=1)]
    frame.to_csv(tmp_path / "s.csv", index=index)
    result = read_scores(tmp_path / "s.csv")
    assert result.class_names == ("ant", "bee", "cat")
    np.testing.assert_array_equal(result.labels, LOGITS.argmax(axis=1))


STRAY = [
    pytest.param("id,text,p_a,p_b", "{at},{quote}note {at},{score},2.5", id="middle"),
    pytest.param("text,p_a,p_b", "{quote}note {at},{score},2.5", id="first"),
    pytest.param("p_a,p_b,text", "{score},2.5,{quote}note {at}", id="last"),
    pytest.param("p_a,p_b,text,label", "{score},2.5,{quote},ant", id="alone"),
    pytest.param("text,p_a,p_b", "{quote},{score},2.5", id="alone and first"),
    pytest.param("p_a,p_b,text", "{score},2.5,{quote}", id="alone and last"),
]


@pytest.mark.parametrize("places", [(5, 30), (5, 6), (0, 39), (7,), (39,), (3, 9, 20, 21)])
@pytest.mark.parametrize(("head", "row"), STRAY)
def test_stray_quotes_swallow_nothing(
    tmp_path: Path, head: str, row: str, places: tuple[int, ...]
) -> None:
    lines = [
        row.format(at=at, score=at / 7 + 0.01, quote='"' if at in places else "")
        for at in range(40)
    ]
    path = write(tmp_path, "\n".join([head, *lines]) + "\n")
    for read in (read_scores, inspect):
        with pytest.raises(cordcal.InputError) as error:
            read(path)
        assert f"line {places[0] + 2} " in error.value.reason
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("cell", ['"x"y', 'x"y"', '5" pipe', '"x" ,'])
def test_a_quote_within_a_cell_is_refused(tmp_path: Path, cell: str) -> None:
    path = write(tmp_path, f"text,p_a,p_b\nfine,1.5,2.5\n{cell},0.5,2.5\n")
    with refused(naming=["line 3", "quote"]):
        read_scores(path)


CELLS = ["two, cells", 'a "word"', "two\nlines", "\n", "a\n\nb\n", "0.5\n0.5", "a, b\nc, d", ""]
CELLS += ["carriage\rreturn", "\r\n", " spaces ", "é\u2028", "'quoted'", "x" * 200_000]


@pytest.mark.parametrize("cell", CELLS, ids=range(len(CELLS)))
@pytest.mark.parametrize("head", ["text,p_a,p_b", "p_a,text,p_b", "p_a,p_b,text"])
def test_quoted_cells(tmp_path: Path, cell: str, head: str) -> None:
    quoted = '"' + cell.replace('"', '""') + '"'
    fields = {"text": quoted, "p_a": "0.5", "p_b": "2.5"}
    row = ",".join(fields[name] for name in head.split(","))
    path = write(tmp_path, "\n".join([head] + [row] * 4) + "\n")
    assert table_of(path)["text"].to_pylist() == [cell] * 4
    assert read_scores(path).values.shape == (4, 2)


def test_blank_lines_are_rows(tmp_path: Path) -> None:
    path = write(tmp_path, 'p_a,p_b,t\n1.5,2,x\n\n3,4,"a\n\nb"\n\n\n5,6,y\n\n\n')
    assert table_of(path)["t"].to_pylist() == ["x", None, "a\n\nb", None, None, "y"]
    (batch,) = open_scores(path)
    assert np.isnan(batch.values).all(axis=1).tolist() == [False, True, False, True, True, False]
    path = write(tmp_path, "name\na\n\nb\n\n")
    assert table_of(path, header=True)["name"].to_pylist() == ["a", None, "b"]


@pytest.mark.parametrize("size", [2**16, 300])
def test_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    rng = np.random.default_rng(3)
    texts = [CELLS[at] for at in rng.integers(len(CELLS) - 1, size=400)]
    cells = ['"' + text.replace('"', '""') + '"' for text in texts]
    lines = [f"{at / 7},{cell},{at}.5" for at, cell in enumerate(cells)]
    path = write(tmp_path, "p_a,t,p_b\n" + "\n".join(lines) + "\n")
    monkeypatch.setattr("cordcal.files.text.BLOCK_BYTES", size)
    monkeypatch.setattr("cordcal.files.text.CsvFile._blocks.__defaults__", (size,), raising=False)
    assert table_of(path)["t"].to_pylist() == texts
    np.testing.assert_array_equal(read_scores(path).values[:, 1], np.arange(400) + 0.5)


def test_a_row_with_another_number_of_cells(tmp_path: Path) -> None:
    for spoilt in ("1.5", "1.5,2.5,3.5"):
        path = write(tmp_path, f"p_a,p_b\n0.5,1.5\n{spoilt}\n")
        with refused(str(path), rows=[1], naming="the first line 2"):
            read_scores(path)


@pytest.mark.parametrize("cell", ["NA", "null", "", "nan", "N/A"])
def test_missing_numbers(tmp_path: Path, cell: str) -> None:
    path = write(tmp_path, f"p_a,p_b\n0.5,1.5\n{cell},2.5\n")
    (batch,) = open_scores(path)
    assert np.isnan(batch.values).tolist() == [[False, False], [True, False]]


def test_text_among_numbers_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "p_a,p_b\n0.5,1.5\nx,2.5\n")
    with refused(f"{path} (p_a)", rows=[1], naming="'x'"):
        read_scores(path)
    path = write(tmp_path, "p_a;p_b\n0,5;1,5\n0,25;2\n")
    with refused(naming="decimal comma", option="decimal"):
        read_scores(path, columns="p_a,p_b")
    result = read_scores(path, decimal=",")
    np.testing.assert_array_equal(result.values, [[0.5, 1.5], [0.25, 2.0]])
    path = write(tmp_path, "0,5;0,5\n0,25;0,75\n")
    result = read_scores(path, decimal=",", header=False)
    np.testing.assert_array_equal(result.values, [[0.5, 0.5], [0.25, 0.75]])


# --- what is seen and not read ---------------------------------------------------------------

PLAIN = "p_a,p_b,t\n0.5,1.5,é\n1,2,x\n"


@pytest.mark.parametrize(
    ("data", "fact", "option"),
    [
        (PLAIN.encode("cp1252"), "is not UTF-8 text (byte 0xe9 in line 2)", ("encoding", "cp1252")),
        (PLAIN.encode("utf-16"), "is UTF-16 text", ("encoding", "utf-16")),
        (PLAIN.encode("utf-16-le"), "is UTF-16 text", ("encoding", "utf-16-le")),
        (b"<!DOCTYPE html>\n<html><table>", "is an HTML page", None),
        (b"\xd0\xcf\x11\xe0" + bytes(600), "is an Excel workbook", None),
        (b"\xff\xff\xff\xff" + bytes(60), "is an Arrow stream", None),
        (bytes(100), "is not a file of a known format", None),
    ],
)
def test_what_is_not_read_is_named(tmp_path: Path, data: bytes, fact: str, option: object) -> None:
    (tmp_path / "s.csv").write_bytes(data)
    for read in (read_scores, open_scores, inspect):
        with pytest.raises(cordcal.InputError) as error:
            read(tmp_path / "s.csv")
        assert fact in error.value.reason
        assert error.value.option == option


def test_an_excel_workbook_is_named(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "s.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<x/>")
    with refused(naming="is an Excel workbook"):
        read_scores(tmp_path / "s.xlsx")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "latin-1", "utf-8"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "s.csv").write_bytes(PLAIN.encode(encoding))
    assert table_of(tmp_path / "s.csv", encoding=encoding)["t"].to_pylist() == ["é", "x"]
    with refused("encoding", naming="'nonsense'"):
        read_scores(tmp_path / "s.csv", encoding="nonsense")


@pytest.mark.parametrize("kind", ["gz", "bz2", "zst", "bom"])
def test_compressed_text_is_recognised(tmp_path: Path, kind: str) -> None:
    text = "p_a,p_b\n" + "0.5,1.5\n" * 100
    data = {
        "gz": lambda: gzip.compress(text[:300].encode()) + gzip.compress(text[300:].encode()),
        "bz2": lambda: bz2.compress(text.encode()),
        "zst": lambda: pa.compress(text.encode(), "zstd", asbytes=True),
        "bom": lambda: codecs.BOM_UTF8 + text.encode(),
    }[kind]()
    path = tmp_path / f"s.csv.{kind}"
    path.write_bytes(data)
    assert read_scores(path).values.shape == (100, 2)
    if kind in ("gz", "bz2"):
        path.write_bytes(data[:-20])
        with refused(naming=" text ("):
            read_scores(path)


# --- JSONL -----------------------------------------------------------------------------------


def lines(path: Path, rows: list[Any]) -> Path:
    texts = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(text + "\n" for text in texts))
    return path


def test_values_stay_as_they_are_written(tmp_path: Path) -> None:
    rows = [
        '{"id": 90071992547409931, "x": 12e5, "n": 1.10, "logits": [1, 2]}',
        '{"id": 9223372036854775808, "x": "007", "n": {}, "logits": [3, 4]}',
        '{"logits": [5, 6], "x": [1, {"a": null}], "late": "\\u00e9"}',
        "",
        '{"id": null, "x": true, "n": "", "logits": [7, 8]}',
    ]
    table = table_of(lines(tmp_path / "s.jsonl", rows))
    assert table["id"].to_pylist() == ["90071992547409931", "9223372036854775808", None, "null"]
    assert table["x"].to_pylist() == ["12e5", '"007"', '[1, {"a": null}]', "true"]
    assert table["n"].to_pylist() == ["1.10", "{}", None, '""']
    assert table["late"].to_pylist() == [None, None, '"\\u00e9"', None]
    np.testing.assert_array_equal(
        read_scores(tmp_path / "s.jsonl").values, np.arange(1.0, 9.0).reshape(4, 2)
    )


@pytest.mark.parametrize("line", ["[1, 2]", "{", '{"a": 1} x', '{"a" 1}', "{'a': 1}", '{"a": 1,}'])
def test_what_is_not_an_object(tmp_path: Path, line: str) -> None:
    path = lines(tmp_path / "s.jsonl", [{"logits": [1.5, 2]}, {"logits": [1, 2]}, line])
    with refused(str(path), rows=[2], naming="not a JSON object"):
        read_scores(path)


def test_a_key_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    rows = [{"logits": [1, 2], "id": 1}, '{"logits": [1, 2], "id": 1, "id": 2}']
    with refused(rows=[1], naming="'id' twice"):
        read_scores(lines(tmp_path / "s.jsonl", rows))


@pytest.mark.parametrize("value", [True, "1", [1.0], {"a": 1}])
def test_what_is_not_a_number_is_named(tmp_path: Path, value: Any) -> None:
    rows = [
        {"p_a": row[0], "p_b": row[1], "l": row[:2].tolist()} for row in LOGITS.tolist() and LOGITS
    ]
    rows[7]["p_b"] = value
    path = lines(tmp_path / "s.jsonl", rows)
    with refused(f"{path} (p_b)", rows=[7]):
        read_scores(path, columns="p_*")
    rows[7]["l"][1] = value
    path = lines(tmp_path / "s.jsonl", rows)
    with refused(f"{path} (l)", rows=[7]):
        read_scores(path, columns="l")
