"""Assertions on the fields of an `InputError`, so that tests do not depend on its wording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from cordcal import InputError


@contextmanager
def refused(
    argument: str | None = None,
    *,
    rows: Sequence[int] | None = None,
    naming: str | Sequence[str] = (),
    option: str | None = None,
) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """Expect an `InputError`.

    Parameters
    ----------
    argument : str, optional
        The argument (or file) at fault.
    rows : sequence of int, optional
        Exactly these rows are at fault; an empty sequence: the argument as a whole.
    naming : str or sequence of str
        Facts that the message must contain: a value, a shape, a name; not its wording.
    option : str, optional
        The option that the hint proposes.
    """
    with pytest.raises(InputError) as caught:
        yield caught
    error = caught.value
    if argument is not None:
        assert error.argument == argument
    if rows is not None:
        assert error.rows.tolist() == list(rows)
    for fact in [naming] if isinstance(naming, str) else naming:
        assert fact in str(error)
    if option is not None:
        assert error.option is not None
        assert error.option[0] == option
    assert error.hint
