"""Processes killed at any moment: outputs whole or absent, and the same when run again."""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import cordcal
from attacks.promises import Rng, hold, logits_and_labels
from cordcal.files import open_scores, scores
from cordcal.files.apply import ApplyOptions, ModelApplication, apply_model, apply_parts

ROWS, CLASSES, PARTS = 1500, 20, 6
SUFFIXES = ("npy", "csv", "jsonl", "parquet", "feather")


def trial(rng: Rng, folder: Path) -> int:
    """Kill a run some times, run it again, and compare it with an undisturbed one."""
    model, source = prepared(rng, folder)
    if rng.random() < 0.5:
        source = in_parts(source)
    output = folder / ("out" if source.is_dir() else f"out.{rng.choice(SUFFIXES)}")
    whole = folder / f"whole{output.suffix}"
    seconds = time.perf_counter()
    run(model, source, whole)
    seconds = time.perf_counter() - seconds
    kills = 0
    for _ in range(int(rng.integers(1, 4))):
        kills += killed(rng.uniform(0.0, 1.5 * seconds), model, source, output)
        written = contents(output)
        if written:
            expected = contents(whole)
            same = all(expected[name] == data for name, data in written.items())
            hold(same, "a killed run left half an output")
    run(model, source, output)
    hold(contents(output) == contents(whole), "an output differs after a kill")
    hidden = [path.name for path in folder.rglob(".*")]
    hold(not hidden, f"{hidden} were left behind")
    return kills


def contents(output: Path) -> dict[str, bytes]:
    """Return the bytes of a file, or of the parts of a folder."""
    files = [output] if output.is_file() else list(output.glob("[0-9]*"))
    return {path.name.replace("out", "whole"): path.read_bytes() for path in files}


def in_parts(source: Path) -> Path:
    """Split a JSONL file into parts."""
    folder = source.with_name("in")
    folder.mkdir()
    lines = source.read_text().splitlines(keepends=True)
    for at in range(PARTS):
        (folder / f"{at}.jsonl").write_text("".join(lines[at::PARTS]))
    return folder


def prepared(rng: Rng, folder: Path) -> tuple[Path, Path]:
    """Write a model and scores."""
    logits, labels = logits_and_labels(rng, ROWS, CLASSES)
    cordcal.save(
        cordcal.PreservingCalibrator("vs").fit(logits[:500], labels[:500]), folder / "m.safetensors"
    )
    rows = [
        {"key": f"r{at}", "count": at if at % 7 else None, "logits": row}
        for at, row in enumerate(logits.round(6).tolist())
    ]
    source = folder / "scores.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "m.safetensors", source


def run(model: Path, source: Path, output: Path, *, overwrite: bool = True) -> None:
    """Apply a model, in many small batches; of a folder, only the parts that are missing."""
    scores.BATCH_BYTES = 64 * CLASSES * 4
    file, fitted = open_scores(source), cordcal.load(model)
    if source.is_dir():
        work = ModelApplication(fitted, [file], ApplyOptions())
        apply_parts(work, output, resume=True)
    else:
        apply_model(ModelApplication(fitted, [file], ApplyOptions()), output, overwrite=overwrite)


def killed(seconds: float, model: Path, source: Path, output: Path) -> int:
    """Start a run and kill it; return whether it was alive."""
    # A new process that has all modules already, made from one that runs no threads.
    child = processes().Process(target=run, args=(model, source, output))
    child.start()
    child.join(seconds)
    alive = child.is_alive()
    child.kill()
    child.join()
    return int(alive)


def processes() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["attacks.kills", "attacks.races"])
    return context
