"""The long form: each kind for its time, in a process of its own, and a table in the end.

A process that dies, or hangs for ten seconds in a run, counts as a failure, and the trials go
on with the next number.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from attacks.kinds import KINDS, generator
from attacks.promises import Fallen

PATIENCE = 10.0  # seconds a run, the promise about hangs
# Trials of several runs: one undisturbed, up to three killed and one resumed; three; one that waits
# for up to four workers to start again, and is resumed; or eight commands twice.
RUNS = {"kills": 5, "races": 3, "workers": 9, "encodings": 16}
# Imports do not count as part of a trial.
START = 600.0


@dataclass
class Totals:
    """What became of the trials of a kind."""

    trials: int = 0
    counted: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0


def work(kind: str, first: int, parent: Connection) -> None:
    """Run trials from a number on, and report each."""
    module = import_module(f"attacks.{kind}")
    attempt(module, kind, 0)  # what the first trial imports
    if kind == "files":
        module.import_formats()
    parent.send("ready")
    number = first
    while True:
        parent.send(attempt(module, kind, number))
        number += 1


def attempt(module: Any, kind: str, number: int) -> int | str:
    """Return what a trial counted, or how it fell."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return int(module.trial(generator(kind, number), Path(folder)))
        except Fallen as error:
            return str(error)
        except Exception:
            return traceback.format_exc(limit=-6)


def attack(kind: str, seconds: float, most: int) -> Totals:
    """Run a kind until its time is over or it has counted enough."""
    tally, process, pipe = Totals(), None, None
    while tally.seconds < seconds and tally.counted < most:
        if process is None or not process.is_alive():
            process, pipe = started(kind, tally.trials)
        began = time.perf_counter()
        result = received(pipe, PATIENCE * RUNS.get(kind, 1))
        tally.seconds += time.perf_counter() - began
        if isinstance(result, int):
            tally.counted += result
        else:
            tally.failures.append((tally.trials, result))
            if result in ("hangs", "died"):
                process.kill()
                process.join()
        tally.trials += 1
    if process is not None:
        process.kill()
        process.join()
    return tally


def started(kind: str, first: int) -> tuple[Any, Connection]:
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=work, args=(kind, first, theirs))
    process.start()
    theirs.close()
    if not ours.poll(START) or ours.recv() != "ready":
        raise SystemExit(f"{kind}: the trials did not start")
    return process, ours


def received(pipe: Connection, patience: float) -> int | str:
    """Return the next trial's result."""
    try:
        result: int | str = pipe.recv() if pipe.poll(patience) else "hangs"
    except EOFError:
        return "died"
    return result


def main() -> int:
    """Attack, print a table, and return 1 if anything fell."""
    parser = argparse.ArgumentParser(prog="attacks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each kind")
    parser.add_argument("--most", type=int, default=10_000_000, help="rows, files, ... of a kind")
    parser.add_argument("--kind", choices=KINDS, action="append", help="one or more; all if none")
    passed = parser.parse_args()
    fell = 0
    print("| what | trials | tried | failures | seconds |\n|---|--:|--:|--:|--:|", flush=True)
    for kind in passed.kind or KINDS:
        tally = attack(kind, passed.seconds, passed.most)
        fell += len(tally.failures)
        row = f"| {KINDS[kind]} | {tally.trials:,} | {tally.counted:,} | {len(tally.failures):,} |"
        print(f"{row} {tally.seconds:.0f} |", flush=True)
        for number, words in tally.failures[:5]:
            print(f"{kind} {number}: {words}", file=sys.stderr, flush=True)
    return int(fell > 0)
