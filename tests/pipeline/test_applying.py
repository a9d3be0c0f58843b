"""Streaming `cordcal apply`: the same probabilities as in memory, complete or absent, resumable."""

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

import numpy as np
import pytest

import cordcal
from cordcal.cli import main
from cordcal.files import open_scores
from cordcal.files.output import ResumableOutput
from cordcal.pipeline.applying import CalibratedRows, RepairedRows, apply_model
from errors import refused

Write = Callable[..., Path]

parquet = pytest.importorskip("pyarrow.parquet")
SOURCE = Path(__file__).parents[2] / "src"
CLASSES = 20
PLAIN = {"dtype": None, "with_direct": False, "explain": False}


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
    column = parquet.read_table(path)["repaired"].combine_chunks()
    return np.asarray(column.flatten()).reshape(len(column), -1)


def apply(model: object, path: Path, output: Path, **options: object) -> object:
    return apply_model(CalibratedRows(model, open_scores(path), **PLAIN), output, **options)


@pytest.mark.parametrize("source", ["s.parquet", "s.npy"])
@pytest.mark.parametrize("target", ["out.parquet", "out.npy"])
def test_the_reports_are_those_in_memory(
    write: Write, model: cordcal.PreservingCalibrator, logits: np.ndarray, source: str, target: str
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


def test_row_groups_are_those_of_the_input(
    write: Write, model: cordcal.PreservingCalibrator, logits: np.ndarray
) -> None:
    path = write("s.parquet", logits, group=300)
    apply(model, path, path.with_name("out.parquet"))
    files = [parquet.ParquetFile(path.with_name(name)) for name in ("s.parquet", "out.parquet")]
    sizes = [
        [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
        for file in files
    ]
    assert sizes[0] == sizes[1]


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
    apply_model(RepairedRows(cord, *files, **PLAIN), output)
    np.testing.assert_array_equal(repaired_in(output), cord.transform(original, direct))


@pytest.mark.parametrize("output", ["out.parquet", "out.npy", "out.npz", "out.csv"])
def test_a_bad_row_stops_and_leaves_nothing(
    write: Write, model: cordcal.PreservingCalibrator, logits: np.ndarray, output: str
) -> None:
    bad = logits.copy()
    bad[4321, 3] = np.nan
    path = write("s.parquet", bad, group=300)
    with refused(f"{path} (logits)", rows=[4321], naming="NaN"):
        apply(model, path, path.with_name(output))
    assert [file.name for file in path.parent.iterdir()] == ["s.parquet"]


def test_bad_rows_are_skipped_and_counted(
    write: Write, model: cordcal.PreservingCalibrator, logits: np.ndarray
) -> None:
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
    np.testing.assert_array_equal(
        repaired_in(output), model.predict_proba(bad[valid], dtype=np.float32)
    )


def test_more_rows_may_be_refused_than_calls_may_nest(
    write: Write,
    model: cordcal.PreservingCalibrator,
    logits: np.ndarray,
    batch_bytes: Callable[[int], None],
) -> None:
    batch_bytes(2**24)
    bad = logits[:2500].copy()
    bad[1:-1] = np.nan
    path = write("s.npy", bad)
    done = apply(model, path, path.with_name("out.parquet"), on_error="skip")
    assert (done.rows, done.skipped) == (2, {"contains NaN": 2498})


def test_skipping_needs_a_format_that_names_rows(
    write: Write, model: cordcal.PreservingCalibrator, logits: np.ndarray
) -> None:
    path = write("s.parquet", logits)
    with refused(naming="out.npy"):
        apply(model, path, path.with_name("out.npy"), on_error="skip")


def test_nothing_left(
    write: Write, model: cordcal.PreservingCalibrator, logits: np.ndarray
) -> None:
    path = write("s.npy", np.full_like(logits[:50], np.nan))
    with refused(naming="out.parquet"):
        apply(model, path, path.with_name("out.parquet"), on_error="skip")
    assert [file.name for file in path.parent.iterdir()] == ["s.npy"]


def test_inexact_sums_are_reported_once(write: Write) -> None:
    rng = np.random.default_rng(4)
    report = rng.dirichlet(np.ones(CLASSES), 2000) * rng.uniform(0.9996, 1.0004, (2000, 1))
    whole = report / report.sum(axis=1, keepdims=True)
    cord = cordcal.CORD().fit(whole, whole[::-1])
    files = [open_scores(write(f"{name}.npy", report)) for name in "pq"]
    output = Path(files[0].path).with_name("out.npy")
    with pytest.warns(UserWarning, match="sum to one only within") as caught:
        apply_model(RepairedRows(cord, *files, **PLAIN), output)
    assert len(caught) == 2  # original and direct


def test_a_full_disk_is_one_sentence(
    write: Write,
    model: cordcal.PreservingCalibrator,
    logits: np.ndarray,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write("s.npy", logits)
    cordcal.save(model, path.with_name("m.safetensors"))
    append = ResumableOutput.append

    def full(self: ResumableOutput, *args: object, **kwargs: object) -> None:
        if len(self.records) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(ResumableOutput, "append", full)
    arguments = ["apply", path.with_name("m.safetensors"), path, "--output"]
    code = main([*map(str, arguments), str(path.with_name("out.npy"))])
    errors = capsys.readouterr().err
    assert code == 2
    assert "out.npy does not fit: no space is left on the device" in errors
    assert len(errors.splitlines()) == 1
    assert {file.name for file in path.parent.iterdir()} == {"s.npy", "m.safetensors"}


class Killed:
    """Runs `cordcal apply` in small batches, and kills it after a while."""

    # The batches of a test must be small, and each slow enough to be killed in.
    SCRIPT = (
        "import sys, time\n"
        "from cordcal.files import sources, output\n"
        f"sources.BATCH_BYTES = 512 * {CLASSES} * 4\n"
        "append = output.ResumableOutput.append\n"
        "def slow(self, *args, **options):\n"
        "    print('block', flush=True)\n"
        "    append(self, *args, **options)\n"
        "output.ResumableOutput.append = slow\n"
        "from cordcal.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str, kill_after: int | None = None, delay: float = 0.0) -> int:
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
            for _ in range(kill_after):
                process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)
        return process.returncode


@pytest.mark.parametrize("suffix", ["parquet", "npy"])
def test_killed_and_resumed(
    write: Write, model: cordcal.PreservingCalibrator, logits: np.ndarray, suffix: str
) -> None:
    rng = random.Random(5)
    path = write("s.parquet", logits, group=40)  # 125 blocks
    folder = path.parent
    cordcal.save(model, folder / "m.safetensors")
    output = folder / f"out.{suffix}"
    command = Killed(folder)
    arguments = ("m.safetensors", "s.parquet", "--output", output.name)
    for kill in (rng.randrange(1, 60), rng.randrange(1, 30)):
        code = command.run(*arguments, "--resume", kill_after=kill, delay=rng.uniform(0.0, 0.005))
        assert code == -signal.SIGKILL
        assert not output.exists()
    journal = (folder / f".{output.name}.journal").read_text().splitlines()
    assert len(journal) > 2  # the first run's blocks were not lost
    assert main(["apply", *(str(folder / name) for name in arguments[:2]), "--output", str(output),
                 "--resume"]) == 0  # fmt: skip
    resumed = output.read_bytes()
    assert apply(model, path, output).rows == len(logits)
    assert output.read_bytes() == resumed
    np.testing.assert_array_equal(
        repaired_in(output), model.predict_proba(logits, dtype=np.float32)
    )
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def interrupted(
    path: Path, model: cordcal.PreservingCalibrator, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leave an output that was interrupted after three blocks."""
    append, seen = ResumableOutput.append, []

    def stop(self: object, *args: object, **kwargs: object) -> None:
        append(self, *args, **kwargs)  # type: ignore[arg-type]
        seen.append(1)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ResumableOutput, "append", stop)
        with pytest.raises(KeyboardInterrupt):
            apply(model, path, output)


def test_resuming_another_job_is_refused(
    write: Write,
    model: cordcal.PreservingCalibrator,
    logits: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write("s.npy", logits)
    output = path.with_name("out.npy")
    interrupted(path, model, output, monkeypatch)
    other = CalibratedRows(model, open_scores(path), **{**PLAIN, "dtype": "float64"})
    with refused(naming="options"):
        apply_model(other, output, resume=True)
    assert apply(model, path, output, resume=True).resumed == 3 * 500
    np.testing.assert_array_equal(
        repaired_in(output), model.predict_proba(logits, dtype=np.float32)
    )


def test_a_torn_journal_is_read_up_to_the_tear(
    write: Write,
    model: cordcal.PreservingCalibrator,
    logits: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write("s.npy", logits)
    output = path.with_name("out.npy")
    interrupted(path, model, output, monkeypatch)
    journal = path.with_name(".out.npy.journal")
    whole = journal.read_bytes()
    assert len([json.loads(line) for line in whole.splitlines()]) == 4
    journal.write_bytes(whole[:-7])
    assert apply(model, path, output, resume=True).resumed == 2 * 500
    np.testing.assert_array_equal(
        repaired_in(output), model.predict_proba(logits, dtype=np.float32)
    )


def test_two_writers_of_one_file(
    write: Write, model: cordcal.PreservingCalibrator, logits: np.ndarray
) -> None:
    fcntl = pytest.importorskip("fcntl")
    path = write("s.npy", logits)
    with path.with_name(".out.npy.journal").open("wb") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        with refused(naming="another process"):
            apply(model, path, path.with_name("out.npy"))


FORMATS = ("npy", "csv", "jsonl", "parquet", "feather")


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("place", ["first", "last", "short"])
def test_a_damaged_piece_is_made_again(
    write: Write,
    model: cordcal.PreservingCalibrator,
    logits: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    place: str,
) -> None:
    path = write("s.npy", logits)
    whole, output = path.with_name(f"whole.{suffix}"), path.with_name(f"out.{suffix}")
    apply(model, path, whole)
    interrupted(path, model, output, monkeypatch)
    pieces = path.with_name(f".{output.name}.partial")
    data = bytearray(pieces.read_bytes())
    if place == "short":
        del data[-100:]
    else:
        at = len(data) // 6 if place == "first" else len(data) - 100
        data[at] ^= 1
    pieces.write_bytes(data)
    done = apply(model, path, output, resume=True)
    assert done.resumed == (0 if place == "first" else 2 * 500)
    assert output.read_bytes() == whole.read_bytes()
    assert not [file for file in path.parent.iterdir() if file.name.startswith(".")]


def test_an_input_that_was_replaced_is_not_continued(
    write: Write,
    model: cordcal.PreservingCalibrator,
    logits: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write("s.npy", logits)
    output = path.with_name("out.npy")
    interrupted(path, model, output, monkeypatch)
    status = path.stat()
    write("s.npy", logits[::-1])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    with refused(naming="another input"):
        apply(model, path, output, resume=True)


def test_the_position_is_a_row_and_not_a_batch(
    write: Write,
    model: cordcal.PreservingCalibrator,
    logits: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write("s.npy", logits)
    output = path.with_name("out.csv")
    interrupted(path, model, output, monkeypatch)
    # Batches of another size, as another version might have.
    monkeypatch.setattr("cordcal.files.sources.BATCH_BYTES", 170 * CLASSES * 4)
    assert apply(model, path, output, resume=True).resumed == 3 * 500
    lines = output.read_text().splitlines()
    assert len(lines) == 1 + len(logits)
    expected = model.predict_proba(logits, dtype=np.float32)
    values = np.array([line.split(",")[1:] for line in lines[1:]], dtype=np.float32)
    np.testing.assert_array_equal(values, expected)
