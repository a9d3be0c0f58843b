"""Calibrators of other libraries, functions and modules, behind one pair of methods.

| what is given | is fitted by | reports by | sees |
|---|---|---|---|
| scikit-learn's and cordcal's kind | ``fit`` | ``predict_proba`` | the scores as given |
| probmetrics | ``fit`` | ``predict_proba`` | probabilities |
| netcal's kind | ``fit`` | ``transform`` | probabilities |
| verified_calibration's kind | ``train_calibration`` | ``calibrate`` | probabilities |
| a torch module | nothing | ``forward`` | the scores as given |
| a function | nothing | ``f(fit_scores, fit_labels, scores)`` | the scores as given |
"""

from __future__ import annotations

import copy
import inspect
import sys
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal
from cordcal._door.estimator import Estimator
from cordcal._door.expressions import exp, less_top
from cordcal._door.reports import sum_tolerance
from cordcal._door.scores import as_scores, original_probabilities
from cordcal._door.types import Kind, Matrix
from cordcal.calibrators.confidence import lifted

# Libraries whose objects say fit and predict_proba but mean probabilities by scores.
_OF_PROBABILITIES = ("probmetrics", "netcal", "betacal", "splinecalib", "venn_abers")
# Names of the two methods, in the order in which they are looked for.
_PAIRS = (("fit", "predict_proba"), ("fit", "transform"), ("train_calibration", "calibrate"))
_REMEDY = (
    "pass an object with fit and predict_proba, with fit and transform, or with "
    "train_calibration and calibrate; a function of (fit_scores, fit_labels, scores); a torch "
    "module; or a key such as 'svs'"
)


def adapted(calibrator: Any, input: Kind, name: str = "calibrator") -> Any:
    """Return an object with ``fit`` and ``predict_proba``; refuse what cannot become one.

    Parameters
    ----------
    calibrator : object
        Anything of the table above.
    input : {"logits", "probabilities"}
        What the scores will be.
    name : str
        What a refusal calls it.

    Examples
    --------
    >>> def softened(fit_scores, fit_labels, scores):
    ...     return 0.9 * scores + 0.1 / scores.shape[1]
    >>> model = adapted(softened, "probabilities").fit(np.eye(2), [0, 1])
    >>> model.predict_proba(np.array([[1.0, 0.0]]))
    array([[0.95, 0.05]])
    """
    if inspect.isclass(calibrator):
        remedy = f"pass an object of it, {calibrator.__name__}()"
        raise Refusal(name, f"is the class {calibrator.__name__}", remedy)
    if _sees_scores(calibrator):
        return calibrator
    if not (_is_module(calibrator) or _is_function(calibrator) or _methods(calibrator)):
        raise Refusal(name, _lack(calibrator), _REMEDY)
    return Adapted(calibrator, input=input)


