"""The tables of ``fresh.py``: ratios with intervals, claims, sets, subjects, the paper's rows."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

FORMER = "6090558"
RESAMPLES = 10_000
DEFAULT = "blend + lift"
NAMES = {
    "original": "uncalibrated classifier",
    "ts": "temperature scaling (TS)",
    "ets": "ensemble temperature scaling (ETS)",
    "mono": "monotone calibrator (Mono)",
    "sms": "structured matrix scaling (SMS)",
    "sms + cord": "SMS + CORD",
    "sms + lift": "SMS + lift",
    "boost": "boost",
    "boost + cord": "boost + CORD",
    "boost + lift": "boost + lift",
    "boosted-blend": "boosted blend",
    "boosted-blend + cord": "boosted blend + CORD",
    "boosted-blend + lift": "boosted blend + lift",
    "blend": "blend",
    "blend + cord": "blend + CORD",
    DEFAULT: "blend + lift, the default",
}
MAIN = ("original", "ts", "ets", "mono", "sms", "sms + cord", "blend", "blend + cord", DEFAULT)
# What CalArena calls the outputs, and the metrics.
CALARENA = {
    "original": "Base-model",
    "ts": "TS",
    "ets": "ETS",
    "sms": "SMS",
    "sms + cord": "SMS+CORD",
    "sms + lift": "SMS+lift",
    "blend": "Blend",
    DEFAULT: "Blend+lift",
    "boost": "Boost",
}
CALARENA_METRICS = {
    "brier": "brier",
    "logloss": "nll",
    "ece-15": "ece",
    "accuracy": "accuracy",
    "time": "seconds",
    "tpcr": "tpcr",
}
MEASURES = ("nll", "nll_1e-6", "brier", "ece", "accuracy", "tpcr", "floored", "seconds")
SHORT = {"nll": "NLL", "brier": "Brier", "ece": "ECE"}


@dataclass(frozen=True)
class Ratio:
    """A geometric mean over sources, its interval and range without any one, the sets below one."""

    mean: float
    low: float
    high: float
    below: int
    sets: int
    worst: float
    without_one: tuple[float, float]
    student: tuple[float, float]

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Run:
    """The measurements of one commit: values by set, output and metric, averaged over seeds."""

    def __init__(self, path: Path, study: dict[str, Any]) -> None:
        self.commit = path.stem
        self.entries = {entry["name"]: entry for entry in study["set"]}
        self.by_seed: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
        self.recommended: dict[str, str] = {}
        for line in read_csv(path):
            key = line["set"], line["output"]
            numbers = {
                name: float(value)
                for name, value in line.items()
                if name not in ("set", "seed", "output", "recommended")
            }
            self.by_seed.setdefault(key, {})[int(line["seed"])] = numbers
            if line["recommended"] == "1":
                self.recommended[line["set"]] = line["output"]
        first = study["seeds"][0]
        self.first = {key: seeds[first] for key, seeds in self.by_seed.items()}
        self.values = {
            key: {
                name: float(np.mean([values[name] for values in seeds.values()]))
                for name in MEASURES
            }
            for key, seeds in self.by_seed.items()
        }
        self.rows = {
            line["set"]: line
            for line in reversed(read_csv(path.with_name(f"{path.stem}-rows.csv")))
        }
        self.groups = read_csv(path.with_name(f"{path.stem}-groups.csv"))

    def get(self, name: str, output: str, metric: str) -> float:
        return self.values[name, output][metric]

    def sets(self, *outputs: str) -> list[str]:
        """Return the sets on which all of the outputs ran."""
        return [
            name
            for name in self.entries
            if all((name, output) in self.values for output in outputs)
        ]

    def over_sources(self, values: dict[str, float], unit: str = "source") -> np.ndarray:
        """Average over the sets of each source."""
        by_source: dict[str, list[float]] = {}
        for name, value in values.items():
            by_source.setdefault(self.entries[name][unit], []).append(value)
        return np.array([np.mean(values_of_source) for values_of_source in by_source.values()])

    def set_ratio(self, name: str, output: str, against: str) -> float:
        """Return the ratio of NLL on one set, over the seeds that both have."""
        own, other = self.by_seed[name, output], self.by_seed[name, against]
        return math.exp(
            np.mean([math.log(own[s]["nll"] / other[s]["nll"]) for s in own if s in other])
        )

    def ratio(
        self, output: str, against: str, metric: str, unit: str = "source", other: Run | None = None
    ) -> Ratio:
        """Compare two outputs, or one output of two commits."""
        other = other or self
        logs = {}
        for name in self.sets(output):
            own, others = self.by_seed[name, output], other.by_seed.get((name, against), {})
            pairs = [(own[seed][metric], others[seed][metric]) for seed in own if seed in others]
            if pairs:
                logs[name] = float(np.mean([math.log(a / b) for a, b in pairs]))
        values = self.over_sources(logs, unit)
        mean, low, high = interval(values)
        without = [np.delete(values, at).mean() for at in range(len(values))]
        return Ratio(
            math.exp(mean),
            math.exp(low),
            math.exp(high),
            sum(value < 0.0 for value in logs.values()),
            len(logs),
            math.exp(max(logs.values())),
            (math.exp(min(without)), math.exp(max(without))),
            student_interval(values),
        )

    def mean(self, output: str, metric: str) -> float:
        """Average over sets, then over sources."""
        names = self.sets(output)
        return float(
            self.over_sources({name: self.get(name, output, metric) for name in names}).mean()
        )

    def regrets(self) -> dict[str, float]:
        """Return the NLL of the recommended option minus that of the default, first seed."""
        return {
            name: self.first[name, option]["nll"] - self.first[name, DEFAULT]["nll"]
            for name, option in self.recommended.items()
        }

    def subjects(self, output: str, against: str) -> dict[tuple[str, str], float]:
        """Return the ratio of NLL for each model and subject, seeds averaged."""
        sums: dict[tuple[str, str, str], float] = {}
        for line in self.groups:
            key = line["set"], line["group"], line["output"]
            sums[key] = sums.get(key, 0.0) + float(line["nll"])
        return {
            (name, group): sums[name, group, output] / sums[name, group, against]
            for name, group, measured in sums
            if measured == output
        }


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Return the mean, and its 95 % percentile interval over resampled values."""
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), (0.025, 0.975))
    return float(values.mean()), float(low), float(high)


