"""Tidy rows, one per condition, split, repair and metric: making, averaging, storing them."""

from __future__ import annotations

import csv
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_type_hints

from cordcal.files import replacing
from cordcal_study.cells import Cell, Fit, Request

NO_SEED = -1
"""The seed of a given split: a calibration/evaluation pair has only one."""


class Row(NamedTuple):
    """One number of an experiment on cells, and what it is."""

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
    """One number of the benchmark, and what it is."""

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
    def trial(self) -> tuple[str, str, str, int]:
        """The trial of this number."""
        return self.group, self.set, self.rows, self.seed


class Bin(NamedTuple):
    """One bin of a reliability diagram."""

    group: str
    set: str
    calibrator: str
    seed: int
    repair: str
    bin: int
    rows: int
    accuracy: float
    confidence: float


class Timing(NamedTuple):
    """Quartiles of the seconds that a step takes: a construction, or the repair of a row."""

    group: str
    set: str
    rows: int
    classes: int
    step: str
    low: float
    median: float
    high: float


Record = Row | Result | Bin | Timing
SomeRecord = TypeVar("SomeRecord", Row, Result, Bin, Timing)
Format = Literal["csv", "parquet"]


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV; unlike `csv.writer` before Python 3.13, quote a carriage return."""

    def cell(value: Any) -> str:
        text = "" if value is None else str(value)
        quoted = text.replace('"', '""')
        return f'"{quoted}"' if any(mark in text for mark in ',"\r\n') else text

    return "".join(",".join(map(cell, row)) + "\n" for row in rows)


def write_records(path: Path, records: Sequence[Record], form: Format) -> None:
    """Write records of one kind as CSV or Parquet."""
    names = list(type(records[0])._fields)
    with replacing(path) as temporary:
        if form == "csv":
            with temporary.open("w", encoding="utf-8", newline="") as file:
                file.write(csv_text([names, *records]))
            return
        import pyarrow
        from pyarrow import parquet

        columns = {}
        for name, values in zip(names, zip(*records, strict=True), strict=True):
            column = pyarrow.array(values)
            plain = pyarrow.types.is_floating(column.type)
            columns[name] = column if plain else column.dictionary_encode()
        parquet.write_table(pyarrow.table(columns), temporary, compression="zstd")


def read_records(path: Path, kind: type[SomeRecord]) -> list[SomeRecord]:
    """Read what `write_records` wrote."""
    types = get_type_hints(kind)
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            return [
                kind(**{name: types[name](value) for name, value in line.items()})
                for line in csv.DictReader(file)
            ]
    from pyarrow import parquet

    columns = parquet.read_table(path, columns=list(types)).to_pydict()
    return [kind(*values) for values in zip(*(columns[name] for name in types), strict=True)]


def tidy_rows(
    requests: Iterable[Request], cells: Mapping[Fit, Cell], measures: Container[str] | None = None
) -> list[Row]:
    """Return the requested numbers, in the order of the requests.

    ``measures`` are the metrics to keep, by default all.
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


def diagrams(requests: Iterable[Request], cells: Mapping[Fit, Cell]) -> list[Bin]:
    """Return the bins of the reliability diagrams of the same requests."""
    bins = []
    for request in requests:
        for repair, measured in _answers(request, cells):
            diagram = measured.get("reliability")
            if diagram is not None:
                where = (*_place(request.fit), repair)
                columns = (diagram["count"], diagram["accuracy"], diagram["confidence"])
                numbers = enumerate(zip(*columns, strict=True))
                bins += [Bin(*where, number, *values) for number, values in numbers]
    return bins


def _answers(request: Request, cells: Mapping[Fit, Cell]) -> list[tuple[str, Mapping[str, Any]]]:
    cell = cells[request.fit]
    if cell.failure is not None:
        return []
    measures = cell.measures[request.evaluation]
    return [(repair, measures[repair]) for repair in request.repairs]


def _place(fit: Fit) -> tuple[str, str, str, int]:
    return fit.group, fit.set, fit.calibrator, NO_SEED if fit.seed is None else fit.seed


def means(rows: Iterable[Row] | Iterable[Result], *by: str) -> dict[tuple[Any, ...], float]:
    """Average the values of all rows that agree in ``by``; sums are exact, so order is irrelevant.

    Examples
    --------
    >>> row = Row("g", "s", "vs", 0, 1.0, "clean", "cord", "ece", 0.2)
    >>> means([row, row._replace(seed=1, value=0.4)], "set", "measure")
    {('s', 'ece'): 0.3...}
    """
    values: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        values.setdefault(tuple(getattr(row, name) for name in by), []).append(row.value)
    return {key: math.fsum(group) / len(group) for key, group in values.items()}


def over_splits(rows: Iterable[Row]) -> list[Row]:
    """Average each condition over its splits, so that conditions count the same in later means."""
    names = [name for name in Row._fields if name not in ("seed", "value")]
    return [
        Row(**dict(zip(names, key, strict=True)), seed=NO_SEED, value=value)
        for key, value in means(rows, *names).items()
    ]


def reductions(rows: Iterable[Row], *, base: str, repair: str) -> list[Row]:
    """Return base minus repair for each condition; positive where the repair is lower."""
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
