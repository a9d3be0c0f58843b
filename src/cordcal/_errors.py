"""`InputError`: what is wrong with an argument as fields, and the one place that words it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]
OptionFormat = Callable[[str, str], str]
"""How a setting (its name and its value) is written in a sentence."""


def as_python_argument(name: str, value: str) -> str:
    """Write a setting as an argument of a call.

    Examples
    --------
    >>> as_python_argument("input", "logits")
    'input="logits"'
    >>> as_python_argument("overwrite", "True")
    'overwrite=True'
    >>> as_python_argument("header", "True or False")
    'header=True or False'
    """
    is_flag = value.split(" or ")[0] in ("True", "False")
    return f"{name}={value}" if is_flag else f'{name}="{value}"'


class InputError(ValueError):
    """An argument that cannot be used: which one, in which rows, why, and what to do.

    A caller that works on blocks moves ``rows`` (`offset_rows`, `select_rows`) and one that reads
    files renames the argument (`with_argument`); nobody reads a message to learn a fact.

    Parameters
    ----------
    argument : str
        The argument's name, as the public function calls it.
    reason : str
        What is wrong, the same for every row it concerns: ``"contains NaN"``.
    hint : str
        What to do; ``{setting}`` stands for the setting to write.
    rows : array_like of int
        All offending rows of what was checked; none when it is about the whole argument.
    found : str, optional
        The reason with the first row's own numbers: ``"sums to 1.2, not 1"``.
    setting : tuple of str, optional
        Name and value of an argument that the hint proposes.

    Examples
    --------
    >>> error = InputError("scores", "contains NaN", "drop such rows", rows=[3, 7])
    >>> str(error)
    'scores: row 3 contains NaN; drop such rows'
    >>> str(error.offset_rows(1000).with_argument("big.parquet"))
    'big.parquet: row 1003 contains NaN; drop such rows'
    """

    def __init__(
        self,
        argument: str,
        reason: str,
        hint: str,
        *,
        rows: Sequence[int] | npt.NDArray[Any] = (),
        found: str | None = None,
        setting: tuple[str, str] | None = None,
    ) -> None:
        self.argument, self.reason, self.hint = argument, reason, hint
        self.rows: Rows = np.asarray(rows, dtype=np.intp)
        self.found, self.setting = found, setting
        super().__init__(argument, reason, hint)

    def sentence(self, spell: OptionFormat | None = None) -> str:
        """Return the refusal in words, with settings spelled as the caller writes them."""
        what = self.reason if self.found is None else self.found
        head = (
            f"{self.argument}: row {self.rows[0]} {what}"
            if self.rows.size
            else (f"{self.argument} {what}")
        )
        return f"{head}; {self.hint_for(spell)}"

    def hint_for(self, spell: OptionFormat | None = None) -> str:
        """Return the hint, with options spelled as the caller writes them."""
        return _spelled(self.hint, self.setting, spell)

    def __str__(self) -> str:
        return self.sentence()

    def offset_rows(self, first: int) -> Self:
        """Return the refusal of a block whose first row is row ``first`` of the whole."""
        return self._with(rows=self.rows + first)

    def select_rows(self, numbers: Sequence[int] | npt.NDArray[Any]) -> Self:
        """Return the refusal of chosen rows, given the number of each in the whole."""
        return self._with(rows=np.asarray(numbers, dtype=np.intp)[self.rows])

    def with_argument(self, argument: str) -> Self:
        """Return the refusal with the argument under another name."""
        return self._with(argument=argument)

    def with_option_hint(self, name: str, value: str) -> Self:
        """Return the refusal with a setting that does as well as its hint."""
        return self._with(hint=f"{self.hint}, or pass {{setting}}", setting=(name, value))

    def _with(self, **changed: Any) -> Self:
        return type(self)(**{**self._fields(), **changed})

    def _fields(self) -> dict[str, Any]:
        names = ("argument", "reason", "hint", "rows", "found", "setting")
        return {name: getattr(self, name) for name in names}

    def __reduce__(self) -> Any:
        # Workers of other processes send their refusals home.
        return _rebuild, (self._fields(),)


# Tracebacks call it by the name under which people catch it.
InputError.__module__ = "cordcal"


class ClusterFailure(InputError):
    """Work on a cluster that ended early, through no fault of its input."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in work that can be continued.

    Parameters
    ----------
    kept : str
        What was kept.
    hint : str
        How to go on; ``{setting}`` stands for the setting to write.
    setting : tuple of str, optional
        Its name and value.

    Examples
    --------
    >>> error = Interrupted("9 rows are kept", "pass {setting}", setting=("resume", "True"))
    >>> error.hint_for()
    'pass resume=True'
    """

    def __init__(self, kept: str, hint: str, *, setting: tuple[str, str] | None = None) -> None:
        self.kept, self.hint, self.setting = kept, hint, setting
        super().__init__(kept, hint)

    def hint_for(self, spell: OptionFormat | None = None) -> str:
        """Return the hint, with options spelled as the caller writes them."""
        return _spelled(self.hint, self.setting, spell)

    def __str__(self) -> str:
        return f"{self.kept}; {self.hint_for()}"


def _spelled(hint: str, setting: tuple[str, str] | None, spell: OptionFormat | None) -> str:
    if setting is None:
        return hint
    return hint.replace("{setting}", (as_python_argument if spell is None else spell)(*setting))


def _rebuild(fields: dict[str, Any]) -> InputError:
    return InputError(**fields)


def row_error(
    bad: npt.NDArray[np.bool_],
    argument: str,
    reason: str,
    hint: str,
    *,
    found: Callable[[int], str] | None = None,
    setting: tuple[str, str] | None = None,
) -> InputError | None:
    """Return the refusal of all rows that are flagged, or None where there are none.

    ``found`` words the reason with the numbers of one row, the first.
    """
    rows = np.flatnonzero(bad)
    if not rows.size:
        return None
    words = None if found is None else found(int(rows[0]))
    return InputError(argument, reason, hint, rows=rows, found=words, setting=setting)


def merge_errors(refusals: Iterable[InputError | None]) -> list[InputError]:
    """Join the refusals of several blocks that have the same argument and reason.

    Examples
    --------
    >>> nan = InputError("scores", "contains NaN", "drop such rows", rows=[3])
    >>> [refusal.rows.tolist() for refusal in merge_errors([nan, None, nan.offset_rows(10)])]
    [[3, 13]]
    """
    kinds: dict[tuple[str, str], list[InputError]] = {}
    for refusal in refusals:
        if refusal is not None:
            kinds.setdefault((refusal.argument, refusal.reason), []).append(refusal)
    return [
        min(same, key=_first_row)._with(rows=np.sort(np.concatenate([each.rows for each in same])))
        for same in kinds.values()
    ]


def raise_first(*refusals: InputError | None) -> None:
    """Raise the refusal of the earliest row, if there is any."""
    found = [refusal for refusal in refusals if refusal is not None]
    if found:
        raise min(found, key=_first_row)


def _first_row(refusal: InputError) -> int:
    return int(refusal.rows[0]) if refusal.rows.size else -1


@contextmanager
def renumber_rows(rows: int | Sequence[int]) -> Iterator[None]:
    """Give the rows of a block's refusal their numbers in the whole.

    ``rows`` is the number of the block's first row, or the number of each of its rows.
    """
    try:
        yield
    except InputError as refusal:
        whole = refusal.offset_rows(rows) if isinstance(rows, int) else refusal.select_rows(rows)
        raise whole.with_traceback(refusal.__traceback__) from None
