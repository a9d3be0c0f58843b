"""A fit of many classes can be interrupted."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

from cordcal import calibrators
from cordcal.calibrators import _newton
from cordcal.calibrators._affine_loss import VectorProblem

CLASSES = 300


@pytest.mark.parametrize("key", ["vs", "svs"])
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
