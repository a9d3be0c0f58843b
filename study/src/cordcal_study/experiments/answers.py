"""Answers of language models: what a repair gains there, and what it cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from cordcal.calibrators import calibrator_class
from cordcal_study.benchmark.trials import ALL
from cordcal_study.cells import UNCALIBRATED, Plan
from cordcal_study.chapters import MAIN, Chapter, Entry, Table, number, shown_as, table_name, text
from cordcal_study.repairs import CORDS, DIRECT, LIFT, LIKELY
from cordcal_study.tidy import Result, means

_REPAIRED = {CORDS: "CORD", LIFT: "lift", LIKELY: "lift, likelihood"}
# Above this, the rows at the bound carry most of the overconfidence.
_MOST = 0.5
Values = Mapping[tuple[Any, ...], float]


def chapter(plan: Plan, results: Sequence[Result]) -> Chapter:
    """Return the chapter on answers: all calibration rows, means over splits."""
    groups = plan.study.answers
    results = [result for result in results if result.group in groups and result.rows == ALL]
    values = means(results, "set", "calibrator", "repair", "measure")
    sets = list(dict.fromkeys(result.set for result in results))
    bases = _bases(results)
    sources = len({result.source for result in results})
    return Chapter(
        key="answers",
        title="Answers of language models",
        paragraphs=tuple(_account(values, sets, bases, sources)) if bases else (),
        tables=(
            _counts(values, sets, bases),
            _complete(values, sets, bases),
            _bounds(values, sets, bases),
        ),
        data={"data": results},
    )


def _bases(results: Sequence[Result]) -> list[str]:
    """Return the calibrators that may change answers and were repaired."""
    keys = dict.fromkeys(result.calibrator for result in results if result.repair == CORDS)
    return [key for key in keys if calibrator_class(key).role == "base"]


def _scalers(values: Values, name: str) -> list[str]:
    """Return the rivals, which keep answers by design, that changed none of a set."""
    keys = dict.fromkeys(key for at, key, _, _ in values if at == name and key != UNCALIBRATED)
    return [
        key
        for key in keys
        if calibrator_class(key).role == "rival" and values[name, key, DIRECT, "tpcr"] == 0.0
    ]


def _best_scaler(values: Values, name: str, measure: str) -> tuple[float, str]:
    """Return the lowest value of all scalers: chosen in hindsight, in their favour."""
    return min((values[name, key, DIRECT, measure], key) for key in _scalers(values, name))


def _won(values: Values, sets: Sequence[str], base: str, repair: str, measure: str) -> list[bool]:
    return [
        values[name, base, repair, measure] < _best_scaler(values, name, measure)[0]
        for name in sets
        if (name, base, repair, measure) in values
    ]


def _account(
    values: Values, sets: Sequence[str], bases: Sequence[str], sources: int
) -> Iterator[str]:
    """Yield sentences that follow from the numbers."""
    accuracy = fmean(values[name, UNCALIBRATED, DIRECT, "accuracy"] for name in sets)
    tpcr = fmean(values[name, key, DIRECT, "tpcr"] for name in sets for key in bases)
    yield (
        f"{len(sets)} models, right in {100 * accuracy:.0f} % of their answers on average; the "
        f"calibrators that may change answers change {100 * tpcr:.0f} % of them. Each repaired "
        "calibrator is compared with the best of all scalers that keep the answer, chosen for "
        "every set and metric by its value on the evaluation rows: that favours the scalers."
        + (
            " All models answer the same questions, so there is one source, and no interval."
            if sources == 1
            else ""
        )
    )
    shares: dict[tuple[str, str], float] = {}
    for repair in (CORDS, LIFT):
        won = {
            measure: [wins for key in bases for wins in _won(values, sets, key, repair, measure)]
            for measure in MAIN
        }
        shares |= {(repair, measure): fmean(wins) for measure, wins in won.items()}
        counts = ", ".join(
            f"{shown_as(measure).name.split(' (')[0]} in {sum(won[measure])} of {len(won[measure])}"
            for measure in ("nll", "brier", "ece")
        )
        name = _REPAIRED[repair]
        yield f"Repaired by {name}, a calibrator has the lower {counts} conditions."
    scores = min(
        shares[repair, measure] for repair in (CORDS, LIFT) for measure in ("nll", "brier")
    )
    errors = max(shares[repair, "ece"] for repair in (CORDS, LIFT))
    if scores > 0.5 > errors:
        yield "So repaired calibrators win by the proper scores, and not by ECE."
    elif scores > 0.5:
        yield "So repaired calibrators win by the proper scores, and by ECE do not mostly lose."
    else:
        yield "So repaired calibrators do not win by both proper scores here."
    yield from _reason(values, sets, bases, lost=errors < 0.5)


def _reason(
    values: Values, sets: Sequence[str], bases: Sequence[str], *, lost: bool
) -> Iterator[str]:
    """Yield the reason for a higher ECE, if it is the rows at the bound."""
    places = [(name, key) for name in sets for key in bases]
    at = fmean(values[*place, CORDS, "at_bound"] for place in places)
    there = fmean(
        values[*place, CORDS, "at_bound"] * values[*place, CORDS, "bound_gap"] for place in places
    )
    whole = fmean(values[*place, CORDS, "gap"] for place in places)
    if at == 0.0:
        return
    sentence = (
        f"With CORD {100 * at:.0f} % of the rows have the least confidence that keeps their "
        f"answer, and there it is {100 * there / at:+.0f} points from the accuracy of those "
        f"rows. Alone they would put the mean confidence {100 * there:+.1f} points off; over all "
        f"rows it is {100 * whole:+.1f}."
    )
    if lost and there > 0 and there >= _MOST * whole:
        sentence += (
            " Where the kept answer is probably wrong, no vector with that argmax can show it: the "
            "second answer already has as much."
        )
    yield sentence
    yield from _with_likelihood(
        values, [place for place in places if (*place, LIKELY, "nll") in values]
    )


def _with_likelihood(values: Values, places: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield what lift gains and loses if it prefers the likelihood."""
    if not places:
        return
    errors, losses = (
        [fmean(values[*place, repair, measure] for place in places) for repair in (LIFT, LIKELY)]
        for measure in ("ece", "nll")
    )
    yield (
        f"If it prefers the likelihood, lift raises the kept answer instead of lowering the "
        f"others: ECE goes from {100 * errors[0]:.1f} to {100 * errors[1]:.1f} %, NLL from "
        f"{losses[0]:.3f} to {losses[1]:.3f}."
    )


