"""Ridge-penalised cross-entropy of an affine map: value, gradient, Hessian, preconditioners."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from cordcal._numeric.arrays import row_blocks_of
from cordcal._numeric.parallel import interruptible
from cordcal._numeric.types import Labels, Matrix, Vector
from cordcal._validation.scores import row_weights

Inverse = Callable[[Matrix], Matrix]
"""An approximate inverse of the Hessian: residual to step, both in the parameters' shape."""

Step = Callable[[Matrix, Matrix], Matrix]
"""A Newton step from parameters and gradient."""

VarianceBlocks = Iterable[tuple[Matrix, Matrix]]
"""Blocks of the scores with a column of ones, and of w·p(1 − p)."""

# Keeps divisions finite when every row is certain; far below any relevant curvature.
TINY = 1e-100
# Flat directions get this share of the largest curvature, to be invertible.
_FLAT_CURVATURE = 1e-12

# Rows whose variance p(1 − p) is below this share of a class's mean, among a few thousand rows,
# are left out of its block.  With confident scores few rows remain, and conjugate gradients need
# at most a tenth more products.
_MIN_VARIANCE_RATIO = 0.3

# The largest number of entries in the blocks of all classes: 128 MB, or 255 classes.
_MAX_BLOCK_ENTRIES = 2**24
# A block with this many rows needs no more for fast matrix products.
_MAX_SIDE = 1024
# A preconditioner is reused for as many products as building it cost: about five, and with
# blocks one more per eight classes.
_BASE_PRODUCTS, _CLASSES_PER_PRODUCT = 5, 8


