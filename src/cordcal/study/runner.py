"""Compute a study's cells in worker processes; what is on disk already is not computed again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

from cordcal import calibrators, metrics
from cordcal.calibrators import Calibrator
from cordcal.calibrators._registry import registered as registered_calibrators
from cordcal.metrics import Measure
from cordcal.metrics._registry import registered as registered_measures
from cordcal.study.cells import UNCALIBRATED, Cell, Fit, Task, compute, stored
from cordcal.study.data import SetData
from cordcal.study.schema import SetSpec

# Every library that would start threads of its own reads one of these when it is loaded.
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

Advance = Callable[[int, int, str], None]
"""Called with the cells finished, the cells in all, and the last one's name."""


def make_tasks(
    wanted: Mapping[Fit, Mapping[str, tuple[str, ...]]],
    specs: Mapping[tuple[str, str], SetSpec],
    digests: Mapping[tuple[str, str], Mapping[str, str]],
    folder: Path,
) -> list[Task]:
    """Return one task a fit."""
    return [
        Task(fit, specs[fit.group, fit.set], digests[fit.group, fit.set], repairs, folder)
        for fit, repairs in wanted.items()
    ]


def run_tasks(
    tasks: Sequence[Task],
    sets: Mapping[tuple[str, str], SetData],
    *,
    workers: int,
    advance: Advance | None = None,
) -> dict[Fit, Cell]:
    """Return every task's cell, by fit and in the tasks' order.

    Cells are always computed in processes of their own with one thread each, so that their
    numbers do not depend on how many there are.
    """
    cells = {task.fit: cell for task in tasks if (cell := stored(task)) is not None}
    left = sorted(
        (task for task in tasks if task.fit not in cells),
        key=lambda task: -_cost(task, sets[task.fit.group, task.fit.set]),
    )
    done = len(cells)
    if advance is not None:
        advance(done, len(tasks), "read from disk")
    for task, cell in _computed(left, workers):
        cells[task.fit] = cell
        done += 1
        if advance is not None:
            advance(done, len(tasks), f"{task.fit.set}, {task.fit.calibrator}")
    return {task.fit: cells[task.fit] for task in tasks}


def _computed(tasks: Sequence[Task], workers: int) -> Iterator[tuple[Task, Cell]]:
    if not tasks:
        return
    before = set(multiprocessing.active_children())
    with (
        _one_thread(),
        ProcessPoolExecutor(
            min(workers, len(tasks)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(registered_calibrators(), registered_measures()),
        ) as pool,
    ):
        waiting: dict[Future[Cell], Task] = {pool.submit(_work, task): task for task in tasks}
        try:
            while waiting:
                finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield waiting.pop(future), future.result()
        except BaseException:
            # Files are replaced whole, so a worker can be stopped at any moment; see `_work`.
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            raise


def _cost(task: Task, data: SetData) -> float:
    """Return how long a fit takes, relatively: the longest go first, to leave none for the end."""
    rows, classes, key = len(data.rows) * task.fit.fraction, data.classes, task.fit.calibrator
    square = 0.0 if key == UNCALIBRATED else calibrators.calibrator_class(key).square_work
    return rows * classes * (1.0 + square * classes)


def _start_worker(added: Sequence[type[Calibrator]], measures: Sequence[Measure]) -> None:
    """Know what the parent registered, leave Ctrl-C to it, and do not outlive it."""
    for calibrator in added:
        calibrators.register(calibrator)
    for measure in measures:
        metrics.register(measure)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _work(task: Task) -> Cell:
    """Compute a cell; when told to stop, remove a half-written file and go."""
    try:
        return compute(task)
    except SystemExit:  # the pool would take it for the task's own error and go on
        os._exit(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
