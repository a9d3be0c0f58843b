"""One increasing function of the logit for all classes, from a network's slope."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.expressions import (
    LOWEST_SHIFTED,
    largest,
    maximum,
    minimum,
    over,
    plus,
    softmax,
    softplus,
    subtract_max,
    times,
)
from cordcal._numeric.types import Array, Kind, Labels, Matrix, Parameters, Vector
from cordcal._validation.scores import row_weights
from cordcal.calibrators import _networks as nets
from cordcal.calibrators._curves import interpolate, search_strides
from cordcal.calibrators.entropy import COLDEST, HOTTEST
from cordcal.calibrators.temperature import cross_entropy, fit_temperature, subsample

# Logits beyond this are cut before the network sees them, as published for PTS.
_CUT = 100.0
# SMART adds this to its temperature, as published.
_LEAST_SMART = 0.1
# Bins of SMART's soft error, and the width of their edges, as published.
_BINS, _WIDTH = 15, 0.05


class NetworkTemperature(nets.OrderKeepingNetwork):
    """``softmax(z / T)``, where a network turns what it sees of a row into T.

    The network starts near the one temperature that is best for all rows.  Its map is an
    expression of the scores, so a fitted one needs no torch.
    """

    input: Kind
    mean_: float
    scale_: float

    @classmethod
    @abstractmethod
    def _seen(cls, working: Array, width: int, xp: Any) -> Array:
        """Return what the network sees of each row, before it is brought to scale."""

    @staticmethod
    @abstractmethod
    def _temperature(output: Array, xp: Any) -> Array:
        """Return temperatures of the network's outputs."""

    @staticmethod
    @abstractmethod
    def _output_at(temperature: float) -> float:
        """Return the output that means this temperature."""

    @abstractmethod
    def _width(self) -> int:
        """Return how many numbers the network sees of a row."""

    @abstractmethod
    def _training(self, rows: int) -> nets.Training:
        """Return how the network is trained on so many rows."""

    @abstractmethod
    def _loss(self, logits: Any, labels: Any, weight: Any, net: nets.Net) -> Any:
        """Return the loss of tempered logits; the weights sum to one."""

    def _shapes(self) -> nets.Shapes:
        return nets.layer_shapes({"net": (self._width(), *self._hidden, 1)})

    def _held(self) -> dict[str, npt.NDArray[Any]]:
        layers = nets.layers_of(nets.unflattened(self.weights_, self._shapes()))
        # The first layer takes the scale: before a product, onnxruntime would make it a float32.
        first = layers["weight_0"] / self.scale_
        bias = layers["bias_0"] - self.mean_ * first.sum(axis=0)
        return {**layers, "weight_0": first, "bias_0": bias}

    @classmethod
    def _map(cls, working: Array, held: Parameters, *, xp: Any) -> Array:
        seen = cls._seen(working, held["weight_0"].shape[0], xp)
        temperature = cls._temperatures(seen, held, xp)
        shifted = maximum(subtract_max(working, xp), LOWEST_SHIFTED, xp)
        return softmax(over(shifted, temperature[:, None], xp), xp)

    @classmethod
    def _temperatures(cls, inputs: Array, held: Parameters, xp: Any) -> Array:
        """Return each row's temperature: also what is trained, with torch as ``xp``."""
        temperature = cls._temperature(nets.through_layers(inputs, held, xp)[:, 0], xp)
        return minimum(maximum(temperature, COLDEST, xp), HOTTEST, xp)

    def _fit(self, working: Matrix, labels: Labels, weight: Vector | None) -> None:
        torch = nets.torch_for(self.key)
        training = self._training(labels.size)
        working, labels, weight = nets.weighted_rows(working, labels, weight)
        share = row_weights(labels.size, weight)
        inputs = self._to_scale(working, share)
        for at in row_blocks(*working.shape):
            maximum(subtract_max(working[at], np), LOWEST_SHIFTED, np)
        generator = torch.Generator().manual_seed(self.seed)
        net = nets.new_net(self._shapes(), generator, torch.float64)
        self._start(net, working, labels, weight)
        z, x, y, w = (torch.from_numpy(each) for each in (working, inputs, labels, share))

        def loss_of(at: Any) -> Any:
            temperature = self._temperatures(x[at], nets.layers_of(net), nets.torch_namespace())
            return self._loss(z[at] / temperature[:, None], y[at], w[at] / w[at].sum(), net)

        self.objective_ = nets.train(self.key, net, loss_of, labels.size, training, generator)
        self.weights_ = nets.flat(net)

    def _to_scale(self, working: Matrix, share: Vector) -> Matrix:
        """Return what the network sees, with weighted mean 0 and variance 1."""
        seen = np.concatenate(
            [self._seen(working[at], self._width(), np) for at in row_blocks(*working.shape)]
        )
        self.mean_ = float(share @ seen.mean(axis=1))
        self.scale_ = math.sqrt(float(share @ ((seen - self.mean_) ** 2).mean(axis=1))) or 1.0
        return (seen - self.mean_) / self.scale_

    def _start(self, net: nets.Net, shifted: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Let the network begin near the best temperature, no colder than the scores."""
        best = fit_temperature(cross_entropy, *subsample(shifted, labels, weight))
        temperature = math.exp(-best.at)
        if not COLDEST < temperature < HOTTEST and best.converged:
            self._warn(
                f"the best temperature, {temperature:.3g}, is outside {COLDEST:g} … {HOTTEST:g}, "
                f"which this map keeps to; divide the logits by {temperature:.1g} first"
            )
        temperature = min(max(temperature, 1.0), HOTTEST)
        nets.begin_near(net, self._output_at(temperature))


class ParametrizedTemperature(NetworkTemperature):
    """PTS: a network turns a row's largest logits, in order, into its temperature.

    The temperature is the size of the network's answer to the ten largest logits; it has two
    hidden layers of five units.  The
    published code minimises the squared error and leaves its ridge at 0; with a few thousand
    rows that overfits, so here the loss is the cross-entropy, with a ridge, unless you ask
    otherwise.  The result depends on the seed.  Needs torch to fit.

    | Works on raw logits: the map sees a row's shift.
    | Keeps the argmax and the whole order; equal logits stay equal.
    | −inf logits keep probability 0.
    | Cost: 1200 steps of 1000 rows, seconds; O(K) per row.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    loss : {"ce", "mse"}
        The cross-entropy, or the squared error, as published.
    ridge : float
        What the squared weights, without biases, are multiplied by and added to the loss.
    steps, batch_size, learning_rate
        Settings of the Adam optimiser.  Published: 100,000 steps of 5e-5.
    seed : int
        Seed of the initial weights and the batches.

    Attributes
    ----------
    weights_ : ndarray
        All weights, layer by layer.
    mean_, scale_ : float
        What the largest logits are reduced by and divided by before the network.
    objective_ : float
        The mean loss of the last epoch.

    References
    ----------
    Tomani, Cremers, Buettner (2022). Parameterized temperature scaling for boosting the
    expressive power in post-hoc uncertainty calibration. ECCV.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> pts = ParametrizedTemperature(steps=20).fit(logits, labels)
    >>> bool((pts.predict_proba(logits).argmax(axis=1) == logits.argmax(axis=1)).all())
    True
    """

    key = "pts"
    title = "Parametrized temperature"
    short = "PTS"
    works_on = "logits"
    cost = "1200 steps of 1000 rows"
    reference = "Tomani et al. 2022, ECCV"

    _hidden = (5, 5)
    # The network sees so many of the largest logits.
    _most = 10

    def __init__(
        self,
        *,
        input: Kind = "logits",
        loss: Literal["ce", "mse"] = "ce",
        ridge: float = 1e-3,
        steps: int = 1200,
        batch_size: int = 1000,
        learning_rate: float = 5e-3,
        seed: int = 0,
    ) -> None:
        super().__init__(input=input)
        self.loss = loss
        self.ridge = ridge
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed

    @classmethod
    def _seen(cls, working: Array, width: int, xp: Any) -> Array:
        top = largest(working, width, xp)
        return minimum(maximum(top, -_CUT, xp), _CUT, xp)

    @staticmethod
    def _temperature(output: Array, xp: Any) -> Array:
        return xp.where(output < 0.0, 0.0 - output, output)

    @staticmethod
    def _output_at(temperature: float) -> float:
        return temperature

    def _width(self) -> int:
        return min(self._most, self.n_classes_)

    def _training(self, rows: int) -> nets.Training:
        nets.check_training(steps=self.steps, batch_size=self.batch_size)
        _check_loss(self.loss, ("ce", "mse"))
        return nets.Training.in_steps(self.steps, rows, self.batch_size, self.learning_rate)

    def _loss(self, logits: Any, labels: Any, weight: Any, net: nets.Net) -> Any:
        if self.loss == "ce":
            loss = nets.mean_cross_entropy(logits, labels, weight)
        else:
            functional = nets.torch_for(self.key).nn.functional
            hot = functional.one_hot(labels, logits.shape[1])
            loss = weight @ ((logits.softmax(dim=1) - hot) ** 2).sum(dim=1)
        squares = sum((each**2).sum() for name, each in net.items() if name.endswith("weight"))
        return loss + self.ridge * squares


class MarginTemperature(NetworkTemperature):
    """SMART: a network turns the margin between the two largest logits into T.

    T = softplus(network(margin)) + 0.1 with two hidden layers of sixteen units.  Published is
    a soft calibration error in 15 bins as the loss; the default here is the cross-entropy.
    Training ends after 20 epochs without a gain of 1e-4, and the best weights are kept.  The
    result depends on the seed.  Needs torch to fit.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the whole order; equal logits stay equal.
    | −inf logits keep probability 0.
    | Cost: about 120 epochs, O(nK) each.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    loss : {"ce", "soft-ece"}
        The cross-entropy, or the soft calibration error, as published.
    epochs, batch_size, learning_rate
        Settings of the Adam optimiser; published are batches of all rows.
    seed : int
        Seed of the initial weights and the batches.

    Attributes
    ----------
    weights_ : ndarray
        All weights, layer by layer.
    mean_, scale_ : float
        What the margin is reduced by and divided by before the network.
    objective_ : float
        The mean loss of the best epoch.

    References
    ----------
    SMART (2026): sample margin-aware recalibration of temperature. ICML, arXiv 2506.23492.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> smart = MarginTemperature(epochs=20).fit(logits, labels)
    >>> bool((smart.predict_proba(logits).argmax(axis=1) == logits.argmax(axis=1)).all())
    True
    """

    key = "smart"
    title = "Margin temperature"
    short = "SMART"
    works_on = "shifted"
    cost = "O(nK) per epoch, about 120 epochs"
    reference = "SMART 2026, ICML"

    _hidden = (16, 16)

    def __init__(
        self,
        *,
        input: Kind = "logits",
        loss: Literal["ce", "soft-ece"] = "ce",
        epochs: int = 2000,
        batch_size: int = 5000,
        learning_rate: float = 5e-3,
        seed: int = 0,
    ) -> None:
        super().__init__(input=input)
        self.loss = loss
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed

    @classmethod
    def _seen(cls, working: Array, width: int, xp: Any) -> Array:
        top = largest(working, 2, xp)
        return (top[:, 0] - top[:, 1])[:, None]

    @staticmethod
    def _temperature(output: Array, xp: Any) -> Array:
        return softplus(output, xp) + _LEAST_SMART

    @staticmethod
    def _output_at(temperature: float) -> float:
        above = temperature - _LEAST_SMART
        return above if above > 30.0 else math.log(math.expm1(above))

    def _width(self) -> int:
        return 1

    def _training(self, rows: int) -> nets.Training:
        nets.check_training(epochs=self.epochs, batch_size=self.batch_size)
        _check_loss(self.loss, ("ce", "soft-ece"))
        return nets.Training(
            self.epochs, self.batch_size, self.learning_rate, patience=20, least_gain=1e-4
        )

    def _loss(self, logits: Any, labels: Any, weight: Any, net: nets.Net) -> Any:
        if self.loss == "ce":
            return nets.mean_cross_entropy(logits, labels, weight)
        return _soft_calibration_error(logits, labels, weight)


def _check_loss(loss: Any, known: tuple[str, ...]) -> None:
    if loss not in known:
        raise InputError("loss", f"is {loss!r}", f"pass one of {', '.join(known)}")


def _soft_calibration_error(logits: Any, labels: Any, weight: Any) -> Any:
    """Return the mean gap of confidence and accuracy in bins that rows belong to in part."""
    confidence, decided = logits.softmax(dim=1).max(dim=1)
    centre = confidence.new_tensor((np.arange(_BINS) + 0.5) / _BINS)
    part = (-((confidence[:, None] - centre) ** 2) / (2.0 * _WIDTH**2)).exp()
    part = part / (part.sum(dim=1, keepdim=True) + 1e-6) * weight[:, None]
    # A bin's share times its mean gap is the sum of its parts of the gaps.
    gap = confidence - (decided == labels).to(logits.dtype)
    return (gap @ part).abs().sum()


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
    | Cost: 500 steps of 1000 rows, seconds; O(K) per row.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    steps, batch_size, learning_rate
        Settings of the Adam optimiser.
    seed : int
        Seed of the initial weights and the batches.

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
    def _map(cls, working: Array, held: Parameters, *, xp: Any) -> Array:
        x, y = held["knot_x_"], held["knot_y_"]
        width = x[1] - x[0]
        below = times(minimum(working - x[0], 0.0, xp), (y[1] - y[0]) / width, xp)
        above = times(maximum(working - x[-1], 0.0, xp), (y[-1] - y[-2]) / width, xp)
        mapped = plus(plus(interpolate(working, held, xp), below, xp), above, xp)
        return softmax(maximum(mapped, LOWEST_SHIFTED, xp), xp)

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
    scores, own, w = subsample(logits, labels, weight)
    shifted = np.maximum(scores - scores.max(axis=1, keepdims=True), LOWEST_SHIFTED)
    best = fit_temperature(cross_entropy, shifted, own, w)
    return math.exp(best.at)
