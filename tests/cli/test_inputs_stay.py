"""No output of a command replaces one of its inputs, forced or not, nor another output."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from scipy.special import softmax

import cordcal
from cordcal.cli._app import registered_commands
from cordcal.cli._files import INPUTS, OUTPUTS

TS = ("--calibrator", "ts")
# Options with text that is not the name of a file.
NO_FILES = {
    "columns", "names", "decimal", "encoding", "cluster_column", "context_columns",
    "calibrator", "repair", "prefer", "preserve", "rule", "on_error", "scheduler", "most", "least",
    "options", "normalize",
    # A monitor's state is read and written; what is added to it is never written.
    "state", "new", "id_column",
    "certify", "add", "keep", "error", "confidence",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> Path:
    """Files of every kind that a command reads."""
    names = ("ant", "bee", "cat")
    for name, values in (("s", logits), ("q", softmax(logits / 2, axis=1))):
        header = ",".join((*(f"p_{name}" for name in names), "label"))
        rows, file = np.column_stack([values, labels]), tmp_path / f"{name}.csv"
        np.savetxt(file, rows, "%.9g", delimiter=",", header=header, comments="")
        (tmp_path / name).mkdir()
        for part in ("a.csv", "b.csv"):
            shutil.copy(tmp_path / f"{name}.csv", tmp_path / name / part)
    np.save(tmp_path / "y.npy", labels)
    np.save(tmp_path / "w.npy", np.ones(len(labels)))
    np.save(tmp_path / "g.npy", labels % 2)
    (tmp_path / "names.txt").write_text("\n".join(names))
    report = softmax(logits, axis=1)
    baseline = cordcal.check(report, labels, gates=[], class_names=names).baseline
    baseline.save(tmp_path / "base.baseline")
    model = cordcal.PreservingCalibrator("ts", class_names=names).fit(logits, labels)
    cordcal.save(model, tmp_path / "m.safetensors")
    cordcal.save(model.repair_, tmp_path / "cord.safetensors")
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


PAIR = ("--original", "s.csv", "--direct", "q.csv")
CHECK = ("check", "s.csv", "--max", "nll=9")
CASES = [
    (("fit", "s.csv", *TS, "--output"), "s.csv"),
    (("fit", "s.csv", *TS, "--labels", "y.npy", "--output"), "y.npy"),
    (("fit", "s.csv", *TS, "--weights", "w.npy", "--output"), "w.npy"),
    (("fit", "s.csv", *TS, "--class-names", "names.txt", "--output"), "names.txt"),
    (("fit", *PAIR, "--output"), "s.csv"),
    (("fit", *PAIR, "--output"), "q.csv"),
    (("fit", "s", *TS, "--output"), "s/b.csv"),
    (("fit", "s/*.csv", *TS, "--output"), "s/b.csv"),
    (("apply", "m.safetensors", "s.csv", "--output"), "s.csv"),
    (("apply", "m.safetensors", "s.csv", "--output"), "m.safetensors"),
    (("apply", "m.safetensors", "s", "--output"), "s"),
    (("apply", "m.safetensors", "s/*.csv", "--output"), "s"),
    (("apply", "m.safetensors", "s", "--output"), "s/a.csv"),
    (("apply", "m.safetensors", "s.csv", "--scheduler", "tcp://localhost:1", "--output"), "."),
    (("apply", "cord.safetensors", *PAIR, "--output"), "q.csv"),
    (("audit", *PAIR, "--report"), "s.csv"),
    (("audit", *PAIR, "--model", "cord.safetensors", "--report"), "cord.safetensors"),
    (("audit", *PAIR, "--labels", "y.npy", "--report"), "y.npy"),
    (("compare", "s.csv", *TS, "--report"), "s.csv"),
    (("compare", "s.csv", *TS, "--hold-out", "q.csv", "--report"), "q.csv"),
    (("compare", "s.csv", *TS, "--groups", "g.npy", "--report"), "g.npy"),
    ((*CHECK, "--report"), "s.csv"),
    ((*CHECK, "--original", "q.csv", "--report"), "q.csv"),
    ((*CHECK, "--baseline", "base.baseline", "--output"), "base.baseline"),
    (("info", "s.csv", "--report"), "s.csv"),
    (("export", "m.safetensors"), "m.safetensors"),
]


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "forced"])
@pytest.mark.parametrize(("arguments", "output"), CASES, ids=lambda part: "-".join(part))
def test_an_input_is_never_replaced(
    call, folder: Path, arguments: tuple[str, ...], output: str, force: tuple[str, ...]
) -> None:
    before = contents(folder)
    code, _, errors = call(*arguments, output, *force)
    assert code == 2
    assert "the same command reads" in errors
    assert contents(folder) == before


def other_names(folder: Path) -> Iterator[str]:
    """Make other names of s.csv."""
    yield "./s/../s.csv"
    yield str(folder / "s.csv")
    (folder / "symbolic.csv").symlink_to("s.csv")
    yield "symbolic.csv"
    (folder / "hard.csv").hardlink_to(folder / "s.csv")
    yield "hard.csv"
    (folder / "elsewhere").symlink_to(folder)
    yield "elsewhere/s.csv"


@pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")
def test_under_any_name(call, folder: Path) -> None:
    for name in list(other_names(folder)):
        before = contents(folder)
        for scores, output in (("s.csv", name), (name, "s.csv")):
            code, _, errors = call("fit", scores, *TS, "--output", output, "--force")
            assert (code, "the same command reads" in errors) == (2, True), (scores, output)
        assert contents(folder) == before


@pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")
def test_links_to_parts_in_the_folder_of_the_output(call, folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "a.csv").hardlink_to(folder / "s" / "a.csv")
    before = contents(folder)
    code, _, errors = call("apply", "m.safetensors", "s", "--output", "out", "--force")
    assert (code, "the same command reads" in errors) == (2, True)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("arguments", "inside"),
    [
        (("fit", "s", *TS, "--output"), "s/model.safetensors"),
        (("apply", "m.safetensors", "s", "--output"), "s/out"),
        (("apply", "m.safetensors", "s", "--output"), "s/all.csv"),
        (("compare", "s", *TS, "--report"), "s/deep/report.html"),
    ],
)
def test_nothing_is_added_to_a_folder_that_is_read(
    call, folder: Path, arguments: tuple[str, ...], inside: str
) -> None:
    before = contents(folder)
    code, _, errors = call(*arguments, inside)
    assert code == 2
    assert "outside that folder" in errors
    assert contents(folder) == before


def test_files_that_are_no_parts_may_go_there(call, folder: Path) -> None:
    assert call("apply", "m.safetensors", "s", "--output", "s/_repaired")[0] == 0
    assert sorted(path.name for path in (folder / "s" / "_repaired").iterdir()) == [
        "_cordcal.jsonl",
        "a.csv",
        "b.csv",
    ]


@pytest.mark.parametrize("second", ["x", "./x", "s/../x"])
def test_two_outputs_of_one_name(call, folder: Path, second: str) -> None:
    for existing in (False, True):
        if existing:
            (folder / "x").write_text("mine")
        before = contents(folder)
        code, _, errors = call(*CHECK, "--report", "x", "--output", second, "--force")
        assert (code, "name of its own" in errors) == (2, True)
        assert contents(folder) == before


def test_stdout_in_the_file_of_another_output(folder: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "cordcal", *CHECK, "--report", "x", "--force"]
    with (folder / "x").open("w") as file:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=file, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert b"name of its own" in done.stderr


def test_stdin_of_the_file_that_is_written(folder: Path, environment: dict[str, str]) -> None:
    before = contents(folder)
    command = [sys.executable, "-m", "cordcal", "fit", "-", *TS, "--output", "s.csv", "--force"]
    with (folder / "s.csv").open() as file:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=file, capture_output=True, check=False
        )
    assert done.returncode == 2
    assert b"the same command reads" in done.stderr
    assert contents(folder) == before


def test_outputs_of_other_names_are_replaced(call, folder: Path) -> None:
    for _ in range(2):
        output = ("--output", "new.safetensors", "--force")
        assert call("fit", "s.csv", *TS, *output)[0] == 0
        outputs = ("--report", "j.xml", "--output", "b.baseline", "--force")
        assert call(*CHECK, "--original", "s.csv", *outputs)[0] == 0


def test_every_option_is_known_to_name_a_file_or_not() -> None:
    for command in registered_commands().values():
        for name, parameter in inspect.signature(command.callback).parameters.items():
            if _takes_text(parameter.annotation):
                sets = [name in INPUTS, name in OUTPUTS, name in NO_FILES]
                assert sum(sets) == 1, f"{command.callback.__name__}: {name}"


def _takes_text(annotation: Any) -> bool:
    kinds = {annotation, *get_args(annotation)}
    kinds |= {inner for kind in kinds for inner in get_args(kind)}
    kinds |= {inner for kind in kinds for inner in get_args(kind)}
    return bool(kinds & {str, Path})
