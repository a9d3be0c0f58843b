"""The progress bar of long fits: on a terminal only, gone when the fit is done."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from cordcal.calibrators._newton import progress

LONG = 2**31


def written(
    monkeypatch: pytest.MonkeyPatch, *, terminal: bool, work: int, steps: int | None
) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=100)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    with progress("ms", work, steps) as report:
        report(1, 0.5, math.nan)
        report(2, 0.25, 1e-3)
    return screen.getvalue()


def test_a_long_fit_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = written(monkeypatch, terminal=True, work=LONG, steps=4)
    assert "fitting ms" in shown
    assert "step 2 of 4, loss 0.25000000, gradient 1.0e-03" in shown
    assert "━" in shown
    assert shown.endswith("\x1b[2K")  # the line is erased at the end


def test_an_unknown_number_of_steps_is_not_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = written(monkeypatch, terminal=True, work=LONG, steps=None)
    assert "step 2, loss 0.25" in shown


@pytest.mark.parametrize(("terminal", "work"), [(False, LONG), (True, 1000)])
def test_files_and_short_fits_see_nothing(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, work: int
) -> None:
    assert written(monkeypatch, terminal=terminal, work=work, steps=4) == ""
