"""The recommendation: which output to deploy, why, and the commands that do it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from cordcal._numeric.types import Vector
from cordcal.calibrators import available
from cordcal.evaluate.caveats import Caveat
from cordcal.evaluate.statistics import ORIGINAL, Report, percentile_interval
from cordcal.metrics import MEASURES

if TYPE_CHECKING:
    from cordcal.evaluate.comparison import Comparison, Interval

Name = TypeVar("Name")

LEVEL = 0.95
# Means of float64 rows agree to about this: a repair that has nothing to do still rounds.
ROUNDING = 1e-9


def confidence_set(
    estimates: Mapping[Name, float], replicates: Mapping[Name, Vector], *, level: float = LEVEL
) -> list[Name]:
    """Return the reports that are as good as the best, as far as the rows can tell.

    Parameters
    ----------
    estimates : mapping of name to float
        Each report's mean loss; lower is better.
    replicates : mapping of name to ndarray
        Its mean loss in each resample; the resamples are the same for all reports.
    level : float
        With this probability the best report is among those returned.

    Returns
    -------
    names : list
        In the order given; never empty.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> luck = rng.normal(size=500)
    >>> losses = {"good": 0.50, "same": 0.51, "bad": 0.60}
    >>> resampled = {name: loss + 0.1 * luck + 0.02 * rng.normal(size=500)
    ...              for name, loss in losses.items()}
    >>> confidence_set(losses, resampled)
    ['good', 'same']
    """
    names = list(estimates)
    losses = np.array([estimates[name] for name in names])
    drawn = np.stack([replicates[name] for name in names], axis=1)
    gaps, chances = _studentised(losses, drawn)
    left = list(range(len(names)))
    while len(left) > 1:
        here = gaps[np.ix_(left, left)]
        by_chance = np.abs(chances[np.ix_(range(len(chances)), left, left)]).max(axis=(1, 2))
        if np.mean(by_chance >= here.max()) >= 1.0 - level:
            break
        del left[int(here.max(axis=1).argmax())]
    return [names[place] for place in left]


def _studentised(losses: Vector, drawn: Vector) -> tuple[Vector, Vector]:
    """Return the pairs' differences and, by resample, their deviations, in standard errors."""
    gaps = losses[:, None] - losses[None, :]
    chances = drawn[:, :, None] - drawn[:, None, :] - gaps
    errors = np.sqrt(np.mean(chances * chances, axis=0))
    same = (errors < ROUNDING) & (np.abs(gaps) < ROUNDING)
    # A difference that no resample moves is clear, whatever its size; none at all is none.
    errors = np.maximum(errors, ROUNDING)
    return np.where(same, 0.0, gaps / errors), np.where(same, 0.0, chances / errors)


@dataclass(frozen=True)
class SuggestedCommand:
    """How to fit the advised report and apply it to new rows.

    Attributes
    ----------
    shell, python : tuple of str
        Lines for a terminal, and for Python.
    """

    shell: tuple[str, ...]
    python: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return {"shell": list(self.shell), "python": list(self.python)}


def next_step(
    comparison: Comparison, scores: str, new: str, model: str, options: tuple[str, ...] = ()
) -> SuggestedCommand | None:
    """Return the lines for the advised report; None where there is nothing to fit.

    Parameters
    ----------
    comparison : Comparison
        What was compared.
    scores, new, model : str
        Paths of the calibration scores, of the rows to report on, and of the model file.
    options : tuple of str
        Options that the command needs to read the scores.
    """
    advice = comparison.recommendation
    if advice.key is None or advice.key == ORIGINAL[0] or advice.key not in available():
        return None  # a calibrator from elsewhere is its owner's to fit
    repair = "lift" if advice.report == "lift" else None
    preserve = None if comparison.preserve == 1 else comparison.preserve
    kind = None if comparison.input == "logits" else comparison.input
    fit = ["cordcal", "fit", scores, *options, "--calibrator", advice.key]
    for name, value in (("input", kind), ("preserve", preserve), ("repair", repair)):
        fit += [] if value is None else [f"--{name}", str(value)]
    given = {"input": kind, "preserve": preserve, "repair": repair}
    arguments = [repr(advice.key)] + [f"{n}={v!r}" for n, v in given.items() if v is not None]
    return SuggestedCommand(
        shell=(
            shlex.join([*fit, "--output", model]),
            shlex.join(["cordcal", "apply", model, new, "--output", "repaired.npz"]),
        ),
        python=(
            "import cordcal",
            f"rows = cordcal.files.read_scores({', '.join([repr(scores), *_arguments(options)])})",
            f"model = cordcal.PreservingCalibrator({', '.join(arguments)})",
            "model.fit(rows.values, rows.labels)",
            f"cordcal.save(model, {model!r})",
            f"repaired = model.predict_proba(cordcal.files.read_scores({new!r}).values)",
        ),
    )


