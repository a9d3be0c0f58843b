"""The keys of calibrators: list them, construct one, add your own, tabulate their facts."""

from __future__ import annotations

import difflib
import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from cordcal._errors import InputError
from cordcal.calibrators._base import Calibrator, Facts, FactTable

# The module and the class of each key, in the order of the documentation.
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
    "mono": ("monotone", "MonotoneMap"),
    "hts": ("entropy", "EntropyTemperature"),
    "tva-platt": ("confidence", "TopVersusAllPlatt"),
    "boost": ("boosting", "BoostedTemperature"),
    "blend": ("blend", "Blend"),
    "boosted-blend": ("boosting", "BoostedBlend"),
}

# Calibrators of other distributions: only their names are known here.  The package of one is
# imported when such a key is asked for; nothing is searched for code to run.
DISTRIBUTIONS = dict.fromkeys(
    (
        "venn-abers", "spline", "ts-class", "pb", "tva-beta", "tva-isotonic", "tva-histogram",
        "top-label", "cdf-spline", "mcct-i", "pts", "smart", "diag", "adats",
    ),
    "cordcal-study",
)  # fmt: skip

# What scikit-learn and papers call some of them; everything else shows the key.
_ALIASES = {
    "temperature": "ts",
    "vector": "vs",
    "matrix": "ms",
    "dirichlet": "dir-odir",
    "isotonic": "irova",
    "sigmoid": "platt",
}
# Words that say no more than that it is a calibrator: "vector scaling" is "vector".
_FILLERS = re.compile("scaling|calibration|calibrator|regression|[^a-z0-9]")

# Classes added by `register`.
_REGISTERED: dict[str, type[Calibrator]] = {}
# Classes imported so far: torch traces a blend, and no import may happen while it does.
_LOADED: dict[str, type[Calibrator]] = {}

# Class attributes that a calibrator must set; the others have defaults.
_REQUIRED_FACTS = (
    "key", "title", "short", "size", "works_on", "role",
    "keeps_argmax", "keeps_order", "takes_masked", "cost", "reference",
)  # fmt: skip

C = TypeVar("C", bound=Calibrator)

# The domains as tables show them; a shift of a row's logits does not affect "shifted" maps.
_DOMAIN_LABELS = {
    "logits": "raw logits",
    "shifted": "logits",
    "log-probabilities": "log-probabilities",
    "probabilities": "probabilities",
}


def available() -> tuple[str, ...]:
    """Return the keys of cordcal's calibrators, then those that were registered.

    The keys of `cordcal-study` are not listed; with it installed they work like these.

    Examples
    --------
    >>> "ts" in available()
    True
    """
    return (*_CLASSES, *_REGISTERED)


def default_keys() -> tuple[str, ...]:
    """Return the keys that a comparison runs by default, which need no extra.

    Examples
    --------
    >>> [key in default_keys() for key in ("blend", "boost")]
    [True, False]
    """
    return tuple(key for key in available() if calibrator_class(key).extra is None)


def register(calibrator: type[C]) -> type[C]:
    """Add your own calibrator: its key then works wherever a key does.

    Parameters
    ----------
    calibrator : type
        A class that derives from `Calibrator` and sets its class attributes.

    Returns
    -------
    calibrator : type
        The same class, so that `register` works as a decorator.

    Examples
    --------
    >>> from cordcal.calibrators.temperature import TemperatureScaling
    >>> @register
    ... class Untempered(TemperatureScaling):
    ...     key, title, short = "none", "No temperature", "None"
    ...     def fit_parameters(self, scores, labels, weight):
    ...         self.temperature_ = 1.0
    >>> make("none").fit([[2.0, 0.0], [0.0, 1.0]], [0, 1]).predict_proba([[0.0, 0.0]])
    array([[0.5, 0.5]])
    >>> unregister("none")
    """
    if not (isinstance(calibrator, type) and issubclass(calibrator, Calibrator)):
        raise InputError(
            "calibrator",
            f"is {calibrator!r}, not a calibrator class",
            "derive from cordcal.calibrators.Calibrator",
        )
    missing = [name for name in _REQUIRED_FACTS if not hasattr(calibrator, name)]
    if missing:
        raise InputError(
            "calibrator",
            f"{calibrator.__name__} does not set {missing[0]}",
            f"set these class attributes: {', '.join(missing)}",
        )
    if calibrator.key in (*available(), *DISTRIBUTIONS):
        raise InputError(
            "calibrator",
            f"{calibrator.__name__} has the key {calibrator.key!r}, which is taken",
            "choose another key, or unregister the calibrator that has it",
        )
    _REGISTERED[calibrator.key] = calibrator
    return calibrator


