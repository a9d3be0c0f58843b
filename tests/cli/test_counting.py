"""As many rows come out as went in, in every format."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cordcal
from attacks.files import FORMATS, NEEDS, OUTPUTS, write

pytest.importorskip("pyarrow")

ROWS = 40


@pytest.fixture
def model(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> str:
    cordcal.save(cordcal.PreservingCalibrator("ts").fit(logits, labels), tmp_path / "m.safetensors")
    return "m.safetensors"


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("seed", [0, 3])
def test_every_format(call, tmp_path: Path, model: str, kind: str, seed: int) -> None:
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind])
    path = write(tmp_path, kind, np.random.default_rng(seed))
    if kind == "csv":
        columns = ("--columns", "p_a,p_b,p_c" if path.read_text().startswith("p") else "0,1,2")
    else:
        columns = ()
    (tmp_path / "parts").mkdir()
    for name in "xyz":
        (tmp_path / "parts" / f"{name}.{kind}").write_bytes(path.read_bytes())
    for output in OUTPUTS:
        for source, rows in ((path.name, ROWS), ("parts", 3 * ROWS)):
            done = call("apply", model, source, *columns, "--output", f"o.{output}", "--force")
            assert done[0] == 0, done[2]
            assert f"{rows} rows" in done[2]
            written = cordcal.files.open_scores(tmp_path / f"o.{output}", role="repaired")
            assert sum(len(batch) for batch in written) == rows
    if kind == "npy":  # it has no labels
        return
    where = ("--labels", "3") if kind == "csv" and "0,1,2" in columns else ()
    for source, rows in ((path.name, ROWS), ("parts", 3 * ROWS)):
        fit = ("fit", source, *columns, *where, "--calibrator", "ts", "--output", "f.safetensors")
        done = call(*fit, "--force", "--json")
        assert done[0] == 0, done[2]
        assert json.loads(call("info", "f.safetensors", "--json")[1])["calibration_rows"] == rows
