"""Tables in, tables out: parts as one table, values that stay, limits, every output."""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cordcal
from cordcal.files import read_scores
from cordcal.files.arrow import record_batches
from cordcal.files.disk import InputFile
from errors import refused

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

NAMES = ("ant", "bee", "cat")
ROWS = 40
SUFFIXES = ("csv", "jsonl", "parquet", "feather")
LOGITS = np.random.default_rng(0).normal(size=(ROWS, 3))
SCORES = dict(zip(NAMES, LOGITS.T, strict=True))
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    labels = np.where(np.arange(ROWS) % 4, LOGITS.argmax(axis=1), np.arange(ROWS) % 3)
    fitted = cordcal.PreservingCalibrator("vs", class_names=NAMES).fit(LOGITS, labels)
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    cordcal.save(fitted, path)
    return path


@pytest.fixture
def apply(call: Call, model: Path) -> Callable[..., list[dict[str, Any]]]:
    def run(source: object, output: Path, *options: object) -> list[dict[str, Any]]:
        code, _, errors = call("apply", model, source, "--output", output, "--force", *options)
        assert code == 0, errors
        return rows_of(output)

    return run


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Read a table with somebody else's reader."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]
    read = parquet.read_table if path.suffix == ".parquet" else feather.read_table
    rows: list[dict[str, Any]] = read(path).to_pylist()
    return rows


