"""A line of progress for fits that take long, on terminals only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from cordcal.calibrators._newton import Report

# Entries read in one step of a fit, times its width; below this a fit takes seconds.
_LONG = 2**30


@contextmanager
def progress(title: str, work: int) -> Iterator[Report]:
    """Yield what a search reports its steps to; shows a line if ``work`` is large.

    Examples
    --------
    >>> with progress("ms", work=1000) as report:
    ...     report(1, 0.5, 1e-3)
    """
    if work < _LONG:
        yield lambda step, value, gradient_norm: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"{title}: first step") as status:

        def report(step: int, value: float, gradient_norm: float) -> None:
            tail = "" if math.isnan(gradient_norm) else f", gradient {gradient_norm:.1e}"
            status.update(f"{title}: step {step}, loss {value:.8f}{tail}")

        yield report