def _arguments(options: tuple[str, ...]) -> list[str]:
    """Return the options of the command as arguments of the function.

    Examples
    --------
    >>> _arguments(("--key", "probs", "--labels-column", "y"))
    ["key='probs'", "labels_column='y'"]
    >>> _arguments(("--key", "probs", "--no-header"))
    ["key='probs'", 'header=False']
    """
    switches = {"--header": "header=True", "--no-header": "header=False"}
    valued = [option for option in options if option not in switches]
    pairs = zip(valued[::2], valued[1::2], strict=True)
    # The command reads class names from a file, the function takes them as they are.
    return [
        f"{name.lstrip('-').replace('-', '_')}={value!r}"
        for name, value in pairs
        if name != "--class-names"
    ] + [switches[option] for option in options if option in switches]


# So few rows at the floor are accidents, if they are no more than one in a thousand: at 27.6
# nats each, that rate costs 0.03 nats a row; a higher one shows again on new rows.
MAX_FLOORED_ROWS, _FLOORED_RATE = 3, 0.001
# From here on, the rows at lift's bound show in the mean confidence.
MANY_AT_BOUND = 0.05
# A repair adds to a map: of maps with equally many numbers, the bare one is the simpler.
_BARE_FIRST = ("original", "direct", "repaired", "lift")


@dataclass(frozen=True)
class Recommendation:
    """Which report to deploy.

    Attributes
    ----------
    key, report : str or None
        The calibrator, and which of its reports; ``"uncalibrated"`` needs none.  None where
        the rows allow no advice.
    headline, reason : str
        The advice, and a sentence that says why.
    changes_pay : str or None
        A calibrator whose changes of decisions are worth having, if there is one.
    by_nll, by_brier : tuple of tuple of str
        The reports that keep every decision and that no other clearly beats by the measure.
    floored : int
        Rows at the floor of NLL that were all that spoke against the advised report.
    """

    key: str | None
    report: str | None
    headline: str
    reason: str
    changes_pay: str | None = None
    by_nll: tuple[Report, ...] = ()
    by_brier: tuple[Report, ...] = ()
    floored: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        found = asdict(self)
        return {**found, "by_nll": list(self.by_nll), "by_brier": list(self.by_brier)}


def recommend(comparison: Comparison) -> Recommendation:
    """Choose among the reports that keep every decision.

    Two model confidence sets hold those that no other clearly beats, by NLL and by Brier
    score: proper scores, which no report improves by saying less than it knows, as a low ECE
    can be had.  The simplest report in both is advised.  If all that speaks against a simpler
    one of Brier's is the NLL of a handful of rows at its floor, it is that one; if none is in
    both, the simplest by NLL.  A report that is worse than the original one on these rows is
    passed over, however wide chance is.
    """
    withheld = [concern for concern in comparison.concerns if concern.blocks_advice]
    if withheld:
        return Recommendation(None, None, "No advice", f"Check first: {withheld[0].with_full_stop}")
    preserving = comparison.preserving()
    by_nll, by_brier = (unbeaten(comparison, preserving, name) for name in ("nll", "brier"))
    chosen, floored = _chosen(comparison, by_nll, by_brier)
    payer = changes_that_pay(comparison)
    return Recommendation(
        key=chosen[0],
        report=chosen[1],
        headline=_headline(comparison, chosen, decisions_may_pay=payer is not None),
        reason=_reason(comparison, chosen, floored),
        changes_pay=payer,
        by_nll=tuple(by_nll),
        by_brier=tuple(by_brier),
        floored=floored,
    )


