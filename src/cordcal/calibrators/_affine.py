"""Cross-entropy of an affine map of the scores, with ridge: value, gradient, Hessian products.

Two shapes share everything but the map: `VectorProblem` scales each score and adds a
bias, `MatrixProblem` mixes all scores.  Parameters are one array: (2, K) with rows v and
b, or (K, K + 1) with rows [W_j, b_j].  The objective is the weighted mean cross-entropy
plus Σ ridge·(θ − identity)².  Passes run over blocks of rows; besides the scores only the
probabilities of the current point are held, times the rows' weights, for the products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg.lapack import dpotrs

from cordcal.calibrators._scores import (
    Labels,
    Matrix,
    Vector,
    row_blocks,
    row_weights,
)

# Keeps divisions finite when every row is certain; far below any curvature that matters.
_TINY = 1e-100

# The blocks of all classes are kept up to this many entries: 128 MB, or 255 classes.
_MOST_BLOCKS = 2**24
# Rows with less than this share of a class's usual doubt are left out of its block: of
# certain scores few rows are left, and the products grow by a tenth at most.
_LITTLE_DOUBT = 0.3


class AffineProblem(ABC):
    """The objective of an affine map as a function of its parameters."""

    identity: Matrix

    def __init__(
        self, scores: Matrix, labels: Labels, weight: Vector | None, ridge: Matrix | None = None
    ) -> None:
        self.scores = scores
        self.labels = labels
        self.ridge = np.zeros_like(self.identity) if ridge is None else ridge
        self.weight = row_weights(scores.shape[0], weight)
        # A row without weight has no mass to be divided.
        self._unweight = np.divide(
            1.0, self.weight, out=np.zeros_like(self.weight), where=self.weight > 0.0
        )
        self._mass = np.empty_like(scores)
        self._buffer = np.empty_like(scores[next(self._blocks())])
        self._observed = self._observe()

    def evaluate(self, theta: Matrix) -> tuple[float, Matrix]:
        """Return the objective and its gradient, and remember the probabilities."""
        value, gradient = 0.0, -self._observed
        ones = np.ones(self.scores.shape[1])  # BLAS sums short rows several times faster
        mapped = self._map(theta)
        for at in self._blocks():
            x, mass, w = self.scores[at], self._mass[at], self.weight[at]
            mapped(x, mass)
            mass -= mass.max(axis=1, keepdims=True)
            own_logit = mass[np.arange(w.size), self.labels[at]]
            np.exp(mass, out=mass)
            total = mass @ ones
            mass *= (w / total)[:, None]
            value += float(w @ (np.log(total) - own_logit))
            self._add_moments(mass, x, gradient)
        away = theta - self.identity
        value += float(np.vdot(self.ridge, away * away))
        gradient += 2.0 * self.ridge * away
        return value, gradient

    @abstractmethod
    def product(self, direction: Matrix) -> Matrix:
        """Return the Hessian at the last refreshed point times a direction."""

    def _blocks(self) -> Iterator[slice]:
        """Yield the slices of rows that a pass works on."""
        return row_blocks(*self.scores.shape)

    @staticmethod
    @abstractmethod
    def _map(theta: Matrix) -> Callable[[Matrix, Matrix], object]:
        """Return what writes the affine map of its first argument to its second."""

    @abstractmethod
    def _observe(self) -> Matrix:
        """Return Σ w·1[y = j]·(x, 1), what the gradient compares the map's moments with."""

    @abstractmethod
    def _add_moments(self, mass: Matrix, x: Matrix, moments: Matrix) -> None:
        """Add a block's Σ mass_j·(x, 1)."""

    def _doubt(self, at: slice) -> Matrix:
        """Return w·p(1 − p) of a block."""
        doubt = self._mass[at] * -self._unweight[at][:, None]
        doubt += 1.0
        doubt *= self._mass[at]
        return doubt

    @abstractmethod
    def refresh(self) -> None:
        """Build the preconditioner at the last evaluated point."""

    @abstractmethod
    def precondition(self, residual: Matrix) -> Matrix:
        """Apply an approximate inverse of the Hessian."""


