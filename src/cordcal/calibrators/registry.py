"""The short keys: which calibrators there are, how to make one, and a table of their facts."""

from __future__ import annotations

import difflib
import inspect
from importlib import import_module
from typing import Any, TypeVar

from cordcal._errors import InputError
from cordcal.calibrators._base import Calibrator, Facts, FactTable, Role

# Each key, its class and the file of its family, in the order of the documentation.
_CLASSES: dict[str, tuple[str, str]] = {
    "ts": ("temperature", "TemperatureScaling"),
    "ts-tva": ("temperature", "TopVersusAllTemperature"),
    "ets": ("ensemble", "EnsembleTemperature"),
    "vs": ("affine", "VectorScaling"),
    "svs": ("affine", "StructuredVectorScaling"),
    "ms": ("affine", "MatrixScaling"),
    "sms": ("affine", "StructuredMatrixScaling"),
    "dir-odir": ("affine", "DirichletODIR"),
    "irova": ("isotonic", "IsotonicOneVsAll"),
    "irova-ts": ("isotonic", "IsotonicOneVsAllTempered"),
    "irm": ("isotonic", "IsotonicPooled"),
    "platt": ("sigmoid", "PlattScaling"),
    "beta": ("sigmoid", "BetaCalibration"),
    "cir": ("isotonic", "CentredIsotonic"),
    "venn-abers": ("isotonic", "VennAbers"),
    "spline": ("spline", "SplineOneVsRest"),
    "mono": ("monotone", "MonotoneMap"),
    "ts-class": ("classwise", "ClasswiseTemperature"),
    "hts": ("entropy", "EntropyTemperature"),
    "pb": ("bounded", "ProbabilityBounding"),
    "tva-platt": ("confidence", "TopVersusAllPlatt"),
    "tva-beta": ("confidence", "TopVersusAllBeta"),
    "tva-isotonic": ("confidence", "TopVersusAllIsotonic"),
    "tva-histogram": ("confidence", "TopVersusAllHistogram"),
    "top-label": ("confidence", "TopLabelHistogram"),
    "cdf-spline": ("confidence", "CumulativeSpline"),
    "mcct-i": ("rankwise", "RankwiseTransformation"),
    "pts": ("networks", "ParametrizedTemperature"),
    "smart": ("networks", "MarginTemperature"),
    "diag": ("networks", "DiagonalNetwork"),
    "adats": ("adaptive", "AdaptiveTemperature"),
    "blend": ("blend", "Blend"),
}

# Those that were added while the program runs.
_REGISTERED: dict[str, type[Calibrator]] = {}
# Classes that were imported already: what traces a blend must not import.
_LOADED: dict[str, type[Calibrator]] = {}

# What a class must say about itself; the rest has defaults.
_STATED = (
    "key", "title", "short", "size", "works_on", "role",
    "keeps_argmax", "keeps_order", "takes_masked", "cost", "reference",
)  # fmt: skip

C = TypeVar("C", bound=Calibrator)

# The domains in a reader's words; a map of shifted logits does not see a row's shift.
_WORKS_ON = {
    "logits": "raw logits",
    "shifted": "logits",
    "log-probabilities": "log-probabilities",
    "probabilities": "probabilities",
}


def available() -> tuple[str, ...]:
    """Return the keys of all calibrators.

    Examples
    --------
    >>> "ts" in available()
    True
    """
    return (*_CLASSES, *_REGISTERED)


def register(calibrator: type[C]) -> type[C]:
    """Add a calibrator of one's own: its key then works wherever a key does.

    Parameters
    ----------
    calibrator : type
        A class that derives from `Calibrator` and states its facts.

    Returns
    -------
    calibrator : type
        The same class, so that this serves as a decorator.

    Examples
    --------
    >>> from cordcal.calibrators.temperature import TemperatureScaling
    >>> @register
    ... class Untempered(TemperatureScaling):
    ...     key, title, short = "none", "No temperature", "None"
    ...     def _fit(self, scores, labels, weight):
    ...         self.temperature_ = 1.0
    >>> make("none").fit([[2.0, 0.0], [0.0, 1.0]], [0, 1]).predict_proba([[0.0, 0.0]])
    array([[0.5, 0.5]])
    >>> unregister("none")
    """
    if not (isinstance(calibrator, type) and issubclass(calibrator, Calibrator)):
        raise InputError(
            "calibrator",
            f"is {calibrator!r}, not a class of calibrators",
            "derive from cordcal.calibrators.Calibrator",
        )
    missing = [name for name in _STATED if not hasattr(calibrator, name)]
    if missing:
        raise InputError(
            "calibrator",
            f"{calibrator.__name__} does not state its {missing[0]}",
            f"set these class attributes: {', '.join(missing)}",
        )
    if calibrator.key in available():
        raise InputError(
            "calibrator",
            f"{calibrator.__name__} has the key {calibrator.key!r}, which is taken",
            "choose another key, or unregister the calibrator that has it",
        )
    _REGISTERED[calibrator.key] = calibrator
    return calibrator