def student_interval(logs: np.ndarray) -> tuple[float, float]:
    """Return the 95 % t interval of a geometric mean, which is wider with few sources."""
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    return math.exp(logs.mean() - half), math.exp(logs.mean() + half)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(heading: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    rows = [heading, ["---"] * len(heading), *lines]
    return "".join("| " + " | ".join(map(str, row)) + " |\n" for row in rows)


def claim_value(claim: dict[str, Any], run: Run, former: Run) -> tuple[str, str]:
    """Return what was measured, in words, and the verdict."""
    output, against, metric, limit = (claim[n] for n in ("output", "against", "metric", "limit"))
    match claim["kind"]:
        case "ratio" | "commits":
            if claim["kind"] == "commits":
                if run is former:
                    return "–", "–"
                result = run.ratio(output, output, metric, other=former)
            elif not run.sets(output):
                return "–", "–"
            else:
                result = run.ratio(output, against, metric)
            holds = "holds" if result.high < limit else "holds on average"
            return str(result), holds if result.mean < limit else "does not hold"
        case "sets":
            if not run.sets(output, against):
                return "–", "–"
            result = run.ratio(output, against, metric)
            verdict = "holds" if result.below >= limit * result.sets else "does not hold"
            return f"{result.below} of {result.sets}", verdict
        case "worst":
            result = run.ratio(output, against, metric)
            return f"{result.worst:.3f}", "holds" if result.worst < limit else "does not hold"
        case "changed":
            most = max(run.get(name, output, "tpcr") for name in run.sets(output))
            return f"{100 * most:.2f} %", "holds" if most <= limit else "does not hold"
        case "ece":
            names = run.sets(output, against)
            gaps = {n: run.get(n, output, metric) - run.get(n, against, metric) for n in names}
            mean, low, high = (100 * value for value in interval(run.over_sources(gaps)))
            holds = "holds" if high < limit else "holds on average"
            verdict = holds if mean < limit else "does not hold"
            return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}] points", verdict
        case "regret":
            mean, low, high = interval(run.over_sources(run.regrets()))
            verdict = "holds" if mean <= limit else "does not hold"
            return f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]", verdict
        case "groups":
            ratios = run.subjects(output, against)
            below = sum(value < 1.0 for value in ratios.values())
            verdict = "holds" if below >= limit * len(ratios) else "does not hold"
            return f"{below} of {len(ratios)}", verdict
    raise ValueError(claim["kind"])