class Adapted(Estimator):
    """A foreign calibrator with ``fit(scores, labels)`` and ``predict_proba(scores)``."""

    n_classes_: int
    _rows: Any  # of a function

    def __init__(self, calibrator: Any, *, input: Kind = "logits") -> None:
        self.calibrator = calibrator
        self.input = input

    def __sklearn_clone__(self) -> Self:
        # Not every library's constructor only stores, as scikit-learn's own cloning asks.
        return type(self)(copy.deepcopy(self.calibrator), input=self.input)

    def fit(self, scores: Any, labels: Any, **beside: Any) -> Self:
        """Fit it on calibration rows, or keep them for a function."""
        given = as_scores(scores)
        if not (_is_function(self.calibrator) or _is_module(self.calibrator)):
            fit = getattr(self.calibrator, _methods(self.calibrator)[0])
            fit(original_probabilities(given, self.input), np.asarray(labels), **beside)
        kept = (given, labels) if _is_function(self.calibrator) else None
        self.__dict__.update(n_classes_=given.shape[1], _rows=kept)
        return self

    def predict_proba(self, scores: Any) -> Matrix:
        """Return its report as probabilities of all classes."""
        given = as_scores(scores)
        return self._as_report(self._output(given), given)

    def _output(self, given: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if _is_function(self.calibrator):
            fit_scores, fit_labels = self._rows
            return np.asarray(self.calibrator(fit_scores, fit_labels, given))
        if _is_module(self.calibrator):
            return _forward(self.calibrator, given)
        report = getattr(self.calibrator, _methods(self.calibrator)[1])
        return np.asarray(report(original_probabilities(given, self.input)))

    def _as_report(self, output: npt.NDArray[Any], given: npt.NDArray[Any]) -> Matrix:
        """Return probabilities: a lone confidence is lifted, one-versus-rest rows are divided."""
        rows, classes = given.shape
        found = output.astype(np.float64)
        if found.shape == (rows, classes):
            # What a library calibrates class by class need not sum to one.
            foreign = not (_is_function(self.calibrator) or _is_module(self.calibrator))
            total = found.sum(axis=1, keepdims=True)
            return found / total if foreign and (found >= 0.0).all() and total.all() else found
        found = found.reshape(-1) if found.size == rows else found
        if found.shape != (rows,):
            raise Refusal(
                f"the report of {_called(self.calibrator)}",
                f"has shape {output.shape} but the scores have shape {given.shape}",
                "return one probability for each class, or one confidence for each row",
            )
        if classes == 2:
            return np.stack([1.0 - found, found], axis=1)
        original = original_probabilities(given, self.input)
        powers = exp(less_top(np.log(np.maximum(original, 1e-300)), np), np)
        return np.asarray(lifted(powers, given.argmax(axis=1), np.clip(found, 0.0, 1.0), np))


def _methods(calibrator: Any) -> tuple[str, ...]:
    """Return the names of the pair of methods that it has."""
    for pair in _PAIRS:
        if all(callable(getattr(calibrator, name, None)) for name in pair):
            return pair
    return ()


def _sees_scores(calibrator: Any) -> bool:
    """Tell whether it has the methods already, and takes the scores as they are."""
    library = type(calibrator).__module__.split(".")[0]
    return _methods(calibrator) == _PAIRS[0] and library not in _OF_PROBABILITIES


def _is_function(calibrator: Any) -> bool:
    """Tell whether it can be called with the three arguments, and has no methods to fit."""
    if _methods(calibrator) or not callable(calibrator) or _is_module(calibrator):
        return False
    try:
        inspect.signature(calibrator).bind(0, 0, 0)
    except TypeError:
        return False
    return True


def _is_module(calibrator: Any) -> bool:
    """Tell whether it is a torch module; where torch is not loaded there is none."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(calibrator, torch.nn.Module)


def _forward(module: Any, given: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the module's probabilities; what is not distributions is taken for logits."""
    torch = sys.modules["torch"]  # whoever has a module has loaded it
    dtype = next((each.dtype for each in module.parameters()), torch.float64)
    with torch.no_grad():
        output = module(torch.tensor(given, dtype=dtype)).double().numpy()
    sums = np.abs(output.sum(axis=-1) - 1.0)
    if (output >= 0.0).all() and (sums <= sum_tolerance(np.dtype(np.float32))).all():
        return np.asarray(output)
    powers = np.exp(output - output.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _called(calibrator: Any) -> str:
    return getattr(calibrator, "__name__", type(calibrator).__name__)


def _lack(calibrator: Any) -> str:
    """Say what keeps an object from being a calibrator."""
    kind = f"is a {type(calibrator).__name__}"
    if callable(calibrator) and not _methods(calibrator):
        return f"{kind} that cannot be called with (fit_scores, fit_labels, scores)"
    for fit, report in _PAIRS:
        if hasattr(calibrator, fit) and not hasattr(calibrator, report):
            return f"{kind} with {fit} but without {report}"
    return f"{kind}, which has neither fit nor predict_proba"
