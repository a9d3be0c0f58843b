"""Blocks of rows on a pool of threads: how many cores to use, and how to share out the rows."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

# Starting a pool costs a tenth of a millisecond: threads pay from a millisecond's work on.
_THREAD_ENTRIES = 2**20
_IMPORTED_IN = os.getpid()

Result = TypeVar("Result")


def default_threads() -> int:
    """Return the number of cores to use: all of them, but one inside a worker.

    A worker is a forked or spawned process, or any thread but the main one: whoever
    started it has already shared out the cores.
    """
    child = multiprocessing.parent_process() is not None or os.getpid() != _IMPORTED_IN
    if child or threading.current_thread() is not threading.main_thread():
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def chunks(rows: int, classes: int, threads: int, most: int) -> list[slice]:
    """Cut the rows into blocks of at most ``most`` rows, equally many for each thread."""
    size = rows
    if threads > 1:
        # A few blocks a thread, so that one that is held up does not keep the others waiting.
        wanted = max(-(-rows // (4 * threads)), _THREAD_ENTRIES // classes)
        turns = -(-rows // (wanted * threads))
        size = rows if rows <= wanted else -(-rows // (turns * threads))
    size = max(1, min(most, size))
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def run_blocks(
    work: Callable[[slice], Result], rows: int, classes: int, threads: int, most: int
) -> Iterable[Result]:
    """Run the blocks of rows in order, on a pool where there is something to share out."""
    if threads == 1 and rows <= most:
        return [work(slice(0, rows))]
    blocks = chunks(rows, classes, threads, most)
    if threads == 1 or len(blocks) == 1:
        return map(work, blocks)
    with ThreadPoolExecutor(min(threads, len(blocks))) as pool:
        return list(pool.map(work, blocks))