def summary(run: Run, outputs: Sequence[str] = MAIN) -> str:
    """Show every output next to temperature scaling."""
    lines = []
    for output in outputs:
        nll, brier = (run.ratio(output, "ts", metric) for metric in ("nll", "brier"))
        line = [
            NAMES[output],
            f"{100 * run.mean(output, 'tpcr'):.2f}",
            nll if output != "ts" else "1",
            brier if output != "ts" else "1",
            f"{100 * run.mean(output, 'ece'):.2f}",
            f"{nll.below} of {nll.sets}" if output != "ts" else "–",
        ]
        lines.append([f"**{cell}**" for cell in line] if output == DEFAULT else line)
    heading = (
        "Output", "Predictions changed (%)", "NLL / TS", "Brier / TS", "ECE (%)", "NLL below TS on",
    )  # fmt: skip
    return table(heading, lines)


def against_others(runs: Sequence[Run]) -> str:
    """Show the default against every other output, under several ways to count."""
    lines = []
    for run in runs:
        for against in ("ts", "ets", "mono", "sms", "sms + cord", "sms + lift", "blend + cord"):
            for metric in ("nll", "brier"):
                by_source = run.ratio(DEFAULT, against, metric)
                by_data = run.ratio(DEFAULT, against, metric, "data")
                higher_floor = run.ratio(DEFAULT, against, "nll_1e-6") if metric == "nll" else "–"
                lines.append(
                    (
                        run.commit,
                        NAMES[against],
                        SHORT[metric],
                        by_source,
                        "{:.3f} to {:.3f}".format(*by_source.without_one),
                        by_data,
                        higher_floor,
                        f"{by_source.below} of {by_source.sets}",
                        f"{by_source.worst:.3f}",
                    )
                )
    heading = (
        "Commit", "Default against", "By", "ratio, sources count the same",
        "without any one source",
        "ratio, data sets count the same", "clipped at 1e-6", "below on", "largest ratio",
    )  # fmt: skip
    return table(heading, lines)


def claims(study: dict[str, Any], runs: Sequence[Run]) -> str:
    former, latest = runs
    lines = []
    for claim in study["claim"]:
        old, new = (claim_value(claim, run, former) for run in (former, latest))
        wider = "–"
        if claim["kind"] == "ratio":
            ratio = latest.ratio(claim["output"], claim["against"], claim["metric"])
            wider = "[{:.3f}, {:.3f}]".format(*ratio.student)
        lines.append(
            (claim["text"], f"**{new[1]}**", new[0], wider, old[1], old[0], claim["limit"])
        )
    heading = (
        "Claim", f"At {latest.commit}", "measured", "t interval", f"At {former.commit}", "measured",
        "limit",
    )  # fmt: skip
    return table(heading, lines)


def every_set(runs: Sequence[Run]) -> str:
    former, latest = runs
    lines = []
    for name, entry in latest.entries.items():
        facts = latest.rows[name]

        def value(output: str, run: Run = latest, name: str = name) -> str:
            known = (name, output) in run.values
            return f"{run.get(name, output, 'nll'):.4f}" if known else "–"

        lines.append(
            (
                name,
                entry["source"],
                facts["classes"],
                facts["fit_rows"],
                f"{100 * latest.get(name, 'original', 'accuracy'):.1f}",
                *(value(o) for o in ("original", "ts", "mono", "sms", "sms + cord", "blend")),
                value(DEFAULT),
                value(DEFAULT, former),
                latest.recommended[name],
                former.recommended[name],
            )
        )
    heading = (
        "Set", "Source", "K", "rows to fit on", "Acc. (%)", "NLL: original", "TS", "Mono", "SMS",
        "SMS + CORD", "blend", f"default, {latest.commit}", f"default, {former.commit}",
        f"recommended, {latest.commit}", f"recommended, {former.commit}",
    )  # fmt: skip
    return table(heading, lines)


def subjects(run: Run) -> str:
    """Show the ratio of the default to temperature scaling by subject and model."""
    ratios = run.subjects(DEFAULT, "ts")
    models = list(dict.fromkeys(name for name, _ in ratios))
    rows = {line["group"]: line["rows"] for line in run.groups}
    counts = []
    for model in models:
        own = [value for (name, _), value in ratios.items() if name == model]
        counts.append(f"**{sum(value < 1.0 for value in own)} of {len(own)}**")
    lines: list[Sequence[Any]] = [("**below 1**", "", *counts)]
    for group in sorted(rows):
        known = [(model, group) in ratios for model in models]
        shown = (
            f"{ratios[m, group]:.3f}" if k else "–" for m, k in zip(models, known, strict=True)
        )
        lines.append((group, rows[group], *shown))
    return table(("Subject", "evaluation rows", *models), lines)


