"""Collections that compute later: which room serves them, told by the module of their type.

A room registers itself when it is imported, and it is imported when one of its collections
comes to the door; so nothing below it knows it, and its framework is loaded by its users only.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol

# The framework's top module, and the room that registers for it.
_ROOMS = {"dask": "cordcal.dask"}


class Handler(Protocol):
    """What a room does for its collections; every function returns what its caller does."""

    def construct(
        self, repair: Any, original: Any, direct: Any, decision: Any, sample_weight: Any
    ) -> Any:
        """Find the shared scalar without moving rows; see `CORD.fit`."""

    def described(self, describe: Any, **columns: Any) -> tuple[int, list[Any]]:
        """Return the number of classes, and what ``describe`` makes of every block's rows."""

    def transform(self, repair: Any, original: Any, direct: Any, decision: Any, dtype: Any) -> Any:
        """Repair lazily; see `CORD.transform`."""

    def apply(self, function: Any, scores: Any, dtype: Any, *, shape: str = "ij") -> Any:
        """Call a function on every block of scores, lazily; see `Preserved`."""

    def fed(
        self, stream: Any, reports: Any, labels: Any, sample_weight: Any, ignore_index: Any
    ) -> Any:
        """Return a stream of a measure that has seen every block's rows."""

    def audited(
        self,
        cord: Any,
        original: Any,
        direct: Any,
        labels: Any,
        *,
        decision: Any,
        sample_weight: Any,
    ) -> Any:
        """Return an audit's stream that has seen every block."""


_HANDLERS: dict[str, Handler] = {}


def register(framework: str, handler: Handler) -> None:
    """Serve the collections of a framework, named by its top module."""
    _HANDLERS[framework] = handler


def handler(*values: Any) -> Handler | None:
    """Return who serves a lazy collection among the values; None where there is none.

    Examples
    --------
    >>> handler([0.4, 0.6]) is None
    True
    """
    for value in values:
        framework = type(value).__module__.partition(".")[0]
        if framework in _ROOMS:
            if framework not in _HANDLERS:
                importlib.import_module(_ROOMS[framework])
            return _HANDLERS[framework]
    return None
