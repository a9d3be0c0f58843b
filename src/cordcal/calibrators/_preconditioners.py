"""Approximate inverses of the Hessian of a matrix map, for conjugate gradients.

Two levels are added up.  The fine one is approximate everywhere: each class's own block of
the Hessian, or a Kronecker product.  The coarse one is exact where the fine one errs by
orders of magnitude and all classes are coupled: on the weight of each class's own score, its
bias, and a common weight for all its scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from cordcal._door.types import Matrix, Vector
from cordcal._numeric.blas import interruptible

Inverse = Callable[[Matrix], Matrix]
"""Turns a residual into a step; both have the shape of the parameters."""

Spread = Iterable[tuple[Matrix, Matrix]]
"""Blocks of the scores with a column of ones, and of w·p(1 − p)."""

# Keeps divisions finite when every row is certain; far below any curvature that matters.
TINY = 1e-100
# Directions that no row doubts get this share of the largest curvature, to be invertible.
_FLAT = 1e-12

# Rows with less than this share of a class's usual doubt, in the same pass over a few
# thousand rows, are left out of its block: of certain scores few rows are left, and the
# products grow by a tenth at most.
_LITTLE_DOUBT = 0.3


def add(*parts: Inverse) -> Inverse:
    """Return the sum of the parts."""

    def inverse(residual: Matrix) -> Matrix:
        first, *others = parts
        step = first(residual)
        for part in others:
            step += part(residual)
        return step

    return inverse


def class_blocks(spread: Spread, ridge: Matrix) -> Inverse:
    """Invert each class's own block of the Hessian."""
    from scipy.linalg.lapack import dpotrs  # a loaded map needs no SciPy

    classes, width = ridge.shape
    blocks = np.zeros((classes, width, width))
    for extended, doubts in spread:
        usual = doubts.mean(axis=0)
        for block, doubt, least in zip(blocks, doubts.T, _LITTLE_DOUBT * usual, strict=True):
            some = np.flatnonzero(doubt > least)
            part = extended[some] * np.sqrt(doubt[some, None])
            block += part.T @ part
    at = np.arange(width)
    blocks[:, at, at] += 2.0 * ridge
    size = blocks[:, at, at].max(axis=1, keepdims=True)
    # Classes nobody doubts and directions nobody takes must stay invertible.
    blocks[:, at, at] += 1e-10 * size + 1e-14 * size.max() + TINY
    roots = np.linalg.cholesky(blocks, upper=True)

    def inverse(residual: Matrix) -> Matrix:
        pairs = zip(roots, residual, strict=True)
        return np.stack([dpotrs(root.T, own, lower=1)[0] for root, own in pairs])

    return inverse


def common_shift(ridge: Matrix) -> Inverse:
    """Invert the Hessian on steps that all classes share: only the ridge notices them."""
    stiffness = 2.0 * ridge.sum(axis=0)
    # Without a ridge nothing does, and no residual points there.
    inverse = np.divide(1.0, stiffness, out=np.zeros_like(stiffness), where=stiffness > 0.0)
    return lambda residual: np.tile(residual.sum(axis=0) * inverse, (len(residual), 1))


def kronecker(between: Matrix, moments: Matrix, ridge: Matrix) -> Inverse:
    """Invert a Kronecker product with ridge, on all but the weights of own scores.

    Parameters
    ----------
    between : ndarray of shape (K, K)
        Σ w·(diag(p) − p pᵀ), how classes compete; it knows that common shifts cost nothing.
    moments : ndarray of shape (K + 1, K + 1)
        Second moments of the scores and 1, rows weighted by their doubt.
    ridge : ndarray of shape (K, K + 1)
        All but the diagonal is taken to be alike.
    """
    classes = ridge.shape[0]
    left, left_basis = interruptible(np.linalg.eigh, between)
    # The doubt of all rows is in both factors.
    right, right_basis = interruptible(np.linalg.eigh, moments / max(between.trace(), TINY))
    sizes = np.outer(np.maximum(left, 0.0), np.maximum(right, 0.0)) + 2.0 * ridge[0, 1]
    sizes += _FLAT * sizes.max() + TINY
    own = np.arange(classes)

    def inverse(residual: Matrix) -> Matrix:
        others = residual.copy()
        others[own, own] = 0.0
        inside = _product(left_basis.T, others, right_basis)
        inside /= sizes
        step = _product(left_basis, inside, right_basis.T)
        step[own, own] = 0.0
        return step

    return inverse


def coarse(hessian: Matrix, ridge: Matrix) -> Inverse:
    """Invert the Hessian exactly on each class's own score, its bias and the mean score.

    Parameters
    ----------
    hessian : ndarray of shape (3K, 3K)
        Without the ridge; overwritten.
    ridge : ndarray of shape (K, K + 1)
        Its strengths.
    """
    from scipy.linalg.lapack import dpotrs

    classes = ridge.shape[0]
    own = np.arange(classes)
    pull = 2.0 * ridge[:, :-1]
    parts = hessian.reshape(3, classes, 3, classes)
    parts[0, own, 0, own] += pull.diagonal()
    parts[1, own, 1, own] += 2.0 * ridge[:, -1]
    # A unit of the mean score is 1/K of every score, the class's own among them.
    parts[2, own, 2, own] += pull.sum(axis=1) / classes**2
    parts[0, own, 2, own] += pull.diagonal() / classes
    parts[2, own, 0, own] += pull.diagonal() / classes
    scale: Vector = hessian.diagonal().copy()
    scale += _FLAT * scale.max() + TINY
    scale **= -0.5
    hessian *= scale
    hessian *= scale[:, None]
    root = _root(hessian)

    def inverse(residual: Matrix) -> Matrix:
        weights = residual[:, :-1]
        seen = np.concatenate([weights.diagonal(), residual[:, -1], weights.mean(axis=1)])
        found = dpotrs(root.T, scale * seen)[0] * scale
        of_own, of_bias, of_mean = found.reshape(3, classes)
        step = np.empty_like(residual)
        step[:, :-1] = of_mean[:, None] / classes
        step[own, own] += of_own
        step[:, -1] = of_bias
        return step

    return inverse


def _product(left: Matrix, middle: Matrix, right: Matrix) -> Matrix:
    product: Matrix = interruptible(np.matmul, interruptible(np.matmul, left, middle), right)
    return product


def _root(matrix: Matrix) -> Matrix:
    """Return the lower Cholesky root; the unit diagonal is raised as far as need be.

    Common shifts are flat without a ridge, and so are classes that nobody doubts; rounding
    may have turned such directions over.
    """
    edge = matrix.reshape(-1)[:: matrix.shape[0] + 1]
    more = 1e-10
    while True:
        edge += more
        try:
            return np.asarray(interruptible(np.linalg.cholesky, matrix), dtype=np.float64)
        except np.linalg.LinAlgError:
            more *= 100.0