def boosting(run: Run) -> str:
    lines = []
    pairs = (
        ("boost", "blend"), ("boost", "sms"), ("boost + lift", DEFAULT),
        ("boost + cord", "sms + cord"), ("boosted-blend", "blend"),
        ("boosted-blend + lift", DEFAULT),
    )  # fmt: skip
    for output, against in pairs:
        nll, brier = (run.ratio(output, against, metric) for metric in ("nll", "brier"))
        names = run.sets(output, against)
        largest = min(names, key=lambda name: run.set_ratio(name, output, against))
        gain = run.set_ratio(largest, output, against)
        lines.append(
            (
                NAMES[output],
                NAMES[against],
                nll,
                brier,
                f"{nll.below} of {nll.sets}",
                f"{largest}: {gain:.3f}",
                f"{nll.worst:.3f}",
            )
        )
    heading = ("Output", "Against", "NLL", "Brier", "NLL below on", "lowest ratio", "largest ratio")
    return table(heading, lines)


def paper_rows(run: Run, folder: Path) -> str:
    """Show the paper's calibrators here and, of the nearest architecture, in the paper."""
    published = {
        (line["data"], line["network"], line["calibrator"]): line
        for line in read_csv(folder / "paper.csv")
    }
    lines = []
    for name, entry in run.entries.items():
        if "zoo" not in entry:
            continue
        for key in ("vs", "svs", "ms", "sms", "dir-odir", "irova", "irova-ts"):
            theirs = published[entry["data"], entry["zoo"], key]
            direct, repaired = run.values[name, key], run.values[name, f"{key} + cord"]
            gained = direct["accuracy"] - run.get(name, "original", "accuracy")
            cells = [
                f"{100 * direct['tpcr']:.2f} / {theirs['tpcr']}",
                f"{100 * gained:+.2f} / {float(theirs['delta_accuracy']):+.2f}",
            ]
            for metric, scale, digits in (("ece", 100, 2), ("nll", 1, 4), ("brier", 1, 4)):
                gain = scale * (direct[metric] - repaired[metric])
                cells.append(f"{gain:.{digits}f} / {float(theirs[f'delta_{metric}']):.{digits}f}")
            lines.append((name.removeprefix("ferrer_"), f"{entry['zoo']}", key, *cells))
    heading = (
        "Here", "In the paper", "Calibrator", "Predictions changed (%)", "Δ accuracy (points)",
        "Δ ECE (points)", "Δ NLL", "Δ Brier",
    )  # fmt: skip
    return table(heading, lines)


def worst(run: Run, against: str, count: int = 4) -> str:
    """Show the sets on which the default compares worst, and what may explain them."""

    def ratio(name: str) -> float:
        return run.set_ratio(name, DEFAULT, against)

    lines = []
    for name in sorted(run.sets(DEFAULT, against), key=ratio, reverse=True)[:count]:
        facts = run.rows[name]
        free, repaired = run.values[name, "blend"], run.values[name, DEFAULT]
        direct, gained, same_repair = run.values.get((name, "sms")), "–", "–"
        if direct is not None:
            accuracy = direct["accuracy"] - run.get(name, "original", "accuracy")
            gained = f"{100 * direct['tpcr']:.1f} / {100 * accuracy:+.1f}"
            same_repair = f"{run.set_ratio(name, DEFAULT, 'sms + cord'):.3f}"
        lines.append(
            (
                name,
                f"{ratio(name):.3f}",
                f"{repaired['nll'] - run.get(name, against, 'nll'):+.4f}",
                f"{free['nll'] - run.get(name, against, 'nll'):+.4f}",
                f"{repaired['nll'] - free['nll']:+.4f}",
                gained,
                same_repair,
                facts["fit_errors"],
                facts["fit_rows"],
                facts["tied_rows"],
            )
        )
    heading = (
        "Set", "ratio of NLL", "default minus it", "blend minus it",
        "cost of keeping (default minus blend)",
        "SMS: predictions changed (%) / accuracy gained (points)", "ratio to SMS + CORD",
        "errors to fit on", "rows to fit on", "tied rows",
    )  # fmt: skip
    return table(heading, lines)


