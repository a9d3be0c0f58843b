"""Workers of a Dask cluster killed at any moment: the bytes of an undisturbed run."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import cordcal
from attacks.promises import Rng, hold, logits_and_labels
from cordcal.cli import main

PARTS, ROWS, CLASSES = 24, 2500, 20
WORKERS = 2
MOST_RUNS = 8


def trial(rng: Rng, folder: Path) -> int:
    """Apply a model on a cluster whose workers are killed, and compare with a run here."""
    running = cluster()
    running.scale(WORKERS)
    logits, labels = logits_and_labels(rng, PARTS * ROWS, CLASSES)
    cordcal.save(
        cordcal.PreservingCalibrator("vs").fit(logits[:500], labels[:500]), folder / "m.safetensors"
    )
    (folder / "s").mkdir()
    for at, part in enumerate(np.split(logits.astype(np.float32), PARTS)):
        np.save(folder / "s" / f"{at:02}.npy", part)
    job = ("apply", str(folder / "m.safetensors"), str(folder / "s"), "--quiet", "--output")
    began = time.perf_counter()
    hold(command(*job, str(folder / "whole"))[0] == 0, "a run here failed")
    seconds = time.perf_counter() - began
    run = (*job, str(folder / "out"), "--scheduler", running.scheduler_address)
    stop = threading.Event()
    kills: list[int] = []
    killer = threading.Thread(target=kill_workers, args=(running, rng, seconds, stop, kills))
    killer.start()
    try:
        code, words = command(*run)
    finally:
        stop.set()
        killer.join()
    for _ in range(MOST_RUNS):
        if code == 0:
            break
        hold(code == 2, f"exit code {code}: {words}")
        hold(len(words.splitlines()) == 1, f"not one sentence: {words}")
        hold("--resume" in words, f"nothing about --resume: {words}")
        code, words = command(*run, "--resume")
    hold(code == 0, f"not whole after {MOST_RUNS} runs: {words}")
    outputs = [
        {path.name: path.read_bytes() for path in (folder / name).glob("[0-9]*")}
        for name in ("whole", "out")
    ]
    hold(outputs[0] == outputs[1], "the cluster wrote other bytes")
    return len(kills)


def command(*arguments: str) -> tuple[int, str]:
    """Run cordcal; return its exit code and what it says on stderr."""
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(arguments)
    return code, errors.getvalue()


def kill_workers(
    running: Any, rng: Rng, seconds: float, stop: threading.Event, kills: list[int]
) -> None:
    """Kill workers, one after the other, at random moments."""
    for _ in range(int(rng.integers(1, 5))):
        if stop.wait(rng.uniform(0.0, seconds)):
            return
        pids = [worker.pid for worker in list(running.scheduler.workers.values())]
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(rng.choice(pids)), signal.SIGKILL)
                kills.append(1)
    # A nanny gives up a worker that dies while it starts: somebody must start another.
    while not stop.wait(0.5):
        running.scale(WORKERS)


@functools.cache
def cluster() -> Any:
    """Start a cluster for all trials; nannies start killed workers again."""
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0", silence_logs=60
    )