def unbeaten(comparison: Comparison, reports: Sequence[Report], measure: str) -> list[Report]:
    """Return the reports that no other clearly beats by a measure.

    Those of the model confidence set, but for what the best of them clearly beats by itself:
    a report with a few dear rows widens what chance can do to all, and would let others in.
    """
    loss = 1.0 if MEASURES[measure].lower_is_better else -1.0
    losses = {report: loss * comparison.measures(*report)[measure] for report in reports}
    drawn = {report: loss * comparison.evidence.replicates[report][measure] for report in reports}
    return _not_below_best(losses, drawn, confidence_set(losses, drawn))


def _not_below_best(
    losses: Mapping[Report, float], drawn: Mapping[Report, Vector], among: Sequence[Report]
) -> list[Report]:
    best = min(among, key=lambda report: losses[report])
    lows = {report: percentile_interval(drawn[report] - drawn[best])[0] for report in among}
    return [report for report in among if lows[report] <= ROUNDING]


def _chosen(
    comparison: Comparison, by_nll: Sequence[Report], by_brier: Sequence[Report]
) -> tuple[Report, int]:
    """Return the advised report, and how many rows at the floor were disregarded for it."""
    evidence, preserving = comparison.evidence, comparison.preserving()
    most = min(MAX_FLOORED_ROWS, _FLOORED_RATE * comparison.n_evaluation)

    def simplest_first(reports: Sequence[Report]) -> list[Report]:
        return sorted(reports, key=lambda report: simplicity(comparison, report))

    for report in simplest_first(
        [each for each in by_brier if improves_on_original(comparison, each, "brier")]
    ):
        if report in by_nll and improves_on_original(comparison, report, "nll"):
            return report, 0
        at_floor = evidence.at_floor(report)
        if 0 < len(at_floor) <= most:
            losses, drawn = evidence.nll_without(at_floor, preserving)
            unbeaten = _not_below_best(losses, drawn, confidence_set(losses, drawn))
            if report in unbeaten and losses[report] <= losses[ORIGINAL]:
                return report, len(at_floor)
    # The lowest NLL is always left: it is in its set, and not above the original's.
    return simplest_first(
        [each for each in by_nll if improves_on_original(comparison, each, "nll")]
    )[0], 0


def improves_on_original(comparison: Comparison, report: Report, measure: str) -> bool:
    """Tell whether a report's loss is not above the original's on these very rows."""
    return comparison.measures(*report)[measure] <= comparison.measures(*ORIGINAL)[measure]


def simplicity(comparison: Comparison, report: Report) -> tuple[bool, float, int, float]:
    """Return what reports are ordered by: fitted numbers, then the bare map first; blend last.

    Of equally simple ones, the one with the lower NLL comes first.
    """
    key, kind = report
    numbers = 0.0 if report == ORIGINAL else comparison[key].numbers
    return key == "blend", numbers, _BARE_FIRST.index(kind), comparison.measures(*report)["nll"]


def changes_that_pay(comparison: Comparison) -> str | None:
    """Return the calibrator whose changes raise accuracy most, if some clearly do."""
    movers = [(entry.key, "direct") for entry in comparison if entry.changes.n_changed]
    best = unbeaten(comparison, [ORIGINAL, *movers], "accuracy")
    if ORIGINAL in best or any(concern.blocks_advice for concern in comparison.concerns):
        return None
    return max(best, key=lambda report: comparison.measures(*report)["accuracy"])[0]


