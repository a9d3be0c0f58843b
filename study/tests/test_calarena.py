"""CalArena's files: read, studied from one command, gone on with, written in its form."""

from __future__ import annotations

import csv
import runpy
from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal import metrics
from cordcal.cli import main
from cordcal_study import read_study, run_study
from cordcal_study.calarena import read_experiment
from cordcal_study.data import load_set
from cordcal_study.page import write_study
from errors import refused

STUDY = """\
title = "small"
experiments = ["benchmark"]

[benchmark]
rows = ["all"]
seeds = [0]
calibrators = ["ts", "sms", "irova"]
comparisons = ["sms + cord"]

[families]
forest = "trees"

[[calarena]]
file = "small-multiclass.h5"

[[calarena]]
file = "small-binary.h5"
"""
COLUMNS = "dataset,model,cal_size,test_size,n_classes"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of CalArena's layout: three experiments of four classes, one of two."""
    h5py = pytest.importorskip("h5py")
    folder = tmp_path_factory.mktemp("calarena")
    rng = np.random.default_rng(0)
    with h5py.File(folder / "small-multiclass.h5", "w") as file:
        for name in ("wine/forest", "wine/linear", "cars/forest"):
            for part, rows in (("cal", 150), ("test", 120)):
                labels = rng.integers(4, size=rows)
                mixed = rng.dirichlet(np.ones(4), rows) + np.eye(4)[labels] + [0.5, 0, 0, 0]
                file[f"{name}/probas_{part}"] = mixed / mixed.sum(axis=1, keepdims=True)
                file[f"{name}/labels_{part}"] = labels
    with h5py.File(folder / "small-binary.h5", "w") as file:
        for part in ("cal", "test"):
            labels = rng.integers(2, size=100)
            file[f"coins/linear/probas_{part}"] = (0.3 * labels + 0.7 * rng.random(100)).clip(0, 1)
            file[f"coins/linear/labels_{part}"] = labels
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    return folder


def test_each_experiment_is_a_set_and_each_data_set_a_source(folder: Path) -> None:
    study = read_study(folder / "study.toml")
    assert [(spec.group, spec.name, spec.source, spec.family) for spec in study.sets] == [
        ("small-multiclass", "cars/forest", "cars", "trees"),
        ("small-multiclass", "wine/forest", "wine", "trees"),
        ("small-multiclass", "wine/linear", "wine", "not stated"),
        ("small-binary", "coins/linear", "coins", "not stated"),
    ]
    data = load_set(study.sets[3])
    assert data.kind == "probabilities"
    np.testing.assert_allclose(data.rows.scores.sum(axis=1), 1.0)  # one column became two
    assert data.classes == 2


def test_a_study_is_one_command_goes_on_and_speaks_its_language(
    folder: Path, tmp_path: Path
) -> None:
    arguments = ["study", str(folder / "study.toml"), "--output", str(tmp_path), "--no-figures"]
    assert main([*arguments, "--workers", "1"]) == 0
    cells = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").rglob("*.json")}
    assert len(cells) == 4
    for name in ("Base-model", "TS", "SMS", "SMS+CORD", "SMS+lift", "Isotonic"):
        path = tmp_path / "benchmark" / "small-multiclass" / f"{name}.csv"
        lines = path.read_text().splitlines()
        assert lines[0].startswith(COLUMNS)
        assert f"{name}_brier,{name}_logloss,{name}_ece-15,{name}_accuracy" in lines[0]
        assert len(lines) == 4
    with (tmp_path / "benchmark" / "small-multiclass" / "SMS+CORD.csv").open() as file:
        rows = list(csv.DictReader(file))
    base = (tmp_path / "benchmark" / "small-multiclass" / "Base-model.csv").open()
    with base:
        originals = list(csv.DictReader(base))
    assert [float(row["SMS+CORD_tpcr"]) for row in rows] == [0.0, 0.0, 0.0]
    for row, original in zip(rows, originals, strict=True):
        assert row["SMS+CORD_accuracy"] == original["Base-model_accuracy"]
        parts = read_experiment(folder / "small-multiclass.h5", f"{row['dataset']}/{row['model']}")
        expected = metrics.nll(parts[1].values, parts[1].labels)
        assert float(original["Base-model_logloss"]) == pytest.approx(expected, abs=1e-12)
    again = run_study(folder / "study.toml", tmp_path / "cells", workers=1)
    assert {path: path.stat().st_mtime_ns for path in cells} == cells  # nothing runs twice
    index = write_study(again, tmp_path / "other", figures=False)
    assert "wine/forest" in index.read_text()


