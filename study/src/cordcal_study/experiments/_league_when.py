"""The league by kinds of sets: who wins with few classes, few rows, this or that classifier."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cordcal_study.chapters import Entry, Table, number, table_name, text
from cordcal_study.league.claims import against
from cordcal_study.league.rounds import ORIGINAL, Report
from cordcal_study.league.standings import Interval, Losses, interval, ranked, win_rates
from cordcal_study.repairs import CAPPED, CORDS, DIRECT, LIFT
from cordcal_study.tidy import Result, means

LOSSES = ("nll", "brier")
"""The proper scores: what the league is decided by."""
_REPAIRS = {DIRECT: "", CORDS: " + CORD", LIFT: " + lift", CAPPED: " + lift, capped"}
# What tells sets apart: bounds are upper ends, the last is open.
_CLASSES = {"2 to 10 classes": 10, "11 to 100 classes": 100, "more than 100 classes": math.inf}
_ACCURACIES = {"accuracy below 0.7": 0.7, "accuracy 0.7 to 0.9": 0.9, "accuracy above 0.9": 1.0}


def report_name(report: Report) -> str:
    """Return a report's name in tables."""
    return table_name(report.calibrator) + _REPAIRS[report.repair]


def not_told_apart(losses: Losses, best: int) -> str:
    """Say how many of the others are not clearly behind the best, if intervals tell."""
    others = [each for each in losses.reports if each != losses.reports[best]]
    found = against(losses, losses.reports[best], others)
    if all(math.isnan(duel.low) for duel in found):
        return ""
    behind = sum(not duel.low > 0.5 for duel in found)
    return f"; {behind} of {len(others)} others not clearly behind"


def comparable(losses: Losses, chosen: set[Report] | None) -> Losses:
    """Return what can be ranked: reports of every round, the original beside them."""
    reports = [each for each in losses.reports if chosen is None or each in chosen]
    return ranked(losses.among(reports))


def rate(rates: Interval, at: int) -> str:
    """Return a rate in percent, with its interval if it has one."""
    mean, low, high = (100.0 * float(part[at]) for part in (rates.mean, rates.low, rates.high))
    ends = "" if math.isnan(low) else f" [{low:.0f}, {high:.0f}]"
    return f"{mean:.0f} %{ends}"


def when(results: Sequence[Result], kept: set[Report]) -> Table:
    """Tell who wins on which kind of set."""
    lines: list[tuple[Entry, ...]] = []
    for kind, name, inside in _slices(results):
        if not inside:
            continue
        sources = len({each.source for each in inside})
        sets = len({(each.group, each.set) for each in inside})
        entries = [text(kind), text(name), text(f"{sets} ({sources})")]
        entries += [text(_best(Losses.of(inside, measure), kept)) for measure in LOSSES]
        free = comparable(Losses.of(inside, "nll"), None)
        entries.append(text(_best(free, None)))
        entries.append(_price(free, kept))
        lines.append(tuple(entries))
    return Table(
        "when",
        "Who wins where: the highest win rates among reports that keep every decision, and, "
        "last, what keeping decisions costs: the lowest mean NLL that a keeper reaches minus the "
        "lowest of all reports. Chosen in hindsight, from few sources: a hint, not a proof.",
        (
            "",
            "Sets like",
            "Sets (sources)",
            "Keeps, by NLL",
            "Keeps, by Brier",
            "Any, by NLL",
            "Cost of keeping",
        ),
        tuple(lines),
    )


def _best(losses: Losses, kept: set[Report] | None) -> str:
    among = comparable(losses, kept)
    if len(among.reports) < 2 or not len(among.values):
        return "–"
    rates = interval(win_rates(among))
    best = int(np.nanargmax(rates.mean))
    name = report_name(among.reports[best])
    return f"{name}, {rate(rates, best)}{not_told_apart(among, best)}"


def _price(losses: Losses, kept: set[Report]) -> Entry:
    if not len(losses.values):
        return text("–")
    mean = interval(losses.over_sources(losses.values)).mean
    held = [mean[place] for place, each in enumerate(losses.reports) if each in kept]
    return (number(float(min(held) - mean.min()), 4),) if held else text("–")


def _slices(results: Sequence[Result]) -> Iterator[tuple[str, str, list[Result]]]:
    """Yield sets that are alike: what they have in common, its name, and their results."""
    yield "all", "all", list(results)
    low = 0.0
    for name, high in _CLASSES.items():
        yield "classes", name, [each for each in results if low < each.classes <= high]
        low = high
    for rows in dict.fromkeys(each.rows for each in results):
        yield "rows", f"{rows} calibration rows", [each for each in results if each.rows == rows]
    for family in dict.fromkeys(each.family for each in results):
        yield "classifier", family, [each for each in results if each.family == family]
    accuracy = _accuracies(results)
    low = -1.0
    for name, high in _ACCURACIES.items():
        there = {place for place, value in accuracy.items() if low < value <= high}
        yield "accuracy", name, [each for each in results if (each.group, each.set) in there]
        low = high


def _accuracies(results: Sequence[Result]) -> Mapping[tuple[Any, ...], float]:
    own = [
        each
        for each in results
        if (each.calibrator, each.measure) == (ORIGINAL.calibrator, "accuracy")
    ]
    return means(own, "group", "set")


def by_set(results: Sequence[Result], kept: set[Report]) -> Table:
    """Show each set: the original, the best keeper, the best of all."""
    accuracy = _accuracies(results)
    lines = []
    for group, name in accuracy:
        inside = [each for each in results if (each.group, each.set) == (group, name)]
        table = Losses.of([each for each in inside if each.repair in _REPAIRS], "nll")
        mean = interval(table.over_sources(table.values)).mean
        by_report = dict(zip(table.reports, mean.tolist(), strict=True))
        first = inside[0]
        best = min((each for each in by_report if each in kept), key=by_report.__getitem__)
        free = min(by_report, key=by_report.__getitem__)
        lines.append(
            (
                text(group),
                text(name),
                text(first.source),
                text(first.family),
                text(str(first.classes)),
                (number(100.0 * accuracy[group, name], 1),),
                (number(by_report[ORIGINAL], 4),),
                text(f"{report_name(best)} {by_report[best]:.4f}"),
                text(f"{report_name(free)} {by_report[free]:.4f}"),
            )
        )
    return Table(
        "league-sets",
        "Every set of the league: mean NLL over its rounds of the original report, of the best "
        "report that keeps decisions and of the best of all, each chosen in hindsight.",
        (
            "Group",
            "Set",
            "Source",
            "Family",
            "K",
            "Acc. (%)",
            "original",
            "best that keeps",
            "best",
        ),
        tuple(lines),
    )
