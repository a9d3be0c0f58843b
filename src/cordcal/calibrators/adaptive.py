"""Adaptive temperature scaling (``adats``): an autoencoder of features sets the temperature."""

from __future__ import annotations

import hashlib
import math
from typing import Any, Self

import numpy as np

from cordcal._errors import InputError, raise_first, row_error
from cordcal._numeric import arrays
from cordcal._numeric.arrays import row_blocks, softmax
from cordcal._numeric.types import Kind, Labels, Matrix, Vector
from cordcal._validation.layouts import align_rows
from cordcal._validation.scores import DROP, LOG_FLOOR, CheckedScores, rescale_large_weights
from cordcal.calibrators._base import Calibrator, Size
from cordcal.calibrators._training import (
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


class AdaptiveTemperature(Calibrator):
    """AdaTS: ``softmax(z / T(x))``, where T depends on the penultimate features x.

    A variational autoencoder with a Gaussian prior for each class is fitted to the
    features; a small network computes a temperature from the class-conditional log-densities of
    the latent code.  Both are trained together, as published: the negative ELBO plus
    the cross-entropy of the tempered logits, Adam, 100 epochs in batches of 128.  Pass the
    features as ``features=`` to `fit` and to `predict_proba`.  Needs torch.

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
    >>> model = AdaptiveTemperature(epochs=1, hidden=(8,))
    >>> model = model.fit(3.0 * features, labels, features=features)
    >>> q = model.predict_proba(3.0 * features, features=features)
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
    needs_features = True
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
        latent: int = 16,
        hidden: tuple[int, ...] = (1024, 512, 512),
        epochs: int = 100,
        batch_size: int = 128,
        learning_rate: float = 5e-4,
        sample: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(input=input)
        self.latent = latent
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.sample = sample
        self.seed = seed

    def fit(
        self, scores: Any, labels: Any, *, sample_weight: Any = None, features: Any = None
    ) -> Self:
        """Train the networks on calibration rows.

        Parameters
        ----------
        scores, labels, sample_weight
            As for every calibrator.
        features : array_like of shape (n, D)
            The classifier's penultimate features of the same rows.

        Returns
        -------
        self : AdaptiveTemperature
            The fitted calibrator.
        """
        _torch()
        scores, labels, sample_weight, features = align_rows(
            scores=scores, labels=labels, sample_weight=sample_weight, features=features
        )
        raw, y, weight = self._validate_fit_input(scores, labels, sample_weight)
        x = _check_features(features, raw.shape[0])
        return self._fit_with_features(self._to_domain(raw, fitting=True), y, weight, x)

    def _fit_checked(
        self,
        original: CheckedScores,
        labels: Labels,
        weight: Vector | None,
        *,
        features: Any = None,
    ) -> Self:
        _torch()
        self._check_fit_rows(original, labels, weight)
        x = _check_features(features, original.rows)
        shifted = original.in_domain(self.works_on, LOG_FLOOR)
        return self._fit_with_features(shifted, labels, weight, x)

    def _fit_with_features(
        self, shifted: Matrix, labels: Labels, weight: Vector | None, x: Matrix
    ) -> Self:
        weight = None if weight is None else rescale_large_weights(weight)
        with self._fit_copy(shifted.shape[1]) as candidate:
            candidate.n_features_ = x.shape[1]
            candidate._train(shifted, labels, weight, x)
        return self

    def predict_proba(self, scores: Any, *, features: Any = None) -> Matrix:
        """Return calibrated (direct) probabilities in float64.

        Parameters
        ----------
        scores : array_like of shape (n, K)
            Scores of the same kind as in `fit`.
        features : array_like of shape (n, D)
            The penultimate features of the same rows.

        Returns
        -------
        direct : ndarray of shape (n, K)
            Rows that sum to one.
        """
        scores, features = align_rows(scores=scores, features=features)
        raw = self._validate_scores(scores)
        x = _check_features(features, raw.shape[0], self.n_features_)
        return self._apply_temperatures(self._to_domain(raw), x)

    def _predict_checked(self, original: CheckedScores, *, features: Any = None) -> Matrix:
        x = _check_features(features, original.rows, self.n_features_)
        return self._apply_temperatures(original.in_domain(self.works_on, self.log_floor_), x)

    def _apply_temperatures(self, shifted: Matrix, x: Matrix) -> Matrix:
        shifted /= self._temperatures(x)[:, None]
        return softmax(shifted)

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

    def _fit(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        raise NotImplementedError  # `fit` passes the features as well

    def _predict_in_domain(self, scores: Matrix) -> Matrix:
        raise NotImplementedError  # `predict_proba` passes the features as well

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
    if features is None:
        raise InputError(
            "features",
            "is missing: adats needs the classifier's penultimate features",
            "pass them with the scores, to fit and to predict_proba",
        )
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
