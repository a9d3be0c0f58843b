"""The benchmark: every calibrator direct, with CORD and with lift; which to use, and when."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cordcal_study.benchmark.ranking import (
    MIN_SOURCES,
    Array,
    Interval,
    Losses,
    Verdict,
    compare_with,
    critical_difference,
    interval,
    judge,
    preserving,
    ranked,
    ranks,
    win_rates,
)
from cordcal_study.benchmark.trials import ORIGINAL, Output, Trial, TrialResult
from cordcal_study.calibrators import is_network
from cordcal_study.cells import Plan
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
from cordcal_study.repairs import CORDS, DIRECT, LIFT, LIKELY
from cordcal_study.specs import Benchmark
from cordcal_study.tidy import Result, means

_MEASURES = ("accuracy", "nll", "nll_1e-6", "brier", "ece", "tpcr", "at_bound", "bound_gap", "gap")
# The proper scores, by which outputs are ranked.
_LOSSES = ("nll", "brier")
_REPAIRS = {DIRECT: "", CORDS: " + CORD", LIFT: " + lift", LIKELY: " + lift, likelihood"}
# Kinds of sets by upper bounds, the last one open.
_CLASSES = {"2 to 10 classes": 10, "11 to 100 classes": 100, "more than 100 classes": math.inf}
_ACCURACIES = {"accuracy below 0.7": 0.7, "accuracy 0.7 to 0.9": 0.9, "accuracy above 0.9": 1.0}


def results_of(plan: Plan, trials: Mapping[Trial, TrialResult]) -> list[Result]:
    """Return the numbers of all trials, one per output and metric."""
    specs = {(spec.group, spec.name): spec for spec in plan.study.sets}
    results = []
    for trial, result in trials.items():
        spec = specs[trial.group, trial.set]
        classes = plan.facts(spec).classes
        where = (trial.group, trial.set, spec.source, spec.family, classes, trial.rows, trial.seed)
        for output, measured in result.measures.items():
            results += [
                Result(*where, *output, name, float(measured[name]))
                for name in _MEASURES
                if name in measured
            ]
    return results


def chapter(plan: Plan, results: Sequence[Result]) -> Chapter:
    """Return the chapter of the benchmark."""
    benchmark = plan.study.benchmark
    assert benchmark is not None
    results = [result for result in results if result.repair != LIKELY]
    unchanged = preserving(results)
    losses = {measure: Losses.of(results, measure) for measure in (*_LOSSES, "ece")}
    verdicts = [judge(claim, results) for claim in benchmark.claims]
    return Chapter(
        key="benchmark",
        title="The benchmark: which calibrator, and when",
        paragraphs=(*_rules(plan, benchmark, losses["nll"]), *_leaders(losses, unchanged)),
        tables=(
            _claims(verdicts),
            _when(results, unchanged),
            _ranking("preserving", results, losses, unchanged, only=True),
            _ranking("all", results, losses, unchanged, only=False),
            *(_comparisons(name, losses, unchanged) for name in benchmark.comparisons),
            _by_set(results, unchanged),
        ),
        figures=tuple(_ranks(measure, losses[measure], unchanged) for measure in _LOSSES),
        data={"data": results},
    )


def _output_name(output: Output) -> str:
    return table_name(output.calibrator) + _REPAIRS[output.repair]


def _rules(plan: Plan, benchmark: Benchmark, losses: Losses) -> Iterator[str]:
    sizes = ", ".join(f"{rows:,}" if isinstance(rows, int) else rows for rows in benchmark.rows)
    networks = ", ".join(table_name(key) for key in benchmark.calibrators if is_network(key))
    named = ", ".join(spec.name for spec in plan.study.sets if spec.networks and spec.benchmark)
    limits = "; ".join(
        f"{table_name(key)} up to {limit} classes" for key, limit in benchmark.max_classes.items()
    )
    sets, sources = len(set(losses.sets)), len(set(losses.sources))
    yield (
        f"Every calibrator runs on {_count(sets, 'set')} from {_count(sources, 'source')}, and is "
        f"measured as it is, repaired by CORD, and repaired by lift. Calibration rows: {sizes} "
        f"(all: half of a set or a given calibration file, at most {benchmark.max_rows:,}), random "
        f"splits with {_count(len(benchmark.seeds), 'seed')}, and at most "
        f"{benchmark.max_evaluation_rows:,} evaluation rows, drawn at random. Calibrators that "
        f"keep predictions by construction need no repair. Out-of-fold fits (five folds) are made "
        f"once and shared by lift and blend."
        + (f" Some take too long with many classes and run on fewer: {limits}." if limits else "")
        + (f" Networks ({networks}) run on {named or 'no set'}." if networks else "")
    )
    yield (
        "A gain is the loss of the original probabilities minus that of the output: positive is "
        "better. A win rate is the share of the other outputs that an output beats; ties count "
        "half. Trials are averaged within a set and sets within their source, and every source "
        "counts the same; intervals (95 %) resample sources, because sets of one source share "
        f"their images or texts; with fewer than {MIN_SOURCES} sources there are none. NLL clips "
        "probabilities at 1e-12. Isotonic calibrators give exact zeros, which CORD and lift "
        "replace, so compare the direct outputs of isotonic calibrators by Brier."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _leaders(losses: Mapping[str, Losses], unchanged: set[Output]) -> Iterator[str]:
    """Name the outputs with the highest win rates, among those that keep predictions and all."""
    for measure in _LOSSES:
        parts = []
        for words, chosen in (("that keep every prediction", unchanged), ("of all", None)):
            common = _comparable(losses[measure], chosen)
            if len(common.outputs) < 2 or not len(common.values):
                continue
            rates = interval(win_rates(common))
            best = int(np.nanargmax(rates.mean))
            parts.append(
                f"{_output_name(common.outputs[best])} among those {words} "
                f"({_rate(rates, best)}{_close_others(common, best)})"
            )
        if parts:
            name = shown_as(measure).name
            yield f"The highest win rates by {name}: " + "; ".join(parts) + "."


def _comparable(losses: Losses, chosen: set[Output] | None) -> Losses:
    """Return the outputs and trials that can be ranked."""
    return ranked(
        losses.among([output for output in losses.outputs if chosen is None or output in chosen])
    )


def _rate(rates: Interval, at: int) -> str:
    """Return a rate in percent, with its interval if there is one."""
    mean, low, high = (100.0 * float(part[at]) for part in (rates.mean, rates.low, rates.high))
    ends = "" if math.isnan(low) else f" [{low:.0f}, {high:.0f}]"
    return f"{mean:.0f} %{ends}"


def _close_others(losses: Losses, best: int) -> str:
    """Count the other outputs that the best does not clearly beat, if there are intervals."""
    others = [output for output in losses.outputs if output != losses.outputs[best]]
    compared = compare_with(losses, losses.outputs[best], others)
    if all(math.isnan(comparison.low) for comparison in compared):
        return ""
    close = sum(not comparison.low > 0.5 for comparison in compared)
    return f"; {close} of {len(others)} others not clearly behind"


def _claims(verdicts: Sequence[Verdict]) -> Table:
    lines = []
    for verdict in verdicts:
        claim, hardest = verdict.claim, verdict.hardest
        shown = "–"
        if hardest is not None:
            rates = Interval(
                *(np.array([value]) for value in (hardest.rate, hardest.low, hardest.high))
            )
            shown = f"{_rate(rates, 0)} against {_output_name(hardest.against)}"
        below = sum(comparison.rate <= 0.5 for comparison in verdict.comparisons)
        lines.append(
            (
                text(claim.text),
                text(verdict.outcome, strong=verdict.outcome == "holds"),
                text(shown_as(claim.metric).name.split(" (")[0]),
                text(f"{len(verdict.comparisons) - below} of {len(verdict.comparisons)}"),
                text(shown),
            )
        )
    return Table(
        "claims",
        "Claims written into the study file before the run, and their outcomes. Won: comparisons "
        "with a win rate above one half. Hardest: the comparison with the lowest win rate. A claim "
        "holds if all its intervals are above one half, and on average if an interval contains "
        f"one half, or if there are none because of fewer than {MIN_SOURCES} sources.",
        ("Claim", "Outcome", "By", "Won", "Hardest"),
        tuple(lines),
    )


def _ranking(
    name: str,
    results: Sequence[Result],
    losses: Mapping[str, Losses],
    unchanged: set[Output],
    *,
    only: bool,
) -> Table:
    chosen = [output for output in losses["nll"].outputs if not only or output in unchanged]
    rates = {measure: interval(win_rates(losses[measure].among(chosen))) for measure in _LOSSES}
    gains = {measure: _gains(losses[measure].among(chosen)) for measure in _LOSSES}
    errors = {
        measure: interval(table.over_sources(table.values)).mean
        for measure in ("ece", "tpcr")
        for table in [Losses.of(results, measure).among(chosen)]
    }
    nll = losses["nll"].among(chosen)
    lines: list[tuple[Entry, ...]] = []
    for place in np.argsort(-np.nan_to_num(rates["nll"].mean)):
        output = chosen[place]
        ran = ~np.isnan(nll.values[:, place])
        sets = len({name for name, yes in zip(nll.sets, ran, strict=True) if yes})
        gain = [change(float(gains[measure][place]), 4) for measure in _LOSSES]
        lines.append(
            (
                text(_output_name(output), strong=not only and output in unchanged),
                text(str(sets)),
                *((part,) for part in gain),
                *((number(100.0 * float(errors[metric][place]), 2),) for metric in ("ece", "tpcr")),
                *(text(_rate(rates[measure], place)) for measure in _LOSSES),
            )
        )
    which = "that changed no prediction in any trial" if only else "(bold: changed no prediction)"
    return Table(
        f"ranking-{name}",
        f"All outputs {which}, by their NLL win rate. Means over sources of the trials in which "
        "each ran.",
        (
            "Output",
            "Sets",
            "NLL gain",
            "Brier gain",
            "ECE (%)",
            "Predictions changed (%)",
            "NLL win rate",
            "Brier win rate",
        ),
        tuple(lines),
    )


def _gains(losses: Losses) -> Array:
    original = losses.values[:, [losses.outputs.index(ORIGINAL)]]
    return interval(losses.over_sources(original - losses.values)).mean


def _comparisons(name: str, losses: Mapping[str, Losses], unchanged: set[Output]) -> Table:
    own = next((output for output in losses["nll"].outputs if output.name == name), None)
    lines: list[tuple[Entry, ...]] = []
    if own is not None:
        others = [output for output in losses["nll"].outputs if output != own]
        compared = {
            measure: {
                comparison.against: comparison for comparison in compare_with(table, own, others)
            }
            for measure, table in losses.items()
        }
        for other in sorted(compared["nll"], key=lambda output: compared["nll"][output].rate):
            entries = [text(_output_name(other), strong=other in unchanged)]
            for measure in losses:
                rate, low, high = (
                    100 * getattr(compared[measure][other], part)
                    for part in ("rate", "low", "high")
                )
                ends = "" if math.isnan(low) else f" [{low:.0f}, {high:.0f}]"
                entries.append((Part(f"{rate:.0f}{ends}", low > 50),))
            lines.append(tuple(entries))
    shown = name if own is None else _output_name(own)
    return Table(
        f"comparisons-{name.replace(' + ', '-')}",
        f"How often {shown} has the lower loss, in percent with 95 % intervals over sources. "
        "Outputs in bold changed no prediction; rates in bold are clearly above one half.",
        ("Against", *(shown_as(measure).name.split(" (")[0] for measure in losses)),
        tuple(lines),
    )


def _ranks(measure: str, losses: Losses, unchanged: set[Output]) -> Figure:
    panels = []
    for title, chosen in (("keep every prediction", unchanged), ("all outputs", None)):
        common = _comparable(losses, chosen)
        if len(common.outputs) < 2 or not len(common.values):
            continue
        mean_ranks = interval(ranks(common))
        order = np.argsort(mean_ranks.mean)
        sources = len(set(common.sources))
        panels.append(
            {
                "title": f"{title}: {len(order)} outputs, {_count(len(set(common.sets)), 'set')}, "
                f"{_count(sources, 'source')}",
                "names": [_output_name(common.outputs[place]) for place in order],
                "keeps": [common.outputs[place] in unchanged for place in order],
                "mean": mean_ranks.mean[order].tolist(),
                "low": mean_ranks.low[order].tolist(),
                "high": mean_ranks.high[order].tolist(),
                "critical": critical_difference(len(order), sources),
            }
        )
    return Figure(
        f"ranks-{measure}",
        "ranks",
        f"Mean ranks by {shown_as(measure).name}, 1 is best: left among outputs that changed no "
        "prediction, right among all. Whiskers are 95 % intervals over sources. Outputs within "
        "the grey band are closer to the first than the critical difference (Nemenyi test over "
        "sources): their ranks do not differ significantly. Only sets on which all of them ran.",
        {"panels": panels},
    )


def _when(results: Sequence[Result], unchanged: set[Output]) -> Table:
    """Show the best outputs on each kind of set."""
    lines: list[tuple[Entry, ...]] = []
    for kind, name, inside in _slices(results):
        if not inside:
            continue
        sources = len({result.source for result in inside})
        sets = len({(result.group, result.set) for result in inside})
        entries = [text(kind), text(name), text(f"{sets} ({sources})")]
        entries += [text(_best(Losses.of(inside, measure), unchanged)) for measure in _LOSSES]
        common = _comparable(Losses.of(inside, "nll"), None)
        entries.append(text(_best(common, None)))
        entries.append(_cost(common, unchanged))
        lines.append(tuple(entries))
    return Table(
        "when",
        "The best on each kind of set: the highest win rates among outputs that keep every "
        "prediction, then among all outputs; last, what keeping predictions costs: the lowest "
        "mean NLL of an output that keeps them minus the lowest of all. Chosen in hindsight, from "
        "few sources: an indication, not a proof.",
        (
            "",
            "Sets like",
            "Sets (sources)",
            "Keeps predictions, by NLL",
            "Keeps predictions, by Brier",
            "Any, by NLL",
            "Cost of keeping",
        ),
        tuple(lines),
    )


def _best(losses: Losses, chosen: set[Output] | None) -> str:
    common = _comparable(losses, chosen)
    if len(common.outputs) < 2 or not len(common.values):
        return "–"
    rates = interval(win_rates(common))
    best = int(np.nanargmax(rates.mean))
    name = _output_name(common.outputs[best])
    return f"{name}, {_rate(rates, best)}{_close_others(common, best)}"


def _cost(losses: Losses, unchanged: set[Output]) -> Entry:
    if not len(losses.values):
        return text("–")
    mean = interval(losses.over_sources(losses.values)).mean
    values = [mean[place] for place, output in enumerate(losses.outputs) if output in unchanged]
    return (number(float(min(values) - mean.min()), 4),) if values else text("–")


def _slices(results: Sequence[Result]) -> Iterator[tuple[str, str, list[Result]]]:
    """Yield kinds of sets: what they have in common, its value, and their results."""
    yield "all", "all", list(results)
    low = 0.0
    for name, high in _CLASSES.items():
        yield "classes", name, [result for result in results if low < result.classes <= high]
        low = high
    for rows in dict.fromkeys(result.rows for result in results):
        yield (
            "rows",
            f"{rows} calibration rows",
            [result for result in results if result.rows == rows],
        )
    for family in dict.fromkeys(result.family for result in results):
        yield "classifier", family, [result for result in results if result.family == family]
    accuracy = _accuracies(results)
    low = -1.0
    for name, high in _ACCURACIES.items():
        sets = {place for place, value in accuracy.items() if low < value <= high}
        yield "accuracy", name, [result for result in results if (result.group, result.set) in sets]
        low = high


def _accuracies(results: Sequence[Result]) -> Mapping[tuple[Any, ...], float]:
    own = [
        result
        for result in results
        if (result.calibrator, result.measure) == (ORIGINAL.calibrator, "accuracy")
    ]
    return means(own, "group", "set")


def _by_set(results: Sequence[Result], unchanged: set[Output]) -> Table:
    """Show each set: the original, the best output that keeps predictions, the best of all."""
    accuracy = _accuracies(results)
    lines = []
    for group, name in accuracy:
        inside = [result for result in results if (result.group, result.set) == (group, name)]
        table = Losses.of([result for result in inside if result.repair in _REPAIRS], "nll")
        mean = interval(table.over_sources(table.values)).mean
        by_output = dict(zip(table.outputs, mean.tolist(), strict=True))
        first = inside[0]
        best = min(
            (output for output in by_output if output in unchanged), key=by_output.__getitem__
        )
        free = min(by_output, key=by_output.__getitem__)
        lines.append(
            (
                text(group),
                text(name),
                text(first.source),
                text(first.family),
                text(str(first.classes)),
                (number(100.0 * accuracy[group, name], 1),),
                (number(by_output[ORIGINAL], 4),),
                text(f"{_output_name(best)} {by_output[best]:.4f}"),
                text(f"{_output_name(free)} {by_output[free]:.4f}"),
            )
        )
    return Table(
        "benchmark-sets",
        "Every set of the benchmark: mean NLL over its trials of the original probabilities, of "
        "the best output that keeps predictions and of the best of all, each chosen in hindsight.",
        (
            "Group",
            "Set",
            "Source",
            "Family",
            "K",
            "Acc. (%)",
            "original",
            "best that keeps predictions",
            "best",
        ),
        tuple(lines),
    )