def indistinct(comparison: Comparison) -> list[Caveat]:
    """Say if the rows tell no report that keeps decisions from another."""
    preserving = comparison.preserving()
    if len(preserving) == 1 or any(
        len(unbeaten(comparison, preserving, measure)) < len(preserving)
        for measure in ("nll", "brier")
    ):
        return []
    return [
        Caveat(
            "indistinct",
            f"none of the {len(preserving)} reports that keep every decision can be told from "
            f"another on {comparison.n_evaluation:,} rows, the uncalibrated one included",
            {"reports": len(preserving), "rows": comparison.n_evaluation},
        )
    ]


def sentences(comparison: Comparison) -> list[str]:
    """Return what the rows show, beside the recommendation."""
    said = [_about_classifier(comparison), *_about_changes(comparison)]
    said += [*_about_rivals(comparison), _about_paying(comparison), *_about_price(comparison)]
    said += _about_bound(comparison)
    if comparison.left_out:
        said.append(f"Not run: {', '.join(comparison.left_out)}.")
    return said


def _about_classifier(comparison: Comparison) -> str:
    measures = comparison.uncalibrated
    return (
        f"On {comparison.n_evaluation:,} evaluation rows the classifier is right in "
        f"{measures['accuracy']:.2%}, and its confidence misses its accuracy by "
        f"{100 * measures['ece']:.2f} points on average (ECE)."
    )


def _about_changes(comparison: Comparison) -> list[str]:
    movers = [entry for entry in comparison if entry.changes.n_changed]
    if not movers:
        return ["None of the calibrators changes a decision on these rows."]
    most = max(movers, key=lambda entry: entry.changes.tpcr)
    least = min(movers, key=lambda entry: entry.changes.tpcr)
    if most is least:
        said = f"Used directly, {most.key} changes {most.changes.tpcr:.2%} of the decisions"
    else:
        said = (
            f"Used directly, calibrators change between {least.changes.tpcr:.2%} ({least.key}) "
            f"and {most.changes.tpcr:.2%} ({most.key}) of the decisions"
        )
    net = most.changes.delta_accuracy or 0.0
    return [
        f"{said}; accuracy shows only the net of it, {_points(net)} for {most.key}.",
        "The repaired reports keep every decision.",
    ]


def _headline(comparison: Comparison, chosen: Report, *, decisions_may_pay: bool) -> str:
    advice = _advice(comparison, *chosen)
    return f"{advice}, if decisions must stay" if decisions_may_pay else advice


def _advice(comparison: Comparison, key: str, report: str) -> str:
    if key == ORIGINAL[0]:
        return "Keep the classifier's own probabilities"
    name = comparison[key].name
    called = key if name == key else f"{key} ({name})"
    return f"Use {called}{_REPAIRS.get(report, '')}"


_REPAIRS = {"repaired": ", repaired by CORD", "lift": ", repaired by lift"}


def _reason(comparison: Comparison, chosen: Report, floored: int) -> str:
    def nll(report: Report) -> float:
        return comparison.measures(*report)["nll"]

    preserving = comparison.preserving()
    lowest = min(preserving, key=nll)
    said = f"Its NLL is {nll(chosen):.4f}"
    if chosen != ORIGINAL:
        said += f", uncalibrated {nll(ORIGINAL):.4f}"
    if chosen == lowest:
        return f"{said}: the lowest of the {len(preserving)} reports that keep every decision."
    gap = comparison.difference(chosen, lowest, "nll")
    said += f"; the lowest is {named(lowest)}'s, {_written(gap)} nats lower"
    if floored:
        rows = "row" if floored == 1 else "rows"
        return (
            f"{said}, but that rests on {floored} {rows} whose true class it gives less than "
            f"1e-12: by Brier score it is the simplest of those that none clearly beats."
        )
    chance = "within chance" if not gap.clear else "no more than the best of many shows by chance"
    return f"{said}, which is {chance}, and it is the simplest of those that none clearly beats."


