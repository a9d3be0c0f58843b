"""A whole study in small: all experiments, files that read back, the same for any workers."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SOURCES = os.pathsep.join([str(ROOT / "src"), str(ROOT / "study" / "src")])
STUDY = """\
title = "Small <study>"
seeds = [0, 1]
calibrators = ["vs", "irova"]
rivals = ["ts", "irm"]

[size]
fractions = [0.5, 1.0]

[[set]]
group = "A"
name = "net & co"
file = "one.npz"

[[set.shifted]]
kind = "noise"
severity = 2
file = "one_noisy.npz"

[[set]]
group = "A"
file = "two.npz"

[[set]]
group = "B"
name = "pair"
file = "one.npz"
evaluation = "two.npz"
"""
# A table each of these must have; figures by name.
TABLES = {
    "main": ("summary", "complete-1", "complete-2"),
    "paired": ("effects", "by-unit", "by-tpcr"),
    "floor": ("floor",),
    "minimal": ("minimal",),
    "targets": ("targets",),
    "lambda": ("lambda",),
    "ranking": ("ranking",),
    "size": ("size",),
    "shift": ("shift",),
    "rivals": ("rivals-1", "rivals-scores-1", "rivals-bases-1", "rivals-2"),
    "runtime": ("runtime",),
}
TEXTS = (".csv", ".json", ".md", ".tex")
FIGURES = {
    "main": ("figure-1", "figure-2", "reliability-1", "reliability-2"),
    "lambda": ("lambda",),
    "size": ("size-paired", "size-absolute"),
    "shift": ("shift-paired", "shift-absolute"),
}


def command(folder: Path, *arguments: object, file: str = "study.toml") -> list[str]:
    return [sys.executable, "-m", "cordcal", "study", str(folder / file), *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCES, "PYTHONUTF8": "1"}


def run(
    folder: Path, *arguments: object, file: str = "study.toml"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *arguments, file=file),
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    for name, noise in (("one", 1.5), ("two", 2.0), ("one_noisy", 3.0)):
        logits = 3.0 * np.eye(3)[labels] + noise * rng.normal(size=(200, 3))
        np.savez(folder / f"{name}.npz", logits=logits, labels=labels)
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    main = f'experiments = ["main"]\n{STUDY}'
    (folder / "main.toml").write_text(main, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> Path:
    """The output of the study, computed by one worker."""
    pytest.importorskip("matplotlib")
    finished = run(folder, "--output", "one", "--workers", 1)
    assert finished.returncode == 0, finished.stderr
    assert "index: one/index.html" in finished.stdout
    return folder / "one"


def test_every_experiment_writes_its_files(results: Path) -> None:
    count = 0
    for key, names in TABLES.items():
        tables = (results / key / "tables.md").read_text()
        assert all(f"\n## {name}\n\n| " in tables for name in names)
        assert tables.count("\n## ") >= len(names)
        count += tables.count("\n## ")
    assert (results / "tables.tex").read_text().count(r"\toprule") == count
    for key, names in FIGURES.items():
        for name in names:
            assert (results / key / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
            assert (results / key / f"{name}.pdf").read_bytes()[:4] == b"%PDF"


def test_the_index_shows_everything_and_escapes_what_it_shows(results: Path) -> None:
    page = (results / "index.html").read_text()
    assert "Content-Security-Policy" in page
    assert "Small &lt;study&gt;" in page
    assert "net &amp; co" in page
    for target in re.findall(r'(?:src|href)="([^"#][^"]*)"', page):
        assert (results / target).is_file(), target
    facts = json.loads((results / "study.json").read_text())
    assert facts["experiments"] == list(TABLES)
    assert [entry["splits"] for entry in facts["sets"]] == [2, 2, 1]


def test_repaired_reports_change_no_prediction(results: Path) -> None:
    with (results / "main" / "data.csv").open() as file:
        rows = list(csv.DictReader(file))
    changed = {
        output: [
            float(row["value"])
            for row in rows
            if (row["repair"], row["measure"]) == (output, "tpcr")
        ]
        for output in ("direct", "cord")
    }
    # Two sets with two splits and a pair with one, two calibrators each; uncalibrated besides.
    assert len(changed["cord"]) == 10
    assert len(changed["direct"]) == 15
    assert set(changed["cord"]) == {0.0}
    assert max(changed["direct"]) > 0


def test_results_do_not_depend_on_the_workers(folder: Path, results: Path) -> None:
    # Figures are drawn from the tables.
    finished = run(folder, "--output", "two", "--workers", 2, "--no-figures")
    assert finished.returncode == 0, finished.stderr
    files = sorted(path.relative_to(results) for path in results.rglob("*") if path.is_file())
    # Those with running times differ.
    timed = ("cells", "runtime", "index.html", "tables.tex")
    compared = [path for path in files if path.parts[0] not in timed and path.suffix in TEXTS]
    assert {path.parts[0] for path in compared} == {"study.json", *TABLES} - {"runtime"}
    for path in compared:
        assert (results / path).read_bytes() == (folder / "two" / path).read_bytes(), path


def test_a_rerun_reads_every_cell(folder: Path, results: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (results / "cells").rglob("*")}
    data = (results / "main" / "data.csv").read_bytes()
    cells = ("--cache", results / "cells")
    finished = run(folder, "--output", "again", *cells, "--workers", 1, "--no-figures")
    assert finished.returncode == 0, finished.stderr
    assert {path: path.stat().st_mtime_ns for path in (results / "cells").rglob("*")} == before
    assert (folder / "again" / "main" / "data.csv").read_bytes() == data


def test_pages_are_written_again_from_the_data_of_a_run(
    folder: Path, results: Path, tmp_path: Path
) -> None:
    shutil.copytree(results, tmp_path / "copy", ignore=shutil.ignore_patterns("cells"))
    shutil.copy(folder / "study.toml", tmp_path)  # without the data files
    before = {path: path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    for path in before:
        if path.suffix in (".md", ".tex", ".html", ".png", ".pdf"):
            path.unlink()
    finished = run(tmp_path, "--output", "copy", "--render")
    assert finished.returncode == 0, finished.stderr
    assert {path: path.read_bytes() for path in before} == before
    finished = run(tmp_path, "--output", "empty", "--render")
    assert finished.returncode == 2
    assert "contains no results of a study" in finished.stderr


def whole_cells(folder: Path) -> list[Path]:
    """Return the cells that have their names; one that is being written is a hidden file."""
    return [path for path in folder.rglob("*.json") if not path.name.startswith(".")]


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to one process")
def test_an_interrupted_study_keeps_its_cells_and_goes_on(folder: Path, results: Path) -> None:
    process = subprocess.Popen(
        command(folder, "--output", "stopped", "--workers", 1, "--no-figures", file="main.toml"),
        env=environment(),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    cells = folder / "stopped" / "cells"
    deadline = time.monotonic() + 120
    while not whole_cells(cells) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    times = {path: path.stat().st_mtime_ns for path in cells.rglob("*.safetensors")}
    finished = len(whole_cells(cells))
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert not (folder / "stopped" / "index.html").exists()
    assert finished > 0
    assert not list(cells.rglob(".*"))
    continued = run(folder, "--output", "stopped", "--no-figures", file="main.toml")
    assert continued.returncode == 0, continued.stderr
    assert {path: path.stat().st_mtime_ns for path in times} == times  # nothing is fitted again
    again = (folder / "stopped" / "main" / "data.csv").read_bytes()
    assert again == (results / "main" / "data.csv").read_bytes()


def test_a_mistake_is_one_sentence_and_starts_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text('[[set]]\nfile = "gone.npz"\n', encoding="utf-8")
    finished = run(tmp_path, "--output", "out")
    assert finished.returncode == 2
    assert finished.stderr.startswith(
        "cordcal: study.toml, line 2: the file gone.npz does not exist"
    )
    assert finished.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_results_replace_no_file_of_the_study(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "main").mkdir()
    data = tmp_path / "main" / "data.npz"
    data.write_bytes((folder / "one.npz").read_bytes())
    (tmp_path / "study.toml").write_text(
        'experiments = ["main"]\n[[set]]\nfile = "main/data.npz"\n', encoding="utf-8"
    )
    finished = run(tmp_path, "--output", ".")
    assert finished.returncode == 2
    assert "the same command reads" in finished.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["main", "study.toml"]