class VectorProblem(AffineProblem):
    """``softmax(v·x + b)``; the preconditioner is each class's own 2×2 block."""

    def __init__(
        self, scores: Matrix, labels: Labels, weight: Vector | None, ridge: Matrix | None = None
    ) -> None:
        self.identity = np.stack([np.ones(scores.shape[1]), np.zeros(scores.shape[1])])
        super().__init__(scores, labels, weight, ridge)

    @staticmethod
    def _map(theta: Matrix) -> Callable[[Matrix, Matrix], object]:
        def mapped(x: Matrix, out: Matrix) -> None:
            np.multiply(x, theta[0], out=out)
            out += theta[1]

        return mapped

    def _observe(self) -> Matrix:
        classes = self.scores.shape[1]
        own = self.scores[np.arange(self.labels.size), self.labels]
        return np.stack(
            [
                np.bincount(self.labels, self.weight * own, classes),
                np.bincount(self.labels, self.weight, classes),
            ]
        )

    def _add_moments(self, mass: Matrix, x: Matrix, moments: Matrix) -> None:
        ones = np.ones(mass.shape[0])
        moments[0] += ones @ np.multiply(mass, x, out=self._buffer[: mass.shape[0]])
        moments[1] += ones @ mass

    def product(self, direction: Matrix) -> Matrix:
        v, b = direction
        vv, vb, bb = self._second
        result = np.stack([vv * v + vb * b, vb * v + bb * b])
        # Less the rows' own means: four products of a matrix and a vector a block.
        for at in self._blocks():
            mass = self._mass[at]
            mass_x = np.multiply(mass, self.scores[at], out=self._buffer[: mass.shape[0]])
            mean = mass_x @ v
            mean += mass @ b
            mean *= self._unweight[at]
            result[0] -= mean @ mass_x
            result[1] -= mean @ mass
        return result + 2.0 * self.ridge * direction

    def refresh(self) -> None:
        classes = self.scores.shape[1]
        second, spread = np.zeros((3, classes)), np.zeros((3, classes))
        for at in self._blocks():
            x, ones = self.scores[at], np.ones(self.weight[at].size)
            for moments, mass in ((second, self._mass[at]), (spread, self._doubt(at))):
                moments[2] += ones @ mass
                mass_x = np.multiply(mass, x, out=self._buffer[: ones.size])
                moments[1] += ones @ mass_x
                mass_x *= x
                moments[0] += ones @ mass_x
        self._second = second
        vv, vb, bb = spread
        vv += 2.0 * self.ridge[0]
        bb += 2.0 * self.ridge[1]
        # A class nobody doubts leaves an empty block: keep it invertible.
        vv += 1e-12 * vv.max() + _TINY
        bb += 1e-12 * bb.max() + _TINY
        determinant = np.maximum(vv * bb - vb * vb, 1e-12 * vv * bb)
        self._inverse = bb / determinant, -vb / determinant, vv / determinant

    def precondition(self, residual: Matrix) -> Matrix:
        vv, vb, bb = self._inverse
        return np.stack([vv * residual[0] + vb * residual[1], vb * residual[0] + bb * residual[1]])


