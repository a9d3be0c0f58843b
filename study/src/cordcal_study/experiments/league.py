"""The league: every map direct, with CORD and with lift, on all sets; which to use when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from cordcal.calibrators.registry import is_network
from cordcal_study.chapters import (
    Chapter,
    Entry,
    Figure,
    Part,
    Table,
    change,
    number,
    shown_as,
    table_name,
    text,
)
from cordcal_study.experiments._league_when import (
    LOSSES,
    by_set,
    comparable,
    not_told_apart,
    rate,
    report_name,
    when,
)
from cordcal_study.league.calarena import csv_files
from cordcal_study.league.claims import Verdict, against, judge, keepers
from cordcal_study.league.rounds import ORIGINAL, Played, Report, Round
from cordcal_study.league.standings import (
    FEWEST,
    Array,
    Interval,
    Losses,
    critical_difference,
    interval,
    ranks,
    win_rates,
)
from cordcal_study.plan import Plan
from cordcal_study.repairs import CAPPED
from cordcal_study.specs import League
from cordcal_study.tidy import Result

_KEPT = ("accuracy", "nll", "nll_1e-6", "brier", "ece", "tpcr", "at_bound", "bound_gap", "gap")


def results_of(plan: Plan, rounds: Mapping[Round, Played]) -> list[Result]:
    """Return the numbers of all rounds, one a report and measure."""
    specs = {(spec.group, spec.name): spec for spec in plan.study.sets}
    found = []
    for at, played in rounds.items():
        spec = specs[at.group, at.set]
        classes = plan.facts(spec).classes
        where = (at.group, at.set, spec.source, spec.family, classes, at.rows, at.seed)
        for report, measured in played.measures.items():
            found += [
                Result(*where, *report, name, float(measured[name]))
                for name in _KEPT
                if name in measured
            ]
    return found


def chapter(plan: Plan, rounds: Mapping[Round, Played]) -> Chapter:
    """Tell the league."""
    league = plan.study.league
    assert league is not None
    results = [each for each in results_of(plan, rounds) if each.repair != CAPPED]
    kept = keepers(results)
    losses = {measure: Losses.of(results, measure) for measure in (*LOSSES, "ece")}
    verdicts = [judge(claim, results) for claim in league.claims]
    return Chapter(
        key="league",
        title="The league: which calibrator, and when",
        paragraphs=(*_rules(plan, league, losses["nll"]), *_leaders(losses, kept)),
        tables=(
            _claims(verdicts),
            when(results, kept),
            _standings("keepers", results, losses, kept, only=True),
            _standings("all", results, losses, kept, only=False),
            *(_duels(name, losses, kept) for name in league.duels),
            by_set(results, kept),
        ),
        figures=tuple(_ranks(measure, losses[measure], kept) for measure in LOSSES),
        rows=results,
        files=csv_files(plan, rounds),
    )


def _rules(plan: Plan, league: League, losses: Losses) -> Iterator[str]:
    sizes = ", ".join(f"{each:,}" if isinstance(each, int) else each for each in league.rows)
    networks = ", ".join(table_name(key) for key in league.calibrators if is_network(key))
    named = ", ".join(spec.name for spec in plan.study.sets if spec.networks and spec.league)
    limits = "; ".join(
        f"{table_name(key)} up to {most} classes" for key, most in league.most_classes.items()
    )
    yield (
        f"Every map plays as it is, repaired by CORD, and repaired by lift, on "
        f"{len(set(losses.sets))} sets from {len(set(losses.sources))} sources. Calibration rows: "
        f"{sizes} (all: half of a set or a given calibration file, at most "
        f"{league.most_rows:,}), random splits with {len(league.seeds)} seeds, and at most "
        f"{league.most_evaluation:,} evaluation rows, drawn at random. Maps that keep decisions "
        f"by construction need no repair. Out-of-fold fits (five folds) are made once and shared "
        f"by lift and blend."
        + (f" For their time, some play on smaller sets alone: {limits}." if limits else "")
        + (f" Networks ({networks}) play on {named or 'no set'}." if networks else "")
    )
    yield (
        "PHI is the loss of the original report minus that of the report: positive is better. A "
        "win rate is the share of the others that a report beats, ties counted half. Rounds are "
        "averaged within a set, sets within their source, and every source counts the same; "
        "intervals (95 %) resample sources, because sets of one source share their images or "
        f"texts; below {FEWEST} sources there are none. NLL has a floor of 1e-12, which isotonic "
        "maps reach with exact zeros; CORD and lift lift them, so compare their direct reports by "
        "Brier."
    )


def _leaders(losses: Mapping[str, Losses], kept: set[Report]) -> Iterator[str]:
    """Say who leads, among reports that keep decisions and among all."""
    for measure in LOSSES:
        name = shown_as(measure).name
        parts = []
        for words, chosen in (("that keep every decision", kept), ("of all", None)):
            among = comparable(losses[measure], chosen)
            if len(among.reports) < 2 or not len(among.values):
                continue
            rates = interval(win_rates(among))
            best = int(np.nanargmax(rates.mean))
            parts.append(
                f"{report_name(among.reports[best])} among those {words} "
                f"({rate(rates, best)}{not_told_apart(among, best)})"
            )
        if parts:
            yield f"By {name} the highest win rates have " + " and ".join(parts) + "."


def _claims(verdicts: Sequence[Verdict]) -> Table:
    lines = []
    for verdict in verdicts:
        claim, hardest = verdict.claim, verdict.hardest
        shown = "–"
        if hardest is not None:
            won = Interval(
                *(np.array([each]) for each in (hardest.rate, hardest.low, hardest.high))
            )
            shown = f"{rate(won, 0)} against {report_name(hardest.against)}"
        below = sum(duel.rate <= 0.5 for duel in verdict.duels)
        lines.append(
            (
                text(claim.text),
                text(verdict.outcome, strong=verdict.outcome == "holds"),
                text(shown_as(claim.measure).name.split(" (")[0]),
                text(f"{len(verdict.duels) - below} of {len(verdict.duels)}"),
                text(shown),
            )
        )
    return Table(
        "claims",
        "What was written into the study's file before the run, and what came of it. Won: duels "
        "won more than half the time. Hardest: the duel won least often. A claim holds where "
        "every duel is won with an interval above one half; on average where an interval "
        f"reaches one half, or where fewer than {FEWEST} sources give none.",
        ("Claim", "Outcome", "By", "Won", "Hardest"),
        tuple(lines),
    )


def _standings(
    name: str,
    results: Sequence[Result],
    losses: Mapping[str, Losses],
    kept: set[Report],
    *,
    only: bool,
) -> Table:
    chosen = [each for each in losses["nll"].reports if not only or each in kept]
    rates = {measure: interval(win_rates(losses[measure].among(chosen))) for measure in LOSSES}
    gains = {measure: _gains(losses[measure].among(chosen)) for measure in LOSSES}
    errors = {
        measure: interval(table.over_sources(table.values)).mean
        for measure in ("ece", "tpcr")
        for table in [Losses.of(results, measure).among(chosen)]
    }
    played = losses["nll"].among(chosen)
    lines: list[tuple[Entry, ...]] = []
    for place in np.argsort(-np.nan_to_num(rates["nll"].mean)):
        report = chosen[place]
        there = ~np.isnan(played.values[:, place])
        sets = len({each for each, yes in zip(played.sets, there, strict=True) if yes})
        phi = [change(float(gains[measure][place]), 4) for measure in LOSSES]
        lines.append(
            (
                text(report_name(report), strong=not only and report in kept),
                text(str(sets)),
                *((part,) for part in phi),
                *((number(100.0 * float(errors[each][place]), 2),) for each in ("ece", "tpcr")),
                *(text(rate(rates[measure], place)) for measure in LOSSES),
            )
        )
    which = "that changed no decision in any round" if only else "(bold: changed no decision)"
    return Table(
        f"standings-{name}",
        f"All reports {which}, by NLL win rate among them. Means over sources of the rounds each "
        "played in.",
        (
            "Report",
            "Sets",
            "PHI NLL",
            "PHI Brier",
            "ECE (%)",
            "TPCR (%)",
            "NLL win rate",
            "Brier win rate",
        ),
        tuple(lines),
    )


def _gains(losses: Losses) -> Array:
    original = losses.values[:, [losses.reports.index(ORIGINAL)]]
    return interval(losses.over_sources(original - losses.values)).mean


def _duels(name: str, losses: Mapping[str, Losses], kept: set[Report]) -> Table:
    own = next((each for each in losses["nll"].reports if each.name == name), None)
    lines: list[tuple[Entry, ...]] = []
    if own is not None:
        others = [each for each in losses["nll"].reports if each != own]
        found = {
            measure: {each.against: each for each in against(table, own, others)}
            for measure, table in losses.items()
        }
        order = sorted(found["nll"], key=lambda each: found["nll"][each].rate)
        for other in order:
            entries = [text(report_name(other), strong=other in kept)]
            for measure in losses:
                duel = found[measure][other]
                ends = (
                    ""
                    if math.isnan(duel.low)
                    else f" [{100 * duel.low:.0f}, {100 * duel.high:.0f}]"
                )
                clear = duel.low > 0.5
                entries.append((Part(f"{100 * duel.rate:.0f}{ends}", clear),))
            lines.append(tuple(entries))
    shown = name if own is None else report_name(own)
    return Table(
        f"duels-{name.replace(' + ', '-')}",
        f"How often {shown} has the lower loss, in percent with 95 % intervals over sources. "
        "Reports in bold changed no decision; rates in bold are clearly above one half.",
        ("Against", *(shown_as(measure).name.split(" (")[0] for measure in losses)),
        tuple(lines),
    )


def _ranks(measure: str, losses: Losses, kept: set[Report]) -> Figure:
    panels = []
    for title, chosen in (("keep every decision", kept), ("all reports", None)):
        among = comparable(losses, chosen)
        if len(among.reports) < 2 or not len(among.values):
            continue
        found = interval(ranks(among))
        order = np.argsort(found.mean)
        sources = len(set(among.sources))
        panels.append(
            {
                "title": f"{title}: {len(order)} reports, {len(set(among.sets))} sets, "
                f"{sources} sources",
                "names": [report_name(among.reports[place]) for place in order],
                "keeps": [among.reports[place] in kept for place in order],
                "mean": found.mean[order].tolist(),
                "low": found.low[order].tolist(),
                "high": found.high[order].tolist(),
                "critical": critical_difference(len(order), sources),
            }
        )
    return Figure(
        f"ranks-{measure}",
        "ranks",
        f"Mean ranks by {shown_as(measure).name}, 1 is best: left among reports that changed no "
        "decision, right among all. Whiskers are 95 % intervals over sources. Reports within the "
        "grey band are closer to the first than the critical difference (Nemenyi test over "
        "sources): ranks alone do not tell them apart. Only sets on which all of them played.",
        {"panels": panels},
    )
