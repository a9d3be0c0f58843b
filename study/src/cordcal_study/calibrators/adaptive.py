"""Adaptive temperature scaling (``adats``): an autoencoder of features sets the temperature."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first, row_error
from cordcal._numeric import arrays
from cordcal._numeric.arrays import row_blocks, row_digests, softmax
from cordcal._numeric.types import Kind, Labels, Matrix, Vector
from cordcal._validation.scores import DROP, LOG_FLOOR, CheckedScores
from cordcal._validation.table import match
from cordcal.calibrators._base import Calibrator, Size
from cordcal_study.calibrators.training import (
    Shapes,
    Training,
    check_training,
    flat,
    layer_shapes,
    new_net,
    torch_for,
    train,
    unflattened,
)

# Lower bound of scales and temperatures, as published.
_MIN_SCALE = 1e-3
# Width of the two hidden layers of the temperature head, as published.
_HEAD = (128, 128)


class RowFeatures:
    """The features of rows, found by their scores, so that a calibrator of scores can use them.

    Comparisons, repairs and folds pass scores alone, in parts and in any order.  Rows with equal
    scores must have equal features.

    Parameters
    ----------
    scores : array_like of shape (n, K)
        The classifier's logits or probabilities.
    features : array_like of shape (n, D)
        The penultimate features of the same rows.
    input : {"logits", "probabilities"}
        Kind of scores.

    Examples
    --------
    >>> known = RowFeatures([[2.0, 0.0], [0.0, 1.0]], [[5.0], [7.0]])
    >>> known(np.array([[-1.0, 0.0], [0.0, -2.0]]))
    array([[7.],
           [5.]])
    """

    def __init__(self, scores: Any, features: Any, *, input: Kind = "logits") -> None:
        matched = match({"scores": scores}, others={"features": features})
        (scores,), features = matched.matrices, matched.others["features"]
        rows = CheckedScores.from_scores(scores, input).in_domain("shifted", LOG_FLOOR)
        features = _check_features(features, len(rows))
        self._digests, first, inverse = np.unique(
            row_digests(rows), return_index=True, return_inverse=True
        )
        self._features: Matrix = features[first]
        differs = (features != self._features[inverse]).any(axis=1)
        raise_first(
            row_error(
                differs,
                "scores",
                "equals an earlier row that has other features",
                "pass logits, which differ where probabilities are saturated",
            )
        )

    def __call__(self, shifted: Matrix) -> Matrix:
        """Return the features of logits whose largest entry per row is 0."""
        digests = row_digests(shifted)
        at = np.minimum(np.searchsorted(self._digests, digests), len(self._digests) - 1)
        raise_first(
            row_error(
                self._digests[at] != digests,
                "scores",
                "has no features",
                "pass RowFeatures the scores and features of all rows, also of new ones",
            )
        )
        return self._features[at]

    def __sklearn_clone__(self) -> RowFeatures:
        return self  # it never changes


class AdaptiveTemperature(Calibrator):
    """AdaTS: ``softmax(z / T(x))``, where T depends on the penultimate features x.

    A variational autoencoder with a Gaussian prior for each class is fitted to the
    features; a small network computes a temperature from the class-conditional log-densities of
    the latent code.  Both are trained together, as published: the negative ELBO plus
    the cross-entropy of the tempered logits, Adam, 100 epochs in batches of 128.  Needs torch.
    A model file does not hold the features: after loading pass those of the new rows by
    ``set_params(features=RowFeatures(scores, features))``.

    The published code also samples the latent code at test time.  Here the default is the
    posterior mean, so that predictions do not depend on chance or on the batch.
    ``sample=True`` samples with a seed that combines ``seed`` and the row's features.

    | Works on logits; log-probabilities give the same map.
    | Keeps the argmax and the whole order; equal logits stay equal.
    | −inf logits keep probability 0.
    | Cost: O(n·epochs) with the size of the networks, minutes at n = 5,000; K hardly matters.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    features : RowFeatures or callable
        The penultimate features of all rows to fit on and to predict, by their scores; or a
        function that returns them for logits whose largest entry per row is 0.
    latent : int
        Dimension of the latent code.
    hidden : tuple of int
        Widths of the encoder's and the decoder's hidden layers.
    epochs, batch_size, learning_rate
        Settings of the Adam optimiser.
    sample : bool
        Whether to sample the latent code instead of taking its mean.
    seed : int
        Seed of the initial weights, the batches and the samples.

    Attributes
    ----------
    weights_ : ndarray
        The weights of all networks, concatenated.
    n_features_ : int
        Number of features.
    objective_ : float
        The mean training loss of the last epoch.

    References
    ----------
    Joy, Pinto, Lim, Torr, Dokania (2023). Sample-dependent adaptive temperature scaling for
    improved calibration. AAAI.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=200)
    >>> features = np.eye(3)[labels] + rng.normal(size=(200, 3))
    >>> logits = 3.0 * features
    >>> model = AdaptiveTemperature(features=RowFeatures(logits, features), epochs=1, hidden=(8,))
    >>> q = model.fit(logits, labels).predict_proba(logits)
    >>> bool((q.argmax(axis=1) == features.argmax(axis=1)).all())
    True
    """

    key = "adats"
    title = "Adaptive temperature scaling"
    short = "AdaTS"
    size = Size(uncounted="networks")
    works_on = "shifted"
    keeps_argmax = True
    keeps_order = True
    takes_masked = True
    role = "rival"
    extra = "torch"
    cost = "O(n) per epoch, 100 epochs"
    reference = "Joy et al. 2023, AAAI"

    weights_: Vector
    n_features_: int
    objective_: float

    def __init__(
        self,
        *,
        input: Kind = "logits",
        features: Callable[[Matrix], Any] | None = None,
        latent: int = 16,
        hidden: tuple[int, ...] = (1024, 512, 512),
        epochs: int = 100,
        batch_size: int = 128,
        learning_rate: float = 5e-4,
        sample: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(input=input)
        self.features = features
        self.latent = latent
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.sample = sample
        self.seed = seed

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        _torch()
        x = self._features_of(scores)
        self.n_features_ = x.shape[1]
        self._train(scores, labels, weight, x)

    def _predict_in_domain(self, scores: Matrix) -> Matrix:
        scores /= self._temperatures(self._features_of(scores))[:, None]
        return softmax(scores)

    def temperatures(self, features: Any) -> Vector:
        """Return each row's temperature.

        Parameters
        ----------
        features : array_like of shape (n, D)
            Penultimate features.

        Returns
        -------
        temperatures : ndarray of shape (n,)
            Positive numbers.
        """
        rows = np.shape(features)[0]
        return self._temperatures(_check_features(features, rows, self.n_features_))

    def _features_of(self, shifted: Matrix) -> Matrix:
        if self.features is None:
            raise InputError(
                "features",
                "is missing: adats needs the classifier's penultimate features",
                "make the calibrator with features=RowFeatures(scores, features), or set_params",
            )
        return _check_features(self.features(shifted), len(shifted), vars(self).get("n_features_"))

    def is_complete(self) -> bool:
        """Whether it has the features that it needs."""
        return self.features is not None

    def to_state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return the fitted arrays and metadata without the features, which a file cannot hold."""
        arrays, meta = super().to_state()
        meta["params"].pop("features")
        return arrays, meta

    def _shapes(self) -> Shapes:
        """Return the shapes of all weights, in storage order."""
        widths = tuple(self.hidden)
        shapes = layer_shapes(
            {
                "encode": (self.n_features_, *widths),
                "decode": (self.latent, *widths, self.n_features_),
                "head": (self.n_classes_, *_HEAD, 1),
                "mean": (widths[-1], self.latent),
                "scale": (widths[-1], self.latent),
            }
        )
        shapes["prior.mean"] = shapes["prior.scale"] = (self.n_classes_, self.latent)
        return shapes

    def _train(self, shifted: Matrix, labels: Labels, weight: Vector | None, x: Matrix) -> None:
        torch = _torch()
        check_training(epochs=self.epochs, batch_size=self.batch_size)
        generator = torch.Generator().manual_seed(self.seed)
        net = new_net(self._shapes(), generator)
        z, inputs = torch.tensor(shifted).float(), torch.tensor(x).float()
        y = torch.tensor(labels)
        w = torch.ones(len(y)) if weight is None else torch.tensor(weight / weight.mean()).float()

        def batch_loss(at: Any) -> Any:
            return (_loss(net, inputs[at], z[at], y[at], generator) * w[at]).mean()

        training = Training(self.epochs, self.batch_size, self.learning_rate)
        self.objective_ = train(self.key, net, batch_loss, len(y), training, generator)
        self.weights_ = flat(net)

    def _temperatures(self, x: Matrix) -> Vector:
        torch = _torch()
        weights = unflattened(self.weights_, self._shapes())
        net = {name: torch.tensor(weight) for name, weight in weights.items()}
        result = np.empty(x.shape[0])
        # In float64, so that a row's temperature does not depend on the other rows of a batch.
        with torch.no_grad():
            for at in row_blocks(x.shape[0], max(x.shape[1], *self.hidden)):
                mean, scale = _posterior(net, torch.tensor(x[at]))
                code = mean
                if self.sample:
                    code = mean + scale * torch.tensor(_noise(x[at], self.latent, self.seed))
                result[at] = _temperature(net, code).numpy()
        return result


