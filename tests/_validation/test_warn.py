"""Warnings that are collected instead of shown."""

from __future__ import annotations

import pytest

from cordcal._errors import collect_warnings, warn


def test_collecting_ends_with_its_block() -> None:
    with collect_warnings() as outer:
        with collect_warnings() as inner:
            warn("inner")
        warn("outer")
    assert (outer, inner) == (["outer"], ["inner"])
    with pytest.warns(UserWarning, match="outside"):
        warn("outside")
