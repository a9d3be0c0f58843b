"""The whole job in every format: compare, fit, apply, audit, repair, info."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from cordcal.files import read_scores

from .conftest import NAMES, Run

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

FORMATS = ("npz", "npy", "csv", "parquet")


def write(path: Path, matrix: np.ndarray, labels: np.ndarray | None, key: str = "logits") -> list:
    """Write scores as a person would; return the options that say where the labels are."""
    if path.suffix == ".npz":
        extra = {} if labels is None else {"labels": labels}
        np.savez(path, **{key: matrix}, **extra, class_names=np.array(NAMES))
    elif path.suffix == ".npy":
        np.save(path, matrix)
        if labels is not None:
            np.save(path.with_name("y.npy"), labels)
            return ["--labels", "y.npy"]
    elif path.suffix == ".csv":
        header = [*([] if labels is None else ["truth"]), *(f"{key}_{name}" for name in NAMES)]
        cells = [[NAMES[label]] for label in labels] if labels is not None else [[]] * len(matrix)
        lines = [header, *([*c, *row.tolist()] for c, row in zip(cells, matrix, strict=True))]
        text = "\n".join(
            ",".join('"' + str(cell).replace('"', '""') + '"' for cell in line) for line in lines
        )
        path.write_text(text + "\n")
        return [] if labels is None else ["--labels", "truth"]
    else:
        columns = {f"{key}_{name}": matrix[:, index] for index, name in enumerate(NAMES)}
        truth = {} if labels is None else {"label": [NAMES[label] for label in labels]}
        parquet.write_table(arrow.table({**columns, **truth}), path)
    return []


@pytest.mark.parametrize("suffix", FORMATS)
def test_fit_and_apply(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray, suffix: str
) -> None:
    where = write(tmp_path / f"cal.{suffix}", logits[:300], labels[:300])
    write(tmp_path / f"new.{suffix}", logits[300:], None)
    model = ("--calibrator", "irova", "--output", "model.safetensors")
    code, printed, errors = call("fit", f"cal.{suffix}", *where, *model)
    assert code == 0, errors
    assert printed.splitlines()[-1].split() == ["Model", "model.safetensors"]
    out = f"out.{suffix}"
    rows = ("model.safetensors", f"new.{suffix}")
    code, _, errors = call("apply", *rows, "--output", out, "--add", "direct")
    assert code == 0, errors
    assert "would change" in errors
    repaired = read_scores(tmp_path / out, role="repaired")
    np.testing.assert_array_equal(repaired.values.argmax(axis=1), logits[300:].argmax(axis=1))
    if suffix != "npy":  # a plain array has room for neither
        assert repaired.class_names == NAMES
        direct = read_scores(tmp_path / out, role="direct").values
        assert (direct.argmax(axis=1) != logits[300:].argmax(axis=1)).any()


@pytest.mark.parametrize("suffix", FORMATS)
def test_repair_of_a_foreign_calibrator(
    call, tmp_path: Path, logits: np.ndarray, suffix: str
) -> None:
    direct = softmax(0.5 * logits + [0.0, 0.4, -0.4], axis=1)
    write(tmp_path / f"p.{suffix}", logits, None)
    write(tmp_path / f"q.{suffix}", direct, None, key="direct")
    pair = ("--original", f"p.{suffix}", "--direct", f"q.{suffix}")
    assert call("fit", *pair, "--output", "cord.safetensors")[0] == 0
    code, _, errors = call(
        "apply", "cord.safetensors", *pair, "--output", f"o.{suffix}", "--dtype", "float32"
    )
    assert code == 0, errors
    repaired = read_scores(tmp_path / f"o.{suffix}", role="repaired").values
    np.testing.assert_array_equal(repaired.argmax(axis=1), logits.argmax(axis=1))
    code, printed, errors = call("audit", *pair, "--json")
    assert code == 0, errors
    changed = int((direct.argmax(axis=1) != logits.argmax(axis=1)).sum())
    assert json.loads(printed)["changes"]["n_changed"] == changed > 0


@pytest.mark.parametrize("suffix", FORMATS)
def test_compare_and_info(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray, suffix: str
) -> None:
    where = write(tmp_path / f"s.{suffix}", logits, labels)
    chosen = ("--calibrator", "ts", "--calibrator", "irova")
    code, printed, errors = call("compare", f"s.{suffix}", *where, *chosen, "--json")
    assert code == 0, errors
    result = json.loads(printed)
    assert [entry["key"] for entry in result["calibrators"]] == ["ts", "irova"]
    assert result["n_evaluation"] == 200
    code, printed, errors = call("info", f"s.{suffix}", "--json")
    assert code == 0, errors
    result = json.loads(printed)
    assert result["format"] == suffix
    assert result["entries"][0]["shape"] == "400 rows × 3 classes"
    assert result["entries"][0]["kind"] == "looks like logits"


def test_pipes(run: Run, tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> None:
    np.savez(tmp_path / "cal.npz", logits=logits, labels=labels)
    run("fit", "cal.npz", "--calibrator", "ts", "--output", "m.safetensors")
    buffer = io.BytesIO()
    np.save(buffer, logits[:7])
    result = run("apply", "m.safetensors", "-", input=buffer.getvalue(), text=False)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.decode().splitlines()
    assert lines[0] == "prediction,confidence,p_0,p_1,p_2"
    assert [int(line.split(",")[0]) for line in lines[1:]] == logits[:7].argmax(axis=1).tolist()


def test_explain_adds_columns_per_row(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels)
    call("fit", "s.npz", "--calibrator", "irova", "--output", "m.safetensors")
    code, _, errors = call(
        "apply", "m.safetensors", "s.npz", "--output", "o.npz", "--add", "explanation,direct"
    )
    assert code == 0, errors
    with np.load(tmp_path / "o.npz") as result:
        rows = np.arange(len(logits))
        prediction = result["prediction"]
        np.testing.assert_allclose(result["repaired"][rows, prediction], result["repaired_mass"])
        np.testing.assert_array_equal(
            result["changed"], result["direct"].argmax(axis=1) != prediction
        )


def test_explain_adds_columns_per_rank(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels)
    call("fit", "s.npz", "--calibrator", "irova", "--preserve", "2", "--output", "m.safetensors")
    code, _, errors = call(
        "apply", "m.safetensors", "s.npz", "--output", "o.npz", "--add", "explanation"
    )
    assert code == 0, errors
    with np.load(tmp_path / "o.npz") as result:
        np.testing.assert_array_equal(result["prediction_1"], result["prediction"])
        second = result["repaired"][np.arange(len(logits)), result["prediction_2"]]
        left = 1.0 - result["repaired_mass_1"]
        np.testing.assert_allclose(second, left * result["repaired_mass_2"], atol=1e-15)


def test_evaluation_in_a_file_of_its_own(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    np.savez(tmp_path / "a.npz", logits=logits[:300], labels=labels[:300])
    np.savez(tmp_path / "b.npz", logits=logits[300:], labels=labels[300:])
    code, printed, errors = call(
        "compare", "a.npz", "--hold-out", "b.npz", "--calibrator", "ts", "--json"
    )
    assert code == 0, errors
    result = json.loads(printed)
    assert (result["n_calibration"], result["n_evaluation"]) == (300, 100)


def test_reports_and_models_have_info(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels, class_names=np.array(NAMES))
    assert call("compare", "s.npz", "--calibrator", "irova", "--report", "r.html")[0] == 0
    assert call("fit", "s.npz", "--calibrator", "irova", "--output", "m.safetensors")[0] == 0
    assert json.loads(call("info", "r.html", "--json")[1])["format"] == "report"
    model = json.loads(call("info", "m.safetensors", "--json")[1])
    assert (model["format"], model["calibrator"], model["classes"]) == ("model", "irova", 3)
    assert model["class_names"] == list(NAMES)