def regret(runs: Sequence[Run]) -> str:
    lines = []
    for run in runs:
        regrets = run.regrets()
        others = [name for name, option in run.recommended.items() if option != DEFAULT]
        mean, low, high = interval(run.over_sources(regrets))
        largest = max(regrets, key=regrets.__getitem__)
        lines.append(
            (
                run.commit,
                f"{len(regrets) - len(others)} of {len(regrets)}",
                f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]",
                f"{regrets[largest]:+.4f} ({largest}: {run.recommended[largest]})",
                f"{min(regrets.values()):+.4f}",
                sum(value > 0 for value in regrets.values()),
                sum(value < 0 for value in regrets.values()),
            )
        )
    heading = (
        "Commit", "recommends the default", "mean regret in NLL", "largest", "smallest",
        "sets it costs", "sets it gains",
    )  # fmt: skip
    return table(heading, lines)


def calarena(run: Run, folder: Path) -> None:
    """Write CalArena's tables: one CSV per output, first seed."""
    folder.mkdir(exist_ok=True)
    for output, name in CALARENA.items():
        lines = []
        for set_name in run.sets(output):
            facts = run.rows[set_name]
            dataset, _, model = set_name.partition("_")
            measured = run.first[set_name, output]
            lines.append(
                {
                    "dataset": dataset,
                    "model": model,
                    "cal_size": facts["fit_rows"],
                    "test_size": facts["evaluation_rows"],
                    "n_classes": facts["classes"],
                    **{
                        f"{name}_{theirs}": measured[own]
                        for theirs, own in CALARENA_METRICS.items()
                    },
                }
            )
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)


def render(study: dict[str, Any], folder: Path) -> None:
    """Write every table as Markdown."""
    (latest,) = (
        path
        for path in folder.glob("*.csv")
        if "-" not in path.stem and path.stem not in (FORMER, "paper")
    )
    runs = [Run(folder / f"{FORMER}.csv", study), Run(latest, study)]
    former, last = runs
    ratios = (
        "Ratios are geometric means: seeds are averaged, then sets within a source, every source "
        "counts the same. Intervals (95 %) resample sources. Below 1 is better."
    )
    tables: dict[str, tuple[Callable[[], str], str]] = {
        "summary": (lambda: summary(last), f"Commit {last.commit}. {ratios}"),
        f"summary-{FORMER}": (lambda: summary(former), f"Commit {FORMER}. {ratios}"),
        "against": (
            lambda: against_others(runs),
            f"The default, blend + lift, against other outputs. {ratios} Then the range of the "
            "ratio if one source is left out; the ratio if every data set counts the same, since "
            "several sources use the same images or questions; and with probabilities clipped at "
            "1e-6 instead of 1e-12.",
        ),
        "claims": (
            lambda: claims(study, runs),
            "The claims of fresh.toml, which was committed before the first run. A ratio holds if "
            "its whole interval is below the limit, and on average if only the ratio is. The t "
            "interval does not decide: with nine sources it is wider than the one that does.",
        ),
        "sets": (
            lambda: every_set(runs),
            "Mean NLL over the seeds, and the option that `compare` recommends (first seed).",
        ),
        "subjects": (
            lambda: subjects(last),
            "NLL of the default divided by that of TS, both fitted once for all subjects; seeds "
            "are averaged. A subject has few rows: read the counts, not single ratios.",
        ),
        "boosting": (lambda: boosting(last), f"Up to 30 classes, first seed. {ratios}"),
        "paper": (
            lambda: paper_rows(last, folder),
            "Here / in [the paper](https://github.com/labhai/CORD), of the nearest architecture of "
            "the same zoo. Δ accuracy is of the direct output; Δ ECE, NLL and Brier are direct "
            "minus repaired by CORD, so positive means that the repair lowers it.",
        ),
        "worst-sms": (
            lambda: worst(last, "sms"),
            "The sets with the highest ratio to SMS as it is.",
        ),
        "worst-ts": (lambda: worst(last, "ts"), "The sets with the highest ratio to TS."),
        "regret": (
            lambda: regret(runs),
            "NLL of the recommended option minus that of the default, both fitted on the same rows "
            "and measured on rows that neither saw; sources count the same.",
        ),
    }
    for name, (make, caption) in tables.items():
        (folder / f"{name}.md").write_text(f"{make()}\n{caption}\n", encoding="utf-8")
    calarena(last, folder / "calarena")
