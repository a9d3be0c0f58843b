"""``--cluster-column``: rows of one patient, user or session stay together."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import cordcal

COPIES = 3


@pytest.fixture
def table(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> Path:
    """Every row three times, not quite equal, with the patient that it is of."""
    noise = 1e-4 * np.random.default_rng(0).normal(size=(COPIES * len(labels), 3))
    rows = 3.0 * np.repeat(logits, COPIES, axis=0) + noise
    path = tmp_path / "s.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["patient", "class_0", "class_1", "class_2", "label"])
        for at, (row, label) in enumerate(zip(rows, np.repeat(labels, COPIES), strict=True)):
            writer.writerow([f"p{at // COPIES}", *map(repr, row.tolist()), label])
    return path


def test_fit_keeps_clusters_together(table: Path, call) -> None:
    options = ("--columns", "class_*", "--cluster-column", "patient", "--output", "m.safetensors")
    status, _, problems = call("fit", "s.csv", *options)
    assert status == 0, problems
    rows = cordcal.files.read_scores(str(table), columns="class_*")
    patients = np.repeat(np.arange(len(rows.labels) // COPIES), COPIES).astype(str)
    model = cordcal.load(str(table.parent / "m.safetensors"))
    expected = cordcal.PreservingCalibrator().fit(
        rows.values, rows.labels, clusters=np.char.add("p", patients)
    )
    np.testing.assert_array_equal(
        model.predict_proba(rows.values), expected.predict_proba(rows.values)
    )


def test_fit_certifies_on_whole_clusters(table: Path, call) -> None:
    options = ("--columns", "class_*", "--certify", "30%", "--json")
    content = json.loads(call("fit", "s.csv", *options, "--cluster-column", "patient")[1])
    rows = content["certificate"]["parts"][0]["rows"]
    assert rows % COPIES == 0


def test_compare_divides_whole_clusters(table: Path, call) -> None:
    options = ("--columns", "class_*", "--calibrator", "ts,irova", "--json")
    status, output, problems = call("compare", "s.csv", *options, "--cluster-column", "patient")
    assert status == 0, problems
    content = json.loads(output)
    assert content["n_calibration"] % COPIES == 0
    assert "--cluster-column patient" in content["next_step"]["shell"][0]
    assert "clusters=clusters" in "".join(content["next_step"]["python"])
    separate = ("--hold-out", "s.csv", "--cluster-column", "patient")
    assert call("compare", "s.csv", *options, *separate)[0] == 0


def test_the_repair_alone_has_no_clusters(table: Path, call) -> None:
    pair = ("--original", "s.csv", "--direct", "s.csv")
    status, _, problems = call("fit", *pair, "--cluster-column", "patient")
    assert status == 2
    assert "--cluster-column" in problems
