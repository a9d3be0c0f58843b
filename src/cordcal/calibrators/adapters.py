"""Calibrators from elsewhere: objects, functions, modules, and ``module:Class``."""

from __future__ import annotations

import ast
import copy
import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.expressions import exp, subtract_max
from cordcal._numeric.types import Kind, Matrix
from cordcal._validation.estimator import Estimator
from cordcal._validation.probabilities import sum_tolerance
from cordcal._validation.scores import as_scores, original_probabilities
from cordcal.calibrators.confidence import with_confidence

# Libraries whose objects say fit and predict_proba but mean probabilities by scores.
_OF_PROBABILITIES = ("probmetrics", "netcal", "betacal", "splinecalib", "venn_abers")
# Names of the two methods, in the order in which they are looked for.
_PAIRS = (("fit", "predict_proba"), ("fit", "transform"), ("train_calibration", "calibrate"))
_HINT = (
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
        hint = f"pass an object of it, {calibrator.__name__}()"
        raise InputError(name, f"is the class {calibrator.__name__}", hint)
    if _sees_scores(calibrator):
        return calibrator
    if not (_is_module(calibrator) or _is_function(calibrator) or _methods(calibrator)):
        raise InputError(name, _lack(calibrator), _HINT)
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
            raise InputError(
                f"the report of {_called(self.calibrator)}",
                f"has shape {output.shape} but the scores have shape {given.shape}",
                "return one probability for each class, or one confidence for each row",
            )
        if classes == 2:
            return np.stack([1.0 - found, found], axis=1)
        original = original_probabilities(given, self.input)
        powers = exp(subtract_max(np.log(np.maximum(original, 1e-300)), np), np)
        return np.asarray(
            with_confidence(powers, given.argmax(axis=1), np.clip(found, 0.0, 1.0), np)
        )


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


_FORM = re.compile(r"(?P<module>[\w.]+):(?P<name>[\w.]+)(?P<call>\(.*\))?", re.DOTALL)


@dataclass(frozen=True)
class Imported:
    """A calibrator by the place of its class, or of a function, and its parameters.

    Attributes
    ----------
    path : str
        ``"module:Class"``, or ``"module:function"`` of ``(fit_scores, fit_labels, scores)``.
    params : mapping
        What the class is called with.
    """

    path: str
    params: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, argument: str = "calibrators") -> Imported:
        """Read ``module:Class`` or ``module:Class(C=10)``; nothing is imported yet.

        Examples
        --------
        >>> Imported.of("sklearn.linear_model:LogisticRegression(C=10)").params
        {'C': 10}
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise InputError(
                argument, f"is {text!r}", "write module:Class, or module:Class(C=10) with numbers"
            )
        path = f"{found['module']}:{found['name']}"
        return cls(path, _parameters(found["call"] or "()", text, argument))

    def make(self, argument: str = "calibrators") -> Any:
        """Import it and return the object; a function is returned as it is."""
        module, _, name = self.path.partition(":")
        found = _import(module, self.path, argument)
        for part in name.split("."):
            if not hasattr(found, part):
                raise InputError(
                    argument,
                    f"is {self.path!r}, but the module {module} has no {name}",
                    "check the name after the colon",
                )
            found = getattr(found, part)
        if not isinstance(found, type) and not self.params:
            return found
        try:
            return found(**self.params)
        except (TypeError, ValueError) as error:
            raise InputError(
                argument, f"is {self.path!r}, which cannot be made: {error}", "mend its parameters"
            ) from error


def is_path(text: str) -> bool:
    """Tell whether a calibrator's name is a place to import from; no key has a colon."""
    return ":" in text


def not_allowed(text: str, argument: str, switch: str) -> InputError:
    """Return the refusal of an import that was not asked for."""
    return InputError(
        argument,
        f"names {text!r}, and importing it runs its code",
        f"pass {switch} if you trust it",
    )


@contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    """Look for modules in a folder, too, after all other places and for this block alone.

    A console script does not look where it is started, as python -m does.
    """
    path = sys.path
    if folder in path:
        yield
        return
    path.append(folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the module may have tidied up itself
            path.remove(folder)


def _import(module: str, path: str, argument: str) -> Any:
    try:
        with _importing_from(os.getcwd()):
            return import_module(module)
    except Exception as error:  # what a module does when it is imported is its own affair
        raise InputError(
            argument,
            f"is {path!r}, but importing {module} fails ({type(error).__name__}: {error})",
            "install it, or start where it can be imported",
        ) from error


def _parameters(call: str, text: str, argument: str) -> dict[str, Any]:
    try:
        tree = ast.parse(f"f{call}", mode="eval").body
        assert isinstance(tree, ast.Call)
        assert not tree.args
        return {str(each.arg): ast.literal_eval(each.value) for each in tree.keywords}
    except (SyntaxError, ValueError, AssertionError):
        raise InputError(
            argument,
            f"is {text!r}, whose parameters cannot be read",
            "write them by name, with plain values: module:Class(C=10, tol=1e-4)",
        ) from None
