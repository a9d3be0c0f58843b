"""Runtime: the time to construct and to apply CORD, one thread, float64."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from cordcal._validation.scores import original_probabilities
from cordcal.calibrators import make
from cordcal.files import replacing
from cordcal.repair import CORD
from cordcal_study.cells import Task
from cordcal_study.chapters import Chapter, Entry, Part, Table, text
from cordcal_study.data import CLEAN, SetData, load_set
from cordcal_study.tidy import Timing

# The paper's counts, after one run of each to warm up.
_CONSTRUCTIONS, _REPAIRS = 9, 21
CALIBRATOR = "irova-ts"


def measure(tasks: Mapping[tuple[str, str], Task]) -> list[Timing]:
    """Time every set, or read what was timed before; runs when no worker does."""
    timings = []
    for (group, name), task in tasks.items():
        path = task.path(".runtime.json")
        if not path.is_file():
            timed = _timed(load_set(task.spec), task.fit.seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                Path(temporary).write_text(json.dumps(timed), encoding="utf-8")
        stored = json.loads(path.read_text(encoding="utf-8"))
        for step in ("construction", "repair"):
            quartiles = np.quantile(stored[step], [0.25, 0.5, 0.75]).tolist()
            timings.append(
                Timing(group, name, stored["calibration"], stored["classes"], step, *quartiles)
            )
    return timings


def _timed(data: SetData, seed: int | None) -> dict[str, Any]:
    calibration, evaluation = data.calibration(seed, 1.0), data.evaluated(seed, CLEAN)
    calibrator = make(CALIBRATOR, input=data.kind).fit(calibration.scores, calibration.labels)
    pairs = [
        (original_probabilities(rows.scores, data.kind), calibrator.predict_proba(rows.scores))
        for rows in (calibration, evaluation)
    ]
    cord = CORD(threads=1)
    construct = _runs(lambda: cord.fit(*pairs[0]), _CONSTRUCTIONS)
    repair = _runs(lambda: cord.transform(*pairs[1]), _REPAIRS)
    return {
        "classes": data.classes,
        "calibration": len(calibration),
        "evaluation": len(evaluation),
        "construction": construct,
        "repair": [seconds / len(evaluation) for seconds in repair],
    }


def _runs(call: Callable[[], Any], count: int) -> list[float]:
    call()
    seconds = []
    for _ in range(count):
        started = perf_counter()
        call()
        seconds.append(perf_counter() - started)
    return seconds


def chapter(timings: Sequence[Timing]) -> Chapter:
    """Return the chapter of the runtimes."""
    lines: list[tuple[Entry, ...]] = []
    steps = zip(timings[::2], timings[1::2], strict=True)
    for first, second in steps:
        size = f"{first.rows:,} × {first.classes:,}"
        lines.append(
            (
                text(first.group),
                text(first.set),
                text(size),
                (_quartiles(first, 1e3),),
                (_quartiles(second, 1e6),),
            )
        )
    table = Table(
        "runtime",
        f"Wall-clock times of CORD in one thread on float64 pairs in memory, q from IROvA-TS: "
        f"median [Q1, Q3] of {_CONSTRUCTIONS} constructions and {_REPAIRS} repairs of the whole "
        f"evaluation split, after warm-up.",
        ("Group", "Classifier", "rows × classes", "Construction (ms)", "Repair (µs/row)"),
        tuple(lines),
    )
    return Chapter(
        key="runtime",
        title="Runtime",
        paragraphs=("Times depend on the machine and its load; everything else here does not.",),
        tables=(table,),
        data={"data": timings},
    )


def _quartiles(timing: Timing, scale: float) -> Part:
    low, median, high = (scale * seconds for seconds in (timing.low, timing.median, timing.high))
    return Part(f"{median:.3f} [{low:.3f}, {high:.3f}]")
