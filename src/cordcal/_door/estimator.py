"""scikit-learn's estimator contract without importing scikit-learn.

A model that was fitted elsewhere is loaded and applied far more often than it is fitted
beside scikit-learn, whose import takes longer than the work.  Its `clone`, its searches and
its checks ask an object for nothing but these methods.
"""

from __future__ import annotations

import inspect
from typing import Any, Self

from cordcal._door.diagram import diagram


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
            Include the parameters of parameters that have some, as ``name__inner``.

        Returns
        -------
        params : dict
            What the constructor was given.
        """
        params = {name: getattr(self, name) for name in self._get_param_names()}
        if deep:
            for name, value in list(params.items()):
                if hasattr(value, "get_params") and not isinstance(value, type):
                    inner = value.get_params()
                    params |= {f"{name}__{key}": held for key, held in inner.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name, those of an inner object as ``name__inner``.

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
        for name, value in params.items():
            own, nested, rest = name.partition("__")
            if own not in known:
                raise ValueError(
                    f"{own} is no parameter of {type(self).__name__}; it has: "
                    f"{', '.join(known) or 'none'}"
                )
            if nested:
                inner.setdefault(own, {})[rest] = value
            else:
                setattr(self, own, value)
        for own, values in inner.items():
            getattr(self, own).set_params(**values)
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
        """Return the diagram that notebooks show."""
        return diagram(self, self._parts(), getattr(self, "construction_", None))

    def _parts(self) -> dict[str, Any]:
        """Return the fitted estimators this one is made of, by what they do."""
        return {}

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def _check_fitted(self, attribute: str) -> None:
        """Refuse to go on before `fit` has left its mark."""
        if not hasattr(self, attribute):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet; call fit(scores, labels) first"
            )


def _defaults(cls: type) -> dict[str, Any]:
    """Return the constructor's parameters with their default values."""
    given = inspect.signature(cls).parameters.values()
    return {each.name: each.default for each in given}
