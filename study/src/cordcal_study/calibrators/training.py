"""Small torch networks: seeded weights, training, and layers as an expression."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import Array, Labels, Matrix, Vector
from cordcal.calibrators._base import Calibrator, Size, check_positive_integer
from cordcal.calibrators._newton import progress
from cordcal.expressions import Parameters, maximum

# The random weights of a last layer are scaled by this, so that training starts near a constant.
_LAST_LAYER_SCALE = 0.1

Shapes = dict[str, tuple[int, ...]]
Net = dict[str, Any]
"""Trainable weights by name, as tensors."""


class OrderKeepingNetwork(Calibrator):
    """Base class of networks that map scores alone and preserve their order."""

    size = Size(uncounted="network")
    keeps_argmax = True
    keeps_order = True
    takes_masked = True
    role = "rival"
    extra = "torch"

    # Widths of the hidden layers.
    _hidden: ClassVar[tuple[int, ...]]

    seed: int
    weights_: Vector
    objective_: float


@dataclass(frozen=True, slots=True)
class Training:
    """Settings of a training with Adam on shuffled batches.

    With ``patience``, training stops after that many epochs without a gain of ``least_gain``
    in the mean loss, and the best weights are restored.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    patience: int | None = None
    least_gain: float = 0.0

    @classmethod
    def in_steps(cls, steps: int, rows: int, batch_size: int, learning_rate: float) -> Training:
        """Return the settings for at least this many steps.

        Examples
        --------
        >>> Training.in_steps(1200, 2000, 1000, 5e-3).epochs
        600
        """
        epochs = math.ceil(steps / math.ceil(rows / batch_size))
        return cls(epochs, batch_size, learning_rate)


def torch_for(key: str) -> Any:
    """Import torch; the error names the calibrator that needs it and how to install it."""
    try:
        import torch
    except ImportError:
        raise ImportError(
            f"the calibrator {key!r} needs torch; install it with: pip install torch"
        ) from None
    return torch


def check_training(**counts: Any) -> None:
    """Check that numbers of steps, rows or epochs are positive integers."""
    for name, value in counts.items():
        check_positive_integer(name, value)


def layer_shapes(chains: Mapping[str, tuple[int, ...]]) -> Shapes:
    """Return the shapes of linear layers for named chains of widths.

    Examples
    --------
    >>> layer_shapes({"head": (3, 5, 1)})["head.1.weight"]
    (1, 5)
    """
    shapes: Shapes = {}
    for name, widths in chains.items():
        for i, (inner, outer) in enumerate(itertools.pairwise(widths)):
            shapes[f"{name}.{i}.weight"] = (outer, inner)
            shapes[f"{name}.{i}.bias"] = (outer,)
    return shapes


def new_net(shapes: Shapes, generator: Any, dtype: Any = None) -> Net:
    """Return random weights, uniform in ±1/√inputs as torch initialises linear layers."""
    import torch

    net: Net = {}
    for name, shape in shapes.items():
        # A bias uses the number of inputs of its layer.
        bound = 1.0 / math.sqrt(shapes[name.replace(".bias", ".weight")][-1])
        drawn = torch.rand(shape, generator=generator, dtype=dtype)
        net[name] = ((2.0 * drawn - 1.0) * bound).requires_grad_()
    return net


def begin_near(net: Net, output: float) -> None:
    """Initialise one chain of layers so that its output is near a constant."""
    import torch

    *_, weight, bias = net.values()
    with torch.no_grad():
        weight.mul_(_LAST_LAYER_SCALE)
        bias.fill_(output)


def weighted_rows(
    scores: Matrix, labels: Labels, weight: Vector | None
) -> tuple[Matrix, Labels, Vector | None]:
    """Drop rows of weight zero: a batch of only such rows would have no loss."""
    if weight is None:
        return scores, labels, None
    positive = weight > 0.0
    return scores[positive], labels[positive], weight[positive]


def flat(net: Net) -> Vector:
    """Return all weights as one vector."""
    import torch

    return np.asarray(torch.cat([value.detach().reshape(-1) for value in net.values()]).double())


def unflattened(weights: Vector, shapes: Shapes) -> dict[str, Any]:
    """Return a vector of all weights as NumPy arrays by name; the inverse of `flat`."""
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1]
    parts = np.split(weights, ends)
    return {
        name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


def train(
    key: str,
    net: Net,
    loss_of: Callable[[Any], Any],
    rows: int,
    training: Training,
    generator: Any,
) -> float:
    """Train the weights in place and return the mean loss of the best or the last epoch.

    Parameters
    ----------
    key : str
        The calibrator's key, for messages.
    net : dict
        The weights, from `new_net`.
    loss_of : callable
        Returns the loss of a batch, given its row indices.
    rows : int
        Number of rows.
    training : Training
        Epochs, batch size and learning rate.
    generator : torch.Generator
        Draws the batches.
    """
    torch = torch_for(key)
    optimiser = torch.optim.Adam(net.values(), lr=training.learning_rate)
    work = sum(value.numel() for value in net.values()) * rows * training.epochs
    best, mean, waited = math.inf, math.nan, 0
    best_values: list[Any] = []
    with _one_thread(torch), progress(key, work, training.epochs) as report:
        for epoch in range(training.epochs):
            total = 0.0
            start = [value.detach().clone() for value in net.values()] if training.patience else []
            for batch in torch.randperm(rows, generator=generator).split(training.batch_size):
                loss = loss_of(batch)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                total += loss.item() * len(batch)
            mean = total / rows
            report(epoch + 1, mean, math.nan)
            if training.patience is None:
                continue
            if mean < best - training.least_gain:
                best, best_values, waited = mean, start, 0
            elif (waited := waited + 1) >= training.patience:
                break
    if best_values:
        mean = best
        with torch.no_grad():
            for value, best_value in zip(net.values(), best_values, strict=True):
                value.copy_(best_value)
    if not all(bool(torch.isfinite(value).all()) for value in net.values()):
        raise InputError(
            "learning_rate",
            f"let the training of {key!r} diverge",
            "lower it, or rescale the network's inputs",
        )
    return mean


@contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    """Train on one thread: small batches gain nothing from more, and sums stay reproducible."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def layers_of(weights: dict[str, Any]) -> dict[str, Any]:
    """Rename a chain's weights to names without dots, which torch buffers and ONNX need."""
    layers = {}
    for name, value in weights.items():
        _, layer, kind = name.split(".")
        layers[f"{kind}_{layer}"] = value.T if kind == "weight" else value
    return layers


def through_layers(x: Array, params: Parameters, xp: Any) -> Array:
    """Apply linear layers with ReLU between them."""
    layer = 0
    while f"weight_{layer}" in params:
        x = maximum(x, 0.0, xp) if layer else x
        x = xp.matmul(x, params[f"weight_{layer}"]) + params[f"bias_{layer}"]
        layer += 1
    return x


def torch_namespace() -> Any:
    """Return torch's array namespace, so that training evaluates the expression of the map."""
    import array_api_compat.torch as xp

    return xp


def mean_cross_entropy(logits: Any, labels: Any, weight: Any) -> Any:
    """Return the weighted cross-entropy of tensors; the weights sum to one."""
    return weight @ (logits.logsumexp(dim=1) - logits.gather(1, labels[:, None])[:, 0])
