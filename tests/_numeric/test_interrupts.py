"""An interrupt is heard inside one long call of LAPACK."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from cordcal._numeric.parallel import interruptible

LARGE = np.zeros((1000, 1))


def test_an_interrupt_does_not_wait_for_a_long_call() -> None:
    started, release = threading.Event(), threading.Event()

    def long_call(_: Any) -> None:
        started.set()
        release.wait(60.0)

    def press() -> None:
        started.wait(60.0)
        # A signal that this thread raises does not wake the main thread, one sent to it does.
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        else:
            signal.raise_signal(signal.SIGINT)

    presser = threading.Thread(target=press)
    begun = time.monotonic()
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(long_call, LARGE)
    assert time.monotonic() - begun < 50.0
    release.set()
    presser.join()


def test_a_long_call_returns_and_falls_as_a_short_one() -> None:
    matrix = np.diag(np.arange(1.0, 1101.0))
    np.testing.assert_array_equal(
        interruptible(np.linalg.cholesky, matrix), np.linalg.cholesky(matrix)
    )
    with pytest.raises(np.linalg.LinAlgError):
        interruptible(np.linalg.cholesky, -matrix)