def _torch() -> Any:
    return torch_for(AdaptiveTemperature.key)


def _check_features(features: Any, rows: int, columns: int | None = None) -> Matrix:
    x = np.ascontiguousarray(arrays.to_numpy(features, "features"), dtype=np.float64)
    if x.ndim != 2 or x.shape[0] != rows:
        raise InputError(
            "features",
            f"has shape {x.shape} but scores has {rows} rows",
            "pass one row of features per row of scores",
        )
    if columns is not None and x.shape[1] != columns:
        raise InputError(
            "features", f"has {x.shape[1]} columns but fit saw {columns}", "pass the same features"
        )
    bad = np.logical_not(np.isfinite(x).all(axis=1))
    raise_first(row_error(bad, "features", "contains NaN or an infinite value", DROP))
    return x


def _noise(x: Matrix, size: int, seed: int) -> Matrix:
    """Return standard normal noise that depends only on the seed and each row's features."""
    rows = []
    for row in x.astype(np.float32):
        digest = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
        generator = np.random.default_rng([seed, int.from_bytes(digest, "little")])
        rows.append(generator.standard_normal(size))
    return np.stack(rows)


def _chain(net: dict[str, Any], name: str, x: Any) -> Any:
    """Apply linear layers with ELU between them."""
    linear, elu = _torch().nn.functional.linear, _torch().nn.functional.elu
    layer = 0
    while f"{name}.{layer}.weight" in net:
        x = elu(x) if layer else x
        x = linear(x, net[f"{name}.{layer}.weight"], net[f"{name}.{layer}.bias"])
        layer += 1
    return x


