"""Cross-entropy of an affine map of the scores, with ridge: value, gradient, Hessian products.

Two shapes share everything but the map: `VectorProblem` scales each score and adds a
bias, `MatrixProblem` mixes all scores.  Parameters are one array: (2, K) with rows v and
b, or (K, K + 1) with rows [W_j, b_j].  The objective is the weighted mean cross-entropy
plus Σ ridge·(θ − identity)².  Passes run over blocks of rows; besides the scores only the
probabilities of the current point are held, times the rows' weights, for the products.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np

from cordcal._door.blocks import row_blocks
from cordcal._door.scores import row_weights
from cordcal._door.types import Labels, Matrix, Vector
from cordcal.calibrators._preconditioners import (
    TINY,
    Inverse,
    add,
    class_blocks,
    coarse,
    common_shift,
    kronecker,
)

# The blocks of all classes are kept up to this many entries: 128 MB, or 255 classes.
_MOST_BLOCKS = 2**24
# Rows that make a side of a product long.
_LONG_SIDE = 1024
# A preconditioner serves as many products as it cost: about five, and with blocks one more
# for every eight classes.
_COARSE_WORTH, _CLASSES_A_PRODUCT = 5, 8


class AffineProblem(ABC):
    """The objective of an affine map as a function of its parameters."""

    identity: Matrix
    value: float

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
        """Return the objective and its gradient; the value and the probabilities are kept."""
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
        self.value = value
        return value, gradient

    def is_separated(self, value: float) -> bool:
        """Tell whether so small an objective proves that larger parameters are always better.

        Below log 2 for all rows together, each row's own class has more than half: scaled
        up, the map fits them all perfectly, and without a ridge nothing holds it back.
        """
        lightest = self.weight[self.weight > 0.0].min()
        return not self.ridge.any() and value < math.log(2.0) * lightest

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

    def own_hessian(self, *, mean_score: bool = False) -> Matrix:
        """Return the Hessian over a few parameters of each class, without the ridge.

        They weigh the class's own score, 1 and, if asked for, the mean of all scores; (2K,
        2K) or (3K, 3K).
        """
        classes = self.scores.shape[1]
        parts = 2 + mean_score
        hessian = np.zeros((parts * classes, parts * classes))
        own = np.zeros((3, 3, classes))
        for at in self._blocks():
            x, mass = self.scores[at], self._mass[at]
            mean = x.mean(axis=1)
            powers = np.stack([np.ones_like(mean), mean, mean * mean])
            mass_x = mass * x
            (plain, first, second), (cross, skew) = powers @ mass, powers[:2] @ mass_x
            square = powers[0] @ (mass_x * x)
            own += [[square, cross, skew], [cross, plain, first], [skew, first, second]]
            stacked = np.concatenate([mass_x, mass, mass * mean[:, None]][:parts], axis=1)
            stacked *= np.sqrt(self._unweight[at])[:, None]
            hessian -= stacked.T @ stacked
        at_own = np.arange(classes)
        for i, j in itertools.product(range(parts), repeat=2):
            hessian[i * classes + at_own, j * classes + at_own] += own[i, j]
        return hessian

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
        vv += 1e-12 * vv.max() + TINY
        bb += 1e-12 * bb.max() + TINY
        determinant = np.maximum(vv * bb - vb * vb, 1e-12 * vv * bb)
        self._inverse = bb / determinant, -vb / determinant, vv / determinant

    def precondition(self, residual: Matrix) -> Matrix:
        vv, vb, bb = self._inverse
        return np.stack([vv * residual[0] + vb * residual[1], vb * residual[0] + bb * residual[1]])


class MatrixProblem(AffineProblem):
    """``softmax(W x + b)``.

    The preconditioner's fine part is each class's own block of the Hessian where memory holds
    them; with more classes, or under a ridge that dominates the Hessian, it is a Kronecker
    product, which takes every class's block to be alike.
    """

    def __init__(
        self, scores: Matrix, labels: Labels, weight: Vector | None, ridge: Matrix | None = None
    ) -> None:
        classes = scores.shape[1]
        self.identity = np.eye(classes, classes + 1)
        self._inverse: Inverse
        self._products_left = 0.0
        super().__init__(scores, labels, weight, ridge)

    def _blocks(self) -> Iterator[slice]:
        # Products of matrices are quick when no side is short, and an interrupt waits for one.
        return row_blocks(*self.scores.shape, least=min(self.scores.shape[1], _LONG_SIDE))

    @staticmethod
    def _map(theta: Matrix) -> Callable[[Matrix, Matrix], object]:
        weight, bias = theta[:, :-1].copy(), theta[:, -1]  # BLAS wants no gaps

        def mapped(x: Matrix, out: Matrix) -> None:
            np.matmul(x, weight.T, out=out)
            out += bias

        return mapped

    def _observe(self) -> Matrix:
        from scipy.sparse import csr_array

        rows, classes = self.scores.shape
        own = csr_array((self.weight, (self.labels, np.arange(rows))), shape=(classes, rows))
        observed = np.empty_like(self.identity)
        observed[:, :-1] = np.asarray(own @ self.scores)
        observed[:, -1] = own.sum(axis=1)
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
        own, moments = self.own_hessian(mean_score=True), self._moments()
        stiff = 2.0 * self.ridge[0, 1] >= moments.trace() / self.identity.size
        if stiff or classes * width**2 > _MOST_BLOCKS:
            between = own[classes : 2 * classes, classes : 2 * classes]
            fine = kronecker(between, moments, self.ridge)
            # Mostly ridge, and with no parameter left free, the Hessian hardly changes.
            lasting = stiff and bool(self.ridge.all())
            self._products_left = math.inf if lasting else _COARSE_WORTH
        else:
            fine = add(class_blocks(self._spread(), self.ridge), common_shift(self.ridge))
            self._products_left = _COARSE_WORTH + classes // _CLASSES_A_PRODUCT
        self._inverse = add(fine, coarse(own, self.ridge))

    def precondition(self, residual: Matrix) -> Matrix:
        return self._inverse(residual)

    def _spread(self) -> Iterator[tuple[Matrix, Matrix]]:
        """Yield blocks of the scores with a column of ones, and of w·p(1 − p)."""
        for at in self._blocks():
            x = self.scores[at]
            yield np.append(x, np.ones((x.shape[0], 1)), axis=1), self._doubt(at)

    def _moments(self) -> Matrix:
        """Return the second moments of (x, 1), rows weighted by their doubt w·(1 − Σp²).

        Their trace is that of the Hessian without the ridge.
        """
        width = self.identity.shape[1]
        moments = np.zeros((width, width))
        for at in self._blocks():
            x, mass = self.scores[at], self._mass[at]
            doubt = self.weight[at] - self._unweight[at] * np.vecdot(mass, mass)
            root = np.sqrt(np.maximum(doubt, 0.0))[:, None]
            part = np.append(x * root, root, axis=1)
            moments += part.T @ part
        return moments
