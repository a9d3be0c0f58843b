"""Processes killed at any moment: an output that is whole or absent, and the same when resumed."""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

from cordcal.pipeline.applying import CalibratedRows, apply_model

import cordcal
from attacks.promises import Rng, hold, logits_and_labels
from cordcal.files import open_scores, sources

ROWS, CLASSES = 1500, 20
SUFFIXES = ("npy", "csv", "jsonl", "parquet", "feather")
PLAIN: dict[str, Any] = {"dtype": None, "with_direct": False, "explain": False}


def trial(rng: Rng, folder: Path) -> int:
    """Kill a run some times, resume it, and compare it with an undisturbed one."""
    model, source = prepared(rng, folder)
    output = folder / f"out.{rng.choice(SUFFIXES)}"
    whole = output.with_stem("whole")
    seconds = time.perf_counter()
    run(model, source, whole)
    seconds = time.perf_counter() - seconds
    kills = 0
    for _ in range(int(rng.integers(1, 4))):
        kills += killed(rng.uniform(0.0, 1.5 * seconds), model, source, output)
        if rng.random() < 0.3:
            damage(rng, output.with_name(f".{output.name}.partial"))
        if output.exists():
            hold(output.read_bytes() == whole.read_bytes(), "a killed run left half an output")
            break
    run(model, source, output, resume=not output.exists())
    hold(output.read_bytes() == whole.read_bytes(), "a resumed output differs")
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    hold(not hidden, f"{hidden} were left behind")
    return kills


def damage(rng: Rng, pieces: Path) -> None:
    """Flip a bit of the finished pieces, or cut their end off."""
    data = bytearray(pieces.read_bytes()) if pieces.exists() else bytearray()
    if not data:
        return
    at = int(rng.integers(len(data)))
    if rng.random() < 0.5:
        data[at] ^= 1 << int(rng.integers(8))
    else:
        del data[at:]
    pieces.write_bytes(data)


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


def run(model: Path, source: Path, output: Path, **options: bool) -> None:
    """Apply a model, in many small batches."""
    sources.BATCH_BYTES = 64 * CLASSES * 4
    passthrough = output.suffix != ".npy"
    file = open_scores(source, passthrough=passthrough)
    apply_model(CalibratedRows(cordcal.load(model), file, **PLAIN), output, **options)


def killed(seconds: float, model: Path, source: Path, output: Path) -> int:
    """Start a run and kill it; return whether it was alive."""
    # A new process that has all modules already, made from one that runs no threads.
    child = processes().Process(target=run, args=(model, source, output), kwargs={"resume": True})
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
