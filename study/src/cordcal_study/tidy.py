"""Tidy rows, one a condition, split, repair and measure, and pure functions that average them."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cordcal_study.cells import Cell, Fit, Request

NO_SEED = -1
"""The seed of a given split: there is one way to split a calibration/evaluation pair."""


class Row(NamedTuple):
    """One number, with all that says what it is."""

    group: str
    set: str
    calibrator: str
    seed: int
    fraction: float
    evaluation: str
    repair: str
    measure: str
    value: float


class Result(NamedTuple):
    """One number of the league, with all that says what it is."""

    group: str
    set: str
    source: str
    family: str
    classes: int
    rows: str
    seed: int
    calibrator: str
    repair: str
    measure: str
    value: float

    @property
    def round(self) -> tuple[str, str, str, int]:
        """The round it belongs to."""
        return self.group, self.set, self.rows, self.seed


class Bins(NamedTuple):
    """The bins of one reliability diagram."""

    group: str
    set: str
    calibrator: str
    seed: int
    repair: str
    bins: Mapping[str, Sequence[float]]


def tidy_rows(
    requests: Iterable[Request], cells: Mapping[Fit, Cell], measures: Container[str] | None = None
) -> list[Row]:
    """Return the numbers that were asked for, in the order of the requests.

    ``measures`` are those to keep, all where left out.
    """
    rows = []
    for request in requests:
        for repair, measured in _answers(request, cells):
            where = (*_place(request.fit), request.fit.fraction, request.evaluation, repair)
            rows += [
                Row(*where, name, float(value))
                for name, value in measured.items()
                if name != "reliability" and (measures is None or name in measures)
            ]
    return rows


def diagrams(requests: Iterable[Request], cells: Mapping[Fit, Cell]) -> list[Bins]:
    """Return the reliability diagrams of the same requests."""
    return [
        Bins(*_place(request.fit), repair, measured["reliability"])
        for request in requests
        for repair, measured in _answers(request, cells)
        if "reliability" in measured
    ]


def _answers(request: Request, cells: Mapping[Fit, Cell]) -> list[tuple[str, Mapping[str, Any]]]:
    cell = cells[request.fit]
    if cell.failure is not None:
        return []
    here = cell.measures[request.evaluation]
    return [(repair, here[repair]) for repair in request.repairs]


def _place(fit: Fit) -> tuple[str, str, str, int]:
    return fit.group, fit.set, fit.calibrator, NO_SEED if fit.seed is None else fit.seed


def means(rows: Iterable[Row] | Iterable[Result], *by: str) -> dict[tuple[Any, ...], float]:
    """Average the values of all rows that agree in ``by``; exact sums, so order is nothing.

    Examples
    --------
    >>> row = Row("g", "s", "vs", 0, 1.0, "clean", "cord", "ece", 0.2)
    >>> means([row, row._replace(seed=1, value=0.4)], "set", "measure")
    {('s', 'ece'): 0.3...}
    """
    values: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        values.setdefault(tuple(getattr(row, name) for name in by), []).append(row.value)
    return {key: math.fsum(found) / len(found) for key, found in values.items()}


def over_splits(rows: Iterable[Row]) -> list[Row]:
    """Average each condition over its splits: what is left has no seed.

    Conditions count the same in later means, however many splits they have.
    """
    names = [name for name in Row._fields if name not in ("seed", "value")]
    return [
        Row(**dict(zip(names, key, strict=True)), seed=NO_SEED, value=value)
        for key, value in means(rows, *names).items()
    ]


def reductions(rows: Iterable[Row], *, base: str, repair: str) -> list[Row]:
    """Return base minus repair, paired within everything else; positive where repair is lower."""
    minuend: dict[tuple[Any, ...], float] = {}
    subtrahend: list[Row] = []
    for row in rows:
        if row.repair == base:
            minuend[(*row[:6], row.measure)] = row.value
        elif row.repair == repair:
            subtrahend.append(row)
    return [row._replace(value=minuend[(*row[:6], row.measure)] - row.value) for row in subtrahend]


def mean_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """Return the mean of a few splits' values with its pointwise t interval.

    One value has no spread: the interval is then the value.

    Examples
    --------
    >>> mean, low, high = mean_interval([1.0, 2.0, 3.0])
    >>> round(mean, 3), round(low, 3), round(high, 3)
    (2.0, -0.484, 4.484)
    """
    from scipy.stats import t

    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return mean, mean, mean
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = float(t.ppf(0.5 + level / 2.0, count - 1)) * spread / math.sqrt(count)
    return mean, mean - half, mean + half