class AffineProblem(ABC):
    """The objective of an affine map as a function of its parameters."""

    identity: Matrix
    value: float
    # An approximate inverse of the Hessian; one of a similar problem may be set before a search.
    preconditioner: Inverse | None = None
    # Whether to build it only once, and not again as the search proceeds.
    keeps_preconditioner = False
    # The fewest rows of a block.
    _least = 1

    def __init__(
        self,
        scores: Matrix,
        labels: Labels,
        weight: Vector | None,
        ridge: Matrix | None = None,
        memory: Matrix | None = None,
    ) -> None:
        self._set_up(scores.shape[1])
        self.scores = scores
        self.labels = labels
        self.ridge = np.zeros_like(self.identity) if ridge is None else ridge
        self.weight = row_weights(scores.shape[0], weight)
        # The rows that count, and sums over such parts at the last evaluated point.
        self._parts = [slice(0, scores.shape[0])]
        self._memo: dict[int, Matrix] = {}
        # A row of weight zero has zero mass, so a factor of zero is as good as any.
        self._unweight = np.divide(
            1.0, self.weight, out=np.zeros_like(self.weight), where=self.weight > 0.0
        )
        self._mass = np.empty_like(scores) if memory is None else memory[: scores.shape[0]]
        self._buffer = np.empty_like(scores[self._blocks()[0]])
        self._observed = self._observe(self._parts[0])

    def evaluate(self, theta: Matrix) -> tuple[float, Matrix]:
        """Return the objective and its gradient, and store the value and the probabilities."""
        gradient = -self._observed
        value = self._add_loss(theta, gradient)
        difference = theta - self.identity
        value += float(np.vdot(self.ridge, difference * difference))
        gradient += 2.0 * self.ridge * difference
        self.value = value
        return value, gradient

    def without(
        self, folds: Sequence[slice], theta: Matrix, newton: Callable[[], Step]
    ) -> Iterator[Matrix]:
        """Leave out one fold of the rows after another, and yield where to start without it.

        That is a step of ``newton()`` from the parameters ``theta`` of all rows, where one pass
        serves all folds.  The weights stay those of all rows, so value and ridge are smaller by the
        share of the fold.
        """
        ridge, difference = self.ridge, theta - self.identity
        parts = []
        for fold in folds:
            self._parts, observed = [fold], self._observe(fold)
            gradient = -observed
            parts.append((self._add_loss(theta, gradient), gradient, observed))
        value, gradient, observed = (sum(part) for part in zip(*parts, strict=True))
        starts, shares = [], []
        for fold, part in zip(folds, parts, strict=True):
            self._parts = [other for other in folds if other is not fold]
            shares.append(sum(float(self.weight[other].sum()) for other in self._parts))
            self.ridge = ridge * shares[-1]
            self.value = value - part[0] + float(np.vdot(self.ridge, difference * difference))
            slope = gradient - part[1] + 2.0 * self.ridge * difference
            starts.append(theta + newton()(theta, slope))
        for fold, part, start, share in zip(folds, parts, starts, shares, strict=True):
            self._parts = [slice(0, fold.start), slice(fold.stop, self.labels.size)]
            self.ridge, self._observed = ridge * share, observed - part[2]
            yield start

    def _add_loss(self, theta: Matrix, gradient: Matrix) -> float:
        """Add the map's moments to ``gradient``, store the probabilities, return the loss."""
        value = 0.0
        self._memo.clear()
        ones = np.ones(self.scores.shape[1])  # BLAS sums short rows several times faster
        apply_map = self._map(theta)
        for rows in self._blocks():
            x, mass, w = self.scores[rows], self._mass[rows], self.weight[rows]
            apply_map(x, mass)
            mass -= mass.max(axis=1, keepdims=True)
            label_logit = mass[np.arange(w.size), self.labels[rows]]
            np.exp(mass, out=mass)
            total = mass @ ones
            mass *= (w / total)[:, None]
            value += float(w @ (np.log(total) - label_logit))
            self._add_moments(mass, x, gradient)
        return value

    def is_separated(self, value: float) -> bool:
        """Return whether an objective this small proves that the optimum is at infinity.

        If the weighted losses sum to less than log 2 times the smallest weight, every label has
        a probability above one half.  Without a ridge, larger parameters then always fit better.
        """
        lightest = self.weight[self.weight > 0.0].min()
        return not self.ridge.any() and value < math.log(2.0) * lightest

    @abstractmethod
    def product(self, direction: Matrix) -> Matrix:
        """Return the Hessian at the point of the last `refresh` times a direction."""

    def _blocks(self) -> list[slice]:
        """Return the slices of rows of one pass."""
        shape = self.scores.shape[1], self._least
        return [at for part in self._parts for at in row_blocks_of(part, *shape)]

    @staticmethod
    @abstractmethod
    def _map(theta: Matrix) -> Callable[[Matrix, Matrix], object]:
        """Return a function that writes the affine map of its first argument to its second."""

    @abstractmethod
    def _observe(self, rows: slice) -> Matrix:
        """Return Σ w·1[y = j]·(x, 1), which the gradient subtracts from the map's moments."""

    @abstractmethod
    def _add_moments(self, mass: Matrix, x: Matrix, moments: Matrix) -> None:
        """Add a block's Σ mass_j·(x, 1) to ``moments``."""

    def _variance(self, rows: slice) -> Matrix:
        """Return w·p(1 − p) of a block of rows."""
        variance = self._mass[rows] * -self._unweight[rows][:, None]
        variance += 1.0
        variance *= self._mass[rows]
        return variance

    def own_hessian(self, *, mean_score: bool = False) -> Matrix:
        """Return the Hessian over a few parameters per class, without the ridge.

        The parameters multiply the class's own score, 1 and, with ``mean_score``, the mean of
        all scores.  The shape is (2K, 2K) or (3K, 3K).
        """
        classes = self.scores.shape[1]
        parts = 2 + mean_score
        hessian = np.zeros((parts * classes, parts * classes))
        diagonals = np.zeros((3, 3, classes))
        for rows in self._blocks():
            x, mass = self.scores[rows], self._mass[rows]
            mean = x.mean(axis=1)
            powers = np.stack([np.ones_like(mean), mean, mean * mean])
            mass_x = mass * x
            (plain, first, second), (cross, skew) = powers @ mass, powers[:2] @ mass_x
            square = powers[0] @ (mass_x * x)
            diagonals += [[square, cross, skew], [cross, plain, first], [skew, first, second]]
            stacked = np.concatenate([mass_x, mass, mass * mean[:, None]][:parts], axis=1)
            stacked *= np.sqrt(self._unweight[rows])[:, None]
            hessian -= stacked.T @ stacked
        diagonal = np.arange(classes)
        for i, j in itertools.product(range(parts), repeat=2):
            hessian[i * classes + diagonal, j * classes + diagonal] += diagonals[i, j]
        return hessian

    @abstractmethod
    def _set_up(self, classes: int) -> None:
        """Set the identity and what else depends on the number of classes only."""

    @abstractmethod
    def refresh(self) -> None:
        """Build the preconditioner at the last evaluated point."""

    @abstractmethod
    def precondition(self, residual: Matrix) -> Matrix:
        """Apply an approximate inverse of the Hessian."""


