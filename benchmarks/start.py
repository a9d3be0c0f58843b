"""How soon the first answer comes: each command, and the library's first calls.

    python benchmarks/start.py [--repeats 3]

Every line is a new process.  Cold means that nothing was ever cached: no
byte code of Python's (of any package).  Warm is the same command again.  Seconds of wall
clock, with those of the processor in brackets, which a busy machine disturbs less; the least
of the repeats counts.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import cordcal

FIRST_CALL = """
import time
import numpy as np
import cordcal
rng = np.random.default_rng(0)
original, direct = rng.dirichlet(np.ones({classes}), size=(2, {rows}))
cordcal.CORD
start, work = time.perf_counter(), time.process_time()
cordcal.CORD().fit(original, direct).transform(original, direct)
print(time.perf_counter() - start, time.process_time() - work)
"""

SIZES = ((1_000, 10), (5_000, 100))


def make_files(folder: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=500)
    logits = rng.normal(size=(500, 10))
    logits[np.arange(500), labels] += 2.0
    model = cordcal.PreservingCalibrator("vs").fit(logits, labels)
    cordcal.save(model, folder / "model.cordcal")
    np.save(folder / "logits.npy", logits[:50])
    reports = model.predict_both(logits[:50])
    np.save(
        folder / "original.npy",
        cordcal.PreservingCalibrator("ts").fit(logits, labels).predict_proba(logits[:50]),
    )
    np.save(folder / "direct.npy", reports.direct)


COMMANDS = {
    "--version": ("--version",),
    "info, 50 rows": ("info", "logits.npy"),
    "apply, 50 rows": ("apply", "model.cordcal", "logits.npy", "--output", "out.npy", "--force"),
    "audit, 50 rows": ("audit", "--original", "original.npy", "--direct", "direct.npy"),
}


def seconds_of(arguments: tuple[str, ...], folder: Path, caches: Path) -> tuple[float, float]:
    """Run a new process; return its seconds of wall clock and of the processor."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run(arguments, folder, environment(caches))
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    return wall, used


def environment(caches: Path) -> dict[str, str]:
    """Return the environment of a process whose caches lie in one folder."""
    unwanted = "PYTHONDONTWRITEBYTECODE"
    return {
        **{key: value for key, value in os.environ.items() if key != unwanted},
        "PYTHONPYCACHEPREFIX": str(caches / "python"),
    }


def run(arguments: tuple[str, ...], folder: Path, settings: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=settings, capture_output=True, check=True
    )
    return done.stdout.decode()


def first_calls(folder: Path, repeats: int) -> None:
    """Print the seconds of a first fit and transform, after the import."""
    for rows, classes in SIZES:
        code = FIRST_CALL.format(rows=rows, classes=classes)
        settings = environment(folder / "never")
        runs = [run(("-c", code), folder, settings).split() for _ in range(repeats)]
        wall, used = (min(float(times[at]) for times in runs) for at in (0, 1))
        print(f"  {rows:>5,} × {classes:<5}{wall:6.2f} ({used:.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder)
        print("command               cold s (CPU)     warm s (CPU)")
        for label, arguments in COMMANDS.items():
            command = ("-m", "cordcal", *arguments)
            caches = folder / f"caches of {label}"
            cold = seconds_of(command, folder, caches)
            warm = min(seconds_of(command, folder, caches) for _ in range(repeats))
            print(
                f"{label:<20}{cold[0]:>8.2f} ({cold[1]:.2f}){warm[0]:>11.2f} ({warm[1]:.2f})",
                flush=True,
            )
        print("\nfirst fit and transform after the import, s (CPU)")
        first_calls(folder, repeats)


if __name__ == "__main__":
    main()