def test_one_experiment_is_compared(folder: Path) -> None:
    path = folder / "small-multiclass.h5"
    calibration, test = read_experiment(path, "wine/forest")
    result = cordcal.compare(
        calibration.values,
        calibration.labels,
        ["ts"],
        evaluation=(test.values, test.labels),
        input="probabilities",
    )
    assert result.keys() == ["ts"]
    assert len(test.values) == 120
    with refused(naming=("holds 3 experiments", "'cars/forest'")):
        read_experiment(path)
    with refused(naming="'wine/forest'"):
        read_experiment(path, "wine/forrest")
    # One experiment needs no name.
    assert [len(part.values) for part in read_experiment(folder / "small-binary.h5")] == [100, 100]


def test_a_file_without_experiments_is_named_by_line(folder: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", probs=np.full((4, 2), 0.5), labels=np.arange(4) % 2)
    (tmp_path / "study.toml").write_text('[[calarena]]\nfile = "a.npz"\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 2: a\.npz has no groups with probas_cal"):
        read_study(tmp_path / "study.toml")


def test_the_ready_study_file_takes_all_seven_benchmarks(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    names = [f"{name}-binary" for name in ("tabrepo", "tabarena", "cv")]
    names += [f"{name}-multiclass" for name in ("tabrepo", "tabarena", "cv", "imagenet")]
    for name in names:
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            for part in ("cal", "test"):
                file[f"d/CatBoost/probas_{part}"] = np.full((4, 2), 0.5)
                file[f"d/CatBoost/labels_{part}"] = np.arange(4) % 2
    study = read_study(Path(__file__).parents[2] / "docs" / "calarena.toml", data=tmp_path)
    assert sorted(spec.group for spec in study.sets) == sorted(names)
    assert {spec.family for spec in study.sets} == {"boosting"}
    assert study.experiments == ("benchmark",)
    assert study.benchmark is not None
    assert study.benchmark.rows == ("all",)
    assert len(study.benchmark.claims) == 3


@pytest.mark.parametrize("name", ["Blend+lift", "SMS+CORD", "SMS+lift"])
@pytest.mark.parametrize(
    "place", ["small-multiclass.h5/wine/forest", "small-binary.h5/coins/linear"]
)
def test_its_own_harness_can_run_the_entries(folder: Path, name: str, place: str) -> None:
    """The same calls as in CalArena's run_benchmark.py, on the arrays as it reads them."""
    h5py = pytest.importorskip("h5py")
    entry = Path(__file__).parents[2] / "docs" / "custom_calibrators.py"
    if not entry.is_file():
        pytest.skip("the documentation is not here")
    calibrator = runpy.run_path(str(entry))["CUSTOM_CALIBRATORS"][name]()
    file, _, group = place.partition("/")
    with h5py.File(folder / file) as stored:
        parts = [
            stored[f"{group}/{part}"][:] for part in ("probas_cal", "labels_cal", "probas_test")
        ]
    calibrator.fit(parts[0], parts[1])
    output = calibrator.predict_proba(parts[2])
    test = parts[2] if parts[2].ndim == 2 else np.stack([1.0 - parts[2], parts[2]], axis=1)
    np.testing.assert_allclose(output.sum(axis=1), 1.0)
    np.testing.assert_array_equal(output.argmax(axis=1), test.argmax(axis=1))