class VectorProblem(AffineProblem):
    """``softmax(v·x + b)``; the preconditioner is the 2×2 block of each class."""

    def _set_up(self, classes: int) -> None:
        self.identity = np.stack([np.ones(classes), np.zeros(classes)])

    @staticmethod
    def _map(theta: Matrix) -> Callable[[Matrix, Matrix], object]:
        def apply_map(x: Matrix, out: Matrix) -> None:
            np.multiply(x, theta[0], out=out)
            out += theta[1]

        return apply_map

    def _observe(self, rows: slice) -> Matrix:
        classes, labels, weight = self.scores.shape[1], self.labels[rows], self.weight[rows]
        label_scores = self.scores[rows][np.arange(labels.size), labels]
        return np.stack(
            [
                np.bincount(labels, weight * label_scores, classes),
                np.bincount(labels, weight, classes),
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
        # Subtract the rows' means: four matrix-vector products per block.
        for rows in self._blocks():
            mass = self._mass[rows]
            mass_x = np.multiply(mass, self.scores[rows], out=self._buffer[: mass.shape[0]])
            mean = mass_x @ v
            mean += mass @ b
            mean *= self._unweight[rows]
            result[0] -= mean @ mass_x
            result[1] -= mean @ mass
        return result + 2.0 * self.ridge * direction

    def _part_moments(self, part: slice) -> Matrix:
        """Return the moments of mass and variance over some rows: of x², x and 1."""
        classes = self.scores.shape[1]
        moments = np.zeros((2, 3, classes))
        for rows in row_blocks_of(part, classes):
            x, ones = self.scores[rows], np.ones(self.weight[rows].size)
            for sums, mass in zip(moments, (self._mass[rows], self._variance(rows)), strict=True):
                sums[2] += ones @ mass
                mass_x = np.multiply(mass, x, out=self._buffer[: ones.size])
                sums[1] += ones @ mass_x
                mass_x *= x
                sums[0] += ones @ mass_x
        return moments

    def refresh(self) -> None:
        for part in self._parts:
            if part.start not in self._memo:
                self._memo[part.start] = self._part_moments(part)
        moments = np.sum([self._memo[part.start] for part in self._parts], axis=0)
        self._second, variance = moments
        vv, vb, bb = variance
        vv += 2.0 * self.ridge[0]
        bb += 2.0 * self.ridge[1]
        # A class that is certain in every row has an empty block: keep it invertible.
        vv += 1e-12 * vv.max() + TINY
        bb += 1e-12 * bb.max() + TINY
        determinant = np.maximum(vv * bb - vb * vb, 1e-12 * vv * bb)
        self._inverse = bb / determinant, -vb / determinant, vv / determinant

    def precondition(self, residual: Matrix) -> Matrix:
        vv, vb, bb = self._inverse
        return np.stack([vv * residual[0] + vb * residual[1], vb * residual[0] + bb * residual[1]])


class MatrixProblem(AffineProblem):
    """``softmax(W x + b)``.

    The fine part of the preconditioner is each class's block of the Hessian, if they fit in
    memory.  With more classes, or if the ridge dominates the Hessian, it is a Kronecker
    product, which assumes that the blocks of all classes are alike.
    """

    def _set_up(self, classes: int) -> None:
        self.identity = np.eye(classes, classes + 1)
        self._products_left = 0.0
        # Matrix products are fast if no side is short; but an interrupt waits for a whole one.
        self._least = min(classes, _MAX_SIDE)

    @staticmethod
    def _map(theta: Matrix) -> Callable[[Matrix, Matrix], object]:
        weight, bias = theta[:, :-1].copy(), theta[:, -1]  # BLAS needs contiguous rows

        def apply_map(x: Matrix, out: Matrix) -> None:
            np.matmul(x, weight.T, out=out)
            out += bias

        return apply_map

    def _observe(self, rows: slice) -> Matrix:
        from scipy.sparse import csr_array

        labels = self.labels[rows]
        label_weights = csr_array(
            (self.weight[rows], (labels, np.arange(labels.size))),
            shape=(self.scores.shape[1], labels.size),
        )
        observed = np.empty_like(self.identity)
        observed[:, :-1] = np.asarray(label_weights @ self.scores[rows])
        observed[:, -1] = label_weights.sum(axis=1)
        return observed

    def _add_moments(self, mass: Matrix, x: Matrix, moments: Matrix) -> None:
        moments[:, :-1] += mass.T @ x
        moments[:, -1] += np.ones(mass.shape[0]) @ mass

    def product(self, direction: Matrix) -> Matrix:
        self._products_left -= 1
        result = 2.0 * self.ridge * direction
        apply_map = self._map(direction)
        for rows in self._blocks():
            x, mass = self.scores[rows], self._mass[rows]
            deviation = self._buffer[: mass.shape[0]]
            apply_map(x, deviation)
            deviation -= (np.vecdot(mass, deviation) * self._unweight[rows])[:, None]
            deviation *= mass
            self._add_moments(deviation, x, result)
        return result

    def refresh(self) -> None:
        if self.preconditioner is not None and (
            self.keeps_preconditioner or self._products_left > 0
        ):
            return
        classes, width = self.identity.shape
        hessian, moments = self.own_hessian(mean_score=True), self._moments()
        stiff = 2.0 * self.ridge[0, 1] >= moments.trace() / self.identity.size
        if stiff or classes * width**2 > _MAX_BLOCK_ENTRIES:
            between = hessian[classes : 2 * classes, classes : 2 * classes]
            fine = kronecker(between, moments, self.ridge)
            # If the ridge dominates and acts on every parameter, the Hessian hardly changes.
            lasting = stiff and bool(self.ridge.all())
            self._products_left = math.inf if lasting else _BASE_PRODUCTS
        else:
            fine = add(class_blocks(self._variance_blocks(), self.ridge), common_shift(self.ridge))
            self._products_left = _BASE_PRODUCTS + classes // _CLASSES_PER_PRODUCT
        self.preconditioner = add(fine, coarse(hessian, self.ridge))

    def precondition(self, residual: Matrix) -> Matrix:
        assert self.preconditioner is not None
        return self.preconditioner(residual)

    def _variance_blocks(self) -> Iterator[tuple[Matrix, Matrix]]:
        """Yield blocks of the scores with a column of ones, and their w·p(1 − p)."""
        for rows in self._blocks():
            x = self.scores[rows]
            yield np.append(x, np.ones((x.shape[0], 1)), axis=1), self._variance(rows)

    def _moments(self) -> Matrix:
        """Return the second moments of (x, 1), with rows weighted by w·(1 − Σp²).

        The trace equals that of the Hessian without the ridge.
        """
        width = self.identity.shape[1]
        moments = np.zeros((width, width))
        for rows in self._blocks():
            x, mass = self.scores[rows], self._mass[rows]
            variance = self.weight[rows] - self._unweight[rows] * np.vecdot(mass, mass)
            root = np.sqrt(np.maximum(variance, 0.0))[:, None]
            part = np.append(x * root, root, axis=1)
            moments += part.T @ part
        return moments


# Preconditioners: approximate inverses of the Hessian.


def add(*parts: Inverse) -> Inverse:
    """Return the sum of several approximate inverses."""

    def inverse(residual: Matrix) -> Matrix:
        first, *others = parts
        step = first(residual)
        for part in others:
            step += part(residual)
        return step

    return inverse


def class_blocks(blocks_of_rows: VarianceBlocks, ridge: Matrix) -> Inverse:
    """Invert the block of each class in the Hessian."""
    from scipy.linalg.lapack import dpotrs  # imported late: prediction needs no SciPy

    classes, width = ridge.shape
    blocks = np.zeros((classes, width, width))
    for extended, variances in blocks_of_rows:
        typical = variances.mean(axis=0)
        for block, variance, minimum in zip(
            blocks, variances.T, _MIN_VARIANCE_RATIO * typical, strict=True
        ):
            rows = np.flatnonzero(variance > minimum)
            part = extended[rows] * np.sqrt(variance[rows, None])
            block += part.T @ part
    diagonal = np.arange(width)
    blocks[:, diagonal, diagonal] += 2.0 * ridge
    size = blocks[:, diagonal, diagonal].max(axis=1, keepdims=True)
    # Certain classes and unused directions must stay invertible.
    blocks[:, diagonal, diagonal] += 1e-10 * size + 1e-14 * size.max() + TINY
    roots = np.linalg.cholesky(blocks, upper=True)

    def inverse(residual: Matrix) -> Matrix:
        pairs = zip(roots, residual, strict=True)
        return np.stack([dpotrs(root.T, row, lower=1)[0] for root, row in pairs])

    return inverse


def common_shift(ridge: Matrix) -> Inverse:
    """Invert the Hessian on steps common to all classes, which change only the ridge term."""
    stiffness = 2.0 * ridge.sum(axis=0)
    # Without a ridge they change nothing, and no residual has such a part.
    inverse = np.divide(1.0, stiffness, out=np.zeros_like(stiffness), where=stiffness > 0.0)
    return lambda residual: np.tile(residual.sum(axis=0) * inverse, (len(residual), 1))


def kronecker(between: Matrix, moments: Matrix, ridge: Matrix) -> Inverse:
    """Invert a Kronecker product plus ridge, except on the diagonal weights.

    Parameters
    ----------
    between : ndarray of shape (K, K)
        Σ w·(diag(p) − p pᵀ), the coupling of classes; common shifts are in its null space.
    moments : ndarray of shape (K + 1, K + 1)
        Second moments of (x, 1), with rows weighted by w·(1 − Σp²).
    ridge : ndarray of shape (K, K + 1)
        Assumed equal everywhere except on the diagonal.
    """
    classes = ridge.shape[0]
    left, left_basis = interruptible(np.linalg.eigh, between)
    # The rows' total weight is in both factors; divide it out of one.
    right, right_basis = interruptible(np.linalg.eigh, moments / max(between.trace(), TINY))
    sizes = np.outer(np.maximum(left, 0.0), np.maximum(right, 0.0)) + 2.0 * ridge[0, 1]
    sizes += _FLAT_CURVATURE * sizes.max() + TINY
    diagonal = np.arange(classes)

    def inverse(residual: Matrix) -> Matrix:
        others = residual.copy()
        others[diagonal, diagonal] = 0.0
        inside = _product(left_basis.T, others, right_basis)
        inside /= sizes
        step = _product(left_basis, inside, right_basis.T)
        step[diagonal, diagonal] = 0.0
        return step

    return inverse


def coarse(hessian: Matrix, ridge: Matrix) -> Inverse:
    """Invert the Hessian exactly on each class's own score, its bias and the mean score.

    Parameters
    ----------
    hessian : ndarray of shape (3K, 3K)
        Without the ridge; overwritten.
    ridge : ndarray of shape (K, K + 1)
        The ridge strengths.
    """
    from scipy.linalg.lapack import dpotrs

    classes = ridge.shape[0]
    diagonal = np.arange(classes)
    twice_ridge = 2.0 * ridge[:, :-1]
    parts = hessian.reshape(3, classes, 3, classes)
    parts[0, diagonal, 0, diagonal] += twice_ridge.diagonal()
    parts[1, diagonal, 1, diagonal] += 2.0 * ridge[:, -1]
    # One unit of the mean score is 1/K of every score, including the class's own.
    parts[2, diagonal, 2, diagonal] += twice_ridge.sum(axis=1) / classes**2
    parts[0, diagonal, 2, diagonal] += twice_ridge.diagonal() / classes
    parts[2, diagonal, 0, diagonal] += twice_ridge.diagonal() / classes
    scale: Vector = hessian.diagonal().copy()
    scale += _FLAT_CURVATURE * scale.max() + TINY
    scale **= -0.5
    hessian *= scale
    hessian *= scale[:, None]
    root = _root(hessian)

    def inverse(residual: Matrix) -> Matrix:
        weights = residual[:, :-1]
        projected = np.concatenate([weights.diagonal(), residual[:, -1], weights.mean(axis=1)])
        solution = dpotrs(root.T, scale * projected)[0] * scale
        of_own, of_bias, of_mean = solution.reshape(3, classes)
        step = np.empty_like(residual)
        step[:, :-1] = of_mean[:, None] / classes
        step[diagonal, diagonal] += of_own
        step[:, -1] = of_bias
        return step

    return inverse


def _product(left: Matrix, middle: Matrix, right: Matrix) -> Matrix:
    product: Matrix = interruptible(np.matmul, interruptible(np.matmul, left, middle), right)
    return product


def _root(matrix: Matrix) -> Matrix:
    """Return the lower Cholesky factor, after raising the unit diagonal as far as needed.

    Without a ridge, common shifts are flat, as are classes that are certain in every row;
    rounding may have made the curvature of such directions negative.
    """
    diagonal = matrix.reshape(-1)[:: matrix.shape[0] + 1]
    shift = 1e-10
    while True:
        diagonal += shift
        try:
            return np.asarray(interruptible(np.linalg.cholesky, matrix), dtype=np.float64)
        except np.linalg.LinAlgError:
            shift *= 100.0
