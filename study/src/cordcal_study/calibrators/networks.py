"""Calibrators that a small network defines and that keep every order; torch fits them.

A network sets each row's temperature: parametrized temperature scaling (``pts``) and SMART
(``smart``).  A network is the slope of one increasing function of the logit: ``diag``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.types import Array, Kind, Labels, Matrix, Vector
from cordcal._validation.scores import row_weights
from cordcal.calibrators._curves import curve_parameters, interpolate
from cordcal.calibrators.entropy import MAX_TEMPERATURE, MIN_TEMPERATURE
from cordcal.calibrators.temperature import CrossEntropy, fit_temperature, subsample
from cordcal.expressions import (
    LOWEST_SHIFTED,
    Parameters,
    divide_in_place,
    largest,
    maximum,
    minimum,
    softplus,
    subtract_max,
)
from cordcal_study.calibrators import training as nets

# PTS clips its inputs to ±100, as published.
_MAX_LOGIT = 100.0
# SMART adds this to its temperature, as published.
_MIN_SMART_TEMPERATURE = 0.1
# Number of bins of SMART's soft calibration error, and their softness, as published.
_BINS, _BIN_SOFTNESS = 15, 0.05

# DIAG's function has at most this many linear pieces; published are 50 steps for each integral.
_MAX_CELLS = 256
# Logits further than this below the top of every row have no mass; the cells end there.
_DEPTH = 100.0
# Slopes are in this interval and multiples of the unit, and cell widths are powers of two.  Sums
# are then exact, and rounding cannot change the order of two neighbours.
_MIN_SLOPE, _MAX_SLOPE, _SLOPE_UNIT = 1e-3, 2.0**8, 2.0**-36


class NetworkTemperature(nets.OrderKeepingNetwork):
    """Base of the maps ``softmax(z / T)``, where a network computes T from inputs of a row.

    The network starts near the best temperature for all rows.  The fitted map is an
    expression of the scores and does not need torch.
    """

    input: Kind
    mean_: float
    scale_: float

    @classmethod
    @abstractmethod
    def _inputs(cls, scores: Array, width: int, xp: Any) -> Array:
        """Return the network's inputs for each row, before they are standardised."""

    @staticmethod
    @abstractmethod
    def _temperature(output: Array, xp: Any) -> Array:
        """Return the temperatures for outputs of the network."""

    @staticmethod
    @abstractmethod
    def _output_at(temperature: float) -> float:
        """Return the output that gives this temperature."""

    @abstractmethod
    def _width(self) -> int:
        """Return the number of inputs per row."""

    @abstractmethod
    def _training(self, rows: int) -> nets.Training:
        """Return the settings for training on this number of rows."""

    @abstractmethod
    def _loss(self, logits: Any, labels: Any, weight: Any, net: nets.Net) -> Any:
        """Return the loss of tempered logits; the weights sum to one."""

    def _shapes(self) -> nets.Shapes:
        return nets.layer_shapes({"net": (self._width(), *self._hidden, 1)})

    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        """Return the parameters of the map as arrays."""
        layers = nets.layers_of(nets.unflattened(self.weights_, self._shapes()))
        # Fold the standardisation into the first layer: onnxruntime would do it in float32.
        first = layers["weight_0"] / self.scale_
        bias = layers["bias_0"] - self.mean_ * first.sum(axis=0)
        return {**layers, "weight_0": first, "bias_0": bias}

    @classmethod
    def logits(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the logits of the map."""
        inputs = cls._inputs(scores, params["weight_0"].shape[0], xp)
        temperature = cls._temperatures(inputs, params, xp)
        shifted = maximum(subtract_max(scores, xp), LOWEST_SHIFTED, xp)
        return divide_in_place(shifted, temperature[:, None], xp)

    @classmethod
    def _temperatures(cls, inputs: Array, params: Parameters, xp: Any) -> Array:
        """Return each row's temperature; training calls this with torch as ``xp``."""
        temperature = cls._temperature(nets.through_layers(inputs, params, xp)[:, 0], xp)
        return minimum(maximum(temperature, MIN_TEMPERATURE, xp), MAX_TEMPERATURE, xp)

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        torch = nets.torch_for(self.key)
        training = self._training(labels.size)
        scores, labels, weight = nets.weighted_rows(scores, labels, weight)
        share = row_weights(labels.size, weight)
        inputs = self._standardised_inputs(scores, share)
        for at in row_blocks(*scores.shape):
            maximum(subtract_max(scores[at], np), LOWEST_SHIFTED, np)
        generator = torch.Generator().manual_seed(self.seed)
        net = nets.new_net(self._shapes(), generator, torch.float64)
        self._start(net, scores, labels, weight)
        z, x, y, w = (torch.from_numpy(array) for array in (scores, inputs, labels, share))

        def batch_loss(at: Any) -> Any:
            temperature = self._temperatures(
                x[at], Parameters(nets.layers_of(net)), nets.torch_namespace()
            )
            return self._loss(z[at] / temperature[:, None], y[at], w[at] / w[at].sum(), net)

        self.objective_ = nets.train(self.key, net, batch_loss, labels.size, training, generator)
        self.weights_ = nets.flat(net)

    def _standardised_inputs(self, scores: Matrix, share: Vector) -> Matrix:
        """Return the network's inputs with weighted mean 0 and variance 1."""
        inputs = np.concatenate(
            [self._inputs(scores[at], self._width(), np) for at in row_blocks(*scores.shape)]
        )
        self.mean_ = float(share @ inputs.mean(axis=1))
        self.scale_ = math.sqrt(float(share @ ((inputs - self.mean_) ** 2).mean(axis=1))) or 1.0
        return (inputs - self.mean_) / self.scale_

    def _start(self, net: nets.Net, shifted: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Start the network near the best temperature, but at least 1."""
        best = fit_temperature(CrossEntropy, *subsample(shifted, labels, weight))
        temperature = math.exp(-best.at)
        if not MIN_TEMPERATURE < temperature < MAX_TEMPERATURE and best.converged:
            self._warn(
                f"the best temperature, {temperature:.3g}, is outside the supported interval "
                f"{MIN_TEMPERATURE:g} … {MAX_TEMPERATURE:g}; divide the logits by "
                f"{temperature:.1g} first"
            )
        temperature = min(max(temperature, 1.0), MAX_TEMPERATURE)
        nets.begin_near(net, self._output_at(temperature))


class ParametrizedTemperature(NetworkTemperature):
    """PTS: a network computes a row's temperature from its largest logits, sorted.

    The temperature is the absolute value of the network's output for the ten largest logits;
    the network has two hidden layers of five units.  The published code minimises the squared
    error with a ridge of 0, which overfits with a few thousand rows.  The default here is the
    cross-entropy with a ridge.  The result depends on the seed.  Needs torch to fit.

    | Works on raw logits: the map depends on a row's shift.
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
        Factor of the sum of squared weights, without biases, that is added to the loss.
    steps, batch_size, learning_rate
        Settings of the Adam optimiser.  Published are 100,000 steps with learning rate 5e-5.
    seed : int
        Seed of the initial weights and the batches.

    Attributes
    ----------
    weights_ : ndarray
        All weights, layer by layer.
    mean_, scale_ : float
        Mean and scale by which the largest logits are standardised.
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
    _max_inputs = 10

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
    def _inputs(cls, scores: Array, width: int, xp: Any) -> Array:
        top = largest(scores, width, xp)
        return minimum(maximum(top, -_MAX_LOGIT, xp), _MAX_LOGIT, xp)

    @staticmethod
    def _temperature(output: Array, xp: Any) -> Array:
        return xp.where(output < 0.0, 0.0 - output, output)

    @staticmethod
    def _output_at(temperature: float) -> float:
        return temperature

    def _width(self) -> int:
        return min(self._max_inputs, self.n_classes_)

    def _training(self, rows: int) -> nets.Training:
        nets.check_training(steps=self.steps, batch_size=self.batch_size)
        _check_loss(self.loss, ("ce", "mse"))
        return nets.Training.in_steps(self.steps, rows, self.batch_size, self.learning_rate)

    def _loss(self, logits: Any, labels: Any, weight: Any, net: nets.Net) -> Any:
        if self.loss == "ce":
            loss = nets.mean_cross_entropy(logits, labels, weight)
        else:
            functional = nets.torch_for(self.key).nn.functional
            one_hot = functional.one_hot(labels, logits.shape[1])
            loss = weight @ ((logits.softmax(dim=1) - one_hot) ** 2).sum(dim=1)
        squares = sum((value**2).sum() for name, value in net.items() if name.endswith("weight"))
        return loss + self.ridge * squares


class MarginTemperature(NetworkTemperature):
    """SMART: a network computes T from the margin between the two largest logits.

    T = softplus(network(margin)) + 0.1 with two hidden layers of sixteen units.  The published
    loss is a soft calibration error in 15 bins; the default here is the cross-entropy.
    Training ends after 20 epochs without an improvement of 1e-4 and restores the best weights.
    The result depends on the seed.  Needs torch to fit.

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
        Settings of the Adam optimiser; the published batch is all rows.
    seed : int
        Seed of the initial weights and the batches.

    Attributes
    ----------
    weights_ : ndarray
        All weights, layer by layer.
    mean_, scale_ : float
        Mean and scale by which the margin is standardised.
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
    def _inputs(cls, scores: Array, width: int, xp: Any) -> Array:
        top = largest(scores, 2, xp)
        return (top[:, 0] - top[:, 1])[:, None]

    @staticmethod
    def _temperature(output: Array, xp: Any) -> Array:
        return softplus(output, xp) + _MIN_SMART_TEMPERATURE

    @staticmethod
    def _output_at(temperature: float) -> float:
        softplus_value = temperature - _MIN_SMART_TEMPERATURE
        return softplus_value if softplus_value > 30.0 else math.log(math.expm1(softplus_value))

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
    """Return the calibration error with soft bins: rows belong to several bins in part."""
    confidence, prediction = logits.softmax(dim=1).max(dim=1)
    centre = confidence.new_tensor((np.arange(_BINS) + 0.5) / _BINS)
    membership = (-((confidence[:, None] - centre) ** 2) / (2.0 * _BIN_SOFTNESS**2)).exp()
    membership = membership / (membership.sum(dim=1, keepdim=True) + 1e-6) * weight[:, None]
    # A bin's mass times its mean gap is the sum of the gaps of its members.
    gap = confidence - (prediction == labels).to(logits.dtype)
    return (gap @ membership).abs().sum()


class DiagonalNetwork(nets.OrderKeepingNetwork):
    """DIAG: ``softmax(f(z_1), …, f(z_K))`` with one increasing f for all classes.

    The slope of f is ELU(h) + 1, where h is a network of the logit with two hidden layers of
    ten units, trained with the cross-entropy.  The published method integrates the slope
    numerically for every logit.  Here the slope is constant in up to 256 cells between the
    smallest and the largest relevant logit, and f is linear beyond them, so f is fast and
    increasing in floating point, too.  `mono` is the same idea without a network.  The result
    depends on the seed.  Needs torch to fit.

    | Works on raw logits: the map depends on a row's shift.
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
        The ends of the cells, and the values of f there.
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

    parameter_names = ("knot_x_", "knot_y_")
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

    def parameters(self) -> dict[str, npt.NDArray[Any]]:
        """Return the parameters of the map as arrays."""
        x, y = self.knot_x_, self.knot_y_
        ends = (y[[1, -1]] - y[[0, -2]]) / (x[1] - x[0])
        slope = np.concatenate([ends[:1], np.diff(y) / np.diff(x), ends[1:]])
        return curve_parameters(x, y, slope=slope)

    @classmethod
    def logits(cls, scores: Array, params: Parameters, *, xp: Any) -> Array:
        """Return the logits of the map."""
        return maximum(interpolate(scores, params, xp), LOWEST_SHIFTED, xp)

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        torch = nets.torch_for(self.key)
        nets.check_training(steps=self.steps, batch_size=self.batch_size)
        scores, labels, weight = nets.weighted_rows(scores, labels, weight)
        np.maximum(scores, LOWEST_SHIFTED, out=scores)
        self.knot_x_ = cell_edges(scores)
        width = self.knot_x_[1] - self.knot_x_[0]
        middle = 0.5 * (self.knot_x_[1:] + self.knot_x_[:-1])
        # The network's inputs are the middles of the cells, mapped to [−1, 1].
        inputs = torch.from_numpy(np.linspace(-1.0, 1.0, middle.size)[:, None])
        generator = torch.Generator().manual_seed(self.seed)
        shapes = nets.layer_shapes({"net": (1, *self._hidden, 1)})
        net = nets.new_net(shapes, generator, torch.float64)
        slope = best_slope(scores, labels, weight)
        if not _MIN_SLOPE < slope < _MAX_SLOPE:
            self._warn(
                f"the best slope, {slope:.3g}, is outside the supported interval "
                f"{_MIN_SLOPE:g} … {_MAX_SLOPE:g}; multiply the logits by {slope:.1g} first"
            )
        # For a negative h the slope ELU(h) + 1 is exp(h).
        nets.begin_near(net, math.log(max(min(slope, 1.0), _MIN_SLOPE)))
        z, y, w = (
            torch.from_numpy(array) for array in (scores, labels, row_weights(labels.size, weight))
        )
        knots = torch.from_numpy(self.knot_x_)

        def slopes() -> Any:
            output = nets.through_layers(
                inputs, Parameters(nets.layers_of(net)), nets.torch_namespace()
            )[:, 0]
            return (torch.nn.functional.elu(output) + 1.0).clamp(_MIN_SLOPE, _MAX_SLOPE)

        def batch_loss(at: Any) -> Any:
            slope, rows = slopes(), z[at]
            values = torch.nn.functional.pad((width * slope).cumsum(dim=0), (1, 0))
            cell = ((rows - knots[0]) / width).floor().clamp(0, middle.size - 1).long()
            mapped = values[cell] + slope[cell] * (rows - knots[cell])
            return nets.mean_cross_entropy(mapped, y[at], w[at] / w[at].sum())

        training = nets.Training.in_steps(
            self.steps, labels.size, self.batch_size, self.learning_rate
        )
        self.objective_ = nets.train(self.key, net, batch_loss, labels.size, training, generator)
        self.weights_ = nets.flat(net)
        rounded = np.ceil(slopes().detach().numpy() / _SLOPE_UNIT) * _SLOPE_UNIT
        self.knot_y_ = width * np.append(0.0, np.cumsum(rounded))


def cell_edges(logits: Matrix) -> Vector:
    """Return edges of equal cells that cover the relevant logits; the width is a power of two.

    Examples
    --------
    >>> cell_edges(np.array([[0.0, 3.0], [9.0, -1e9]]))[[0, 1, -1]].tolist()
    [-97.0, -96.5, 9.0]
    """
    tops = logits.max(axis=1)
    high = float(tops.max())
    low = max(float(logits.min()), float(tops.min()) - _DEPTH)
    width = 2.0 ** math.ceil(math.log2(max(high - low, 1.0) / _MAX_CELLS))
    return width * np.arange(math.floor(low / width), math.ceil(high / width) + 1.0)


def best_slope(logits: Matrix, labels: Labels, weight: Vector | None) -> float:
    """Return the best single slope, 1/T, on a subsample of the rows."""
    scores, labels, weight = subsample(logits, labels, weight)
    shifted = np.maximum(scores - scores.max(axis=1, keepdims=True), LOWEST_SHIFTED)
    return math.exp(fit_temperature(CrossEntropy, shifted, labels, weight).at)
