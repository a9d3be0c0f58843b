"""The objective of the affine maps against finite differences and slow solutions."""

from __future__ import annotations

import numpy as np
import pytest

from cordcal import calibrators
from cordcal.calibrators import _affine, _newton
from cordcal.calibrators._affine import AffineProblem, MatrixProblem, VectorProblem

from .conftest import noisy_logits

RNG = np.random.default_rng(3)


def problem_of(kind: type[AffineProblem], rows: int = 60, classes: int = 4) -> AffineProblem:
    logits, labels = noisy_logits(rows, classes)
    weight = np.random.default_rng(1).random(rows)
    problem = kind(logits, labels, weight)
    problem.ridge = np.random.default_rng(2).random(problem.identity.shape)
    return problem


@pytest.mark.parametrize("kind", [VectorProblem, MatrixProblem])
def test_gradient_and_product_are_derivatives(
    kind: type[AffineProblem], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several blocks of rows, the last one shorter.
    monkeypatch.setattr("cordcal.calibrators._scores._BLOCK_ENTRIES", 4 * 7)
    problem = problem_of(kind)
    theta = problem.identity + 0.1 * RNG.normal(size=problem.identity.shape)
    direction = RNG.normal(size=theta.shape)
    step = 1e-5
    (above, gradient_above), (below, gradient_below) = (
        problem.evaluate(theta + sign * step * direction) for sign in (1.0, -1.0)
    )
    _, gradient = problem.evaluate(theta)
    problem.refresh()
    slope = (above - below) / (2.0 * step)
    np.testing.assert_allclose(np.vdot(gradient, direction), slope, rtol=1e-8)
    bend = (gradient_above - gradient_below) / (2.0 * step)
    np.testing.assert_allclose(problem.product(direction), bend, rtol=1e-6, atol=1e-8)


def hessian(problem: AffineProblem) -> np.ndarray:
    units = np.eye(problem.identity.size).reshape(-1, *problem.identity.shape)
    return np.stack([problem.product(unit).ravel() for unit in units])


@pytest.mark.parametrize("kind", [VectorProblem, MatrixProblem])
def test_preconditioner_inverts_each_class_s_block(
    kind: type[AffineProblem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_affine, "_LITTLE_DOUBT", 0.0)
    problem = problem_of(kind)
    problem.evaluate(problem.identity)
    problem.refresh()
    whole = hessian(problem)
    owner = np.indices(problem.identity.shape)[int(kind is VectorProblem)].ravel()
    blocks = np.where(owner[:, None] == owner, whole, 0.0)
    residual = RNG.normal(size=problem.identity.shape)
    expected = np.linalg.solve(blocks, residual.ravel()).reshape(residual.shape)
    np.testing.assert_allclose(problem.precondition(residual), expected, rtol=1e-6)


@pytest.mark.parametrize("key", ["sms", "dir-odir"])
def test_both_preconditioners_end_at_one_optimum(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = noisy_logits(300, 6)
    blockwise = calibrators.make(key).fit(logits, labels)
    monkeypatch.setattr(_affine, "_MOST_BLOCKS", 0)
    shared = calibrators.make(key).fit(logits, labels)
    assert shared.objective_ == pytest.approx(blockwise.objective_, rel=1e-10)
    np.testing.assert_allclose(shared.weight_, blockwise.weight_, atol=1e-4)


def test_an_optimum_at_infinity_is_approached(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = noisy_logits(500, 4)
    # The last class is told apart by its own score: its scale has no best value.
    logits[:, 3] = np.where(labels == 3, 40.0, -40.0) + logits[:, 3] / 10.0
    found = calibrators.make("vs").fit(logits, labels)
    monkeypatch.setattr(_newton, "_DECREMENT", 1e-14)
    monkeypatch.setattr(_newton, "_COARSEST", 1e-6)
    monkeypatch.setattr(_newton, "_FINEST", 1e-6)
    best = calibrators.make("vs").fit(logits, labels)
    assert best.n_iter_ > found.n_iter_
    assert found.objective_ == pytest.approx(best.objective_, rel=1e-9)