def _positive(x: Any) -> Any:
    return _torch().nn.functional.softplus(x).clamp(min=_MIN_SCALE)


def _posterior(net: dict[str, Any], x: Any) -> tuple[Any, Any]:
    """Return the mean and scale of the latent code."""
    hidden = _torch().nn.functional.softplus(_chain(net, "encode", x))
    return _chain(net, "mean", hidden), _positive(_chain(net, "scale", hidden))


def _temperature(net: dict[str, Any], code: Any) -> Any:
    """Return the temperatures of latent codes, from their log-densities under each class."""
    prior = _torch().distributions.Normal(net["prior.mean"], _positive(net["prior.scale"]))
    densities = prior.log_prob(code[:, None, :]).sum(dim=2)
    return _positive(_chain(net, "head", densities))[:, 0]


def _loss(net: dict[str, Any], x: Any, z: Any, y: Any, generator: Any) -> Any:
    """Return each row's negative ELBO plus the cross-entropy of its tempered logits."""
    torch = _torch()
    mean, scale = _posterior(net, x)
    code = mean + scale * torch.randn(mean.shape, generator=generator)
    prior_mean, prior_scale = net["prior.mean"][y], _positive(net["prior.scale"])[y]
    # KL divergence between two diagonal Gaussians.
    ratio = scale / prior_scale
    shift = (mean - prior_mean) / prior_scale
    divergence = 0.5 * (ratio**2 + shift**2 - 1.0).sum(dim=1) - ratio.log().sum(dim=1)
    # Laplace likelihood with unit scale.
    reconstruction = (x - _chain(net, "decode", code)).abs().sum(dim=1) + x.shape[1] * math.log(2.0)
    tempered = z / _temperature(net, code)[:, None]
    cross_entropy = torch.nn.functional.cross_entropy(tempered, y, reduction="none")
    return reconstruction + divergence + cross_entropy
