"""One BLAS thread for as long as any fit runs, and the caller's number afterwards."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from cordcal._numeric.parallel import one_blas_thread
from cordcal.calibrators.temperature import TemperatureScaling


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS does not let its threads be set")
        yield


@pytest.mark.usefixtures("two_threads")
def test_blocks_that_overlap_restore_the_number_when_the_last_one_ends() -> None:
    first_is_inside, second_is_inside = threading.Event(), threading.Event()
    first_may_end, seen = threading.Event(), []

    def first() -> None:
        with one_blas_thread():
            first_is_inside.set()
            first_may_end.wait(30)

    def second() -> None:
        first_is_inside.wait(30)
        with one_blas_thread():
            second_is_inside.set()
            thread.join(30)
            seen.append(blas_threads())

    thread, other = threading.Thread(target=first), threading.Thread(target=second)
    thread.start()
    other.start()
    assert second_is_inside.wait(30)
    first_may_end.set()
    other.join(30)
    assert seen == [{1}], "the first block to end left the second one with two threads"
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
def test_a_block_that_fails_restores_the_number() -> None:
    with pytest.raises(RuntimeError), one_blas_thread(), one_blas_thread():
        raise RuntimeError
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
def test_sixty_fits_in_four_threads_leave_the_number_alone() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(5, size=200)
    logits = 2.0 * np.eye(5)[labels] + rng.normal(size=(200, 5))

    def fit(_: int) -> float:
        return TemperatureScaling().fit(logits, labels).temperature_

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(fit, range(60)))) == 1
    assert blas_threads() == {2}
