"""Refusals: what is wrong with an argument as fields, and the one place that words them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]
Spelling = Callable[[str, str], str]
"""How a setting (its name and its value) is written in a sentence."""


def in_python(name: str, value: str) -> str:
    """Write a setting as an argument of a call.

    Examples
    --------
    >>> in_python("input", "logits")
    'input="logits"'
    >>> in_python("overwrite", "True")
    'overwrite=True'
    >>> in_python("header", "True or False")
    'header=True or False'
    """
    is_flag = value.split(" or ")[0] in ("True", "False")
    return f"{name}={value}" if is_flag else f'{name}="{value}"'


class Refusal(ValueError):
    """An argument that cannot be used: which one, in which rows, why, and what to do.

    A caller that works on blocks moves ``rows`` (`shifted`, `among`) and one that reads
    files renames the argument (`called`); nobody reads a message to learn a fact.

    Parameters
    ----------
    argument : str
        The argument's name, as the public function calls it.
    reason : str
        What is wrong, the same for every row it concerns: ``"contains NaN"``.
    remedy : str
        What to do; ``{setting}`` stands for the setting to write.
    rows : array_like of int
        All offending rows of what was checked; none when it is about the whole argument.
    found : str, optional
        The reason with the first row's own numbers: ``"sums to 1.2, not 1"``.
    setting : tuple of str, optional
        Name and value of an argument that the remedy proposes.

    Examples
    --------
    >>> error = Refusal("scores", "contains NaN", "drop such rows", rows=[3, 7])
    >>> str(error)
    'scores: row 3 contains NaN; drop such rows'
    >>> str(error.shifted(1000).called("big.parquet"))
    'big.parquet: row 1003 contains NaN; drop such rows'
    """

    def __init__(
        self,
        argument: str,
        reason: str,
        remedy: str,
        *,
        rows: Sequence[int] | npt.NDArray[Any] = (),
        found: str | None = None,
        setting: tuple[str, str] | None = None,
    ) -> None:
        self.argument, self.reason, self.remedy = argument, reason, remedy
        self.rows: Rows = np.asarray(rows, dtype=np.intp)
        self.found, self.setting = found, setting
        super().__init__(argument, reason, remedy)

    def sentence(self, spell: Spelling | None = None) -> str:
        """Return the refusal in words, with settings spelled as the caller writes them."""
        what = self.reason if self.found is None else self.found
        head = (
            f"{self.argument}: row {self.rows[0]} {what}"
            if self.rows.size
            else (f"{self.argument} {what}")
        )
        return f"{head}; {self.how_to_mend(spell)}"

    def how_to_mend(self, spell: Spelling | None = None) -> str:
        """Return the remedy, with settings spelled as the caller writes them."""
        return _spelled(self.remedy, self.setting, spell)

    def __str__(self) -> str:
        return self.sentence()

    def shifted(self, first: int) -> Self:
        """Return the refusal of a block whose first row is row ``first`` of the whole."""
        return self._with(rows=self.rows + first)

    def among(self, numbers: Sequence[int] | npt.NDArray[Any]) -> Self:
        """Return the refusal of chosen rows, given the number of each in the whole."""
        return self._with(rows=np.asarray(numbers, dtype=np.intp)[self.rows])

    def called(self, argument: str) -> Self:
        """Return the refusal with the argument under another name."""
        return self._with(argument=argument)

    def or_with(self, name: str, value: str) -> Self:
        """Return the refusal with a setting that does as well as its remedy."""
        return self._with(remedy=f"{self.remedy}, or pass {{setting}}", setting=(name, value))

    def _with(self, **changed: Any) -> Self:
        return type(self)(**{**self._fields(), **changed})

    def _fields(self) -> dict[str, Any]:
        names = ("argument", "reason", "remedy", "rows", "found", "setting")
        return {name: getattr(self, name) for name in names}

    def __reduce__(self) -> Any:
        # Workers of other processes send their refusals home.
        return _refusal, (self._fields(),)


# Tracebacks call it by the name under which people catch it.
Refusal.__module__ = "cordcal"


class ClusterFailure(Refusal):
    """Work on a cluster that ended early, through no fault of its input."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in work that can be continued.

    Parameters
    ----------
    kept : str
        What was kept.
    remedy : str
        How to go on; ``{setting}`` stands for the setting to write.
    setting : tuple of str, optional
        Its name and value.

    Examples
    --------
    >>> error = Interrupted("9 rows are kept", "pass {setting}", setting=("resume", "True"))
    >>> error.how_to_go_on()
    'pass resume=True'
    """

    def __init__(self, kept: str, remedy: str, *, setting: tuple[str, str] | None = None) -> None:
        self.kept, self.remedy, self.setting = kept, remedy, setting
        super().__init__(kept, remedy)

    def how_to_go_on(self, spell: Spelling | None = None) -> str:
        """Return the remedy, with settings spelled as the caller writes them."""
        return _spelled(self.remedy, self.setting, spell)

    def __str__(self) -> str:
        return f"{self.kept}; {self.how_to_go_on()}"


def _spelled(remedy: str, setting: tuple[str, str] | None, spell: Spelling | None) -> str:
    if setting is None:
        return remedy
    return remedy.replace("{setting}", (in_python if spell is None else spell)(*setting))


def _refusal(fields: dict[str, Any]) -> Refusal:
    return Refusal(**fields)


def about_rows(
    bad: npt.NDArray[np.bool_],
    argument: str,
    reason: str,
    remedy: str,
    *,
    found: Callable[[int], str] | None = None,
    setting: tuple[str, str] | None = None,
) -> Refusal | None:
    """Return the refusal of all rows that are flagged, or None where there are none.

    ``found`` words the reason with the numbers of one row, the first.
    """
    rows = np.flatnonzero(bad)
    if not rows.size:
        return None
    words = None if found is None else found(int(rows[0]))
    return Refusal(argument, reason, remedy, rows=rows, found=words, setting=setting)


def gathered(refusals: Iterable[Refusal | None]) -> list[Refusal]:
    """Join the refusals of several blocks that have the same argument and reason.

    Examples
    --------
    >>> nan = Refusal("scores", "contains NaN", "drop such rows", rows=[3])
    >>> [refusal.rows.tolist() for refusal in gathered([nan, None, nan.shifted(10)])]
    [[3, 13]]
    """
    kinds: dict[tuple[str, str], list[Refusal]] = {}
    for refusal in refusals:
        if refusal is not None:
            kinds.setdefault((refusal.argument, refusal.reason), []).append(refusal)
    return [
        min(same, key=_first_row)._with(rows=np.sort(np.concatenate([each.rows for each in same])))
        for same in kinds.values()
    ]


def refuse(*refusals: Refusal | None) -> None:
    """Raise the refusal of the earliest row, if there is any."""
    found = [refusal for refusal in refusals if refusal is not None]
    if found:
        raise min(found, key=_first_row)


def _first_row(refusal: Refusal) -> int:
    return int(refusal.rows[0]) if refusal.rows.size else -1


@contextmanager
def placed(rows: int | Sequence[int]) -> Iterator[None]:
    """Give the rows of a block's refusal their numbers in the whole.

    ``rows`` is the number of the block's first row, or the number of each of its rows.
    """
    try:
        yield
    except Refusal as refusal:
        whole = refusal.shifted(rows) if isinstance(rows, int) else refusal.among(rows)
        raise whole.with_traceback(refusal.__traceback__) from None
