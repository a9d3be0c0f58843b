"""The recipes of the page on Spark run unchanged in a local session."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cordcal
from documents import ROOT, blocks

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = [
    pytest.mark.slow,
    # Spark's own code warns of much that is to come.
    pytest.mark.filterwarnings("ignore"),  # Spark and its Python bridge warn of their own
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
]
SOURCE = ROOT / "src"
CLASSES = 5


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    monkeypatch.chdir(tmp_path)  # before Java starts, which then reads and writes here
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCE), *sys.path]))
    session = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    yield session
    session.stop()


def recipes() -> str:
    """Return the page's code, both recipes in one piece."""
    return "\n\n".join(blocks(ROOT / "docs" / "spark.md", "python"))


def as_lists(matrix: np.ndarray) -> object:
    return arrow.array(matrix.tolist(), arrow.list_(arrow.float32()))


def test_the_recipes_of_the_page(spark: Any) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=800)
    logits = (2.0 * np.eye(CLASSES)[labels] + rng.normal(size=(800, CLASSES))).astype(np.float32)
    original, direct = rng.dirichlet(np.ones(CLASSES), (2, 800)).astype(np.float32)
    model = cordcal.PreservingCalibrator("vs").fit(logits, labels)
    cordcal.save(model, "model.safetensors")
    scores = arrow.table({"id": range(800), "logits": as_lists(logits)})
    pairs = arrow.table({"original": as_lists(original), "direct": as_lists(direct)})
    for name, table in (("scores.parquet", scores), ("calibration.parquet", pairs)):
        Path(name).mkdir()
        for at in range(3):  # three partitions, of which the last has no rows
            part = table.slice(500 * at, 500)
            parquet.write_table(part, Path(name) / f"part-{at}.parquet")
    exec(recipes(), {"spark": spark, "__name__": "recipe"})
    result = parquet.read_table("repaired.parquet").sort_by("id")
    assert result["id"].to_pylist() == list(range(800))
    repaired = np.array(result["repaired"].to_pylist(), dtype=np.float32)
    np.testing.assert_array_equal(repaired, model.predict_proba(logits, dtype=np.float32))
    cord = cordcal.load("cord.safetensors")
    assert cord.eta_ == cordcal.CORD().fit(original, direct).eta_
