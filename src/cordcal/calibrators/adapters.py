"""What replaces a calibrator: objects of other libraries, functions, ready probabilities.

Objects include torch modules.
"""

from __future__ import annotations

import copy
import inspect
import sys
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import ArrayLike, Floats, Kind, Matrix, NumPyArray, Vector
from cordcal._validation.estimator import Estimator
from cordcal._validation.scores import (
    CheckedScores,
    as_matrix,
    as_scores,
    check_same_shape,
    original_probabilities,
    sum_tolerance,
)
from cordcal.calibrators._base import Calibrator
from cordcal.calibrators.confidence import with_confidence
from cordcal.expressions import exp, subtract_max

# Libraries whose fit and predict_proba expect probabilities, not scores.
_EXPECT_PROBABILITIES = ("probmetrics", "netcal", "betacal", "splinecalib", "venn_abers")
# Names of the fit and the predict method, in order of preference.
_METHOD_PAIRS = (("fit", "predict_proba"), ("fit", "transform"), ("train_calibration", "calibrate"))
_HINT = (
    "pass an object with fit and predict_proba, with fit and transform, or with "
    "train_calibration and calibrate; a function of (fit_scores, fit_labels, scores); a torch "
    "module; or a key such as 'svs'"
)


def adapted(calibrator: Any, input: Kind, name: str = "calibrator") -> Any:
    """Return an object with ``fit`` and ``predict_proba``; raise if it cannot be adapted.

    Parameters
    ----------
    calibrator : object
        An object with ``fit`` and ``predict_proba``, ``fit`` and ``transform``, or
        ``train_calibration`` and ``calibrate``; a function of (fit_scores, fit_labels, scores);
        or a torch module.
    input : {"logits", "probabilities"}
        The kind of the scores.
    name : str
        The argument's name, for messages.

    Examples
    --------
    >>> def softened(fit_scores, fit_labels, scores):
    ...     return 0.9 * scores + 0.1 / scores.shape[1]
    >>> model = adapted(softened, "probabilities").fit(np.eye(2), [0, 1])
    >>> model.predict_proba(np.array([[1.0, 0.0]]))
    array([[0.95, 0.05]])
    """
    if inspect.isclass(calibrator):
        hint = f"pass an instance, {calibrator.__name__}()"
        raise InputError(name, f"is the class {calibrator.__name__}", hint)
    if _accepts_scores(calibrator):
        return calibrator
    if not (_is_module(calibrator) or _is_function(calibrator) or _methods(calibrator)):
        raise InputError(name, _describe_problem(calibrator), _HINT)
    return Adapted(calibrator, input=input)