def write(path: Path, columns: dict[str, Any]) -> Path:
    """Write a table as others do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".parquet", ".feather"):
        table = pa.table(columns)
        if path.suffix == ".parquet":
            parquet.write_table(table, path, row_group_size=13)
        else:
            feather.write_feather(table, path, chunksize=13)
        return path
    plain = {
        name: column.tolist() if isinstance(column, np.ndarray) else list(column)
        for name, column in columns.items()
    }
    rows = [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(plain))
            writer.writeheader()
            writer.writerows(rows)
    return path


@pytest.mark.parametrize("source", SUFFIXES)
@pytest.mark.parametrize("target", SUFFIXES)
def test_the_same_columns_in_every_format(
    tmp_path: Path, model: Path, apply: Any, source: str, target: str
) -> None:
    ids = [f"{at:03}" for at in range(ROWS)]
    path = write(tmp_path / f"s.{source}", {"id": ids, **SCORES, "note": ["x, y"] * ROWS})
    rows = apply(path, tmp_path / f"o.{target}")
    probabilities = cordcal.load(model).predict_proba(LOGITS)
    assert list(rows[0]) == [
        *("id", "note", "prediction", "prediction_name", "confidence"),
        *("p_ant", "p_bee", "p_cat"),
    ]
    assert [row["id"] for row in rows] == ids
    for row, expected, scores in zip(rows, probabilities, LOGITS, strict=True):
        assert [float(row[f"p_{name}"]) for name in NAMES] == expected.tolist()
        assert int(row["prediction"]) == scores.argmax()
        assert row["prediction_name"] == NAMES[scores.argmax()]
        assert float(row["confidence"]) == expected[scores.argmax()]
    back = read_scores(tmp_path / f"o.{target}", role="repaired")
    assert (back.key, back.kind, back.class_names) == ("repaired", "probabilities", NAMES)
    np.testing.assert_array_equal(back.values, probabilities)


def test_the_scores_in_the_output(tmp_path: Path, apply: Any) -> None:
    path = write(tmp_path / "s.parquet", {"id": range(ROWS), **SCORES})
    rows = apply(path, tmp_path / "o.csv", "--keep", "all", "--add", "direct")
    own = ["prediction", "prediction_name", "confidence", "p_ant", "p_bee", "p_cat"]
    direct = [f"direct_{name}" for name in NAMES]
    assert list(rows[0]) == ["id", *NAMES, *own, *direct]
    assert [float(row["bee"]) for row in rows] == LOGITS[:, 1].tolist()
    rows = apply(path, tmp_path / "o.parquet", "--keep", "none")
    assert "id" not in rows[0]


def test_a_name_that_the_output_has_too(tmp_path: Path, call: Call, model: Path) -> None:
    path = write(tmp_path / "s.csv", {"confidence": range(ROWS), **SCORES})
    code, _, errors = call("apply", model, path, "--output", tmp_path / "o.csv")
    assert code == 2
    assert "'confidence'" in errors
    assert not (tmp_path / "o.csv").exists()


ODD = ["carriage\rreturn", "\r", "a\r\nb", "\n", 'quo"te', ",", " ", "=1+1", "é\u2028x", "\t"]


@pytest.mark.parametrize("source", ["jsonl", "parquet"])
def test_text_of_any_content_survives(tmp_path: Path, apply: Any, source: str) -> None:
    texts = [ODD[at % len(ODD)] for at in range(ROWS)]
    path = write(tmp_path / f"s.{source}", {**SCORES, "t": texts, "u": texts})
    pandas = pytest.importorskip("pandas")
    for target in SUFFIXES:
        rows = apply(path, tmp_path / f"o.{target}")
        assert [row["t"] for row in rows] == texts
    frame = pandas.read_csv(tmp_path / "o.csv", keep_default_na=False)
    assert frame["u"].tolist() == texts
    assert read_scores(tmp_path / "o.csv", role="repaired").values.shape == (ROWS, 3)


def test_numbers_of_text_files_stay_text(tmp_path: Path, apply: Any) -> None:
    cells = ["9007199254740993", "", "007", "12e5", "2026-11-01T00:00:00", "9223372036854775808"]
    ids = [cells[at % len(cells)] for at in range(ROWS)]
    path = write(tmp_path / "s.csv", {"id": ids, **SCORES})
    for target in SUFFIXES:
        rows = apply(path, tmp_path / f"o.{target}")
        assert [row["id"] or "" for row in rows] == ids
    path = write(tmp_path / "s.jsonl", {"id": [2**63, {}, None, [1]] * 10, **SCORES})
    for target in ("parquet", "feather", "csv"):
        rows = apply(path, tmp_path / f"o.{target}")
        assert [row["id"] or None for row in rows[:4]] == [str(2**63), "{}", None, "[1]"]
    assert [row["id"] for row in apply(path, tmp_path / "o.jsonl")[:4]] == [2**63, {}, None, [1]]


def test_a_late_key_of_jsonl_is_a_column(tmp_path: Path, apply: Any) -> None:
    rows = [
        {**dict(zip(NAMES, row, strict=True)), "n": at} for at, row in enumerate(LOGITS.tolist())
    ]
    rows[35] = {"late": "x", **rows[35]}
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for target in ("csv", "parquet"):
        result = apply(path, tmp_path / f"o.{target}")
        assert [at for at, row in enumerate(result) if row["late"]] == [35]
    result = apply(path, tmp_path / "o.jsonl")
    assert [at for at, row in enumerate(result) if "late" in row] == [35]


# --- Arrow types -----------------------------------------------------------------------------


def test_types_stay(tmp_path: Path, apply: Any) -> None:
    when = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    others = {
        "id": pa.array(range(ROWS), pa.uint32()),
        "when": pa.array([when] * ROWS, pa.timestamp("ms", "UTC")),
        "holes": pa.array([None if at % 5 == 0 else at for at in range(ROWS)], pa.int16()),
        "kind": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
        "tags": pa.array([[1, 2], [], None, [3]] * (ROWS // 4)),
        "nested": pa.array([{"x": at, "y": None} for at in range(ROWS)]),
        "raw": pa.array([b"\x00\xff"] * ROWS),
    }
    path = write(tmp_path / "s.parquet", {**others, **SCORES})
    apply(path, tmp_path / "o.parquet")
    result = parquet.read_table(tmp_path / "o.parquet").select(list(others))
    assert result.equals(parquet.read_table(path).select(list(others)))
    assert result.schema.equals(parquet.read_schema(path).empty_table().select(list(others)).schema)
    apply(path, tmp_path / "o.feather")
    assert rows_of(tmp_path / "o.feather")[3]["tags"] == [3]


def test_times_as_text(tmp_path: Path, apply: Any) -> None:
    columns = {
        "t": pa.array([123456789] * ROWS, pa.time64("ns")),
        "when": pa.array([1, None] * (ROWS // 2), pa.timestamp("ns", "UTC")),
        "far": pa.array([-800_000] * ROWS, pa.date32()),
        "long": pa.array([2**62] * ROWS, pa.duration("ns")),
        "half": pa.array(np.full(ROWS, 0.5, np.float16)),
        "list": pa.array([[1.5, None]] * ROWS),
    }
    path = write(tmp_path / "s.parquet", {**columns, **SCORES})
    row = apply(path, tmp_path / "o.csv")[0]
    assert row["t"] == "00:00:00.123456789"
    assert row["when"] == "1970-01-01T00:00:00.000000001Z"
    assert row["far"] == "-0221-09-04"
    assert row["long"] == "PT4611686018.427387904S"
    assert (row["half"], row["list"]) == ("0.5", "[1.5, null]")
    row = apply(path, tmp_path / "o.jsonl")[1]
    assert (row["when"], row["half"], row["list"]) == (None, 0.5, [1.5, None])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**50], pa.timestamp("s")),
        ([2**30], pa.date32()),
        ([[2**50]], pa.list_(pa.timestamp("s"))),
        ([[1]], pa.list_(pa.timestamp("ns"))),
        ([b"x"], pa.binary()),
    ],
)
def test_values_that_text_cannot_hold(
    tmp_path: Path, call: Call, model: Path, values: list[Any], kind: Any
) -> None:
    plain = pa.array(values * ROWS, pa.list_(pa.int64()) if pa.types.is_list(kind) else None)
    if kind == pa.date32():
        plain = plain.cast(pa.int32())
    path = write(tmp_path / "s.parquet", {"x": plain.cast(kind), **SCORES})
    for target in ("csv", "jsonl"):
        code, _, errors = call("apply", model, path, "--output", tmp_path / f"o.{target}")
        if code:
            assert "'x'" in errors
            assert len(errors.splitlines()) == 1
        assert code in (0, 2)
    code, _, errors = call("apply", model, path, "--output", tmp_path / "o.parquet")
    assert code == 0, errors


@pytest.mark.parametrize("form", ["view", "category of views", "large"])
def test_text_as_polars_writes_it(tmp_path: Path, apply: Any, form: str) -> None:
    words = pa.array(["u", "v", None, "wide"] * (ROWS // 4))
    views = words.cast(pa.string_view())
    column = {
        "view": views,
        "category of views": pa.DictionaryArray.from_arrays(
            pa.array([0, 1, None, 2] * (ROWS // 4), pa.uint32()),
            pa.array(["u", "v", "wide"], pa.string_view()),
        ),
        "large": words.cast(pa.large_string()),
    }[form]
    table = pa.table({"name": column, **SCORES})
    with pa.ipc.new_file(str(tmp_path / "s.arrow"), table.schema) as writer:
        writer.write_table(table)
    for target in SUFFIXES:
        rows = apply(tmp_path / "s.arrow", tmp_path / f"o.{target}")
        assert [row["name"] or None for row in rows] == words.to_pylist()


# --- parts -----------------------------------------------------------------------------------


def parts(folder: Path, suffix: str = "parquet") -> Path:
    """Write two parts by day, and what others leave next to them."""
    half = ROWS // 2
    for day, rows in (("2026-11-01", slice(0, half)), ("007", slice(half, ROWS))):
        columns = {name: column[rows] for name, column in SCORES.items()}
        write(folder / f"day={day}" / f"a.{suffix}", {"id": np.arange(ROWS)[rows], **columns})
    write(folder / "_temporary" / f"b.{suffix}", {"id": [9], **{name: [9.0] for name in NAMES}})
    write(folder / "day=007" / f".c.{suffix}", {"id": [9], **{name: [9.0] for name in NAMES}})
    (folder / "_SUCCESS").touch()
    return folder


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_folders_become_columns_of_text(tmp_path: Path, apply: Any, suffix: str) -> None:
    folder = parts(tmp_path / "in", suffix)
    for source in (folder, folder / "**" / f"*.{suffix}", folder / "*" / "*"):
        for target in ("parquet", "csv", "jsonl"):
            rows = apply(source, tmp_path / f"o.{target}")
            assert [row["day"] for row in rows] == ["007"] * (ROWS // 2) + ["2026-11-01"] * (
                ROWS // 2
            )
            assert sorted(int(row["id"]) for row in rows) == list(range(ROWS))


def test_patterns_ignore_what_folders_ignore(tmp_path: Path) -> None:
    folder = parts(tmp_path / "in")
    for source in (folder, f"{folder}/**/*.parquet", f"{folder}/*/*.parquet"):
        assert read_scores(source, columns="ant,bee,cat").values.shape == (ROWS, 3)
    named = read_scores(f"{folder}/_temporary/*.parquet", columns="ant,bee,cat")
    assert named.values.shape == (1, 3)


@pytest.mark.filterwarnings("default:some parts lack a column")
def test_a_column_that_a_part_lacks(tmp_path: Path, call: Call, model: Path) -> None:
    write(tmp_path / "in" / "a.parquet", {"id": range(ROWS), **SCORES})
    write(tmp_path / "in" / "b.parquet", {"more": ["x"] * ROWS, **SCORES})
    code, _, errors = call("apply", model, tmp_path / "in", "--output", tmp_path / "o.parquet")
    assert code == 0
    assert "'id' in " in errors
    rows = rows_of(tmp_path / "o.parquet")
    assert [(rows[at]["id"], rows[at]["more"]) for at in (3, ROWS)] == [(3, None), (None, "x")]
    write(tmp_path / "in" / "b.parquet", {"ant": [1.0], "bee": [2.0]})
    code, _, errors = call("apply", model, tmp_path / "in", "--output", tmp_path / "p.parquet")
    assert code == 2
    assert "b.parquet has no column 'cat'" in errors


def test_errors_name_the_part_and_its_row(tmp_path: Path, call: Call, model: Path) -> None:
    write(tmp_path / "in" / "a.csv", {"id": range(ROWS), **SCORES})
    bad = {name: column.copy() for name, column in SCORES.items()}
    bad["bee"][7] = np.nan
    write(tmp_path / "in" / "b.csv", {"id": range(ROWS), **bad})
    code, _, errors = call("apply", model, tmp_path / "in", "--output", tmp_path / "o.csv")
    assert code == 2
    assert "b.csv (scores): row 7 contains NaN" in errors


@pytest.mark.parametrize("suffix", [*SUFFIXES, "npy"])
def test_a_list_of_files_is_one_table(
    tmp_path: Path, apply: Any, call: Call, model: Path, suffix: str
) -> None:
    files = []
    for at, name in enumerate(("b", "a")):
        rows = slice(at * ROWS // 2, (at + 1) * ROWS // 2)
        path = tmp_path / f"day={at}" / f"{name}.{suffix}"
        path.parent.mkdir()
        if suffix == "npy":
            np.save(path, LOGITS[rows])
        else:  # columns are matched by name
            columns = {"id": np.arange(ROWS)[rows], **{k: v[rows] for k, v in SCORES.items()}}
            write(path, dict(reversed(columns.items())) if at else columns)
        files.append(path)
    expected = cordcal.load(model).predict_proba(LOGITS)
    output = tmp_path / "o.parquet"
    assert call("apply", model, *files, "--output", output)[0] == 0
    rows = rows_of(output)
    assert [[row[f"p_{name}"] for name in NAMES] for row in rows] == expected.tolist()
    if suffix != "npy":
        assert [(int(row["id"]), row["day"]) for row in rows] == [
            (at, str(2 * at // ROWS)) for at in range(ROWS)
        ]
    scores = read_scores(files, classes=NAMES)
    np.testing.assert_array_equal(scores.values, LOGITS)
    assert call("apply", model, *files, "--output", tmp_path / "out")[0] == 0
    for name in (f"day=0/b.{suffix}", f"day=1/a.{suffix}"):
        assert (tmp_path / "out" / name).is_file()


def test_what_a_list_cannot_hold(tmp_path: Path, call: Call, model: Path) -> None:
    path = write(tmp_path / "a.csv", SCORES)
    other = write(tmp_path / "b.parquet", SCORES)
    with refused("path"):
        read_scores([])
    for files, words in (
        ((path, path), "a.csv is listed twice; pass each file once"),
        ((path, "-"), "stdin alone"),
        ((path, other), "b.parquet is a parquet file but"),
        ((path, tmp_path / "none.csv"), "none.csv"),
    ):
        code, _, errors = call("apply", model, *files, "--output", tmp_path / "o.csv")
        assert code == 2
        assert words in errors
        assert len(errors.splitlines()) == 1


def test_lists_are_fitted_and_compared(tmp_path: Path, call: Call) -> None:
    labels = [NAMES[at % 3] if at % 4 == 0 else NAMES[LOGITS[at].argmax()] for at in range(ROWS)]
    whole = {**SCORES, "label": labels}
    paths = []
    for at in range(2):
        rows = slice(at * ROWS // 2, (at + 1) * ROWS // 2)
        columns = {name: column[rows] for name, column in whole.items()}
        paths.append(write(tmp_path / f"{at}.csv", columns))
    all_rows = write(tmp_path / "all.csv", whole)
    models = []
    for name, files in (("a", paths), ("b", [all_rows])):
        model = tmp_path / f"{name}.safetensors"
        code, _, errors = call("fit", *files, "--calibrator", "ts", "--output", model)
        assert code == 0, errors
        models.append(cordcal.load(model).predict_proba(LOGITS))
    np.testing.assert_array_equal(*models)
    code, out, errors = call("compare", *paths, "--calibrator", "ts")
    assert code == 0, errors
    assert "0.csv (and 1 more)" in out


@pytest.mark.parametrize("suffix", [*SUFFIXES, "npz"])
@pytest.mark.parametrize("kind", ["words", "numbers"])
def test_rows_without_a_label_are_skipped(
    tmp_path: Path, call: Call, suffix: str, kind: str
) -> None:
    truth = [at % 3 if at % 4 == 0 else int(LOGITS[at].argmax()) for at in range(ROWS)]
    labels: list[Any] = [NAMES[label] for label in truth] if kind == "words" else list(truth)
    path, whole = tmp_path / f"some.{suffix}", tmp_path / f"all.{suffix}"
    kept = [at for at in range(ROWS) if at not in (0, 7, ROWS - 1)]
    for source, rows in ((path, range(ROWS)), (whole, kept)):
        here = [labels[at] if at in kept else None for at in rows]
        scores = {name: column[list(rows)] for name, column in SCORES.items()}
        if suffix == "npz":
            empty = "" if kind == "words" else np.nan
            array = np.array([empty if label is None else label for label in here])
            np.savez(source, logits=LOGITS[list(rows)], labels=array, class_names=NAMES)
        else:
            write(source, {**scores, "label": here})
    models = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    columns = () if suffix == "npz" or kind == "words" else ("--columns", "ant,bee,cat")
    fit = ("fit", path, *columns, "--calibrator", "ts", "--output", models[0])
    code, _, errors = call(*fit)
    assert code == 2
    assert "row 0 has no label; leave out rows without a label, or pass --on-error skip" in errors
    code, _, errors = call(*fit, "--on-error", "skip")
    assert code == 0, errors
    assert "skipped 3 rows: has no label" in errors
    assert call("fit", whole, *columns, "--calibrator", "ts", "--output", models[1])[0] == 0
    first, second = (cordcal.load(model).predict_proba(LOGITS) for model in models)
    np.testing.assert_array_equal(first, second)


# --- limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["dictionary", "plain", "list", "late"])
def test_a_small_file_stays_small_in_memory(tmp_path: Path, kind: str) -> None:
    """A file of a few kilobytes that says a million times the same is read in small slices."""
    rows = 4000
    columns: dict[str, Any] = {name: np.zeros(rows) for name in NAMES}
    if kind == "list":
        flat = pa.array(np.zeros(rows * 50_000, np.float32))
        columns = {"logits": pa.FixedSizeListArray.from_arrays(flat, 50_000)}
        rows //= 4
    else:
        words = ["x" * 10**6] * (rows if kind != "late" else rows // 2)
        index = pa.array(np.zeros(len(words), np.int32))
        text: Any = pa.DictionaryArray.from_arrays(index, pa.array(words[:1]))
        if kind == "late":
            index = pa.array(np.repeat([0, 1], rows // 2).astype(np.int32))
            text = pa.DictionaryArray.from_arrays(index, pa.array(["", words[0]]))
        columns["text"] = text if kind != "plain" else text[:200].dictionary_decode()
        if kind == "plain":
            columns = {name: column[:200] for name, column in columns.items()}
    path = tmp_path / "s.parquet"
    parquet.write_table(pa.table(columns), path, compression="zstd", store_schema=False)
    del columns
    assert path.stat().st_size < 200_000
    code = (
        "import resource, sys; from cordcal.files.disk import InputFile\n"
        "from cordcal.files.arrow import ParquetFile\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for _, table in zip(range(50), ParquetFile(InputFile(sys.argv[1])).tables()): pass\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    source = str(Path(cordcal.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={**os.environ, "PYTHONPATH": source, "CORDCAL_READ_LIMIT": str(10**8)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 500  # megabytes; all rows would take 4 GB


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("kind", ["text", "dictionary"])
def test_a_compressed_batch_is_measured_before_it_is_decoded(
    tmp_path: Path, compression: str, kind: str
) -> None:
    """Arrow decodes a record batch whole, so its size is read from the metadata."""
    rows = 1200
    text: Any = pa.array(["x" * 10**6] * rows, pa.large_string())
    if kind == "dictionary":
        text = pa.DictionaryArray.from_arrays(pa.array(np.arange(rows, dtype=np.int32)), text)
    columns = {name: np.zeros(rows) for name in NAMES}
    path = tmp_path / "s.feather"
    feather.write_feather(pa.table({**columns, "text": text}), path, compression=compression)
    del text
    assert path.stat().st_size < 10**7
    code = (
        "import resource, sys; from cordcal.files.disk import InputFile\n"
        "from cordcal.files.arrow import FeatherFile\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "file = FeatherFile(InputFile(sys.argv[1]))\n"
        "assert file.rows == 1200\n"
        "try:\n    next(file.tables())\n"
        "except ValueError as error:\n    print(error, file=sys.stderr)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(cordcal.__file__).parents[1]),
            "CORDCAL_READ_LIMIT": str(10**8),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert "takes 1.2 GB of memory to be read" in done.stderr
    assert int(done.stdout) < 100


@pytest.mark.parametrize("compression", ["uncompressed", "zstd", "lz4"])
@pytest.mark.parametrize("nested", [False, True])
def test_sizes_of_record_batches(tmp_path: Path, compression: str, nested: bool) -> None:
    columns: dict[str, Any] = {"word": pa.array(["a", None, "ccc"] * 40).dictionary_encode()}
    if nested:
        columns["list"] = pa.array([[1.5, 2.5], [], None] * 40)
    table = pa.table({**columns, "number": np.arange(120.0)})
    path = tmp_path / "s.feather"
    feather.write_feather(table, path, compression=compression, chunksize=50)
    sizes = record_batches(InputFile(str(path)))
    assert sizes.rows == (50, 50, 20)
    reader = pa.ipc.open_file(path)
    for at, size in enumerate(sizes.bytes):
        batch = reader.get_batch(at)
        plain = batch.drop_columns(["word"]).get_total_buffer_size()
        assert size >= plain + 4 * batch.num_rows
        assert size <= 2 * plain + 4096


# --- no rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [*SUFFIXES, "npy"])
@pytest.mark.parametrize("target", ["csv", "parquet", "npz"])
def test_no_rows_in_no_rows_out(
    tmp_path: Path, call: Call, model: Path, source: str, target: str
) -> None:
    path, output = tmp_path / f"s.{source}", tmp_path / f"o.{target}"
    if source == "npy":
        np.save(path, LOGITS[:0])
    else:
        write(path, {name: column[:0] for name, column in SCORES.items()})
    code, _, errors = call("apply", model, path, "--output", output)
    assert code == 0
    assert "0 rows" in errors
    if target == "npz":
        with np.load(output) as arrays:
            assert arrays["repaired"].shape == (0, 3)
    else:
        assert rows_of(output) == []
        columns = output.read_text() if target == "csv" else str(parquet.read_schema(output))
        assert "p_cat" in columns
    code, _, _ = call("apply", model, path, "--output", output, "--force", "--strict")
    assert code == 2


# --- text that other programs read -----------------------------------------------------------


def test_formulas_are_guarded_for_spreadsheets(tmp_path: Path, apply: Any) -> None:
    columns = {"=HYPERLINK(1)": ["=1+1"] * ROWS, "+x": ["-5"] * ROWS, **SCORES}
    path = write(tmp_path / "s.csv", columns)
    row = apply(path, tmp_path / "o.csv", "--spreadsheet")[0]
    assert list(row)[:2] == ["'=HYPERLINK(1)", "'+x"]
    assert (row["'=HYPERLINK(1)"], row["'+x"]) == ("'=1+1", "-5")
    assert next(iter(apply(path, tmp_path / "p.csv")[0])) == "=HYPERLINK(1)"


def test_missing_numbers_are_rows_to_skip(tmp_path: Path, apply: Any) -> None:
    cells = [str(value) for value in LOGITS[:, 0]]
    cells[3], cells[5] = "NA", "null"
    path = write(tmp_path / "s.csv", {"id": range(ROWS), **SCORES, "ant": cells})
    rows = apply(path, tmp_path / "o.csv", "--on-error", "skip")
    assert [int(row["row"]) for row in rows] == [at for at in range(ROWS) if at not in (3, 5)]
    assert [row["id"] for row in rows] == [row["row"] for row in rows]


def test_nul_in_text_is_refused_in_csv(tmp_path: Path, call: Call, model: Path) -> None:
    path = write(tmp_path / "s.parquet", {"t": ["a\0"] * ROWS, **SCORES})
    code, _, errors = call("apply", model, path, "--output", tmp_path / "o.csv")
    assert code == 2
    assert "NUL" in errors
    assert not (tmp_path / "o.csv").exists()


@pytest.mark.filterwarnings("ignore")
def test_a_sparse_tensor_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for layout in ("coo", "csr"):
        dense = torch.tensor(LOGITS)
        sparse = dense.to_sparse() if layout == "coo" else dense.to_sparse_csr()
        torch.save({"logits": sparse}, tmp_path / "s.pt")
        np.testing.assert_array_equal(read_scores(tmp_path / "s.pt").values, LOGITS)


def test_stdin_and_stdout(
    tmp_path: Path, call: Call, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "s.parquet", {"id": range(ROWS), **SCORES}).read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    code, out, errors = call("apply", model, "-")
    assert code == 0, errors
    assert len(out.splitlines()) == ROWS + 1
    with refused(naming="s.csv"):
        read_scores(write(tmp_path / "s.csv", SCORES))
