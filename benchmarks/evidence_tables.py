"""The tables and the figure of ``evidence.py``, and the verdicts on its claims."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

RESAMPLES = 10_000
NAMES = {
    "original": "uncalibrated classifier",
    "ts": "temperature scaling (TS)",
    "ets": "ensemble temperature scaling (ETS)",
    "irm": "isotonic, one curve for all classes (IRM)",
    "hts": "entropy-based temperature (HTS)",
    "ts-tva": "top-versus-all temperature (TS-TvA)",
    "mono": "monotone calibrator (Mono)",
    "sms": "structured matrix scaling (SMS)",
    "sms + cord": "SMS + CORD",
    "sms + lift": "SMS + lift",
    "blend": "blend",
    "blend + cord": "blend + CORD",
    "default": "**the default** (blend + lift, honest confidence)",
    "likelihood": 'the default with `prefer="likelihood"`',
    "boosted-blend": "boosted blend",
    "boosted-blend + cord": "boosted blend + CORD",
    "boosted-blend + lift": "boosted blend + lift",
    "boosted-blend + lift, likelihood": 'boosted blend + lift, `prefer="likelihood"`',
    "mean of both": "mean of the default and boosted blend + lift",
}
OUTPUTS = (
    "original", "ts", "ets", "ts-tva", "hts", "irm", "mono", "sms", "sms + cord", "sms + lift",
    "blend", "blend + cord", "default", "likelihood",
)  # fmt: skip
# The metrics: heading, whether they are compared as ratios, digits, and whether less is better.
METRICS = {
    "nll": ("NLL / TS", True, 3),
    "brier": ("Brier / TS", True, 3),
    "ece": ("ECE (%)", False, 2),
    "classwise": ("classwise ECE (%)", False, 2),
    "gap": ("confidence − accuracy (points)", False, 2),
    "risk": ("risk–coverage (%)", False, 2),
    "top2": ("top-2 (%)", False, 1),
}
RATIOS = ("nll", "nll_1e-6", "brier")
ERRORS = {"none": (0, 0), "1 or 2": (1, 2), "3 to 9": (3, 9), "10 or more": (10, 1000)}


@dataclass(frozen=True)
class Comparison:
    """One output against another: the mean over sources, its interval, and the sets."""

    metric: str
    values: dict[str, float]
    sources: np.ndarray

    @property
    def is_ratio(self) -> bool:
        return self.metric in RATIOS

    def shown(self, value: float) -> float:
        """Return a ratio, or a difference in percentage points."""
        return math.exp(value) if self.is_ratio else 100.0 * value

    @property
    def interval(self) -> tuple[float, float, float]:
        """The mean and its 95 % interval over resampled sources."""
        mean, low, high = (self.shown(value) for value in interval(self.sources))
        return mean, low, high

    @property
    def student(self) -> tuple[float, float]:
        """The 95 % t interval, which is wider with few sources."""
        count = len(self.sources)
        half = stats.t.ppf(0.975, count - 1) * self.sources.std(ddof=1) / math.sqrt(count)
        middle = self.sources.mean()
        return self.shown(middle - half), self.shown(middle + half)

    @property
    def below(self) -> int:
        return sum(value < 0.0 for value in self.values.values())

    @property
    def worst(self) -> tuple[str, float]:
        name = max(self.values, key=self.values.__getitem__)
        return name, self.shown(self.values[name])

    def words(self, mean: float, low: float, high: float) -> str:
        if self.is_ratio:
            return f"{mean:.3f} [{low:.3f}, {high:.3f}]"
        return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"

    def __str__(self) -> str:
        return self.words(*self.interval)


class Run:
    """The measurements of one commit: values by set, output and metric."""

    def __init__(self, folder: Path, commit: str, study: dict[str, Any]) -> None:
        self.commit = commit
        self.entries = {entry["name"]: entry for entry in study["set"]}
        self.first_seed = study["seeds"][0]
        self.by_seed: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
        self.recommended: dict[str, str] = {}
        for line in read_csv(folder / f"{commit}-outputs.csv"):
            key = line["set"], line["output"]
            numbers = {
                name: float(value)
                for name, value in line.items()
                if name not in ("set", "seed", "output", "recommended")
            }
            # Over- and underconfidence count the same.
            numbers["gap"] = abs(numbers["gap"])
            self.by_seed.setdefault(key, {})[int(line["seed"])] = numbers
            if line["recommended"] == "1":
                self.recommended[line["set"]] = line["output"]
        self.path = folder / commit

    @property
    def small(self) -> list[dict[str, str]]:
        """The measurements with few calibration rows."""
        return read_csv(self.path.with_name(f"{self.commit}-small.csv"))

    def names(self, on: str = "fresh") -> list[str]:
        """Return the names of the fresh sets, of those it was developed on, or of all."""
        return [
            name
            for name, entry in self.entries.items()
            if on == "all" or entry["fresh"] == (on == "fresh")
        ]

    def sets(self, on: str, *outputs: str) -> list[str]:
        """Return the sets on which all of the outputs ran."""
        return [
            name
            for name in self.names(on)
            if all((name, output) in self.by_seed for output in outputs)
        ]

    def get(self, name: str, output: str, metric: str) -> float:
        """Return the mean over the seeds."""
        seeds = self.by_seed[name, output].values()
        return float(np.mean([numbers[metric] for numbers in seeds]))

    def over_sources(self, values: dict[str, float], unit: str = "source") -> np.ndarray:
        """Average over the sets of each source."""
        by_source: dict[str, list[float]] = {}
        for name, value in values.items():
            by_source.setdefault(self.entries[name][unit], []).append(value)
        return np.array([np.mean(of_source) for of_source in by_source.values()])

    def mean(self, output: str, metric: str, on: str) -> float:
        """Average over sets, then over sources."""
        values = {name: self.get(name, output, metric) for name in self.sets(on, output)}
        return float(self.over_sources(values).mean())

    def compare(
        self,
        output: str,
        against: str,
        metric: str,
        on: str = "fresh",
        *,
        unit: str = "source",
        other: Run | None = None,
    ) -> Comparison:
        """Compare two outputs, or outputs of two commits, over the seeds that both have."""
        others = (other or self).by_seed
        values = {}
        for name in self.sets(on, output):
            own, theirs = self.by_seed[name, output], others.get((name, against), {})
            pairs = [(own[seed][metric], theirs[seed][metric]) for seed in own if seed in theirs]
            if pairs:
                values[name] = float(
                    np.mean([math.log(a / b) if metric in RATIOS else a - b for a, b in pairs])
                )
        return Comparison(metric, values, self.over_sources(values, unit))

    def regrets(self, on: str = "fresh") -> dict[str, float]:
        """Return the NLL of the recommended option minus that of the default, first seed."""
        return {
            name: self.by_seed[name, self.recommended[name]][self.first_seed]["nll"]
            - self.by_seed[name, "default"][self.first_seed]["nll"]
            for name in self.names(on)
            if name in self.recommended
        }

    def few(self, former: Run, errors: tuple[int, int], on: str = "all") -> np.ndarray:
        """Return log ratios of the default's NLL to the former's, of runs with so many errors."""
        keys = ("set", "seed", "rows")
        theirs = {
            tuple(line[key] for key in keys): float(line["nll"])
            for line in former.small
            if line["output"] == "default"
        }
        known = set(self.names(on))
        return np.array(
            [
                math.log(float(line["nll"]) / theirs[tuple(line[key] for key in keys)])
                for line in self.small
                if line["output"] == "default"
                and line["set"] in known
                and errors[0] <= int(line["errors"]) <= errors[1]
            ]
        )


class Act:
    """Shares certified on half of the evaluation rows, counted on the other half."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.run = run
        self.lines = read_csv(folder / f"{run.commit}-act.csv")

    def shares(self, output: str, error: float, on: str) -> dict[str, float]:
        """Return the share let through by set, seeds averaged."""
        known = set(self.run.names(on))
        shares: dict[str, list[float]] = {}
        for line in self.lines:
            if line["output"] == output and float(line["error"]) == error and line["set"] in known:
                shares.setdefault(line["set"], []).append(float(line["share"]))
        return {name: float(np.mean(values)) for name, values in shares.items()}

    def compare(self, output: str, against: str, error: float, on: str) -> Comparison:
        own, theirs = (self.shares(name, error, on) for name in (output, against))
        values = {name: share - theirs[name] for name, share in own.items()}
        return Comparison("act", values, self.run.over_sources(values))

    def errors(self, output: str, error: float) -> tuple[int, int]:
        """Return in how many runs more than the certified share was wrong, and of how many."""
        runs = [
            (int(line["wrong"]), int(line["acted"]))
            for line in self.lines
            if line["output"] == output and float(line["error"]) == error
        ]
        return sum(wrong > error * acted for wrong, acted in runs), len(runs)


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Return the mean, and its 95 % percentile interval over resampled values."""
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), (0.025, 0.975))
    return float(values.mean()), float(low), float(high)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(heading: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    rows = [heading, ["---"] * len(heading), *lines]
    return "".join("| " + " | ".join(map(str, row)) + " |\n" for row in rows)


# ---- Claims


def verdict(low: float, mean: float, high: float, limit: float) -> str:
    """Say whether values below a limit are clear, clear on average, or not."""
    if high < limit:
        return "holds"
    return "holds on average" if mean < limit else "does not hold"


def claim_value(claim: dict[str, Any], run: Run, former: Run, act: Act) -> tuple[str, str, str]:
    """Return what was measured, the t interval where there is one, and the verdict."""
    output, against, metric, limit = (claim[n] for n in ("output", "against", "metric", "limit"))
    on = claim.get("on", "fresh")
    match claim["kind"]:
        case "changed":
            most = max(run.get(name, output, "tpcr") for name in run.sets("all", output))
            return f"{100 * most:.2f} %", "–", "holds" if most <= limit else "does not hold"
        case "regret":
            mean, low, high = interval(run.over_sources(run.regrets(on)))
            words = f"{mean:+.4f} [{low:+.4f}, {high:+.4f}] nats"
            return words, "–", "holds" if mean <= limit else "does not hold"
        case "few":
            mean, low, high = interval(run.few(former, tuple(claim["errors"]), on))
            mean, low, high = (math.exp(value) for value in (mean, low, high))
            words = f"{mean:.3f} [{low:.3f}, {high:.3f}]"
            return words, "–", verdict(low, mean, high, limit)
        case "acted":
            result = act.compare(output, against, claim["error"], on)
            mean, low, high = result.interval
            holds = verdict(-high, -mean, -low, -limit)
            return f"{result} points", words_of(result), holds
        case "worst":
            name, worst = run.compare(output, against, metric, on).worst
            words = f"{worst:.3f}" if metric in RATIOS else f"{worst:+.2f} points"
            return f"{words} ({name})", "–", "holds" if worst < limit else "does not hold"
        case "ratio" | "difference" | "former":
            other = former if claim["kind"] == "former" else None
            result = run.compare(output, against, metric, on, other=other)
            mean, low, high = result.interval
            unit = "" if result.is_ratio else " points"
            return f"{result}{unit}", words_of(result), verdict(low, mean, high, limit)
    raise ValueError(claim["kind"])


def words_of(result: Comparison) -> str:
    low, high = result.student
    return f"[{low:.3f}, {high:.3f}]" if result.is_ratio else f"[{low:+.2f}, {high:+.2f}]"


def claims(study: dict[str, Any], judged: Run, run: Run, former: Run, folder: Path) -> str:
    """Show what the claims were judged by, and the same measured again at the present commit."""
    act, again = Act(folder, judged), Act(folder, run)
    lines = []
    for claim in study["claim"]:
        measured, student, holds = claim_value(claim, judged, former, act)
        now, _, still = claim_value(claim, run, former, again)
        shown = now if still == holds else f"{now}: {still}"
        lines.append((claim["text"], f"**{holds}**", measured, student, claim["limit"], shown))
    heading = ("Claim", "", f"measured at {judged.commit}", "t interval", "limit")
    return table((*heading, f"at {run.commit}"), lines)


# ---- Tables


def options(run: Run, on: str, outputs: Sequence[str] = OUTPUTS) -> str:
    """Show every output in every metric, next to temperature scaling."""
    lines = []
    for output in outputs:
        compared = run.compare(output, "ts", "nll", on)
        line = [NAMES[output], f"{100 * run.mean(output, 'tpcr', on):.2f}"]
        for metric, (_, is_ratio, digits) in METRICS.items():
            if is_ratio:
                line.append("1" if output == "ts" else str(run.compare(output, "ts", metric, on)))
            else:
                line.append(f"{100 * run.mean(output, metric, on):.{digits}f}")
        line.append("–" if output == "ts" else f"{compared.below} of {len(compared.values)}")
        lines.append(line)
    headings = (heading for heading, *_ in METRICS.values())
    return table(("Output", "predictions changed (%)", *headings, "NLL below TS on"), lines)


def wins(run: Run, on: str) -> str:
    """Show on how many sets each setting is better, and its worst set, in every metric."""
    lines = []
    for output in ("default", "likelihood"):
        for against in ("original", "ts", "mono", "sms + cord", "blend + cord"):
            line = [NAMES[output], NAMES[against]]
            for metric in METRICS:
                # More is better only for top-2.
                pair = (against, output) if metric == "top2" else (output, against)
                result = run.compare(*pair, metric, on)
                name, worst = result.worst
                shown = f"{worst:.3f}" if result.is_ratio else f"{worst:+.2f}"
                line.append(f"{result.below} of {len(result.values)}; {shown} ({name})")
            lines.append(line)
    headings = (
        heading.removesuffix(" / TS").removesuffix(" (%)").removesuffix(" (points)")
        for heading, *_ in METRICS.values()
    )
    return table(("Output", "against", *headings), lines)


def doubts(run: Run) -> str:
    """Compare the default with other outputs in several ways to count."""
    lines = []
    for output in ("default", "likelihood"):
        for against in ("ts", "ets", "mono", "sms", "sms + cord", "blend + cord"):
            for metric in ("nll", "brier", "ece"):
                result = run.compare(output, against, metric)
                sources = result.sources
                without = [
                    result.shown(np.delete(sources, at).mean()) for at in range(len(sources))
                ]
                clipped = run.compare(output, against, "nll_1e-6") if metric == "nll" else "–"
                digits = "{:.3f} to {:.3f}" if result.is_ratio else "{:+.2f} to {:+.2f}"
                lines.append((
                    NAMES[output], NAMES[against], metric.upper() if metric != "brier" else "Brier",
                    result, digits.format(min(without), max(without)),
                    run.compare(output, against, metric, unit="data"), clipped,
                ))  # fmt: skip
    heading = (
        "Output", "against", "by", "sources count the same", "without any one source",
        "data sets count the same", "clipped at 1e-6",
    )  # fmt: skip
    return table(heading, lines)


def commits(run: Run, former: Run) -> str:
    """Show the default of both commits."""
    lines = []
    for on in ("fresh", "developed"):
        for output in ("default", "likelihood"):
            compared = (
                run.compare(output, "default", metric, on, other=former) for metric in METRICS
            )
            lines.append((on, NAMES[output], *compared))
    headings = (
        heading.replace(" / TS", ", ratio").replace(" (%)", " (points)")
        for heading, *_ in METRICS.values()
    )
    return table(("Files", f"{run.commit} against {former.commit}", *headings), lines)


def cost(run: Run) -> str:
    """Show what honest confidence costs, set by set."""
    ratios = run.compare("default", "likelihood", "nll", "all").values
    lines = []
    for name in sorted(ratios, key=ratios.__getitem__, reverse=True):
        entry = run.entries[name]
        lines.append((
            name, "fresh" if entry["fresh"] else "developed", entry["classes"],
            f"{100 * run.get(name, 'original', 'accuracy'):.1f}",
            f"{100 * run.get(name, 'blend', 'accuracy'):.1f}",
            f"{math.exp(ratios[name]):.3f}",
            *(f"{run.get(name, output, 'nll'):.4f}" for output in ("ts", "default", "likelihood")),
            *(
                f"{100 * run.get(name, output, 'ece'):.2f}"
                for output in ("original", "ts", "mono", "default", "likelihood")
            ),
        ))  # fmt: skip
    heading = (
        "Set", "files", "K", "accuracy (%)", "of blend (%)", "NLL: default / likelihood",
        "NLL: TS", "default", "likelihood",
        "ECE (%): uncalibrated", "TS", "Mono", "default", "likelihood",
    )  # fmt: skip
    return table(heading, lines)


def small(run: Run, former: Run) -> str:
    """Show the outputs by the number of calibration rows."""
    outputs = ("original", "ts", "mono", "sms + cord", "blend + cord", "default", "likelihood")
    lines = []
    by_key = {(line["set"], line["seed"], line["rows"], line["output"]): line for line in run.small}
    for rows in dict.fromkeys(line["rows"] for line in run.small):
        keys = [key for key in by_key if key[2] == rows and key[3] == "ts"]
        line = [rows, len({key[0] for key in keys})]
        for output in outputs:
            pairs = [(by_key[*key[:3], output], by_key[key]) for key in keys]
            ratio = np.mean([math.log(float(a["nll"]) / float(b["nll"])) for a, b in pairs])
            ece = np.mean([100 * float(own["ece"]) for own, _ in pairs])
            line.append(f"{math.exp(ratio):.3f} / {ece:.1f}")
        lines.append(line)
    return table(("Rows", "sets", *(NAMES[output] for output in outputs)), lines)


def few_errors(run: Run, former: Run) -> str:
    """Compare the default with the former one by the number of wrong calibration predictions."""
    lines = []
    for words, errors in ERRORS.items():
        logs = run.few(former, errors)
        mean, low, high = (math.exp(value) for value in interval(logs))
        lines.append((words, len(logs), f"{mean:.3f} [{low:.3f}, {high:.3f}]",
                      f"{math.exp(logs.max()):.2f}"))  # fmt: skip
    return table(("Errors", "runs", "NLL, ratio", "worst"), lines)


def cases(folder: Path, run: Run) -> str:
    """Show the data that were made for one question each, seeds averaged."""
    outputs = ("original", "ts", "mono", "blend + cord", "default", "likelihood")
    values: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for line in read_csv(folder / f"{run.commit}-cases.csv"):
        by_output = values.setdefault((line["question"], line["case"]), {})
        pair = float(line["nll"]), 100 * float(line["ece"])
        by_output.setdefault(line["output"], []).append(pair)
    lines = []
    for (question, case), by_output in values.items():
        means = {output: np.mean(by_output[output], axis=0) for output in outputs}
        shown = (f"{means[output][0]:.4f} / {means[output][1]:.1f}" for output in outputs)
        lines.append((question, case, *shown))
    return table(("Question", "case", *(NAMES[output] for output in outputs)), lines)


def acted(act: Act, study: dict[str, Any]) -> str:
    """Show the share that may act, and how often more was wrong than certified."""
    lines = []
    for output in ("original", "ts", "mono", "blend + cord", "likelihood", "default"):
        line = [NAMES[output]]
        for error in study["certified_errors"]:
            shares = act.shares(output, error, "all")
            mean = 100 * act.run.over_sources(shares).mean()
            above, runs = act.errors(output, error)
            line.append(f"{mean:.1f} ({above} of {runs})")
        lines.append(line)
    return table(("Output", *(f"{100 * error:g} %" for error in study["certified_errors"])), lines)


def regret(run: Run) -> str:
    lines = []
    for on in ("fresh", "developed"):
        regrets = run.regrets(on)
        same = sum(run.recommended[name] == "default" for name in regrets)
        mean, low, high = interval(run.over_sources(regrets))
        largest = max(regrets, key=regrets.__getitem__)
        lines.append((
            on, f"{same} of {len(regrets)}", f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]",
            f"{regrets[largest]:+.4f} ({largest}: {run.recommended[largest]})",
            sum(value > 0 for value in regrets.values()),
            sum(value < 0 for value in regrets.values()),
        ))  # fmt: skip
    heading = (
        "Files", "recommends the default", "mean regret in NLL", "largest", "sets it costs",
        "sets it gains",
    )  # fmt: skip
    return table(heading, lines)


def subjects(folder: Path, run: Run) -> str:
    """Show the outputs of one fit for all subjects, subject by subject."""
    sums: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for line in read_csv(folder / f"{run.commit}-groups.csv"):
        key = line["set"], line["group"], line["output"]
        sums.setdefault(key, []).append((float(line["nll"]), abs(float(line["gap"]))))
    means = {key: np.mean(values, axis=0) for key, values in sums.items()}
    lines = []
    for name in dict.fromkeys(name for name, *_ in means):
        groups = [group for of, group, output in means if of == name and output == "ts"]
        below = sum(
            means[name, group, "default"][0] < means[name, group, "ts"][0] for group in groups
        )
        gaps = (
            f"{100 * np.mean([means[name, group, output][1] for group in groups]):.2f}"
            for output in ("original", "ts", "mono", "default", "likelihood")
        )
        lines.append((name, f"{below} of {len(groups)}", *gaps))
    heading = (
        "Set", "subjects with NLL below TS", "mean gap (points): uncalibrated", "TS", "Mono",
        "default", "likelihood",
    )  # fmt: skip
    return table(heading, lines)


def boosting(judged: Run, run: Run) -> str:
    """Show what boosted trees add, on the sets with few classes and the first seed."""
    lines = []
    rows = (
        (judged, "boosted-blend", "blend"),
        (judged, "boosted-blend + lift", "default"),
        (judged, "mean of both", "default"),
        (run, "boosted-blend + lift", "default"),
        (run, "boosted-blend + lift, likelihood", "likelihood"),
    )
    for on in ("fresh", "developed", "all"):
        for measured, output, against in rows:
            nll, brier, ece = (
                measured.compare(output, against, metric, on) for metric in ("nll", "brier", "ece")
            )
            name, worst = nll.worst
            below = f"{nll.below} of {len(nll.values)}"
            names = NAMES[output], NAMES[against]
            shown = nll, brier, ece, below, f"{worst:.3f} ({name})"
            lines.append((on, measured.commit, *names, *shown))
    heading = (
        "Files", "Commit", "Output", "against", "NLL", "Brier", "ECE (points)", "NLL below on",
        "largest ratio of NLL",
    )  # fmt: skip
    return table(heading, lines)


def files(study: dict[str, Any]) -> str:
    """Show where each set's files were published, and which they are."""
    by_name = {entry["name"]: entry for entry in study["file"]}
    lines = []
    for entry in study["set"]:
        for name in (entry["file"], entry.get("evaluation")):
            if name is not None:
                file = by_name[name]
                lines.append((
                    entry["name"], name, file["rows"], file["published"],
                    file.get("commit", "–"), file["licence"], file["sha256"],
                ))  # fmt: skip
    heading = ("Set", "File", "rows", "published at", "commit", "licence", "SHA-256")
    return table(heading, lines)


