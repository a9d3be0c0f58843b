"""Cross-entropy of an affine map, with ridge: value, gradient, Hessian, preconditioners."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.parallel import interruptible
from cordcal._numeric.types import Labels, Matrix, Vector
from cordcal._validation.scores import row_weights

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
