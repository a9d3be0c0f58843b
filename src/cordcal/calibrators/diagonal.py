"""One increasing function of the logit for all classes, from a network's slope."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.expressions import LOWEST_SHIFTED, at_least, at_most, plus, softmax, times
from cordcal._door.scores import row_weights
from cordcal._door.types import Array, Kind, Labels, Matrix, Vector
from cordcal.calibrators import _networks as nets
from cordcal.calibrators._base import Held
from cordcal.calibrators._curves import interpolate, search_strides
from cordcal.calibrators.temperature import cross_entropy, fit_temperature, sample_of

# The function is linear in so many cells at most; published are 50 steps for each integral.
_CELLS = 256
# What lies further below the top of every row has no mass; the function goes on straight there.
_DEPTH = 100.0
# Slopes in this interval and in units of the third, and a width that is a power of two: sums
# are then exact, and rounding cannot put two neighbours out of order.
_FLATTEST, _STEEPEST, _UNIT = 1e-3, 2.0**8, 2.0**-36


class DiagonalNetwork(nets.OrderKeepingNetwork):
    """DIAG: ``softmax(f(z_1), …, f(z_K))`` with one increasing f for all classes.

    The slope of f is ELU(h) + 1, where h is a network of the logit with two hidden layers of
    ten units, trained with the cross-entropy.  Published is f as an integral of the slope, taken
    anew for every logit; here the slope is constant in up to 256 cells between the smallest and
    the largest logit that matter and goes on beyond them, so that f is increasing to the last
    bit and quick.  `mono` has the same idea without a network.  The result depends on the
    seed.  Needs torch to fit.

    | Works on raw logits: the map sees a row's shift.
    | Keeps the argmax and the whole order; equal logits stay equal.
    | −inf logits keep probability 0.
    | Cost: 500 steps of 1000 rows, seconds; O(K) a row.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        What the scores are; logarithms of probabilities are floored at 1e-12.
    steps, batch_size, learning_rate
        Of the training with Adam.
    seed : int
        Of the initial weights and the batches.

    Attributes
    ----------
    knot_x_, knot_y_ : ndarray
        The ends of the cells, and f there.
    weights_ : ndarray
        The network's weights, layer by layer.
    objective_ : float
        The mean cross-entropy of the last epoch.

    References
    ----------
    Rahimi, Shaban, Cheng, Hartley, Boots (2020). Intra order-preserving functions for
    calibration of multi-class neural networks. NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> diag = DiagonalNetwork(steps=20).fit(logits, labels)
    >>> bool((np.diff(diag.knot_y_) > 0.0).all())
    True
    """

    key = "diag"
    title = "Diagonal network"
    short = "DIAG"
    works_on = "logits"
    cost = "500 steps of 1000 rows"
    reference = "Rahimi et al. 2020, NeurIPS"

    _holds = ("knot_x_", "knot_y_")
    _hidden = (10, 10)

    knot_x_: Vector
    knot_y_: Vector

    def __init__(
        self,
        *,
        input: Kind = "logits",
        steps: int = 500,
        batch_size: int = 1000,
        learning_rate: float = 1e-2,
        seed: int = 0,
    ) -> None:
        super().__init__(input=input)
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed

    def _held(self) -> dict[str, npt.NDArray[Any]]:
        return {**super()._held(), "stride_": search_strides(self.knot_x_)}

    @classmethod
    def _map(cls, working: Array, held: Held, *, xp: Any) -> Array:
        x, y = held["knot_x_"], held["knot_y_"]
        width = x[1] - x[0]
        below = times(at_most(working - x[0], 0.0, xp), (y[1] - y[0]) / width, xp)
        above = times(at_least(working - x[-1], 0.0, xp), (y[-1] - y[-2]) / width, xp)
        mapped = plus(plus(interpolate(working, held, xp), below, xp), above, xp)
        return softmax(at_least(mapped, LOWEST_SHIFTED, xp), xp)

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        torch = nets.torch_for(self.key)
        nets.check_training(steps=self.steps, batch_size=self.batch_size)
        working, labels, weight = nets.weighted_rows(working, labels, weight)
        np.maximum(working, LOWEST_SHIFTED, out=working)
        self.knot_x_ = cells_of(working)
        width = self.knot_x_[1] - self.knot_x_[0]
        middle = 0.5 * (self.knot_x_[1:] + self.knot_x_[:-1])
        # The network sees the middles of the cells, brought to [−1, 1].
        inputs = torch.from_numpy(np.linspace(-1.0, 1.0, middle.size)[:, None])
        generator = torch.Generator().manual_seed(self.seed)
        shapes = nets.layer_shapes({"net": (1, *self._hidden, 1)})
        net = nets.new_net(shapes, generator, torch.float64)
        # The ELU of a negative number is its exponential, less one.
        slope = best_slope(working, labels, weight)
        if not _FLATTEST < slope < _STEEPEST:
            self._warn(
                f"the best slope, {slope:.3g}, is outside {_FLATTEST:g} … {_STEEPEST:g}, which "
                f"this map keeps to; multiply the logits by {slope:.1g} first"
            )
        nets.begin_near(net, math.log(max(min(slope, 1.0), _FLATTEST)))
        z, y, w = (
            torch.from_numpy(each) for each in (working, labels, row_weights(labels.size, weight))
        )
        knots = torch.from_numpy(self.knot_x_)

        def slopes() -> Any:
            output = nets.through_layers(inputs, nets.layers_of(net), nets.torch_namespace())[:, 0]
            return (torch.nn.functional.elu(output) + 1.0).clamp(_FLATTEST, _STEEPEST)

        def loss_of(at: Any) -> Any:
            slope, rows = slopes(), z[at]
            values = torch.nn.functional.pad((width * slope).cumsum(dim=0), (1, 0))
            cell = ((rows - knots[0]) / width).floor().clamp(0, middle.size - 1).long()
            mapped = values[cell] + slope[cell] * (rows - knots[cell])
            return nets.mean_cross_entropy(mapped, y[at], w[at] / w[at].sum())

        training = nets.Training.in_steps(
            self.steps, labels.size, self.batch_size, self.learning_rate
        )
        self.objective_ = nets.train(self.key, net, loss_of, labels.size, training, generator)
        self.weights_ = nets.flat(net)
        rounded = np.ceil(slopes().detach().numpy() / _UNIT) * _UNIT
        self.knot_y_ = width * np.append(0.0, np.cumsum(rounded))


def cells_of(logits: Matrix) -> Vector:
    """Return the ends of cells of one width, a power of two, that cover the logits that matter.

    Examples
    --------
    >>> cells_of(np.array([[0.0, 3.0], [9.0, -1e9]]))[[0, 1, -1]].tolist()
    [-97.0, -96.5, 9.0]
    """
    tops = logits.max(axis=1)
    high = float(tops.max())
    low = max(float(logits.min()), float(tops.min()) - _DEPTH)
    width = 2.0 ** math.ceil(math.log2(max(high - low, 1.0) / _CELLS))
    return width * np.arange(math.floor(low / width), math.ceil(high / width) + 1.0)


def best_slope(logits: Matrix, labels: Labels, weight: Vector | None) -> float:
    """Return the best single slope, 1/T."""
    scores, own, w = sample_of(logits, labels, weight)
    shifted = np.maximum(scores - scores.max(axis=1, keepdims=True), LOWEST_SHIFTED)
    best = fit_temperature(cross_entropy, shifted, own, w)
    return math.exp(best.at)
