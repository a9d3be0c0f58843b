"""Networks in torch: seeded weights, and one way to train them, for every map that has one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.expressions import maximum
from cordcal._numeric.types import Array, Labels, Matrix, Parameters, Vector
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators._newton import progress

# The share of its random start that a last layer keeps: training begins near one temperature.
_FIRST_SHARE = 0.1

Shapes = dict[str, tuple[int, ...]]
Net = dict[str, Any]
"""The weights by name, as tensors that learn."""


class OrderKeepingNetwork(Calibrator):
    """What is true of every map that a network makes of the scores alone, order kept."""

    size = Size(uncounted="network")
    keeps_argmax = True
    keeps_order = True
    takes_masked = True
    role = "rival"
    needs_torch = True

    # Widths of the hidden layers.
    _hidden: ClassVar[tuple[int, ...]]

    seed: int
    weights_: Vector
    objective_: float


@dataclass(frozen=True, slots=True)
class Training:
    """How a network is trained: with Adam, in batches of rows drawn anew each epoch.

    With ``patience``, epochs end after so many without a gain of ``least_gain`` in the mean
    loss, and the best weights are kept.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    patience: int | None = None
    least_gain: float = 0.0

    @classmethod
    def in_steps(cls, steps: int, rows: int, batch_size: int, learning_rate: float) -> Training:
        """Return the training of at least so many steps.

        Examples
        --------
        >>> Training.in_steps(1200, 2000, 1000, 5e-3).epochs
        600
        """
        epochs = math.ceil(steps / math.ceil(rows / batch_size))
        return cls(epochs, batch_size, learning_rate)


def torch_for(key: str) -> Any:
    """Return torch, or say who needs it and how it is installed."""
    try:
        import torch
    except ImportError:
        raise ImportError(
            f"the calibrator {key!r} needs torch; install it with: pip install 'cordcal[torch]'"
        ) from None
    return torch


def check_training(**counts: Any) -> None:
    """Refuse numbers of steps, rows or epochs that allow no training."""
    for name, value in counts.items():
        if not (isinstance(value, int | np.integer) and value >= 1):
            raise InputError(name, f"is {value!r}", "pass a whole number from 1 on")


def layer_shapes(chains: Mapping[str, tuple[int, ...]]) -> Shapes:
    """Return the shapes of linear layers, for chains of widths by name.

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
    """Return weights to train, uniform in ±1/√inputs: torch's own rule for linear layers."""
    import torch

    net: Net = {}
    for name, shape in shapes.items():
        # A bias has as many inputs as its layer's weight.
        bound = 1.0 / math.sqrt(shapes[name.replace(".bias", ".weight")][-1])
        drawn = torch.rand(shape, generator=generator, dtype=dtype)
        net[name] = ((2.0 * drawn - 1.0) * bound).requires_grad_()
    return net


def begin_near(net: Net, output: float) -> None:
    """Let one chain of layers begin near an output: its last layer keeps little of its start."""
    import torch

    *_, weight, bias = net.values()
    with torch.no_grad():
        weight.mul_(_FIRST_SHARE)
        bias.fill_(output)


def weighted_rows(
    scores: Matrix, labels: Labels, weight: Vector | None
) -> tuple[Matrix, Labels, Vector | None]:
    """Return the rows with weight: a batch of others would have no loss."""
    if weight is None:
        return scores, labels, None
    some = weight > 0.0
    return scores[some], labels[some], weight[some]


def flat(net: Net) -> Vector:
    """Return all weights as one vector."""
    import torch

    return np.asarray(torch.cat([each.detach().reshape(-1) for each in net.values()]).double())


def unflattened(weights: Vector, shapes: Shapes) -> dict[str, Any]:
    """Return the weights by name again, as NumPy arrays."""
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
        Whose network it is, for messages.
    net : dict
        The weights, from `new_net`.
    loss_of : callable
        Returns the loss of the rows at some indices.
    rows : int
        Number of rows.
    training : Training
        How long, in which batches.
    generator : torch.Generator
        Draws the batches.
    """
    torch = torch_for(key)
    optimiser = torch.optim.Adam(net.values(), lr=training.learning_rate)
    work = sum(value.numel() for value in net.values()) * rows * training.epochs
    best, mean, waited = math.inf, math.nan, 0
    kept: list[Any] = []
    with _one_thread(torch), progress(key, work, training.epochs) as report:
        for epoch in range(training.epochs):
            total = 0.0
            before = [value.detach().clone() for value in net.values()] if training.patience else []
            for at in torch.randperm(rows, generator=generator).split(training.batch_size):
                loss = loss_of(at)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                total += loss.item() * len(at)
            mean = total / rows
            report(epoch + 1, mean, math.nan)
            if training.patience is None:
                continue
            if mean < best - training.least_gain:
                best, kept, waited = mean, before, 0
            elif (waited := waited + 1) >= training.patience:
                break
    if kept:
        mean = best
        with torch.no_grad():
            for value, good in zip(net.values(), kept, strict=True):
                value.copy_(good)
    if not all(bool(torch.isfinite(value).all()) for value in net.values()):
        raise InputError(
            "learning_rate",
            f"let the training of {key!r} diverge",
            "lower it, or bring what the network sees to scale",
        )
    return mean


@contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    """Train on one thread: small batches gain nothing from more, and sums keep their order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def layers_of(weights: dict[str, Any]) -> dict[str, Any]:
    """Return a chain's weights by the names that buffers and graphs may have."""
    layers = {}
    for name, value in weights.items():
        _, layer, kind = name.split(".")
        layers[f"{kind}_{layer}"] = value.T if kind == "weight" else value
    return layers


def through_layers(x: Array, params: Parameters, xp: Any) -> Array:
    """Apply linear layers with the positive part between them."""
    layer = 0
    while f"weight_{layer}" in params:
        x = maximum(x, 0.0, xp) if layer else x
        x = xp.matmul(x, params[f"weight_{layer}"]) + params[f"bias_{layer}"]
        layer += 1
    return x


def torch_namespace() -> Any:
    """Return torch as a namespace in which a map's own expression is trained."""
    import array_api_compat.torch as xp

    return xp


def mean_cross_entropy(logits: Any, labels: Any, weight: Any) -> Any:
    """Return the loss of tensors; the weights sum to one."""
    return weight @ (logits.logsumexp(dim=1) - logits.gather(1, labels[:, None])[:, 0])
