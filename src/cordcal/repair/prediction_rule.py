"""`PredictionRule`: predict the class with the largest weight times probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError, raise_first
from cordcal._numeric import arrays
from cordcal._numeric.types import Array, ArrayLike, Flags, Floats, Vector
from cordcal._validation.names import Name, check_class_names, class_order
from cordcal._validation.scores import as_matrix, nan_error
from cordcal._validation.table import match

# Beyond this ratio of weights the interval of a repaired confidence may be empty (Eq. 4).
MAX_RATIO = 1e8


@dataclass(frozen=True, eq=False)
class PredictionRule:
    """Predict the class with the largest ``weights * probability``.

    This is how a model predicts that was trained with class weights, on resampled rows or for
    unequal costs, or whose probabilities are compared with a threshold: the prediction is not
    always the likeliest class.  With equal weights it is, and the rule is the argmax.

    Parameters
    ----------
    weights : array_like of shape (K,), or mapping of class to number
        One positive number per class, such as the class weights of training.  Only their ratios
        matter; they are at most 1e8.  The keys of a mapping, and the index of a pandas Series of
        text, are the classes' names.
    class_names : sequence of str, optional
        The names of the classes: columns of a data frame are then matched by name.

    Attributes
    ----------
    weights : ndarray of shape (K,)
        The weights in float64, all multiplied by the power of two that brings the product of the
        largest and the smallest weight nearest to one, which rounds nothing; equal weights are
        ones.
    class_names : tuple of str or None
        The names of the classes.

    Examples
    --------
    >>> rule = PredictionRule([1, 19])
    >>> rule.predict([[0.96, 0.04], [0.9, 0.1]])
    array([0, 1])
    >>> PredictionRule.from_threshold(0.05).predict([[0.96, 0.04], [0.9, 0.1]])
    array([0, 1])
    >>> import pandas as pd
    >>> PredictionRule({"no": 1, "yes": 19}).predict(pd.DataFrame({"yes": [0.1], "no": [0.9]}))
    array([1])
    """

    weights: Vector
    class_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        weights, names = self.weights, self.class_names
        if names is None:
            weights, names = _named_weights(weights)
        weights = _scaled(_check_weights(weights, "weights"))
        if names is not None:
            names = check_class_names(names, len(weights))
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "class_names", names)

    def for_classes(self, names: Sequence[Name] | None, source: str) -> PredictionRule:
        """Return the rule with its weights in the order of these classes, and their names."""
        if names is None:
            return self
        order = None
        if self.class_names is not None:
            order = class_order(self.class_names, [str(name) for name in names], "rule", source)
        weights = self.weights if order is None else self.weights[order]
        return PredictionRule(weights, tuple(str(name) for name in names))

    @classmethod
    def from_priors(cls, training: ArrayLike, deployment: ArrayLike) -> Self:
        """Return the rule of a model trained on other class frequencies than it is used on.

        Parameters
        ----------
        training, deployment : array_like of shape (K,)
            The share, or the number of rows, of each class in the rows that the model was
            trained on (after resampling), and in the rows that it is used on.

        Returns
        -------
        rule : PredictionRule
            Its weights are the ratios of training to deployment.

        Examples
        --------
        >>> PredictionRule.from_priors([0.5, 0.5], [0.95, 0.05]).predict([[0.9, 0.1]])
        array([1])
        """
        trained = _check_weights(training, "training")
        deployed = _check_weights(deployment, "deployment")
        if len(trained) != len(deployed):
            raise InputError(
                "training",
                f"has {len(trained)} classes but deployment has {len(deployed)}",
                "pass one number per class in both",
            )
        # Shares, because numbers near the largest double would overflow as ratios.
        return cls((trained / trained.max()) / (deployed / deployed.max()))

    @classmethod
    def from_costs(cls, costs: ArrayLike) -> Self:
        """Return the rule with the smallest expected cost.

        Parameters
        ----------
        costs : array_like of shape (K,) or (K, K)
            The cost of an error per true class.  In a matrix with a row per true class and a
            column per prediction, all errors of a row must cost the same; with two classes they
            do.

        Returns
        -------
        rule : PredictionRule
            Its weights are the costs of errors, less the cost of a correct prediction.

        Examples
        --------
        >>> PredictionRule.from_costs([[0, 1], [20, 1]]).weights
        array([0.25, 4.75])
        """
        array = _as_floats(costs, "costs")
        if array.ndim != 2:
            return cls(_check_weights(array, "costs"))
        classes = len(array)
        if array.shape != (classes, classes) or classes < 2 or not np.isfinite(array).all():
            raise InputError(
                "costs",
                f"has shape {array.shape}" if np.isfinite(array).all() else "is not finite",
                "pass one finite cost per true class, or a matrix of true class × prediction",
            )
        errors = array[~np.eye(classes, dtype=bool)].reshape(classes, classes - 1)
        if (errors != errors[:, :1]).any():
            row = int(np.flatnonzero((errors != errors[:, :1]).any(axis=1))[0])
            raise InputError(
                "costs",
                f"has different costs for the errors of true class {row}, which no weights per "
                "class can express",
                "pass one cost per true class, or predict by the expected costs yourself",
            )
        return cls(_check_weights(errors[:, 0] - np.diagonal(array), "costs"))

    @classmethod
    def from_threshold(cls, threshold: float) -> Self:
        """Return the rule of two classes that predicts the second above a threshold.

        Parameters
        ----------
        threshold : float
            Between 0 and 1.  At the threshold itself the first class is predicted.

        Returns
        -------
        rule : PredictionRule
            Its weights are ``threshold`` and ``1 - threshold``.

        Examples
        --------
        >>> PredictionRule.from_threshold(0.2).predict([[0.79, 0.21], [0.81, 0.19]])
        array([1, 0])
        """
        array = _as_floats(threshold, "threshold")
        if array.ndim != 0 or not 0.0 < array < 1.0:
            shown = array if array.ndim == 0 else f"of shape {array.shape}"
            raise InputError(
                "threshold",
                f"is {shown}",
                "pass one number between 0 and 1; for more than two classes pass weights",
            )
        return cls(np.array([array, 1.0 - array]))

    @property
    def is_argmax(self) -> bool:
        """Whether all weights are equal, so that the likeliest class is predicted."""
        return bool((self.weights == 1.0).all())

    def predict(self, probabilities: ArrayLike) -> Array:
        """Return the class with the largest ``weights * probability``, as column indices.

        Parameters
        ----------
        probabilities : array_like of shape (n, K) or (K,)
            Probabilities, such as those of `PreservingCalibrator.predict_proba`; an array of any
            library.  Columns of a data frame are matched by name if the rule has names.

        Returns
        -------
        prediction : array of int of shape (n,), or int
            The smallest index on ties, computed in float64 where the library has it.
        """
        rows = match(
            {"probabilities": probabilities},
            fitted_names=self.class_names,
            fitted_source="the rule",
        )
        matrix = as_matrix(rows.matrices[0], "probabilities", allow_row=True)
        single = matrix.ndim == 1
        matrix = matrix[None, :] if single else matrix
        _check_length(self, matrix.shape[1], "probabilities")
        raise_first(nan_error(matrix, "probabilities"))
        xp = arrays.namespace(matrix)
        wide = xp.astype(matrix, arrays.wide_dtype(xp, matrix))
        weights = arrays.array_like(self.weights, wide)
        prediction = arrays.first_argmax(wide * xp.astype(weights, wide.dtype)[None, :])
        return prediction[0] if single else prediction

    def __repr__(self) -> str:
        shown = ", ".join(f"{weight:.6g}" for weight in self.weights[:10])
        more = f", … {len(self.weights)} classes" if len(self.weights) > 10 else ""
        return f"PredictionRule([{shown}{more}])"


def check_rule(
    rule: ArrayLike,
    classes: int,
    argument: str = "direct",
    names: Sequence[Name] | None = None,
) -> PredictionRule | None:
    """Return a caller's ``rule=`` as a rule for these classes, None for ``"argmax"``.

    ``argument`` is what has the classes, for messages; ``names`` are their names, if known.

    Examples
    --------
    >>> check_rule("argmax", 3)
    >>> check_rule([1, 19], 2)
    PredictionRule([0.25, 4.75])
    """
    if isinstance(rule, str) or rule is None:
        if rule == "argmax":
            return None
        raise InputError(
            "rule",
            f"is {rule!r}",
            'write rule="argmax", pass weights per class, or learn them with '
            'PreservingCalibrator(rule="learnt")',
        )
    try:
        checked = rule if isinstance(rule, PredictionRule) else PredictionRule(rule)
    except InputError as error:
        raise error.with_argument("rule") from None
    _check_length(checked, classes, argument)
    return checked.for_classes(names, argument)


def strictly_first(
    probabilities: Floats, prediction: npt.NDArray[np.integer], rule: PredictionRule | None
) -> Flags:
    """Return in which rows the prediction alone has the largest weight times probability.

    Both with the weights in float64 and with weights and products in the dtype of the rows.

    Examples
    --------
    >>> rows = np.array([[0.7, 0.3], [0.5, 0.5]])
    >>> strictly_first(rows, np.array([0, 0]), None)
    array([ True, False])
    >>> strictly_first(rows, np.array([0, 0]), PredictionRule([2, 1]))
    array([ True,  True])
    """
    products = [probabilities]
    if rule is not None:
        weights, narrow = rule.weights, rule.weights.astype(probabilities.dtype)
        products = [probabilities.astype(np.float64) * weights, probabilities * narrow]
    first = np.ones(len(probabilities), dtype=bool)
    for values in products:
        own = np.take_along_axis(values, prediction[:, None], axis=1)
        first &= (values >= own).sum(axis=1) == 1
    return first


def _check_length(rule: PredictionRule, classes: int, argument: str) -> None:
    if len(rule.weights) != classes:
        raise InputError(
            "rule",
            f"has {len(rule.weights)} weights but {argument} has {classes} classes",
            "pass one weight per class",
        )


def _named_weights(weights: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Return weights and the names of their classes, if they have any."""
    if isinstance(weights, Mapping):
        return list(weights.values()), tuple(map(str, weights))
    index: Any = getattr(weights, "index", None)  # of a pandas Series; a list has a method
    if hasattr(index, "dtype") and all(isinstance(key, str) for key in index):
        return weights.to_numpy(), tuple(index)
    return weights, None