def frontier(run: Run, path: Path) -> None:
    """Draw NLL against ECE for every output that keeps predictions, as PNG and PDF."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2)
    short = {"original": "uncalibrated", "default": "default", "likelihood": "likelihood"}
    kept = [output for output in OUTPUTS if output not in ("sms", "blend")]
    for axis, on, title in zip(
        axes,
        ("fresh", "developed"),
        ("files that were never used to build it", "files that it was developed on"),
        strict=True,
    ):
        for output in kept:
            if output == "original":
                continue  # far to the right; the table has it
            nll = run.compare(output, "ts", "nll", on).interval[0] if output != "ts" else 1.0
            ece = 100 * run.mean(output, "ece", on)
            ours = output in ("default", "likelihood")
            axis.plot(nll, ece, "D" if ours else "o", color="#b3202c" if ours else "#4a5a6a")
            axis.annotate(
                short.get(output, output.replace("cord", "CORD")),
                (nll, ece),
                textcoords="offset points",
                # Where rivals are close on the right, to the left or below.
                xytext=(0, -14) if ours else (-7, -4) if output == "ets" else (6, 4),
                ha="center" if ours else "right" if output == "ets" else "left",
                fontsize=8,
                fontweight="bold" if ours else "normal",
            )
        axis.set_xlabel("NLL / temperature scaling")
        axis.set_ylabel("ECE (%)")
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(0.2, 0.12)
    figure.savefig(path.with_suffix(".png"), dpi=130, metadata={"Software": None})
    figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})


def render(study: dict[str, Any], folder: Path) -> None:
    """Write the pages of tables and of files, and draw the figure."""
    (folder / "tables.md").write_text(tables_page(study, folder), encoding="utf-8")
    (folder / "files.md").write_text(files_page(study), encoding="utf-8")
    frontier(Run(folder, study["present"], study), folder / "frontier")


def files_page(study: dict[str, Any]) -> str:
    """Return the page of the files."""
    return (
        "# Files\n\nWhere the outputs of each set were published, and the file that was used: "
        "`OWNER/REPOSITORY:path` is a path on GitHub at that commit. `benchmarks/fetch.md` in the "
        "repository has the lines that make the files, and `docs/results/evidence.toml` the "
        f"digests of their content.\n\n{files(study)}"
    )


def tables_page(study: dict[str, Any], folder: Path) -> str:
    """Return the page of every table."""
    stamps = (*study["commits"], study["present"])
    former, judged, run = (Run(folder, commit, study) for commit in stamps)
    ratios = (
        "Ratios are geometric means: seeds are averaged, then sets within a source, every source "
        "counts the same; the other columns are means in the same way. Intervals (95 %) resample "
        "sources. Less is better except for top-2."
    )
    tables = {
        "Fresh files": (options(run, "fresh"), ratios),
        "Developed files": (options(run, "developed"), ratios),
        "Claims": (
            claims(study, judged, run, former, folder),
            f"Written and committed before the run at {judged.commit}, which judged them. A claim "
            "holds if its whole interval is on its side of the limit, and on average if only the "
            "mean is. The t interval does not decide; with few sources it is wider than the one "
            f"that does. The last column is the same at {run.commit}, with the verdict where it "
            "is another one.",
        ),
        "Wins and worst sets, fresh files": (
            wins(run, "fresh"),
            "On how many sets the output is better, and the largest ratio or difference.",
        ),
        "Wins and worst sets, developed files": (
            wins(run, "developed"),
            "On how many sets the output is better, and the largest ratio or difference.",
        ),
        "Ways to count": (doubts(run), f"Fresh files. {ratios}"),
        "The default before": (commits(run, former), f"{ratios}"),
        "Cost of honest confidence": (
            cost(run),
            "NLL with honest confidence divided by that with `prefer=\"likelihood\"`. \"Of blend\" "
            "is the accuracy of the calibrator before the repair: where it is higher, the labels "
            "speak against predictions.",
        ),
        "Few calibration rows": (
            small(run, former),
            "NLL / TS (geometric mean over sets and splits) and ECE (%), up to 60 classes.",
        ),
        "Few errors": (
            few_errors(run, former),
            f"The default at {run.commit} divided by that at {former.commit}, by the number of "
            "wrong predictions among 30 to 500 calibration rows; intervals resample runs.",
        ),
        "Cases": (
            cases(folder, run),
            "NLL and ECE (%), means of three seeds. Calibrated: labels drawn from the "
            "probabilities. Ties: trees on handwritten digits. Absent: a class without "
            "calibration rows, which new rows have.",
        ),
        "Certified shares": (
            acted(Act(folder, run), study),
            "Share of predictions (%) that may go through at a certified error, sets with at "
            "least 5,000 rows, sources count the same; in brackets the runs in which more was "
            "wrong among new rows, of all runs (95 % confidence; a new sample is noisy, too).",
        ),
        "Recommendation": (
            regret(run),
            "NLL of the option that `compare` recommends minus that of the default, first seed.",
        ),
        "MMLU by subject": (
            subjects(folder, run),
            "Fitted once for all subjects; the gap is the distance of mean confidence and accuracy "
            "within a subject, which chance alone does not let vanish.",
        ),
        "Boosted trees": (
            boosting(judged, run),
            f"Up to 30 classes, first seed. At {run.commit} half of the boosted blend is the "
            f"blend. {ratios}",
        ),
    }  # fmt: skip
    parts = (f"## {name}\n\n{rows}\n{caption}\n" for name, (rows, caption) in tables.items())
    heading = f"Commit {run.commit}; claims judged at {judged.commit}; before, {former.commit}."
    return f"# Tables\n\n{heading}\n\n" + "\n".join(parts)
