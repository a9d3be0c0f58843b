"""Tables that other tools write are read, and what `apply` writes they read back."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cordcal
from cordcal.cli import main

polars = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

ROWS = 60
RNG = np.random.default_rng(11)
LABELS = RNG.integers(0, 3, ROWS)
LOGITS = 2.0 * np.eye(3)[LABELS] + RNG.normal(size=(ROWS, 3))
COLUMNS = {
    **{f"p_{name}": LOGITS[:, at] for at, name in enumerate(("ant", "bee", "cat"))},
    "id": [f"{row:03d}" for row in range(ROWS)],
    "note": ['say "hi",\nthere\r', "ä→ß", "", "=1+1"] * (ROWS // 4),
    "day": [datetime.date(2026, 11, 1) + datetime.timedelta(days=row) for row in range(ROWS)],
    "count": np.arange(ROWS) + 2**53 + 1,
}


def by_duckdb(path: Path, options: str) -> None:
    frame = polars.DataFrame(COLUMNS)  # found by name in the query
    assert len(frame) == ROWS
    duckdb.sql(f"COPY frame TO '{path}' ({options})")


WRITERS: dict[str, Callable[[Path], Any]] = {
    "polars.parquet": lambda path: polars.DataFrame(COLUMNS).write_parquet(path),
    "polars.arrow": lambda path: polars.DataFrame(COLUMNS).write_ipc(path),
    "polars.csv": lambda path: polars.DataFrame(COLUMNS).write_csv(path),
    "polars.jsonl": lambda path: polars.DataFrame(COLUMNS).write_ndjson(path),
    "duckdb.parquet": lambda path: by_duckdb(path, "FORMAT parquet"),
    "duckdb.csv": lambda path: by_duckdb(path, "FORMAT csv, HEADER"),
    "duckdb.jsonl": lambda path: by_duckdb(path, "FORMAT json"),
    "pandas.csv": lambda path: pd.DataFrame(COLUMNS).to_csv(path, index=False),
    "excel.csv": lambda path: pd.DataFrame(COLUMNS).to_csv(
        path, index=False, sep=";", decimal=",", encoding="utf-8-sig", lineterminator="\r\n"
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    names = ["ant", "bee", "cat"]
    fitted = cordcal.PreservingCalibrator("ts", class_names=names).fit(LOGITS, LABELS)
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    cordcal.save(fitted, path)
    return path, fitted.predict_proba(LOGITS)


READERS: dict[str, Callable[[Path], Any]] = {
    "parquet": lambda path: polars.read_parquet(path).to_pandas(),
    "csv": lambda path: pd.read_csv(path, dtype={"id": str, "note": str}, keep_default_na=False),
    "duckdb csv": lambda path: duckdb.read_csv(str(path), all_varchar=True).df(),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_round_trip(writer: str, suffix: str, model: Any, tmp_path: Path) -> None:
    path, repaired = model
    source, output = tmp_path / f"s.{writer.partition('.')[2]}", tmp_path / f"o.{suffix}"
    WRITERS[writer](source)
    decimal = ("--decimal", ",") if writer == "excel.csv" else ()
    assert main(["apply", str(path), str(source), *decimal, "--output", str(output)]) == 0
    for name, read in READERS.items():
        if suffix not in name:
            continue
        result = read(output)
        assert len(result) == ROWS, name
        values = result[["p_ant", "p_bee", "p_cat"]].astype(float).to_numpy()
        np.testing.assert_allclose(values, repaired, rtol=1e-12)
        assert result["prediction"].astype(int).tolist() == LOGITS.argmax(axis=1).tolist()
        assert result["id"].tolist() == COLUMNS["id"]
        assert [str(day)[:10] for day in result["day"]] == [str(day) for day in COLUMNS["day"]]
        assert [int(count) for count in result["count"]] == COLUMNS["count"].tolist()
        if not writer.startswith("excel"):  # a carriage return before its own line ends
            assert result["note"].fillna("").tolist() == COLUMNS["note"], name


TABLES = Path(__file__).parents[1] / "data" / "tables"


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("r.csv", {}),
        ("r2.csv", {"sep": ";", "decimal": ","}),
        ("r.tsv", {"sep": "\t"}),
        ("fastparquet.parquet", None),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_tables_of_r_and_fastparquet(
    name: str, how: dict[str, str] | None, suffix: str, model: Any, tmp_path: Path
) -> None:
    """The scripts next to the tables wrote them with R's own functions and with fastparquet."""
    source, output = TABLES / name, tmp_path / f"o.{suffix}"
    options = ("--decimal", ",") if name == "r2.csv" else ()
    assert main(["apply", str(model[0]), str(source), *options, "--output", str(output)]) == 0
    if how is None:
        rows = polars.read_parquet(source).to_pandas()
    else:
        rows = pd.read_csv(source, dtype={"id": str}, keep_default_na=False, **how)
    scores = rows[["p_ant", "p_bee", "p_cat"]].to_numpy()
    result = READERS[suffix](output)
    expected = cordcal.load(model[0]).predict_proba(scores)
    values = result[["p_ant", "p_bee", "p_cat"]].to_numpy()
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    for column in ("id", "note"):
        assert result[column].fillna("").tolist() == rows[column].fillna("").tolist()
    assert [str(day)[:10] for day in result["day"]] == [str(day)[:10] for day in rows["day"]]
    assert [int(count) for count in result["count"]] == rows["count"].tolist()


def test_na_of_r_is_a_missing_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--columns", "p_*", "--calibrator", "ts", "--output", str(tmp_path / "m")]
    fit = ["fit", str(TABLES / "r.csv"), *options]
    assert main(fit) == 2
    assert "row 3 has no label" in capsys.readouterr().err
    assert main([*fit, "--on-error", "skip"]) == 0
    assert "skipped 1 row: has no label" in capsys.readouterr().err
