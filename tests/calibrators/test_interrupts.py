"""An interrupt is heard while a fit runs, also inside one long call of LAPACK."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

from cordcal import calibrators
from cordcal._numeric.parallel import interruptible
from cordcal.calibrators import _newton
from cordcal.calibrators._affine_loss import VectorProblem

CLASSES = 300
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


@pytest.mark.parametrize("key", ["mcct-i", "vs", "svs"])
def test_a_fit_of_many_classes_is_interrupted(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=600)
    logits = 5.0 + 3.0 * np.eye(CLASSES)[labels] + rng.normal(size=(600, CLASSES))
    evaluate, passes = VectorProblem.evaluate, []

    def pressed(self: Any, theta: Any) -> Any:
        passes.append(theta)
        if len(passes) == 3:
            signal.raise_signal(signal.SIGINT)
        return evaluate(self, theta)

    monkeypatch.setattr(VectorProblem, "evaluate", pressed)
    model = calibrators.make(key)
    with pytest.raises(KeyboardInterrupt):
        model.fit(logits, labels)
    assert len(passes) == 3
    assert not hasattr(model, "n_classes_")


def test_a_bounded_step_is_the_models_minimum() -> None:
    from scipy.optimize import nnls

    rng = np.random.default_rng(3)
    for size in (1, 5, 40):
        for _ in range(20):
            half = rng.normal(size=(size, size))
            hessian = half @ half.T + 1e-3 * np.eye(size)
            gradient = rng.normal(size=size)
            room = np.where(rng.random(size) < 0.5, 0.0, rng.random(size))
            step = _newton.bounded_step(hessian, gradient, room)
            assert (step >= -room).all()
            root = np.linalg.cholesky(hessian).T
            target = root @ room - np.linalg.solve(root.T, gradient)
            np.testing.assert_allclose(step, nnls(root, target)[0] - room, atol=1e-8)
