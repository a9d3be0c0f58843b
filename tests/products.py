"""Products of parameters: whole for a few representatives, one combination for each of the rest.

A key of one family runs through the same code as its representative, so the default run tests
the whole product for the representatives, and every other key with one combination that varies
from key to key.  The other combinations carry the mark `exhaustive`, and `make test-all` runs
them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest


def product(keys: Iterable[Any], *axes: Sequence[Any], whole: Collection[Any]) -> list[Any]:
    """Return the parameters of every combination, most of them marked `exhaustive`.

    Parameters
    ----------
    keys : iterable
        The first parameter: a calibrator, a case, a command.
    *axes : sequence
        The values of each further parameter: a dtype, a kind of scores, an engine.
    whole : collection
        The representatives among the keys, which the default run tests in every combination.
    """
    combinations = list(itertools.product(*axes))
    # A step without a common divisor visits every combination, neighbours in no axis.
    step = next(
        step
        for step in range(len(combinations) // 2 + 1, 2 * len(combinations) + 2)
        if math.gcd(step, len(combinations)) == 1
    )
    params = []
    for place, key in enumerate(keys):
        chosen = combinations[place * step % len(combinations)]
        for combination in combinations:
            default = key in whole or combination == chosen
            marks = () if default else (pytest.mark.exhaustive,)
            name = "-".join(map(_name, (key, *combination)))
            params.append(pytest.param(key, *combination, marks=marks, id=name))
    return params


def some(keys: Iterable[Any], default: Collection[Any]) -> list[Any]:
    """Return the keys as parameters; those not in `default` are marked `exhaustive`."""
    return [
        pytest.param(key, marks=() if key in default else pytest.mark.exhaustive, id=_name(key))
        for key in keys
    ]


def _name(value: Any) -> str:
    return getattr(value, "__name__", None) or str(value)
