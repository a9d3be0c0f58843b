"""Parameters by name, as scikit-learn's tools read and set them, without scikit-learn."""

from __future__ import annotations

import inspect
from typing import Any, Self


class Parameters:
    """An object whose constructor stores its arguments, each under its own name.

    Examples
    --------
    >>> from cordcal import CORD
    >>> CORD(preserve=2).get_params()
    {'preserve': 2, 'threads': None}
    >>> CORD().set_params(preserve=3)
    CORD(preserve=3)
    """

    @classmethod
    def _parameter_names(cls) -> list[str]:
        if cls.__init__ is object.__init__:
            return []
        given = list(inspect.signature(cls.__init__).parameters.values())[1:]
        return sorted(each.name for each in given)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments by name; there is nothing deep in them."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Set arguments of the constructor, for the next `fit`."""
        unknown = sorted(set(params) - set(self._parameter_names()))
        if unknown:
            known = ", ".join(self._parameter_names()) or "none"
            raise ValueError(
                f"{unknown[0]} is no parameter of {type(self).__name__}; it has: {known}"
            )
        for name, value in params.items():
            setattr(self, name, value)
        return self
