"""A reason to doubt scores, labels or results, and its warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from cordcal._errors import stacklevel_outside_package
from cordcal._numeric.types import Record

# A classifier that is right in 95 % makes no error in so many rows with a chance of 8 %.
MIN_ROWS_WITHOUT_ERRORS = 50


class CaveatWarning(UserWarning):
    """Scores or labels look like a mistake."""


@dataclass(frozen=True)
class Caveat(Record):
    """A reason not to trust a fit, an audit or a comparison.

    Attributes
    ----------
    key : str
        Its kind: ``"labels"``, ``"columns"``, ``"chance"``, ``"majority"``, ``"scores"``,
        ``"rows"``, ``"errors"``, ``"evidence"``, ``"overlap"``, ``"classes"``, ``"context"`` or
        ``"indistinct"``.
    sentence : str
        A description with its figures.
    figures : mapping of str to float
        The figures by name.
    blocks_advice : bool
        Whether no calibrator is recommended because of it.
    """

    key: str
    sentence: str
    figures: Mapping[str, float] = field(default_factory=dict)
    blocks_advice: bool = False

    @property
    def with_full_stop(self) -> str:
        """The sentence with a full stop, unless it is a question."""
        return self.sentence if self.sentence.endswith("?") else f"{self.sentence}."


def warn_about(caveats: Iterable[Caveat]) -> None:
    """Issue one warning per caveat, at the caller's line."""
    for caveat in caveats:
        warnings.warn(caveat.sentence, CaveatWarning, stacklevel=stacklevel_outside_package())


# The keys of the caveats that the running fit has already warned about.
_WARNED: ContextVar[frozenset[str]] = ContextVar("warned", default=frozenset())


@contextmanager
def suppress_repeats(caveats: Iterable[Caveat]) -> Iterator[None]:
    """Keep a fit from warning again about what these caveats explain (see `already_warned`)."""
    token = _WARNED.set(frozenset(caveat.key for caveat in caveats))
    try:
        yield
    finally:
        _WARNED.reset(token)


def already_warned(*, by_labels: bool = False) -> bool:
    """Whether an earlier warning explains a warning about an optimum.

    A poor classifier may be less accurate than its most frequent class without any mistake, so
    these caveats only explain warnings that blame the labels (``by_labels``).
    """
    return bool(_WARNED.get() if by_labels else _WARNED.get() - {"chance", "majority", "classes"})


def bound_caveats(sentence: str) -> list[Caveat]:
    """Return the caveat that many predictions are kept against the evidence, if there is one."""
    return [Caveat("evidence", sentence)] if sentence else []
