"""`apply` passes on the columns that it does not need, in order, with their types."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal.files import open_scores
from cordcal.pipeline.applying import CalibratedRows, RepairedRows, apply_model
from errors import refused

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

NAMES = ("ant", "bee", "cat")
ROWS = 700
PLAIN = {"dtype": None, "with_direct": False, "explain": False}


@pytest.fixture(scope="module")
def logits() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, 3))


@pytest.fixture(scope="module")
def model(logits: np.ndarray) -> cordcal.PreservingCalibrator:
    labels = np.where(np.arange(ROWS) % 4, logits.argmax(axis=1), np.arange(ROWS) % 3)
    return cordcal.PreservingCalibrator("vs", class_names=NAMES).fit(logits, labels)


@pytest.fixture(autouse=True)
def small_batches(batch_bytes: Callable[[int], None]) -> None:
    batch_bytes(4096)


def others() -> dict:
    """Columns of many types, some with holes."""
    day = datetime.date(2024, 2, 29)
    when = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    holes = [None if at % 5 == 0 else at for at in range(ROWS)]
    return {
        "id": arrow.array(range(ROWS), arrow.uint32()),
        "name": arrow.array([f"row {at}" for at in range(ROWS)]),
        "when": arrow.array([when] * ROWS, arrow.timestamp("ms", "UTC")),
        "day": arrow.array([day] * ROWS),
        "holes": arrow.array(holes, arrow.int16()),
        "kind": arrow.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
        "tags": arrow.array([[1, 2], [], None, [3]] * (ROWS // 4)),
        "nested": arrow.array([{"x": at, "y": None} for at in range(ROWS)]),
        "sure": arrow.array([True, None] * (ROWS // 2)),
        "raw": arrow.array([b"\x00\xff"] * ROWS),
    }


def as_lists(matrix: np.ndarray) -> object:
    return arrow.FixedSizeListArray.from_arrays(arrow.array(matrix.reshape(-1)), matrix.shape[1])


def write(path: Path, logits: np.ndarray, layout: str) -> Path:
    columns = others()
    first = {name: columns.pop(name) for name in ("id", "name")}
    scores = (
        {"logits": as_lists(logits)}
        if layout == "list"
        else {name: logits[:, at] for at, name in enumerate(NAMES)}
    )
    parquet.write_table(arrow.table({**first, **scores, **columns}), path, row_group_size=130)
    return path


def apply(
    model: object, path: Path, output: Path, passthrough: bool = True, **options: object
) -> object:
    file = open_scores(path, classes=NAMES, passthrough=passthrough)
    return apply_model(CalibratedRows(model, file, **PLAIN), output, class_names=NAMES, **options)


@pytest.mark.parametrize("layout", ["wide", "list"])
def test_types_and_order_stay(
    tmp_path: Path, model: cordcal.PreservingCalibrator, logits: np.ndarray, layout: str
) -> None:
    path = write(tmp_path / "s.parquet", logits, layout)
    apply(model, path, tmp_path / "o.parquet")
    arguments, result = parquet.read_table(path), parquet.read_table(tmp_path / "o.parquet")
    passed = list(others())
    reports = ["repaired"] if layout == "list" else [f"repaired:{name}" for name in NAMES]
    assert result.column_names == [*passed, "prediction", "prediction_name", *reports]
    assert result.select(passed).equals(arguments.select(passed), check_metadata=False)
    assert result.select(passed).schema.equals(arguments.select(passed).schema)
    back = cordcal.files.read_scores(tmp_path / "o.parquet", role="repaired")
    assert back.class_names == NAMES
    np.testing.assert_array_equal(back.values, model.predict_proba(logits))


@pytest.mark.parametrize("input_layout", ["wide", "list"])
@pytest.mark.parametrize("output_layout", ["wide", "list"])
def test_the_layout_can_be_chosen(
    tmp_path: Path,
    model: cordcal.PreservingCalibrator,
    logits: np.ndarray,
    input_layout: str,
    output_layout: str,
) -> None:
    path = write(tmp_path / "s.parquet", logits, input_layout)
    apply(model, path, tmp_path / "o.parquet", layout=output_layout)
    names = parquet.read_schema(tmp_path / "o.parquet").names
    assert ("repaired" in names) == (output_layout == "list")


def test_the_other_columns_can_be_left_out(
    tmp_path: Path, model: cordcal.PreservingCalibrator, logits: np.ndarray
) -> None:
    path = write(tmp_path / "s.parquet", logits, "list")
    apply(model, path, tmp_path / "o.parquet", passthrough=False)
    result = parquet.read_schema(tmp_path / "o.parquet").names
    assert result == ["prediction", "prediction_name", "repaired"]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_skipped_row_is_gone_from_every_column(
    tmp_path: Path, model: cordcal.PreservingCalibrator, logits: np.ndarray, suffix: str
) -> None:
    bad = logits.copy()
    bad[[0, 129, 130, 699], 1] = np.nan
    bad[260:390] = np.nan  # a whole row group
    path = tmp_path / f"s.{suffix}"
    ids = [f"r{at}" for at in range(ROWS)]
    if suffix == "csv":
        rows = [
            ",".join([ids[at], *map(str, row)]).replace("nan", "") for at, row in enumerate(bad)
        ]
        path.write_text("\n".join(["id,ant,bee,cat", *rows]))
    else:
        columns = {name: bad[:, at] for at, name in enumerate(NAMES)}
        parquet.write_table(arrow.table({"id": ids, **columns}), path, row_group_size=130)
    output = tmp_path / f"o.{suffix}"
    done = apply(model, path, output, on_error="skip")
    valid = np.flatnonzero(np.isfinite(bad).all(axis=1))
    assert done.rows == len(valid)
    if suffix == "csv":
        lines = [line.split(",") for line in output.read_text().splitlines()]
        table = dict(zip(lines[0], zip(*lines[1:], strict=True), strict=True))
    else:
        table = parquet.read_table(output).to_pydict()
    assert list(map(int, table["row"])) == valid.tolist()
    assert list(table["id"]) == [ids[at] for at in valid]


def test_cells_of_a_csv_file_stay_as_they_are_written(
    tmp_path: Path, model: cordcal.PreservingCalibrator
) -> None:
    path = tmp_path / "s.csv"
    path.write_text(
        "zip,ant,note,bee,price,cat,label\n"
        '00501,1.5,"a ""quoted"", one",0.25,1.50,-1,cat\n'
        "K1A,0.5,,2,2,0,ant\n"
    )
    apply(model, path, tmp_path / "o.csv")
    first, *lines = (tmp_path / "o.csv").read_text().splitlines()
    assert first == "zip,note,price,label,prediction,repaired:ant,repaired:bee,repaired:cat"
    assert lines[0].startswith('00501,"a ""quoted"", one",1.50,cat,ant,0.')
    assert lines[1].startswith("K1A,,2,ant,bee,0.")
    apply(model, path, tmp_path / "o.parquet")
    table = parquet.read_table(tmp_path / "o.parquet")
    assert table["zip"].to_pylist() == ["00501", "K1A"]
    assert table["price"].to_pylist() == [1.5, 2.0]


def test_formulas_are_guarded_for_spreadsheets(
    tmp_path: Path, model: cordcal.PreservingCalibrator
) -> None:
    path = tmp_path / "s.csv"
    path.write_text('ant,bee,cat,note,change\n1,2,3,"=1+1",-5\n')
    apply(model, path, tmp_path / "o.csv", spreadsheet=True)
    assert (tmp_path / "o.csv").read_text().splitlines()[1].startswith("'=1+1,-5,cat,")


def test_a_name_that_the_output_has_too(
    tmp_path: Path, model: cordcal.PreservingCalibrator, logits: np.ndarray
) -> None:
    table = arrow.table({"prediction": [1] * ROWS, "logits": as_lists(logits)})
    parquet.write_table(table, tmp_path / "s.parquet")
    with refused(naming=["s.parquet", "'prediction'"]):
        apply(model, tmp_path / "s.parquet", tmp_path / "o.parquet")
    assert not (tmp_path / "o.parquet").exists()


@pytest.mark.parametrize("layout", ["wide", "list"])
@pytest.mark.parametrize("target", ["feather", "arrow"])
def test_to_feather(
    tmp_path: Path,
    model: cordcal.PreservingCalibrator,
    logits: np.ndarray,
    layout: str,
    target: str,
) -> None:
    feather = pytest.importorskip("pyarrow.feather")
    path = write(tmp_path / "s.parquet", logits, layout)
    apply(model, path, tmp_path / f"o.{target}")
    arguments, result = parquet.read_table(path), feather.read_table(tmp_path / f"o.{target}")
    passed = [name for name in others() if name != "kind"]
    assert result.select(passed).equals(arguments.select(passed))
    assert result["kind"].to_pylist() == arguments["kind"].to_pylist()  # a category no more
    back = cordcal.files.read_scores(tmp_path / f"o.{target}", role="repaired")
    assert back.class_names == NAMES
    np.testing.assert_array_equal(back.values, model.predict_proba(logits))
    again = apply(model, tmp_path / "s.parquet", tmp_path / "again.feather", passthrough=False)
    assert again.rows == ROWS


def test_from_feather(
    tmp_path: Path, model: cordcal.PreservingCalibrator, logits: np.ndarray
) -> None:
    feather = pytest.importorskip("pyarrow.feather")
    path = write(tmp_path / "s.parquet", logits, "wide")
    feather.write_feather(parquet.read_table(path), tmp_path / "s.feather", chunksize=99)
    for source in ("parquet", "feather"):
        apply(model, tmp_path / f"s.{source}", tmp_path / f"{source}.parquet")
    one, other = (
        parquet.read_table(tmp_path / f"{name}.parquet") for name in ("parquet", "feather")
    )
    assert one.equals(other)


def test_lines_of_json(
    tmp_path: Path, model: cordcal.PreservingCalibrator, logits: np.ndarray
) -> None:
    rows = [
        {"id": at, "logits": row, "text": f"é {at}", "meta": {"a": [1, None]}}
        for at, row in enumerate(logits.tolist())
    ]
    rows[500]["late"] = 1.5
    del rows[3]["text"]
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows))
    apply(model, path, tmp_path / "o.jsonl")
    result = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert list(result[0]) == ["id", "text", "meta", "prediction", "prediction_name", "repaired"]
    repaired = model.predict_proba(logits)
    for row, new, report in zip(rows, result, repaired, strict=True):
        logit = row.pop("logits")
        assert {key: new.pop(key) for key in row} == row
        assert new == {
            "prediction": int(np.argmax(logit)),
            "prediction_name": NAMES[int(np.argmax(logit))],
            "repaired": report.tolist(),
        }
    apply(model, path, tmp_path / "o.parquet")
    table = parquet.read_table(tmp_path / "o.parquet")
    assert table["late"].to_pylist() == [1.5 if at == 500 else None for at in range(ROWS)]
    assert table["text"][3].as_py() is None
    assert table["meta"].to_pylist() == [{"a": [1, None]}] * ROWS
    apply(model, path, tmp_path / "o.csv")
    first = (tmp_path / "o.csv").read_text().splitlines()[1]
    assert first.startswith('0,é 0,"{""a"": [1, null]}",,')


def test_columns_of_text_from_parquet(
    tmp_path: Path, model: cordcal.PreservingCalibrator, logits: np.ndarray
) -> None:
    path = write(tmp_path / "s.parquet", logits, "wide")
    with refused(naming="'raw'"):
        apply(model, path, tmp_path / "o.jsonl")
    table = parquet.read_table(path).drop_columns(["raw"])
    parquet.write_table(table, path)
    apply(model, path, tmp_path / "o.jsonl")
    first = json.loads((tmp_path / "o.jsonl").read_text().splitlines()[0])
    assert first["when"] == "2024-02-29T12:00:00+00:00"
    assert (first["day"], first["holes"], first["tags"]) == ("2024-02-29", None, [1, 2])


def test_two_reports_in_one_file(tmp_path: Path) -> None:
    original, direct = np.random.default_rng(1).dirichlet(np.ones(3), (2, ROWS))
    columns = {"id": range(ROWS), "original": as_lists(original), "direct": as_lists(direct)}
    path = tmp_path / "s.parquet"
    parquet.write_table(arrow.table(columns), path, row_group_size=130)
    cord = cordcal.CORD().fit(original, direct)
    files = [open_scores(path, role=role, passthrough=True) for role in ("original", "direct")]
    apply_model(RepairedRows(cord, *files, **PLAIN), tmp_path / "o.parquet")
    result = parquet.read_table(tmp_path / "o.parquet")
    assert result.column_names == ["id", "prediction", "repaired"]
    assert result["id"].to_pylist() == list(range(ROWS))


def test_columns_of_both_files(tmp_path: Path) -> None:
    original, direct = np.random.default_rng(1).dirichlet(np.ones(3), (2, ROWS))
    for name, matrix, group in (("original", original, 90), ("direct", direct, 130)):
        columns = {"id": range(ROWS), f"by {name}": range(ROWS), name: as_lists(matrix)}
        parquet.write_table(
            arrow.table(columns), tmp_path / f"{name}.parquet", row_group_size=group
        )
    cord = cordcal.CORD().fit(original, direct)
    files = [
        open_scores(tmp_path / f"{role}.parquet", role=role, passthrough=True)
        for role in ("original", "direct")
    ]
    apply_model(RepairedRows(cord, *files, **PLAIN), tmp_path / "o.parquet")
    result = parquet.read_table(tmp_path / "o.parquet")
    assert result.column_names == ["id", "by original", "by direct", "prediction", "repaired"]
    assert result["by direct"].to_pylist() == list(range(ROWS))


def test_resumed_with_other_columns(
    tmp_path: Path,
    model: cordcal.PreservingCalibrator,
    logits: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cordcal.files.output import ResumableOutput

    path, output = write(tmp_path / "s.parquet", logits, "wide"), tmp_path / "o.parquet"
    apply(model, path, output)
    whole = output.read_bytes()
    output.unlink()
    append = ResumableOutput.append

    def stop(self: ResumableOutput, *args: object, **kwargs: object) -> None:
        append(self, *args, **kwargs)  # type: ignore[arg-type]
        if len(self.records) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ResumableOutput, "append", stop)
        with pytest.raises(KeyboardInterrupt):
            apply(model, path, output)
    with refused(naming="another input"):
        apply(model, path, output, passthrough=False, resume=True)
    assert apply(model, path, output, resume=True).resumed > 0
    assert output.read_bytes() == whole


def test_wide_columns_bound_a_batch(tmp_path: Path, logits: np.ndarray) -> None:
    table = arrow.table({"logits": as_lists(logits), "image": [b"x" * 1000] * ROWS})
    parquet.write_table(table, tmp_path / "s.parquet")
    few = [len(batch) for batch in open_scores(tmp_path / "s.parquet", passthrough=True)]
    assert max(few) <= 4
    assert max(len(batch) for batch in open_scores(tmp_path / "s.parquet")) > 100
