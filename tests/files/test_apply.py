"""`apply` over files: the probabilities of memory, complete or absent; folders part by part."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cordcal
from cordcal.cli import main
from cordcal.files import open_scores
from cordcal.files.apply import FINISHED, ApplyOptions, ModelApplication, apply_model, apply_parts
from cordcal.files.output import NpyWriter
from errors import refused

Write = Callable[..., Path]

parquet = pytest.importorskip("pyarrow.parquet")
SOURCE = Path(cordcal.__file__).parents[1]
CLASSES = 20


@pytest.fixture(scope="module")
def model() -> cordcal.PreservingCalibrator:
    rng = np.random.default_rng(1)
    labels = rng.integers(CLASSES, size=2000)
    scores = 2.0 * np.eye(CLASSES)[labels] + rng.normal(size=(2000, CLASSES))
    return cordcal.PreservingCalibrator("vs").fit(scores.astype(np.float32), labels)


@pytest.fixture(scope="module")
def logits() -> np.ndarray:
    return np.random.default_rng(2).normal(size=(5000, CLASSES)).astype(np.float32)


@pytest.fixture(autouse=True)
def small_batches(batch_bytes: Callable[[int], None]) -> None:
    batch_bytes(512 * CLASSES * 4)


def repaired_in(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        return np.load(path)
    table = parquet.read_table(path)
    return np.column_stack([table[f"p_{name}"].to_numpy() for name in range(CLASSES)])


def apply(model: Any, path: Path, output: Path, **options: Any) -> Any:
    return apply_model(
        ModelApplication(model, [open_scores(path)], ApplyOptions(**options)), output
    )


@pytest.mark.parametrize("source", ["s.parquet", "s.npy"])
@pytest.mark.parametrize("target", ["out.parquet", "out.npy"])
def test_the_probabilities_are_those_in_memory(
    write: Write, model: Any, logits: np.ndarray, source: str, target: str
) -> None:
    path = write(source, logits, group=300)
    output = path.with_name(target)
    done = apply(model, path, output)
    direct = model.direct_proba(logits)
    assert (done.rows, done.classes, done.skipped) == (5000, CLASSES, {})
    assert done.changed == np.count_nonzero(direct.argmax(axis=1) != logits.argmax(axis=1))
    result = repaired_in(output)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, model.predict_proba(logits, dtype=np.float32))
    np.testing.assert_array_equal(result.argmax(axis=1), logits.argmax(axis=1))
    assert sorted(file.name for file in path.parent.iterdir()) == sorted([source, target])


def test_a_repair_alone_on_files_of_other_row_groups(write: Write) -> None:
    rng = np.random.default_rng(3)
    original = rng.dirichlet(np.ones(CLASSES), 3000)
    direct = rng.dirichlet(np.ones(CLASSES), 3000).astype(np.float32)
    cord = cordcal.CORD().fit(original, direct)
    files = [
        open_scores(write("p.parquet", original, key="original", group=170)),
        open_scores(write("q.parquet", direct, key="direct", group=410)),
    ]
    output = Path(files[0].path).with_name("out.parquet")
    apply_model(ModelApplication(cord, files, ApplyOptions()), output)
    np.testing.assert_array_equal(repaired_in(output), cord.transform(original, direct))
    short = open_scores(write("r.parquet", direct[:2999], key="direct", group=410))
    with refused(short.path, naming="2,999 rows"):
        apply_model(ModelApplication(cord, [files[0], short], ApplyOptions()), output)


@pytest.mark.parametrize("output", ["out.parquet", "out.npy", "out.npz", "out.csv"])
def test_a_bad_row_stops_and_leaves_nothing(
    write: Write, model: Any, logits: np.ndarray, output: str
) -> None:
    bad = logits.copy()
    bad[4321, 3] = np.nan
    path = write("s.parquet", bad, group=300)
    with refused(f"{path} (logits)", rows=[4321], naming="NaN"):
        apply(model, path, path.with_name(output))
    assert [file.name for file in path.parent.iterdir()] == ["s.parquet"]


def test_bad_rows_are_skipped_and_counted(write: Write, model: Any, logits: np.ndarray) -> None:
    bad = logits.copy()
    bad[[0, 7, 8, 2500, 4999], 3] = np.nan
    bad[2501, 4] = np.inf
    bad[600:900] = np.nan  # a whole row group
    path = write("s.parquet", bad, group=300)
    output = path.with_name("out.parquet")
    done = apply(model, path, output, on_error="skip")
    valid = np.flatnonzero(np.isfinite(bad).all(axis=1))
    assert done.skipped == {"contains +inf": 1, "contains NaN": 305}
    assert done.rows == len(valid)
    np.testing.assert_array_equal(parquet.read_table(output)["row"].to_numpy(), valid)
    expected = model.predict_proba(bad[valid], dtype=np.float32)
    np.testing.assert_array_equal(repaired_in(output), expected)
    with refused(naming="out.npy"):
        apply(model, path, path.with_name("out.npy"), on_error="skip")
    path = write("s.npy", np.full_like(logits[:50], np.nan))
    with refused(naming=["s.npy", "50 contains NaN"]):
        apply(model, path, path.with_name("none.parquet"), on_error="skip")
    assert not path.with_name("none.parquet").exists()


def test_a_full_disk_is_one_sentence(
    write: Write,
    model: Any,
    logits: np.ndarray,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write("s.npy", logits)
    cordcal.save(model, path.with_name("m.safetensors"))
    written, append = [], NpyWriter.write

    def full(self: NpyWriter, encoded: Any) -> None:
        written.append(1)
        if len(written) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(self, encoded)

    monkeypatch.setattr(NpyWriter, "write", full)
    arguments = ["apply", path.with_name("m.safetensors"), path, "--output"]
    code = main([*map(str, arguments), str(path.with_name("out.npy"))])
    errors = capsys.readouterr().err
    assert code == 2
    assert "out.npy does not fit: no space is left on the device" in errors
    assert len(errors.splitlines()) == 1
    assert {file.name for file in path.parent.iterdir()} == {"s.npy", "m.safetensors"}


# --- folders ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, logits: np.ndarray) -> Path:
    """Ten parts of 500 rows."""
    (tmp_path / "in").mkdir()
    for at in range(10):
        np.save(tmp_path / "in" / f"{at}.npy", logits[500 * at : 500 * (at + 1)])
    return tmp_path / "in"


def run_parts(model: Any, folder: Path, output: Path, **options: Any) -> Any:
    file = open_scores(folder)
    kept = {name: options.pop(name) for name in ("resume", "overwrite") if name in options}
    work = ModelApplication(model, [file], ApplyOptions(**options))
    return apply_parts(work, output, **kept)


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("[0-9]*")}


def test_only_changed_parts_are_made_again(
    tmp_path: Path, folder: Path, model: Any, logits: np.ndarray
) -> None:
    output = tmp_path / "out"
    assert run_parts(model, folder, output).rows == 5000
    with refused(str(output), naming="10 parts", option="resume"):
        run_parts(model, folder, output)
    before = times(output)
    assert run_parts(model, folder, output, resume=True).resumed == 5000
    assert times(output) == before
    np.save(folder / "3.npy", logits[:500])  # other content of the same size
    (output / "5.npy").unlink()
    (output / "6.npy").write_bytes(b"cut")
    done = run_parts(model, folder, output, resume=True)
    assert (done.rows, done.resumed) == (5000, 3500)
    changed = {name for name, when in times(output).items() if before[name] != when}
    assert changed == {"3.npy", "5.npy", "6.npy"}
    np.testing.assert_array_equal(
        np.load(output / "3.npy"), model.predict_proba(logits[:500], dtype=np.float32)
    )
    assert run_parts(model, folder, output, resume=True, dtype="float64").resumed == 0
    assert np.load(output / "0.npy").dtype == np.float64
    other = cordcal.PreservingCalibrator("ts").fit(logits, logits.argmax(axis=1) % 7)
    assert run_parts(other, folder, output, resume=True, dtype="float64").resumed == 0


@pytest.mark.parametrize("damage", [b"", b"\xff\n", b"[1]\n", b'{"part": 1}\n', None])
def test_a_damaged_list_costs_time_only(
    tmp_path: Path, folder: Path, model: Any, damage: bytes | None
) -> None:
    output = tmp_path / "out"
    run_parts(model, folder, output)
    content = (output / FINISHED).read_bytes()
    (output / FINISHED).write_bytes(content[:-9] if damage is None else damage)
    done = run_parts(model, folder, output, resume=True)
    assert (done.rows, done.resumed) == (5000, 4500 if damage is None else 0)
    lines = (output / FINISHED).read_text().splitlines()
    assert sorted(json.loads(line)["part"] for line in lines) == [f"{at}.npy" for at in range(10)]


def test_a_folder_of_other_files_is_refused(tmp_path: Path, folder: Path, model: Any) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "mine.npy").touch()
    for options in ({}, {"resume": True}, {"overwrite": True}):
        with refused(str(output), naming="mine.npy"):
            run_parts(model, folder, output, **options)


class Killed:
    """Runs `cordcal apply` in small batches, and kills it after a while."""

    # The batches of a test must be small, and each slow enough to be killed in.
    SCRIPT = (
        "import sys, time\n"
        "from cordcal.files import scores, loop\n"
        f"scores.BATCH_BYTES = 64 * {CLASSES} * 4\n"
        "from cordcal.cli import main\n"
        "print('begun', flush=True)\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str, kill_after: float | None = None) -> int:
        process = subprocess.Popen(
            [sys.executable, "-c", self.SCRIPT, "apply", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if kill_after is not None:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(kill_after)
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)
        return process.returncode


@pytest.mark.parametrize("suffix", ["parquet", "npy", "csv"])
def test_killed_into_one_file(
    tmp_path: Path, folder: Path, model: Any, logits: np.ndarray, suffix: str
) -> None:
    rng = random.Random(5)
    cordcal.save(model, tmp_path / "m.safetensors")
    output = tmp_path / f"out.{suffix}"
    arguments = ("m.safetensors", "in", "--output", output.name)
    for _ in range(3):
        code = Killed(tmp_path).run(*arguments, kill_after=rng.uniform(0.2, 1.5))
        assert code in (-signal.SIGKILL, 0)
        if output.exists():  # it was complete before the kill
            break
    else:
        assert Killed(tmp_path).run(*arguments) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["in", "m.safetensors", output.name]
    )
    if suffix != "csv":
        expected = model.predict_proba(logits, dtype=np.float32)
        np.testing.assert_array_equal(repaired_in(output), expected)


def test_a_killed_folder_continues(
    tmp_path: Path, folder: Path, model: Any, logits: np.ndarray
) -> None:
    rng = random.Random(6)
    cordcal.save(model, tmp_path / "m.safetensors")
    arguments = ("m.safetensors", "in", "--output", "out", "--resume")
    for _ in range(3):
        Killed(tmp_path).run(*arguments, kill_after=rng.uniform(0.5, 1.5))
        for path in (tmp_path / "out").glob("[0-9]*.npy"):
            assert np.load(path).shape == (500, CLASSES)
    assert Killed(tmp_path).run(*arguments) == 0
    parts = [np.load(path) for path in sorted((tmp_path / "out").glob("*.npy"))]
    expected = model.predict_proba(logits, dtype=np.float32)
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert {path.name for path in (tmp_path / "out").iterdir() if path.name[0] in "._"} == {
        FINISHED
    }