def _counts(values: Values, sets: Sequence[str], bases: Sequence[str]) -> Table:
    lines = []
    for key in bases:
        entries = [text(table_name(key))]
        for repair in _REPAIRED:
            for measure in MAIN:
                won = _won(values, sets, key, repair, measure)
                entries.append(text(f"{sum(won)}/{len(won)}" if won else "–"))
        lines.append(tuple(entries))
    header = [
        f"{name}: {shown_as(measure).name.split(' (')[0]}"
        for name in _REPAIRED.values()
        for measure in MAIN
    ]
    return Table(
        "answers-won",
        "On how many sets a repaired calibrator is below the best of all scalers that keep the "
        "answer, which is chosen in hindsight for each set and metric.",
        ("Calibrator", *header),
        tuple(lines),
    )


def _complete(values: Values, sets: Sequence[str], bases: Sequence[str]) -> Table:
    lines: list[tuple[Entry, ...]] = []
    for name in sets:
        best = {measure: _best_scaler(values, name, measure) for measure in MAIN}
        rows = [("original", UNCALIBRATED, DIRECT)]
        rows += [(table_name(key), key, DIRECT) for key in bases]
        rows += [
            (f"{table_name(key)} + {_REPAIRED[repair]}", key, repair)
            for key in bases
            for repair in _REPAIRED
        ]
        lowest = {
            measure: min(
                [best[measure][0]]
                + [
                    values[name, key, repair, measure]
                    for _, key, repair in rows
                    if repair != DIRECT and (name, key, repair, measure) in values
                ]
            )
            for measure in MAIN
        }
        scaler = " / ".join(table_name(best[measure][1]) for measure in MAIN)
        entries = [text(name), text(f"best scaler: {scaler}"), text("0.00")]
        entries += [_shown(measure, best[measure][0], lowest[measure]) for measure in MAIN]
        lines.append(tuple(entries))
        for label, key, repair in rows:
            if (name, key, repair, "nll") not in values:
                continue
            tpcr = values[name, key, repair, "tpcr"]
            cells = [text(name), text(label), (number(100 * tpcr, 2),)]
            for measure in MAIN:
                least = lowest[measure] if tpcr == 0.0 else None
                cells.append(_shown(measure, values[name, key, repair, measure], least))
            lines.append(tuple(cells))
    return Table(
        "answers",
        "Every set: the best scaler for each metric, the original, and every calibrator that may "
        "change answers, direct and repaired. Bold: the lowest among those that keep every answer.",
        ("Set", "Output", "Answers changed (%)", *(shown_as(measure).name for measure in MAIN)),
        tuple(lines),
    )


def _shown(measure: str, value: float, lowest: float | None) -> Entry:
    shown = shown_as(measure)
    return (number(shown.scale * value, shown.digits, strong=value == lowest),)


def _bounds(values: Values, sets: Sequence[str], bases: Sequence[str]) -> Table:
    lines: list[tuple[Entry, ...]] = []
    for name in sets:
        for repair, words in _REPAIRED.items():
            keys = [key for key in bases if (name, key, repair, "gap") in values]
            if not keys:
                continue
            share, gap, total_gap = (
                fmean(values[name, key, repair, part] for key in keys)
                for part in ("at_bound", "bound_gap", "gap")
            )
            shown = (number(100 * share, 1), number(100 * gap, 1, signed=True))
            total = number(100 * total_gap, 1, signed=True)
            lines.append((text(name), text(words), *((part,) for part in (*shown, total))))
    return Table(
        "answers-bound",
        "Rows whose answer has the least probability that keeps it, means over calibrators: their "
        "share, and by how many points their confidence exceeds their accuracy; last, the same of "
        "all rows.",
        ("Set", "Repair", "Rows (%)", "gap there (pp)", "gap of all (pp)"),
        tuple(lines),
    )
