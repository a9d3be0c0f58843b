"""A progress bar for fits that take long, on terminals only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cordcal.calibrators._newton import Report

if TYPE_CHECKING:
    from rich.console import Console

# Entries read in one step of a fit, times its width; below this a fit takes seconds.
_LONG = 2**30


@contextmanager
def progress(title: str, work: int, steps: int | None = None) -> Iterator[Report]:
    """Yield what a search reports its steps to; shows a bar if ``work`` is large.

    Parameters
    ----------
    title : str
        What is being fitted.
    work : int
        Multiplications a pass over the rows takes.
    steps : int, optional
        How many steps there will be, where that is known; the bar pulses otherwise.

    Examples
    --------
    >>> with progress("ms", work=1000) as report:
    ...     report(1, 0.5, 1e-3)
    """
    if work < _LONG or not (console := _console()).is_terminal:
        yield lambda step, value, gradient_norm: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    # The bar goes when the fit is done: what it came to is in the fitted attributes.
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"fitting {title}", total=steps, state="first step")

        def report(step: int, value: float, gradient_norm: float) -> None:
            of = "" if steps is None else f" of {steps}"
            tail = "" if math.isnan(gradient_norm) else f", gradient {gradient_norm:.1e}"
            bar.update(task, completed=step, state=f"step {step}{of}, loss {value:.8f}{tail}")

        yield report


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True)
