"""Compute a study's results in worker processes; what is on disk is not computed again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Protocol

from cordcal import calibrators, metrics
from cordcal.calibrators import Calibrator
from cordcal.calibrators.registry import registered as registered_calibrators
from cordcal.metrics import Metric
from cordcal.metrics.registry import custom_metrics

# Every library that would start threads of its own reads one of these when it is loaded.
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

Advance = Callable[[int, int, str], None]
"""Called with the jobs finished, the jobs in all, and the last one's name."""


class Job(Protocol):
    """Work whose result is kept on disk: a cell, or a trial of the benchmark."""

    @property
    def name(self) -> str:
        """What progress shows."""

    def cost(self) -> float:
        """Return how long it takes, relatively."""

    def stored(self) -> Any:
        """Return the result if it is on disk, else None."""

    def compute(self) -> Any:
        """Compute the result and store it."""


def run_jobs(jobs: Sequence[Job], *, workers: int, advance: Advance | None = None) -> list[Any]:
    """Return every job's result, in the order of the jobs.

    Results are always computed in processes of their own with one thread each, so that their
    numbers do not depend on how many there are.
    """
    results = [job.stored() for job in jobs]
    left = [place for place, result in enumerate(results) if result is None]
    left.sort(key=lambda place: -jobs[place].cost())  # the longest first, to leave none for the end
    done = len(jobs) - len(left)
    if advance is not None:
        advance(done, len(jobs), "read from disk")
    for place, result in _computed({place: jobs[place] for place in left}, workers):
        results[place] = result
        done += 1
        if advance is not None:
            advance(done, len(jobs), jobs[place].name)
    return results


def _computed(jobs: Mapping[int, Job], workers: int) -> Iterator[tuple[int, Any]]:
    if not jobs:
        return
    before = set(multiprocessing.active_children())
    with (
        _one_thread(),
        ProcessPoolExecutor(
            min(workers, len(jobs)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(registered_calibrators(), custom_metrics()),
        ) as pool,
    ):
        waiting: dict[Future[Any], int] = {
            pool.submit(_work, job): place for place, job in jobs.items()
        }
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


def _start_worker(added: Sequence[type[Calibrator]], measures: Sequence[Metric]) -> None:
    """Know what the parent registered, leave Ctrl-C to it, and do not outlive it."""
    for calibrator in added:
        calibrators.register(calibrator)
    for measure in measures:
        metrics.register(measure)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _work(job: Job) -> Any:
    """Compute a result; when stopped, remove a half-written file and exit."""
    try:
        return job.compute()
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
