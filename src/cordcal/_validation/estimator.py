"""The scikit-learn estimator API without importing scikit-learn; notebook diagrams; seeds."""

from __future__ import annotations

import inspect
import operator
import weakref
from collections.abc import Sequence
from html import escape
from typing import Any, Self, SupportsIndex

import numpy as np

from cordcal._errors import InputError


class Estimator:
    """An object whose constructor only stores its keyword parameters.

    Examples
    --------
    >>> class Shift(Estimator):
    ...     def __init__(self, *, by=1.0):
    ...         self.by = by
    >>> Shift(by=2.0), Shift().set_params(by=3.0).get_params()
    (Shift(by=2.0), {'by': 3.0})
    """

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(_defaults(cls))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool
            Include the parameters of inner estimators, as ``name__inner``.

        Returns
        -------
        params : dict
            The values passed to the constructor.
        """
        params = {name: getattr(self, name) for name in self._get_param_names()}
        if deep:
            for name, value in list(params.items()):
                if hasattr(value, "get_params") and not isinstance(value, type):
                    inner = value.get_params()
                    params |= {f"{name}__{key}": parameter for key, parameter in inner.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of an inner estimator as ``name__inner``.

        Parameters
        ----------
        **params
            New values.

        Returns
        -------
        self
            The same object.
        """
        known = self._get_param_names()
        inner: dict[str, dict[str, Any]] = {}
        for path, value in params.items():
            name, separator, inner_name = path.partition("__")
            if name not in known:
                raise ValueError(
                    f"{name} is not a parameter of {type(self).__name__}; it has: "
                    f"{', '.join(known) or 'none'}"
                )
            if separator:
                inner.setdefault(name, {})[inner_name] = value
            else:
                setattr(self, name, value)
        for name, values in inner.items():
            getattr(self, name).set_params(**values)
        return self

    def __repr__(self) -> str:
        defaults, params = _defaults(type(self)), self.get_params(deep=False)
        changed = [
            f"{name}={value!r}"
            for name, value in params.items()
            if repr(value) != repr(defaults[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _repr_html_(self) -> str:
        """Return the diagram shown in notebooks."""
        record = getattr(self, "construction_", None)
        return _diagram(self, self._parts(), record, self._facts())

    def _facts(self) -> list[str]:
        """Return sentences about the fit that are worth knowing at once."""
        return []

    def _parts(self) -> dict[str, Any]:
        """Return the fitted estimators inside this one, by role."""
        return {}

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def _check_fitted(self, attribute: str) -> None:
        """Raise unless `fit` has set the attribute."""
        if not hasattr(self, attribute):
            raise self._not_fitted_error()

    def _not_fitted_error(self) -> Exception:
        from sklearn.exceptions import NotFittedError

        error: Exception = NotFittedError(
            f"this {type(self).__name__} is not fitted yet; call fit(scores, labels) first"
        )
        return error


# A fit copies its calibrator, and a signature takes 0.2 ms.
_DEFAULTS: weakref.WeakKeyDictionary[type, dict[str, Any]] = weakref.WeakKeyDictionary()


def _defaults(cls: type) -> dict[str, Any]:
    """Return the constructor's parameters with their default values."""
    if cls not in _DEFAULTS:
        parameters = inspect.signature(cls).parameters.values()
        _DEFAULTS[cls] = {parameter.name: parameter.default for parameter in parameters}
    return _DEFAULTS[cls]


# Lines and text inherit the notebook's colours, so one style serves light and dark themes.
_BOX_STYLE = (
    "display:inline-block;border:1px solid currentColor;border-radius:6px;padding:.4em .8em;"
    "margin:.2em .4em .2em 0;vertical-align:top;font-size:.9em"
)
_STATE_STYLE = "margin:.4em 0 0;font-size:.9em;opacity:.8;background:none"
# Larger arrays and collections are summarised.
_MAX_SHOWN = 6


def _diagram(
    estimator: Estimator,
    inner: dict[str, Any],
    record: object = None,
    facts: Sequence[str] = (),
) -> str:
    """Return an estimator as HTML.

    Parameters
    ----------
    estimator : Estimator
        The estimator, whose parameters and fitted attributes are shown.
    inner : dict
        Its inner estimators by role; each gets its own box, folded.
    record : object, optional
        The record of the fit, shown by its repr instead of the fitted attributes.
    facts : sequence of str
        What is worth knowing at once.
    """
    fitted = {
        name: value
        for name, value in sorted(vars(estimator).items())
        if name.endswith("_") and not name.startswith("_") and value is not None
    }
    lines = [f"<strong>{escape(repr(estimator))}</strong>"]
    lines.append(f"<div>{'fitted' if fitted else 'not fitted yet'}</div>")
    lines += [f"<div>{escape(line)}</div>" for line in facts]
    for role, part in inner.items():
        html = getattr(part, "_repr_html_", lambda part=part: escape(repr(part)))()
        name = f"<em>{escape(role)}</em> {escape(type(part).__name__)}"
        lines.append(f"<details><summary>{name}</summary>{html}</details>")
    if fitted and not inner:
        attributes = "\n".join(f"{name} = {_describe(value)}" for name, value in fitted.items())
        state = attributes if record is None else repr(record)
        lines.append(f'<pre style="{_STATE_STYLE}">{escape(state)}</pre>')
    return f'<div style="{_BOX_STYLE}">{"".join(lines)}</div>'


def _describe(value: object) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None and getattr(value, "size", 0) > _MAX_SHOWN:
        return f"array of shape {tuple(shape)}"
    if isinstance(value, list | tuple | dict) and len(value) > _MAX_SHOWN:
        return f"{len(value)} entries"
    return str(value)


def as_seed(seed: SupportsIndex | np.random.Generator | np.random.RandomState) -> int:
    """Return a seed as an integer, which can be stored and reused.

    Examples
    --------
    >>> as_seed(3), as_seed(np.random.default_rng(0)) == as_seed(np.random.default_rng(0))
    (3, True)
    """
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**32))
    if isinstance(seed, np.random.RandomState):
        return int(seed.randint(2**31))
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise InputError(
            "seed", f"is {seed!r}", "pass a non-negative integer, or a NumPy generator"
        )
    return number