def _as_floats(values: ArrayLike, argument: str) -> Vector:
    try:
        return np.asarray(arrays.to_numpy(values, argument), dtype=np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(argument, "is not numeric", "pass one number per class") from None


def _check_weights(weights: ArrayLike, argument: str) -> Vector:
    """Return positive finite numbers, one per class, whose ratios are small enough."""
    array = _as_floats(weights, argument)
    if array.ndim != 1 or len(array) < 2:
        raise InputError(
            argument, f"has shape {array.shape}", "pass one number per class, for two or more"
        )
    bad = np.flatnonzero(~(np.isfinite(array) & (array > 0.0)))
    if bad.size:
        raise InputError(
            argument,
            f"is {array[bad[0]]} for class {bad[0]}",
            "pass positive finite numbers, one per class",
        )
    return array


def _scaled(weights: Vector) -> Vector:
    """Return weights multiplied by a power of two, or ones; see `PredictionRule.weights`."""
    low, high = float(weights.min()), float(weights.max())
    # As a quotient by the largest: the ratio itself could overflow.
    if low / high < 1.0 / MAX_RATIO:
        raise InputError(
            "weights",
            f"has numbers from {low:g} to {high:g}",
            f"pass weights whose ratios are at most {MAX_RATIO:g}",
        )
    # Centred, the weights have full precision in float16 too, up to the largest ratio.
    middle = 0.5 * (np.log2(low) + np.log2(high))
    return np.ldexp(weights, -round(middle)) if low < high else np.ones_like(weights)
