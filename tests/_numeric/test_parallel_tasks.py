"""Tasks on daemon threads: order, errors, and interrupts of the waiting caller."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from cordcal._numeric.parallel import default_threads, run_tasks


def square(number: int) -> int:
    return number * number


@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_in_the_order_of_the_tasks(threads: int) -> None:
    counts: list[int] = []
    tasks = [partial(square, number) for number in range(20)]
    assert run_tasks(tasks, threads, counts.append) == [number**2 for number in range(20)]
    assert counts == sorted(counts)
    assert counts[-1] == 20


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_of_a_task_reaches_the_caller(threads: int) -> None:
    def fail() -> int:
        raise ValueError("the third task")

    with pytest.raises(ValueError, match="the third task"):
        run_tasks([partial(square, 1), partial(square, 2), fail], threads, lambda count: None)


def test_after_an_interrupt_no_further_task_begins() -> None:
    begun, release = [], threading.Event()

    def wait(number: int) -> None:
        begun.append(number)
        release.wait(60.0)

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_tasks([partial(wait, number) for number in range(5)], 2, interrupt)
    release.set()
    assert sorted(begun) == [0, 4]


def test_workers_use_one_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(default_threads).result() == 1