class Adapted(Estimator):
    """Another library's calibrator, with ``fit(scores, labels)`` and ``predict_proba(scores)``."""

    n_classes_: int
    _fit_rows: tuple[npt.NDArray[Any], Any] | None  # for a function, which is fitted at prediction

    def __init__(self, calibrator: Any, *, input: Kind = "logits") -> None:
        self.calibrator = calibrator
        self.input = input

    def __sklearn_clone__(self) -> Self:
        # scikit-learn's clone needs constructors that only store; not every library has them.
        return type(self)(copy.deepcopy(self.calibrator), input=self.input)

    def fit(self, scores: Any, labels: Any, **fit_params: Any) -> Self:
        """Fit on calibration rows; for a function, store them."""
        raw = as_scores(scores)
        if not (_is_function(self.calibrator) or _is_module(self.calibrator)):
            fit = getattr(self.calibrator, _methods(self.calibrator)[0])
            fit(original_probabilities(raw, self.input), np.asarray(labels), **fit_params)
        rows = (raw, labels) if _is_function(self.calibrator) else None
        self.__dict__.update(n_classes_=raw.shape[1], _fit_rows=rows)
        return self

    def predict_proba(self, scores: Any) -> Matrix:
        """Return its output as probabilities of all classes."""
        raw = as_scores(scores)
        return self._as_probabilities(self._output(raw), raw)

    def _output(self, raw: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if _is_function(self.calibrator):
            assert self._fit_rows is not None
            fit_scores, fit_labels = self._fit_rows
            return np.asarray(self.calibrator(fit_scores, fit_labels, raw))
        if _is_module(self.calibrator):
            return _forward(self.calibrator, raw)
        predict = getattr(self.calibrator, _methods(self.calibrator)[1])
        return np.asarray(predict(original_probabilities(raw, self.input)))

    def _as_probabilities(self, output: npt.NDArray[Any], raw: npt.NDArray[Any]) -> Matrix:
        """Normalise one-versus-rest rows, or extend one confidence per row to all classes."""
        rows, classes = raw.shape
        values = output.astype(np.float64)
        if values.shape == (rows, classes):
            # A library that calibrates class by class need not return rows that sum to one.
            is_object = not (_is_function(self.calibrator) or _is_module(self.calibrator))
            total = values.sum(axis=1, keepdims=True)
            return values / total if is_object and (values >= 0.0).all() and total.all() else values
        values = values.reshape(-1) if values.size == rows else values
        if values.shape != (rows,):
            name = getattr(self.calibrator, "__name__", type(self.calibrator).__name__)
            raise InputError(
                f"the output of {name}",
                f"has shape {output.shape} but the scores have shape {raw.shape}",
                "return one probability per class, or one confidence per row",
            )
        if classes == 2:
            return np.stack([1.0 - values, values], axis=1)
        original = original_probabilities(raw, self.input)
        powers = exp(subtract_max(np.log(np.maximum(original, 1e-300)), np), np)
        return np.asarray(
            with_confidence(powers, raw.argmax(axis=1), np.clip(values, 0.0, 1.0), np)
        )


def _methods(calibrator: Any) -> tuple[str, ...]:
    """Return the names of its fit and predict methods; empty if it has none of the pairs."""
    for pair in _METHOD_PAIRS:
        if all(callable(getattr(calibrator, name, None)) for name in pair):
            return pair
    return ()


def _accepts_scores(calibrator: Any) -> bool:
    """Return whether it has ``fit`` and ``predict_proba`` and takes scores unconverted."""
    library = type(calibrator).__module__.split(".")[0]
    return _methods(calibrator) == _METHOD_PAIRS[0] and library not in _EXPECT_PROBABILITIES


def _is_function(calibrator: Any) -> bool:
    """Return whether it can be called with three arguments and has no methods to fit."""
    if _methods(calibrator) or not callable(calibrator) or _is_module(calibrator):
        return False
    try:
        inspect.signature(calibrator).bind(0, 0, 0)
    except TypeError:
        return False
    return True


def _is_module(calibrator: Any) -> bool:
    """Return whether it is a torch module; without torch loaded there is none."""
    # Another thread may be importing torch: then it has no nn yet.
    networks: Any = getattr(sys.modules.get("torch"), "nn", None)
    return hasattr(networks, "Module") and isinstance(calibrator, networks.Module)


def _forward(module: Any, raw: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the module's probabilities; output that is not distributions counts as logits."""
    torch = sys.modules["torch"]  # loaded, since the module exists
    dtype = next((weight.dtype for weight in module.parameters()), torch.float64)
    with torch.no_grad():
        output = module(torch.tensor(raw, dtype=dtype)).double().numpy()
    sums = np.abs(output.sum(axis=-1) - 1.0)
    if (output >= 0.0).all() and (sums <= sum_tolerance(np.dtype(np.float32))).all():
        return np.asarray(output)
    powers = np.exp(output - output.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _describe_problem(calibrator: Any) -> str:
    """Return why an object cannot serve as a calibrator."""
    kind = f"is a {type(calibrator).__name__}"
    if callable(calibrator) and not _methods(calibrator):
        return f"{kind} that cannot be called with (fit_scores, fit_labels, scores)"
    for fit, predict in _METHOD_PAIRS:
        if hasattr(calibrator, fit) and not hasattr(calibrator, predict):
            return f"{kind} with {fit} but without {predict}"
    return f"{kind}, which has neither fit nor predict_proba"


@dataclass(frozen=True, eq=False)
class PrecomputedProbabilities:
    """The direct probabilities of a calibrator that ran elsewhere, for `compare`.

    Parameters
    ----------
    direct_calibration : array_like of shape (n, K)
        Its probabilities for the calibration rows, in their order.
    direct_evaluation : array_like of shape (m, K)
        Its probabilities for the evaluation rows; pass these rows to `compare` as
        ``evaluation=(scores, labels)``.

    Examples
    --------
    >>> import numpy as np
    >>> import cordcal
    >>> p = np.tile([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.1, 0.9]], (50, 1))
    >>> labels = np.tile([0, 1, 1, 1], 50)
    >>> mine = PrecomputedProbabilities(p, p)
    >>> result = cordcal.compare(p, labels, {"mine": mine}, input="probabilities",
    ...                          evaluation=(p, labels))
    >>> result["mine"].repaired["accuracy"]
    0.75
    """

    direct_calibration: ArrayLike
    direct_evaluation: ArrayLike

    def between(
        self, fit_scores: Floats, scores: Floats
    ) -> tuple[FixedProbabilities, FixedProbabilities]:
        """Return a calibrator for each of the two sets of rows, after checking the shapes.

        There are two because the same scores may have other probabilities in the other set.
        """
        pairs = (
            ("direct_calibration", self.direct_calibration, fit_scores),
            ("direct_evaluation", self.direct_evaluation, scores),
        )
        for name, probabilities, rows in pairs:
            if np.shape(probabilities) != rows.shape:
                raise InputError(
                    name,
                    f"has shape {np.shape(probabilities)} but its scores have shape {rows.shape}",
                    "pass the probabilities of these rows, in their order",
                )
        calibration, evaluation = (np.asarray(array) for _, array, _ in pairs)
        return FixedProbabilities(calibration), FixedProbabilities(evaluation)


class FixedProbabilities:
    """A calibrator that returns the probabilities of one set of rows."""

    def __init__(self, probabilities: NumPyArray) -> None:
        self.probabilities = probabilities

    def fit(self, scores: ArrayLike, labels: ArrayLike) -> Self:
        """Do nothing: the probabilities exist."""
        return self

    def predict_proba(self, scores: ArrayLike) -> NumPyArray:
        """Return the probabilities, whose rows are those of the scores."""
        return self.probabilities


def fit_calibrator(
    calibrator: Any, original: CheckedScores, labels: Any, weight: Vector | None
) -> Any:
    """Fit a calibrator on validated rows; another library's object receives the raw scores."""
    if isinstance(calibrator, Calibrator):
        return calibrator.fit_checked(original, labels, weight)
    # The methods of other libraries may have no parameter for weights.
    optional = {} if weight is None else {"sample_weight": weight}
    return calibrator.fit(original.raw, labels, **optional)


def predict_calibrated(calibrator: Any, original: CheckedScores) -> npt.NDArray[Any]:
    """Return a fitted calibrator's direct probabilities of validated rows."""
    if isinstance(calibrator, Calibrator):
        return calibrator.predict_checked(original)
    output = calibrator.predict_proba(original.raw)
    direct = np.asarray(as_matrix(np.asarray(output), "direct"))
    check_same_shape(original.raw, "scores", direct, "direct")
    return direct
