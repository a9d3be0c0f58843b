"""The objective of the affine maps against finite differences and slow solutions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cordcal import calibrators
from cordcal.calibrators import _affine_loss, _newton
from cordcal.calibrators._affine_loss import (
    AffineProblem,
    MatrixProblem,
    VectorProblem,
    class_blocks,
    coarse,
    common_shift,
    kronecker,
)

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
    kind: type[AffineProblem], block_entries: Callable[[int], None]
) -> None:
    # Several blocks of rows, the last one shorter.
    block_entries(4 * 7)
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


def own_blocks(problem: AffineProblem, axis: int) -> np.ndarray:
    """Return the Hessian with all entries between different classes set to zero."""
    owner = np.indices(problem.identity.shape)[axis].ravel()
    return np.where(owner[:, None] == owner, hessian(problem), 0.0)


def solved(matrix: np.ndarray, residual: np.ndarray) -> np.ndarray:
    return np.linalg.solve(matrix, residual.ravel()).reshape(residual.shape)


def somewhere(kind: type[AffineProblem]) -> AffineProblem:
    problem = problem_of(kind)
    problem.evaluate(problem.identity + 0.1 * RNG.normal(size=problem.identity.shape))
    problem.refresh()
    return problem


def test_vector_preconditioner_inverts_each_class_s_block() -> None:
    problem = somewhere(VectorProblem)
    residual = RNG.normal(size=problem.identity.shape)
    expected = solved(own_blocks(problem, axis=1), residual)
    np.testing.assert_allclose(problem.precondition(residual), expected, rtol=1e-6)


def test_class_blocks_are_inverted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_affine_loss, "_MIN_VARIANCE_RATIO", 0.0)
    problem = somewhere(MatrixProblem)
    residual = RNG.normal(size=problem.identity.shape)
    result = class_blocks(problem._variance_blocks(), problem.ridge)(residual)
    np.testing.assert_allclose(result, solved(own_blocks(problem, axis=0), residual), rtol=1e-6)


def test_common_shifts_are_inverted() -> None:
    problem = somewhere(MatrixProblem)
    shift = np.tile(RNG.normal(size=problem.identity.shape[1]), (problem.identity.shape[0], 1))
    result = common_shift(problem.ridge)(problem.product(shift))
    np.testing.assert_allclose(result, shift, rtol=1e-9)


def test_coarse_part_inverts_own_score_bias_and_mean_score() -> None:
    problem = somewhere(MatrixProblem)
    classes = problem.identity.shape[0]
    own, bias, mean = RNG.normal(size=(3, classes))
    step = np.append(np.diag(own) + mean[:, None], bias[:, None], axis=1)
    inverse = coarse(problem.own_hessian(mean_score=True), problem.ridge)
    np.testing.assert_allclose(inverse(problem.product(step)), step, atol=1e-6)


def test_kronecker_part_is_exact_where_rows_are_alike() -> None:
    problem = somewhere(MatrixProblem)
    problem.ridge = np.full_like(problem.ridge, 0.1)
    problem.evaluate(np.zeros_like(problem.identity))  # all probabilities are equal
    classes = problem.identity.shape[0]
    between = problem.own_hessian()[classes:, classes:]
    others = RNG.normal(size=problem.identity.shape)
    others[np.arange(classes), np.arange(classes)] = 0.0
    result = kronecker(between, problem._moments(), problem.ridge)(others)
    expected = solved(hessian(problem), others)
    expected[np.arange(classes), np.arange(classes)] = 0.0
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", [VectorProblem, MatrixProblem])
@pytest.mark.parametrize("mean_score", [False, True])
def test_own_hessian_is_the_hessian_of_few_parameters(
    kind: type[AffineProblem], mean_score: bool, block_entries: Callable[[int], None]
) -> None:
    block_entries(4 * 7)
    problem = problem_of(MatrixProblem)
    theta = problem.identity * 0.3
    if kind is VectorProblem:
        other = problem_of(VectorProblem)
        other.evaluate(other.identity * 0.3)
        result = other.own_hessian(mean_score=mean_score)
    else:
        problem.evaluate(theta)
        result = problem.own_hessian(mean_score=mean_score)
    problem.evaluate(theta)
    problem.ridge = np.zeros_like(problem.ridge)
    classes = problem.identity.shape[0]
    basis = np.zeros((3, classes, *problem.identity.shape))
    at = np.arange(classes)
    basis[0, at, at, at] = basis[1, at, at, -1] = 1.0
    basis[2, at, at, :-1] = 1.0 / classes
    flat = basis[: 2 + mean_score].reshape(-1, problem.identity.size)
    np.testing.assert_allclose(result, flat @ hessian(problem) @ flat.T, atol=1e-12)


@pytest.mark.parametrize("key", ["sms", "dir-odir"])
def test_both_preconditioners_end_at_one_optimum(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = noisy_logits(300, 6)
    blockwise = calibrators.make(key).fit(logits, labels)
    monkeypatch.setattr(_affine_loss, "_MAX_BLOCK_ENTRIES", 0)
    shared = calibrators.make(key).fit(logits, labels)
    assert shared.objective_ == pytest.approx(blockwise.objective_, rel=1e-10)
    np.testing.assert_allclose(shared.weight_, blockwise.weight_, atol=1e-4)


def test_an_optimum_at_infinity_is_approached(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = noisy_logits(500, 4)
    # The last class is separated by its own score: its scale has no best value.
    logits[:, 3] = np.where(labels == 3, 40.0, -40.0) + logits[:, 3] / 10.0
    result = calibrators.make("vs").fit(logits, labels)
    monkeypatch.setattr(_newton, "_MIN_DECREASE", 1e-14)
    monkeypatch.setattr(_newton, "_COARSEST", 1e-6)
    monkeypatch.setattr(_newton, "_FINEST", 1e-6)
    best = calibrators.make("vs").fit(logits, labels)
    assert best.n_iter_ > result.n_iter_
    assert result.objective_ == pytest.approx(best.objective_, rel=1e-9)