def _about_rivals(comparison: Comparison) -> list[str]:
    """Say whether a map that keeps decisions by itself beats every repaired one."""

    def nll(report: Report) -> float:
        return comparison.measures(*report)["nll"]

    kept = [report for report in comparison.preserving() if report != ORIGINAL]
    rivals = [report for report in kept if report[1] == "direct"]
    repairs = [report for report in kept if report[1] != "direct"]
    if not rivals or not repairs:
        return []
    rival, repair = min(rivals, key=nll), min(repairs, key=nll)
    gap = comparison.difference(rival, repair, "nll")
    if not gap.clear:
        return [
            f"{rival[0]}, which keeps decisions by itself, and {named(repair)} cannot be "
            f"told apart by NLL (difference {_written(gap)})."
        ]
    if gap.estimate < 0:
        return [
            f"{rival[0]}, which keeps decisions by itself, beats every repaired calibrator: its "
            f"NLL is lower than that of {named(repair)} by {_written(gap, flip=True)}."
        ]
    return [
        f"{named(repair)} beats the best map that keeps decisions by itself, {rival[0]}, "
        f"by {_written(gap)} in NLL."
    ]


def _about_paying(comparison: Comparison) -> str:
    key = changes_that_pay(comparison)
    if key is None:
        costly = [entry for entry in comparison if entry.gain["nll"].high < 0.0]
        if not costly:
            return "Keeping the decisions costs no calibrator likelihood beyond chance."
        dearest = min(costly, key=lambda entry: entry.gain["nll"].estimate)
        return (
            f"Keeping the decisions costs at most {_written(dearest.gain['nll'], flip=True)} in "
            f"NLL ({dearest.key}), and no calibrator's changes lift accuracy beyond chance."
        )
    accuracy, nll = comparison[key].gain["accuracy"], comparison[key].gain["nll"]
    cost = "no likelihood beyond chance"
    if nll.high < 0.0:
        cost = f"{_written(nll, flip=True)} in NLL"
    return (
        f"The changes that {key} makes are worth having: they lift accuracy by "
        f"{_written(accuracy, scale=100, unit=' points')}; keeping the decisions costs {cost}. "
        f"If decisions may change, deploy its direct report."
    )


def _about_price(comparison: Comparison) -> list[str]:
    """Say what the constraint costs the calibrator that it costs most, and what is left."""
    priced = [(entry, entry.price) for entry in comparison if entry.price is not None]
    if not priced:
        return []
    entry, price = max(priced, key=lambda pair: pair[1].cost)
    repairs = {"CORD": price.cord, "lift": price.lift}
    left = [
        f"{name} is {_signed(nll - price.kept)}" for name, nll in repairs.items() if nll is not None
    ]
    return [
        f"The constraint itself costs at most {max(price.cost, 0.0):.4f} nats ({entry.key}: "
        f"{price.kept:.4f} against {price.free:.4f} for the best monotone repairs, fitted on "
        f"these very rows); {' and '.join(left)} from the former."
    ]


def _about_bound(comparison: Comparison) -> list[str]:
    """Mention the cap where keeping decisions often holds the advised lift up."""
    key, report = comparison.recommendation.key, comparison.recommendation.report
    if key is None or report != "lift" or comparison[key].at_bound < MANY_AT_BOUND:
        return []
    return [
        f"In {comparison[key].at_bound:.1%} of the rows lift is held at the least confidence that "
        f'keeps the decision; mode="cap" keeps its confidence there and lowers the other classes.'
    ]


def named(report: Report) -> str:
    """Return a report's name in a sentence."""
    key, kind = report
    return {"repaired": f"{key} with CORD", "lift": f"{key} with lift"}.get(kind, key)


def _points(share: float) -> str:
    return f"{100 * share:+.2f} points".replace("-", "−")


def _signed(value: float) -> str:
    return f"{value:.4f}".replace("-", "−")


def _written(interval: Interval, *, scale: float = 1.0, unit: str = "", flip: bool = False) -> str:
    """Write an interval; ``flip`` turns a reduction into a positive amount."""
    sign = -scale if flip else scale
    low, high = np.sort([sign * interval.low, sign * interval.high])
    digits = 2 if scale == 100 else 4
    text = f"{sign * interval.estimate:.{digits}f}{unit} [{low:.{digits}f}, {high:.{digits}f}]"
    return text.replace("-", "−")