def unregister(key: str) -> None:
    """Remove a calibrator that `register` added."""
    if key not in _REGISTERED:
        raise InputError(
            "key", f"{key!r} was not registered", "pass the key of a registered calibrator"
        )
    del _REGISTERED[key]


def registered() -> tuple[type[Calibrator], ...]:
    """Return the registered classes, which worker processes must register again."""
    return tuple(_REGISTERED.values())


def canonical_key(key: str) -> str:
    """Return the key of a calibrator, for a key or an alias such as ``"temperature"``.

    Examples
    --------
    >>> canonical_key("isotonic"), canonical_key("ts")
    ('irova', 'ts')
    """
    keys = available()
    if key in keys or key in DISTRIBUTIONS:
        return key
    if key in _ALIASES:
        return _ALIASES[key]
    similar = _most_similar(str(key))
    hint = f"did you mean {similar!r}? There are" if similar else "choose one of"
    raise InputError("calibrator", f"{key!r} is not known", f"{hint} {', '.join(keys)}")


def _most_similar(text: str) -> str | None:
    """Return the key or alias that a misspelt one most likely means; None if none is similar.

    Examples
    --------
    >>> [_most_similar(text) for text in ("TemperatureScaling", "isotonik", "Vector", "irov")]
    ['temperature', 'isotonic', 'vector', 'irova']
    >>> _most_similar("xyz")
    """
    known_as = {key: alias for alias, key in _ALIASES.items()}
    classes = {_FILLERS.sub("", cls.lower()): key for key, (_, cls) in _CLASSES.items()}
    names = {name: known_as.get(key, key) for name, key in classes.items()}
    names |= {alias: alias for alias in _ALIASES}
    names |= {_FILLERS.sub("", key): key for key in (*DISTRIBUTIONS, *available())}
    query = _FILLERS.sub("", text.lower())
    if query in names:
        return names[query]
    for name, key in names.items():  # a part of a name, or more than a name
        if min(len(name), len(query)) > 2 and (name.startswith(query) or query.startswith(name)):
            return key
    close = difflib.get_close_matches(query, names, n=1, cutoff=0.76)
    return names[close[0]] if close else None


def calibrator_class(key: str) -> type[Calibrator]:
    """Return the class of a key or an alias."""
    for classes in (_REGISTERED, _LOADED):
        if key in classes:
            return classes[key]
    key = canonical_key(key)
    if key in _REGISTERED:
        return _REGISTERED[key]
    package, classes_of = "cordcal.calibrators", _CLASSES
    if key in DISTRIBUTIONS:
        package = _import_package(key)
        classes_of = import_module(package).CLASSES
    module, name = classes_of[key]
    calibrator: type[Calibrator] = getattr(import_module(f"{package}.{module}"), name)
    _LOADED[key] = calibrator
    return calibrator


def _import_package(key: str) -> str:
    """Import the calibrators of the distribution that has a key; return their package."""
    distribution = DISTRIBUTIONS[key]
    name = distribution.replace("-", "_")
    if find_spec(name) is None:
        raise InputError(
            "calibrator",
            f"{key!r} is in {distribution}, which is not installed",
            f"run pip install {distribution}",
        )
    return f"{name}.calibrators"


def make(key: str, **params: Any) -> Calibrator:
    """Construct an unfitted calibrator.

    Parameters
    ----------
    key : str
        One of `available`, or an alias: ``"temperature"``, ``"vector"``, ``"matrix"``,
        ``"dirichlet"``, ``"isotonic"`` or ``"sigmoid"``.
    **params
        Constructor parameters, such as ``input="probabilities"``.

    Examples
    --------
    >>> make("ts", input="probabilities")
    TemperatureScaling(input='probabilities')
    """
    cls = calibrator_class(key)
    names = cls._get_param_names()
    unknown = sorted(set(params) - set(names))
    if unknown:
        raise InputError(
            f"calibrator {key!r}", f"has no parameter {unknown[0]!r}", f"it has {', '.join(names)}"
        )
    return cls(**params)


def describe() -> FactTable:
    """Return a table of all calibrators: what they preserve, accept and cost.

    Examples
    --------
    >>> [facts.key for facts in describe() if facts.keeps_argmax][:1]
    ['ts']
    """
    return FactTable(_facts_of(calibrator_class(key)) for key in available())


def _facts_of(calibrator: type[Calibrator]) -> Facts:
    names = [name for name in Facts.__dataclass_fields__ if name in _REQUIRED_FACTS]
    facts = {name: getattr(calibrator, name) for name in names}
    facts["works_on"] = _DOMAIN_LABELS[calibrator.works_on]
    return Facts(parameters=str(calibrator.size), **facts)