class MatrixProblem(AffineProblem):
    """``softmax(W x + b)``.

    The preconditioner is the Hessian's diagonal where the ridge dominates it.  Else it is
    each class's own block of the Hessian, where memory holds them, or every class's block
    is taken to be its share of doubt p(1 − p) times one second-moment matrix of the scores,
    plus the off-diagonal ridge.
    """

    def __init__(
        self, scores: Matrix, labels: Labels, weight: Vector | None, ridge: Matrix | None = None
    ) -> None:
        classes = scores.shape[1]
        self.identity = np.eye(classes, classes + 1)
        self._inverse: Callable[[Matrix], Matrix]
        self._products_left = 0
        super().__init__(scores, labels, weight, ridge)

    def _blocks(self) -> Iterator[slice]:
        # Products of matrices are quick when no side is short.
        return row_blocks(*self.scores.shape, least=self.scores.shape[1])

    @staticmethod
    def _map(theta: Matrix) -> Callable[[Matrix, Matrix], object]:
        weight, bias = theta[:, :-1].copy(), theta[:, -1]  # BLAS wants no gaps

        def mapped(x: Matrix, out: Matrix) -> None:
            np.matmul(x, weight.T, out=out)
            out += bias

        return mapped

    def _observe(self) -> Matrix:
        observed = np.zeros_like(self.identity)
        for at in self._blocks():
            w = self.weight[at]
            np.add.at(observed[:, :-1], self.labels[at], self.scores[at] * w[:, None])
            np.add.at(observed[:, -1], self.labels[at], w)
        return observed

    def _add_moments(self, mass: Matrix, x: Matrix, moments: Matrix) -> None:
        moments[:, :-1] += mass.T @ x
        moments[:, -1] += np.ones(mass.shape[0]) @ mass

    def product(self, direction: Matrix) -> Matrix:
        self._products_left -= 1
        result = 2.0 * self.ridge * direction
        mapped = self._map(direction)
        for at in self._blocks():
            x, mass = self.scores[at], self._mass[at]
            away = self._buffer[: mass.shape[0]]
            mapped(x, away)
            away -= (np.vecdot(mass, away) * self._unweight[at])[:, None]
            away *= mass
            self._add_moments(away, x, result)
        return result

    def refresh(self) -> None:
        if self._products_left > 0:
            return
        classes, width = self.identity.shape
        curvature = self._curvature()
        if 2.0 * self.ridge[0, 1] >= curvature.mean():
            diagonal = curvature + 2.0 * self.ridge + _TINY
            self._inverse = lambda residual: residual / diagonal
        elif classes * width**2 > _MOST_BLOCKS:
            self._invert_shared()
        else:
            self._invert_blocks(curvature)
            # New blocks cost about as much as this many products: they serve as long.
            self._products_left = classes // 8

    def precondition(self, residual: Matrix) -> Matrix:
        return self._inverse(residual)

    def _spread(self) -> Iterator[tuple[Matrix, Matrix]]:
        """Yield blocks of the scores with a column of ones, and of w·p(1 − p)."""
        for at in self._blocks():
            x = self.scores[at]
            yield np.append(x, np.ones((x.shape[0], 1)), axis=1), self._doubt(at)

    def _curvature(self) -> Matrix:
        """Return the Hessian's diagonal without the ridge."""
        curvature = np.zeros_like(self.identity)
        for extended, spread in self._spread():
            curvature += spread.T @ np.square(extended, out=extended)
        return curvature

    def _invert_blocks(self, curvature: Matrix) -> None:
        """Factor each class's own block of the Hessian, whose diagonal is known."""
        classes, width = self.identity.shape
        mean = curvature[:, -1] / self.scores.shape[0]
        blocks = np.zeros((classes, width, width))
        for extended, spread in self._spread():
            for block, doubt, usual in zip(blocks, spread.T, mean, strict=True):
                some = np.flatnonzero(doubt > _LITTLE_DOUBT * usual)
                part = extended[some] * np.sqrt(doubt[some, None])
                block += part.T @ part
        at = np.arange(width)
        blocks[:, at, at] += 2.0 * self.ridge
        size = blocks[:, at, at].max(axis=1, keepdims=True)
        # Classes nobody doubts and directions nobody takes must stay invertible.
        blocks[:, at, at] += 1e-10 * size + 1e-14 * size.max() + _TINY
        roots = np.linalg.cholesky(blocks, upper=True)

        def inverse(residual: Matrix) -> Matrix:
            pairs = zip(roots, residual, strict=True)
            return np.stack([dpotrs(root.T, own, lower=1)[0] for root, own in pairs])

        self._inverse = inverse

    def _invert_shared(self) -> None:
        """Invert shares of one second-moment matrix by one eigendecomposition."""
        classes, width = self.identity.shape
        shared, share = np.zeros((width, width)), np.zeros(classes)
        for extended, spread in self._spread():
            share += spread.sum(axis=0)
            extended *= np.sqrt(spread.sum(axis=1))[:, None]
            shared += extended.T @ extended
        size, basis = np.linalg.eigh(shared / max(share.sum(), _TINY))
        share = np.maximum(share, 1e-12 * share.max() + _TINY)
        size = np.maximum(size, 1e-12 * size.max() + _TINY)
        sizes = np.outer(share, size) + 2.0 * self.ridge[0, 1]
        self._inverse = lambda residual: ((residual @ basis) / sizes) @ basis.T
