"""Parts whose other columns differ, applied into one file: every value right, or a refusal."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cordcal
from cordcal.files import open_scores
from cordcal.files.apply import ApplyOptions, ModelApplication, apply_model

arrow = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

NAMES = ("ant", "bee", "cat")
DAY = datetime.date(2024, 2, 28)
NOON = datetime.datetime(2024, 2, 28, 12, 30, 15)
UTC = NOON.replace(tzinfo=datetime.UTC)

pytestmark = pytest.mark.filterwarnings("default:some parts lack a column")


def column(values: list[Any], kind: Any = None, **options: Any) -> tuple[Any, Any]:
    array = arrow.array(values, kind)
    return arrow.field("x", array.type, **options), array


def pairs() -> dict[str, tuple[Any, Any, Any]]:
    """Return the column of two parts, and the type of both together; None where it is refused."""
    a = arrow
    return {
        "int32, int64": (column([1, -2], a.int32()), column([3, 2**40]), a.int64()),
        "int8, int64": (column([1, -2], a.int8()), column([2**60, 4]), a.int64()),
        "int64, double with null": (column([1, 2]), column([1.0, None]), a.float64()),
        "large int64, double": (column([2**53 + 1, 2]), column([1.5, None]), None),
        "float, double": (column([0.1, 2], a.float32()), column([0.1, 3]), a.float64()),
        "int32, float": (column([1, 2], a.int32()), column([0.5, 3], a.float32()), a.float64()),
        "uint32, int32": (
            column([2**32 - 1, 2], a.uint32()),
            column([-1, 2], a.int32()),
            a.int64(),
        ),
        "uint64, int64": (column([1, 2], a.uint64()), column([-1, 2]), a.int64()),
        "large uint64, int64": (column([2**63, 2], a.uint64()), column([-1, 2]), None),
        "timestamp ms, us": (
            column([NOON, None], a.timestamp("ms")),
            column([NOON.replace(microsecond=1), NOON], a.timestamp("us")),
            a.timestamp("us"),
        ),
        "timestamp s, ns overflow": (
            column([NOON.replace(year=9999)], a.timestamp("s")),
            column([NOON], a.timestamp("ns")),
            None,
        ),
        "time zones": (
            column([UTC, None], a.timestamp("us", "UTC")),
            column([NOON, None], a.timestamp("us")),
            None,
        ),
        "decimal scales": (
            column([Decimal("1.25"), None], a.decimal128(5, 2)),
            column([Decimal("12.125"), Decimal("-3.000")], a.decimal128(6, 3)),
            a.decimal128(6, 3),
        ),
        "decimals without room": (
            column([Decimal(1), None], a.decimal128(38, 0)),
            column([Decimal("0.5"), None], a.decimal128(38, 37)),
            None,
        ),
        "null, string": (column([None, None], a.null()), column(["u", None]), a.string()),
        "string, large_string": (
            column(["a", "b"]),
            column(["c", None], a.large_string()),
            a.large_string(),
        ),
        "required, nullable": (
            column([1, 2], a.int64(), nullable=False),
            column([3, None], a.int64()),
            a.int64(),
        ),
        "string, int64": (column(["1", "2"]), column([1, 2]), None),
        "bool, int64": (column([True, False]), column([1, 2]), None),
        "date32, date64": (column([DAY], a.date32()), column([DAY], a.date64()), a.date64()),
        "date, timestamp": (column([DAY]), column([NOON]), None),
        "time ms, us": (
            column([NOON.time()], a.time32("ms")),
            column([NOON.time()], a.time64("us")),
            a.time64("us"),
        ),
        "lists of int32, int64": (
            column([[1], None], a.list_(a.int32())),
            column([[2**40, None], []], a.list_(a.int64())),
            a.list_(a.int64()),
        ),
        "structs that differ": (column([{"u": 1}]), column([{"v": 1}]), None),
        "category, string": (
            (arrow.field("x", a.dictionary(a.int8(), a.string())), _category(["u", "v"])),
            column(["w", None]),
            a.string(),
        ),
        "absent, int64": (None, column([1, 2]), a.int64()),
        "string, absent": (column(["a", None]), None, a.string()),
    }


def _category(values: list[str]) -> Any:
    return arrow.array(values).dictionary_encode().cast(arrow.dictionary(arrow.int8(), "string"))


@pytest.fixture(scope="module")
def model() -> cordcal.PreservingCalibrator:
    logits = np.random.default_rng(0).normal(size=(200, 3))
    labels = np.where(np.arange(200) % 4, logits.argmax(axis=1), np.arange(200) % 3)
    return cordcal.PreservingCalibrator("ts", class_names=NAMES).fit(logits, labels)


def write_part(path: Path, part: Any, start: int, *, reverse: bool) -> list[dict[str, Any]]:
    """Write a part with an identifier, the column and scores; return its rows."""
    rows = 2 if part is None else len(part[1])
    scores = np.random.default_rng(start).normal(size=(rows, 3))
    fields = [arrow.field("id", arrow.int64())]
    arrays = [arrow.array(range(start, start + rows), arrow.int64())]
    if part is not None:
        fields, arrays = [*fields, part[0]], [*arrays, part[1]]
    for at, name in enumerate(NAMES):
        fields.append(arrow.field(name, arrow.float64()))
        arrays.append(arrow.array(scores[:, at]))
    order = range(len(fields))[::-1] if reverse else range(len(fields))
    table = arrow.table(
        [arrays[at] for at in order], schema=arrow.schema([fields[at] for at in order])
    )
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
        table = parquet.read_table(path)  # Parquet stores some types as others
    else:
        feather.write_feather(table, path)
    return list(table.to_pylist())


def apply_parts(model: Any, folder: Path, output: Path) -> None:
    file = open_scores(folder, classes=NAMES)
    apply_model(ModelApplication(model, [file], ApplyOptions(class_names=NAMES)), output)


def parsed(cell: Any, like: Any) -> Any:
    """Return what a cell of CSV or a value of JSON says, as a value like another."""
    if cell in ("", None):
        return None
    if isinstance(like, datetime.datetime | datetime.time | datetime.date):
        return type(like).fromisoformat(cell)
    if isinstance(like, Decimal):
        return Decimal(cell)
    if isinstance(cell, str) and not isinstance(like, str):
        return json.loads(cell)
    return cell


@pytest.mark.parametrize("source", ["parquet", "feather"])
@pytest.mark.parametrize("name", list(pairs()))
@pytest.mark.parametrize("order", ["as they are", "the other first"])
def test_arrow_parts(tmp_path: Path, model: Any, name: str, source: str, order: str) -> None:
    first, second, common = pairs()[name]
    if order != "as they are":
        first, second = second, first
    folder = tmp_path / "in"
    rows = write_part(folder / f"1.{source}", first, 0, reverse=False)
    rows += write_part(folder / f"2.{source}", second, 10, reverse=True)
    outputs = [tmp_path / f"out.{target}" for target in ("parquet", "feather", "jsonl", "csv")]
    if common is None and _types_agree(folder):
        pytest.skip("the format stores both types as one")
    for output in outputs:
        if common is None:
            with pytest.raises(cordcal.InputError) as caught:
                apply_parts(model, folder, output)
            message = str(caught.value)
            assert "'x'" in message
            assert f"1.{source}" in message
            assert f"2.{source}" in message
            assert list(tmp_path.iterdir()) == [folder]
            continue
        apply_parts(model, folder, output)
    if common is None:
        return
    ids, values = [row["id"] for row in rows], [row.get("x") for row in rows]
    for output, read in zip(outputs, (parquet.read_table, feather.read_table), strict=False):
        table = read(output)
        table.validate(full=True)
        assert table["id"].to_pylist() == ids
        assert table["x"].to_pylist() == values
        field = table.schema.field("x")
        assert field.nullable
        if source == "feather":  # Parquet has no date64, among others
            assert field.type == _stored(common, output.suffix)
        frame = table.to_pandas()
        assert frame["id"].tolist() == ids
        assert len(frame["x"]) == len(values)
    lines = [json.loads(line) for line in outputs[2].read_text().splitlines()]
    assert [line["id"] for line in lines] == ids
    assert [parsed(line["x"], value) for line, value in zip(lines, values, strict=True)] == values
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(outputs[3], dtype=str, keep_default_na=False)
    assert frame["id"].tolist() == list(map(str, ids))
    cells = zip(frame["x"], values, strict=True)
    assert [parsed(cell, value) for cell, value in cells] == values


def _types_agree(folder: Path) -> bool:
    files = sorted(folder.iterdir())
    read = parquet.read_schema if files[0].suffix == ".parquet" else _feather_schema
    return len({read(file).field("x").type for file in files}) == 1


def _feather_schema(path: Path) -> Any:
    return feather.read_table(path).schema


def _stored(common: Any, suffix: str) -> Any:
    """Return the type that is read back: Parquet stores dates as days, and no seconds."""
    return arrow.date32() if suffix == ".parquet" and common == arrow.date64() else common


CSV_PAIRS: dict[str, tuple[list[str] | None, list[str] | None]] = {
    "integers": (["1", "2"], ["3", ""]),
    "integer, float": (["1", "2"], ["0.5", "3"]),
    "number, word": (["1", "2"], ["a", ""]),
    "leading zeros": (["007", "1"], ["2", "3"]),
    "long digits": (["1", "2"], ["12345678901234567890", "3"]),
    "empty, integer": (["", ""], ["4", "5"]),
    "quoted": (["a, b", 'say "x"'], ["two\nlines", "1"]),
    "absent": (["1", "2"], None),
    "absent first": (None, ["a", "b"]),
}


def quote(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if set(cell) & set(',"\n') else cell


@pytest.mark.parametrize("name", list(CSV_PAIRS))
def test_csv_parts(tmp_path: Path, model: Any, name: str) -> None:
    first, second = CSV_PAIRS[name]
    cells = [cell for part in (first, second) for cell in part or ["", ""]]
    values = [cell or None for cell in cells]  # text stays text, and empty cells are null
    (tmp_path / "in").mkdir()
    head = ["id", "x", *NAMES]
    for at, part in enumerate((first, second)):
        lines = [{"id": f"{at}{row}x", "ant": "0.5", "bee": "1.5", "cat": "0.25"} for row in (0, 1)]
        names = [heading for heading in head if part is not None or heading != "x"]
        for line, cell in zip(lines, part or (), strict=False):
            line["x"] = cell
        names = names[::-1] if at else names
        rows = [names, *([line[heading] for heading in names] for line in lines)]
        content = "\n".join(",".join(map(quote, row)) for row in rows) + "\n"
        (tmp_path / f"in/{at}.csv").write_text(content)
    for target in ("csv", "parquet", "feather", "jsonl"):
        apply_parts(model, tmp_path / "in", tmp_path / f"out.{target}")
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    assert frame["x"].tolist() == cells
    assert frame["id"].tolist() == ["00x", "01x", "10x", "11x"]
    for table in (
        parquet.read_table(tmp_path / "out.parquet"),
        feather.read_table(tmp_path / "out.feather"),
    ):
        assert table["x"].to_pylist() == values
        assert table["id"].to_pylist() == ["00x", "01x", "10x", "11x"]
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["x"] for line in lines] == values


JSON_PAIRS: dict[str, tuple[list[Any], list[Any], list[Any]]] = {
    "integer, float": ([1, 2], [0.5, None], ["1", "2", "0.5", None]),
    "large integer, float": ([2**53 + 1, 2], [0.5, None], [str(2**53 + 1), "2", "0.5", None]),
    "larger integers": ([2**63], [2**70], [str(2**63), str(2**70)]),
    "integer, word": ([1, 2], ["007", None], ["1", "2", "007", None]),
    "bool, integer": ([True], [1], ["true", "1"]),
    "null, word": ([None, None], ["a"], [None, None, "a"]),
    "lists": ([[1], []], [[2.5]], ["[1]", "[]", "[2.5]"]),
    "objects": ([{"u": 1}, {}], [{"v": "w"}], ['{"u": 1}', "{}", '{"v": "w"}']),
    "object, list": ([{"u": 1}], [[1]], ['{"u": 1}', "[1]"]),
}


@pytest.mark.parametrize("name", list(JSON_PAIRS))
def test_jsonl_parts(tmp_path: Path, model: Any, name: str) -> None:
    first, second, values = JSON_PAIRS[name]
    (tmp_path / "in").mkdir()
    for at, part in enumerate((first, second)):
        rows = [{"x": value, "ant": 0.5, "bee": 1.5, "cat": 0.25} for value in part]
        rows = [dict(reversed(row.items())) for row in rows] if at else rows
        lines = [json.dumps(row) + "\n" for row in rows]
        (tmp_path / f"in/{at}.jsonl").write_text("".join(lines))
    for target in ("jsonl", "csv", "parquet", "feather"):
        apply_parts(model, tmp_path / "in", tmp_path / f"out.{target}")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["x"] for line in lines] == [*first, *second]
    for table in (
        parquet.read_table(tmp_path / "out.parquet"),
        feather.read_table(tmp_path / "out.feather"),
    ):
        assert table["x"].to_pylist() == values
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    cells = [
        "" if value is None else value if isinstance(value, str) else json.dumps(value)
        for value in (*first, *second)
    ]
    assert frame["x"].tolist() == cells


def test_a_column_that_parts_lack_is_mentioned_once(tmp_path: Path, model: Any) -> None:
    for at in range(4):
        part = column(["a", "b"]) if at == 1 else None
        write_part(tmp_path / f"in/{at}.parquet", part, 10 * at, reverse=False)
    with pytest.warns(UserWarning, match="'x' in .*0.parquet and 2 more") as caught:
        apply_parts(model, tmp_path / "in", tmp_path / "out.csv")
    assert len(caught) == 1


def test_the_files_of_a_refusal_are_those_that_differ(tmp_path: Path, model: Any) -> None:
    for at, values in enumerate(([1, 2], [3.5, None], ["a", "b"])):
        write_part(tmp_path / f"in/{at}.parquet", column(values), 10 * at, reverse=False)
    with pytest.raises(cordcal.InputError) as caught:
        apply_parts(model, tmp_path / "in", tmp_path / "out.csv")
    assert "2.parquet" in str(caught.value)
    assert "1.parquet" in str(caught.value)
