"""Boosted trees on top of another calibrator; LightGBM grows them, NumPy applies them.

Boosted temperature scaling (``boost``) and the boosted blend (``boosted-blend``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._numeric.arrays import row_blocks
from cordcal._numeric.types import Kind, Labels, Matrix, Vector
from cordcal._validation.scores import LOG_FLOOR, CheckedScores
from cordcal.calibrators._base import Calibrator, Size, check_positive_integer
from cordcal.calibrators._newton import progress
from cordcal.calibrators.blend import Blend
from cordcal.calibrators.crossfit import FitCache, Folds, HeldOut
from cordcal.calibrators.temperature import CrossEntropy, fit_temperature, warn_about_temperature
from cordcal.expressions import softmax

# As published: the number of fits that are averaged, and the rounds without a gain on the rows
# that a fit holds out after which it ends.
_FOLDS, _PATIENCE = 8, 20
# Full binary trees of this depth; the published 6 suits more rows than calibration has.
_DEPTH = 3
_LEAVES: int = 2**_DEPTH
_NODES: int = _LEAVES - 1
# Entries of the comparisons of some rows with some trees at a time.
_ENTRIES = 2**20


class BoostedTemperature(Calibrator):
    """Boost: temperature scaling, and boosted trees for what it leaves over.

    Gradient boosting starts from the temperature-scaled logits and adds trees of depth three in
    the log-probabilities, at most ``rounds`` for each class.  Eight such models are fitted, each
    without one eighth of the rows; it ends after 20 rounds that do not improve on those.  Their
    probabilities are averaged.  The published method uses CatBoost; here LightGBM grows the trees.
    Needs LightGBM to fit (``pip install lightgbm``), but not to predict.

    | Works on log-probabilities.
    | Changes the argmax and the order.
    | −inf logits are not accepted.
    | Cost: eight fits of up to 100 rounds with K trees each; cannot be exported to torch or ONNX.

    Parameters
    ----------
    input : {"logits", "probabilities"}
        Kind of scores.  Probabilities below 1e-12 count as 1e-12 in logarithms.
    rounds : int
        The largest number of trees for each class.
    learning_rate : float
        Factor of each tree.
    seed : int
        Determines which rows are held out together.

    Attributes
    ----------
    temperature_ : float
        The temperature of the logits that boosting starts from.
    feature_, threshold_ : ndarray of shape (trees, 7)
        The comparisons of each tree, level by level: column and threshold.
    value_ : ndarray of shape (trees, 8)
        What each leaf adds to the logit of the tree's class.
    start_ : ndarray of int
        Where the trees of each of the models begin; within a model, classes alternate.

    References
    ----------
    probkit (2026). V-ECE: warm-started CatBoost recalibration (WS-CatBoost).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=600)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(600, 3))
    >>> boost = BoostedTemperature(rounds=10).fit(logits, labels)
    >>> boost.predict_proba(logits).shape
    (600, 3)
    """

    key = "boost"
    title = "Boosted temperature scaling"
    short = "Boost"
    size = Size(uncounted="trees")
    works_on = "log-probabilities"
    keeps_argmax = False
    keeps_order = False
    takes_masked = False
    role = "base"
    extra = "boost"
    most_classes = 30, "takes minutes"
    cost = "8 fits of up to 100 K trees"
    reference = "probkit 2026, V-ECE"

    temperature_: float
    feature_: npt.NDArray[np.int32]
    threshold_: Matrix
    value_: Matrix
    start_: npt.NDArray[np.int64]

    def __init__(
        self,
        *,
        input: Kind = "logits",
        rounds: int = 100,
        learning_rate: float = 0.2,
        seed: int = 0,
    ) -> None:
        super().__init__(input=input)
        self.rounds = rounds
        self.learning_rate = learning_rate
        self.seed = seed

    def fit_parameters(self, scores: Matrix, labels: Labels, weight: Vector | None) -> None:
        """Fit on validated rows."""
        shifted = scores - scores.max(axis=1, keepdims=True)
        best = fit_temperature(CrossEntropy, shifted, labels, weight)
        self.temperature_ = math.exp(-best.at)
        warn_about_temperature(self, best)
        baseline = shifted / self.temperature_
        trees, _ = grow(self, scores, baseline, labels, weight, self._clusters)
        trees.store(self)

    def _predict_in_domain(self, scores: Matrix) -> Matrix:
        trees = Trees.of(self)
        for rows in row_blocks(*scores.shape):
            block = scores[rows]
            baseline = (block - block.max(axis=1, keepdims=True)) / self.temperature_
            block[:] = trees.boosted(block, baseline)
        return scores


class BoostedBlend(Blend):
    """Boosted blend: the mean of a blend of calibrators and of trees boosted on top of it.

    As `BoostedTemperature`, but boosting starts from the logarithms of a blend's probabilities:
    cross-fitted ones for the calibration rows, those of the members fitted on all rows for others.
    The blend's own probabilities are half of the result: where trees help, that keeps most of
    their gain, and where they harm, half of it is avoided.
    Needs LightGBM to fit (``pip install lightgbm``), but not to predict.

    | Works on what each member works on; the trees on log-probabilities.
    | Changes the argmax and the order.
    | −inf logits are not accepted.
    | Cost: about two blends and a boost; cannot be exported to torch or ONNX.

    Parameters
    ----------
    members, folds, input
        As for `Blend`.
    rounds, learning_rate
        As for `BoostedTemperature`.
    seed : int
        Determines which rows are held out together.

    Attributes
    ----------
    weights_, members_, notes_, objective_, gap_, seconds_
        As for `Blend`; before boosting.
    feature_, threshold_, value_, start_ : ndarray
        The trees, as for `BoostedTemperature`.

    References
    ----------
    probkit (2026). V-ECE: warm-started CatBoost recalibration (WS-CatBoost).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 4.0 * np.eye(3)[labels] + 2.0 * rng.normal(size=(300, 3))
    >>> model = BoostedBlend(("ts", "vs"), rounds=5).fit(logits, labels)
    >>> model.predict_proba(logits).shape
    (300, 3)
    """

    key = "boosted-blend"
    title = "Boosted blend"
    short = "Boosted blend"
    size = Size(uncounted="trees and its members'")
    takes_masked = False
    extra = "boost"
    most_classes = 30, "takes minutes"
    cost = "two blends and a boost"

    feature_: npt.NDArray[np.int32]
    threshold_: Matrix
    value_: Matrix
    start_: npt.NDArray[np.int64]

    def __init__(
        self,
        members: Sequence[str] | None = None,
        *,
        folds: int = 5,
        rounds: int = 100,
        learning_rate: float = 0.2,
        seed: int = 0,
        input: Kind = "logits",
    ) -> None:
        super().__init__(members, folds=folds, seed=seed, input=input)
        self.rounds = rounds
        self.learning_rate = learning_rate

    def fit_from(self, fit_cache: FitCache) -> None:
        """Fit on rows whose fits other calibrators share."""
        started = perf_counter()
        self._check_masked(fit_cache.original)
        super().fit_from(fit_cache)
        original, labels, weight = fit_cache.original, fit_cache.labels, fit_cache.weight
        direct = np.zeros(original.raw.shape)
        for share, key in zip(self.weights_.tolist(), self.members_, strict=True):
            members = fit_cache.with_absent_classes.for_member(key)
            direct += share * members.held_out_matrix(key)[: len(labels)]
        scores = original.in_domain("log-probabilities", LOG_FLOOR)
        trees, held_out = grow(self, scores, _log(direct), labels, weight, original.clusters)
        trees.store(self)
        mean = (direct + held_out) / 2.0
        self.held_out_ = HeldOut.empty(len(labels))
        self.held_out_.store(np.arange(len(labels)), mean, labels, original.prediction)
        self.seconds_ = max(perf_counter() - started, self.seconds_)

    def predict_checked(self, original: CheckedScores) -> Matrix:
        """Return the direct probabilities of validated rows."""
        self._check_masked(original)
        direct, trees = super().predict_checked(original), Trees.of(self)
        for rows in row_blocks(*direct.shape):
            scores = original.take(rows).in_domain("log-probabilities", self.log_floor_)
            boosted = trees.boosted(scores, _log(direct[rows]))
            direct[rows] = (direct[rows] + boosted) / 2.0
        return direct

    @classmethod
    def has_expression(cls) -> bool:
        """Return False: trees are not an expression of the scores."""
        return False

    def to_state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return the arrays and the JSON metadata of a model file."""
        arrays, meta = super().to_state()
        own = ("feature_", "threshold_", "value_", "start_")
        return arrays | {name: getattr(self, name) for name in own}, meta