def unregister(key: str) -> None:
    """Forget a calibrator that `register` added."""
    if key not in _REGISTERED:
        raise InputError("key", f"{key!r} was not registered", "pass a key given to register")
    del _REGISTERED[key]


def registered() -> tuple[type[Calibrator], ...]:
    """Return the classes that were added, for processes that start without them."""
    return tuple(_REGISTERED.values())


def calibrator_class(key: str) -> type[Calibrator]:
    """Return the class behind a key."""
    for known in (_REGISTERED, _LOADED):
        if key in known:
            return known[key]
    keys = available()
    if key not in keys:
        near = difflib.get_close_matches(str(key).lower(), keys, n=1)
        hint = f"did you mean {near[0]!r}? There are" if near else "choose one of"
        raise InputError("calibrator", f"{key!r} is not known", f"{hint} {', '.join(keys)}")
    module, name = _CLASSES[key]
    found: type[Calibrator] = getattr(import_module(f"cordcal.calibrators.{module}"), name)
    _LOADED[key] = found
    return found


def of_role(role: Role) -> tuple[str, ...]:
    """Return the keys of all bases, or of all rivals.

    Examples
    --------
    >>> "ts" in of_role("rival"), "ts" in of_role("base")
    (True, False)
    """
    return tuple(key for key in available() if calibrator_class(key).role == role)


def short_name(key: str) -> str:
    """Return a calibrator's name in narrow tables; a foreign one's is its key."""
    return calibrator_class(key).short if key in available() else key


def takes_features(calibrator: Any) -> bool:
    """Tell whether a calibrator, or the one behind a key, is fitted on features as well.

    Cordcal's own say so; a foreign object tells by what its ``fit`` accepts.

    Examples
    --------
    >>> takes_features("ts"), takes_features("adats")
    (False, True)
    """
    found = calibrator_class(calibrator) if isinstance(calibrator, str) else type(calibrator)
    if issubclass(found, Calibrator):
        return found.needs_features
    return "features" in inspect.signature(found.fit).parameters


def is_network(key: str) -> bool:
    """Tell whether a calibrator is a network, which takes minutes to fit.

    Examples
    --------
    >>> is_network("ts"), is_network("adats")
    (False, True)
    """
    return "network" in calibrator_class(key).size.uncounted


def make(key: str, **params: Any) -> Calibrator:
    """Return a new, unfitted calibrator.

    Parameters
    ----------
    key : str
        One of `available`.
    **params
        The calibrator's own parameters, such as ``input="probabilities"``.

    Examples
    --------
    >>> make("ts", input="probabilities")
    TemperatureScaling(input='probabilities')
    """
    found = calibrator_class(key)
    known = found._get_param_names()
    unknown = sorted(set(params) - set(known))
    if unknown:
        raise InputError(
            f"calibrator {key!r}", f"has no parameter {unknown[0]!r}", f"it has {', '.join(known)}"
        )
    return found(**params)


def describe() -> FactTable:
    """Return a table of facts: what each calibrator keeps, takes and costs.

    Examples
    --------
    >>> [facts.key for facts in describe() if facts.keeps_argmax][:1]
    ['ts']
    """
    return FactTable(_facts_of(calibrator_class(key)) for key in available())


def _facts_of(calibrator: type[Calibrator]) -> Facts:
    facts = {
        name: getattr(calibrator, name) for name in Facts.__dataclass_fields__ if name in _STATED
    }
    facts["works_on"] = _WORKS_ON[calibrator.works_on]
    return Facts(parameters=str(calibrator.size), **facts)