def _log(probabilities: Matrix) -> Matrix:
    logarithms: Matrix = np.log(np.maximum(probabilities, LOG_FLOOR))
    return logarithms


@dataclass(frozen=True, eq=False)
class Trees:
    """Several models, each a sum of full binary trees; see `BoostedTemperature`."""

    feature: npt.NDArray[np.int32]
    threshold: Matrix
    value: Matrix
    start: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.start[0] != 0 or self.start[-1] != len(self.feature):
            raise ValueError("the models do not have the trees that there are")

    @classmethod
    def of(cls, owner: BoostedTemperature | BoostedBlend) -> Trees:
        """Return the trees of a fitted calibrator."""
        return cls(owner.feature_, owner.threshold_, owner.value_, owner.start_)

    def store(self, owner: BoostedTemperature | BoostedBlend) -> None:
        """Set the fitted attributes of a calibrator."""
        owner.feature_, owner.threshold_ = self.feature, self.threshold
        owner.value_, owner.start_ = self.value, self.start

    def boosted(self, scores: Matrix, baseline: Matrix) -> Matrix:
        """Return the mean over the models of softmax(baseline + the sum of their trees)."""
        models = len(self.start) - 1
        total = np.zeros(baseline.shape)
        for number in range(models):
            total += self.of_model(number, scores, baseline)
        return total / models

    def of_model(self, number: int, scores: Matrix, baseline: Matrix) -> Matrix:
        """Return the probabilities of one model."""
        probabilities: Matrix = softmax(baseline + self._sums(number, scores), np)
        return probabilities

    def _sums(self, number: int, scores: Matrix) -> Matrix:
        """Return the sum of one model's trees for each row and class."""
        rows, classes = scores.shape
        first, last = self.start[number : number + 2]
        sums = np.zeros((rows, classes))
        step = classes * max(1, _ENTRIES // (_NODES * classes * max(rows, 1)))
        for begin in range(first, last, step):
            some = slice(begin, min(begin + step, last))
            sums += self._leaves(some, scores).reshape(rows, -1, classes).sum(axis=1)
        return sums

    def _leaves(self, trees: slice, scores: Matrix) -> Matrix:
        """Return the value of the leaf that each row reaches in some trees."""
        right = scores[:, self.feature[trees]] > self.threshold[trees]
        node = np.zeros((*right.shape[:2], 1), dtype=np.intp)
        for _ in range(_DEPTH):
            node = 2 * node + 1 + np.take_along_axis(right, node, axis=2)
        values: Matrix = np.take_along_axis(self.value[trees][None], node - _NODES, axis=2)[..., 0]
        return values


def grow(
    owner: BoostedTemperature | BoostedBlend,
    scores: Matrix,
    baseline: Matrix,
    labels: Labels,
    weight: Vector | None,
    clusters: Labels | None = None,
) -> tuple[Trees, Matrix]:
    """Boost the baseline, once without each fold of the rows.

    Parameters
    ----------
    owner : BoostedTemperature or BoostedBlend
        The calibrator, for its parameters.
    scores : ndarray of shape (n, K)
        What the trees compare.
    baseline : ndarray of shape (n, K)
        The logits to start from; equal rows of scores have equal ones.
    labels, weight
        The calibration rows.
    clusters : ndarray of int of shape (n,), optional
        Which rows are held out together.

    Returns
    -------
    trees : Trees
        The models.
    held_out : ndarray of shape (n, K)
        The probabilities of each row by the model that was fitted without it.
    """
    lightgbm = _lightgbm_for(owner.key)
    check_positive_integer("rounds", owner.rounds)
    # Copies of a row become its weight: then a weight of 2 is the row twice, in any order.
    weight = np.ones(len(labels)) if weight is None else weight
    counted = np.flatnonzero(weight)
    pairs = np.column_stack([scores[counted] + 0.0, labels[counted]])
    if clusters is not None:
        pairs = np.column_stack([pairs, clusters[counted]])
    _, first, copy_of = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    mass = np.bincount(copy_of.ravel(), weight[counted]).astype(np.float64)
    all_scores, all_baseline = scores, baseline
    rows = counted[first]
    scores, baseline, labels = scores[rows], baseline[rows], labels[rows]
    params = {
        "objective": "multiclass",
        "num_class": owner.n_classes_,
        "learning_rate": owner.learning_rate,
        "max_depth": _DEPTH,
        "num_leaves": _LEAVES,
        "lambda_l2": 3.0,  # CatBoost's default
        "max_bin": 32,
        "use_missing": False,
        "boost_from_average": False,
        "force_col_wise": True,
        "deterministic": True,
        "num_threads": 1,
        "seed": owner.seed,
        "verbosity": -1,
    }
    if clusters is None:
        folds = Folds.of(scores, labels, _FOLDS, owner.seed, mass)
    else:
        folds = Folds.of_clusters(clusters[rows], labels, _FOLDS, owner.seed, mass)
    models = []

    def dataset(rows: Labels, reference: Any = None) -> Any:
        return lightgbm.Dataset(
            scores[rows],
            labels[rows],
            weight=mass[rows],
            init_score=baseline[rows],
            reference=reference,
            params=params,
        )

    with progress(owner.key, scores.size * owner.rounds * _FOLDS, folds.count) as report:
        for number in range(folds.count):
            training = dataset(np.flatnonzero(folds.number != number))
            booster = lightgbm.train(
                params,
                training,
                owner.rounds,
                valid_sets=[dataset(np.flatnonzero(folds.number == number), training)],
                callbacks=[lightgbm.early_stopping(_PATIENCE, verbose=False)],
            )
            models.append(_tables(booster.dump_model(num_iteration=booster.best_iteration)))
            report(number + 1, math.nan, math.nan)
    feature, threshold, value = (np.concatenate(parts) for parts in zip(*models, strict=True))
    sizes = [len(model[0]) for model in models]
    trees = Trees(feature, threshold, value, np.append(0, np.cumsum(sizes)))
    fold = np.zeros(len(weight), dtype=np.intp)
    fold[counted] = folds.number[copy_of.ravel()]
    held_out = np.empty(all_baseline.shape)
    for number in range(folds.count):
        at = np.flatnonzero(fold == number)
        held_out[at] = trees.of_model(number, all_scores[at], all_baseline[at])
    return trees, held_out


def _tables(model: dict[str, Any]) -> tuple[npt.NDArray[np.int32], Matrix, Matrix]:
    """Return the trees of LightGBM as full binary trees; a missing split sends rows left."""
    trees = [tree["tree_structure"] for tree in model["tree_info"]]
    feature = np.zeros((len(trees), _NODES), dtype=np.int32)
    threshold = np.full((len(trees), _NODES), np.inf)
    value = np.zeros((len(trees), _LEAVES))
    for number, tree in enumerate(trees):
        for place, node in _walk(tree, 0):
            if "leaf_value" in node:
                value[number, _first_leaf(place)] = node["leaf_value"]
            else:
                feature[number, place] = node["split_feature"]
                threshold[number, place] = node["threshold"]
    return feature, threshold, value


def _walk(node: dict[str, Any], place: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the nodes of a tree and their places in a full one, whose root is at 0."""
    yield place, node
    if "leaf_value" not in node:
        yield from _walk(node["left_child"], 2 * place + 1)
        yield from _walk(node["right_child"], 2 * place + 2)


def _first_leaf(place: int) -> int:
    """Return the leaf that is reached from a place by going left.

    Examples
    --------
    >>> [_first_leaf(place) for place in (0, 2, 7, 14)]
    [0, 4, 0, 7]
    """
    while place < _NODES:
        place = 2 * place + 1
    return place - _NODES


def _lightgbm_for(key: str) -> Any:
    """Import LightGBM; the error names the calibrator that needs it and how to install it."""
    try:
        import lightgbm
    except ImportError:
        raise ImportError(
            f"the calibrator {key!r} needs LightGBM; install it with: pip install lightgbm"
        ) from None
    return lightgbm
