"""What a comparison means, in words: which report to deploy, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordcal.calibrators._registry import simplicity

if TYPE_CHECKING:
    from cordcal.evaluate.comparison import Comparison, Entry, Interval

Report = tuple[str, str]


@dataclass(frozen=True)
class Recommendation:
    """Which report to deploy.

    Attributes
    ----------
    key, report : str
        The calibrator, and which of its reports; ``"uncalibrated"`` needs none.
    headline, reason : str
        The advice and why.
    changes_pay : str or None
        A calibrator whose changes of decisions are worth having, if there is one.
    """

    key: str
    report: str
    headline: str
    reason: str
    changes_pay: str | None


def recommend(comparison: Comparison) -> Recommendation:
    """Choose among the reports that keep every decision: the lowest NLL, then the simplest.

    NLL is a proper score: no report improves it by saying less than it knows, as a low
    ECE can be had.  Reports within chance of the lowest count as equal.
    """
    keepers = comparison.keepers()
    lowest = min(keepers, key=lambda pair: comparison.measures(*pair)["nll"])
    equals = [
        pair
        for pair in keepers
        if pair == lowest or not comparison.difference(pair, lowest, "nll").clear
    ]
    chosen = min(equals, key=lambda pair: _simplicity(pair, comparison.n_classes))
    payer = _changes_that_pay(comparison)
    return Recommendation(
        key=chosen[0],
        report=chosen[1],
        headline=_headline(comparison, chosen, decisions_may_pay=payer is not None),
        reason=_reason(comparison, chosen, lowest),
        changes_pay=None if payer is None else payer.key,
    )


def sentences(comparison: Comparison) -> list[str]:
    """Return what the rows show, beside the recommendation."""
    said = [_about_classifier(comparison), *_about_changes(comparison)]
    rival = _about_rivals(comparison)
    if rival is not None:
        said.append(rival)
    said.append(_about_paying(comparison))
    if comparison.left_out:
        said.append(f"Not run: {', '.join(comparison.left_out)}.")
    return said


def _about_classifier(comparison: Comparison) -> str:
    measures = comparison.uncalibrated
    return (
        f"On {comparison.n_evaluation:,} evaluation rows the classifier is right in "
        f"{measures['accuracy']:.1%}, and its confidence misses its accuracy by "
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
    key, report = chosen
    advice = _advice(comparison, key, report)
    return f"{advice}, if decisions must stay" if decisions_may_pay else advice


def _advice(comparison: Comparison, key: str, report: str) -> str:
    if key == "uncalibrated":
        return "Keep the classifier's own probabilities"
    name = comparison[key].name
    called = key if name == key else f"{key} ({name})"
    return f"Use {called}" if report == "direct" else f"Use {called}, repaired by CORD"


def _reason(comparison: Comparison, chosen: Report, lowest: Report) -> str:
    value = comparison.measures(*chosen)["nll"]
    before = comparison.uncalibrated["nll"]
    if chosen == lowest:
        reason = f"It has the lowest NLL of all reports that keep every decision: {value:.4f}"
    else:
        gap = comparison.difference(chosen, lowest, "nll")
        reason = (
            f"Its NLL, {value:.4f}, is within chance of the lowest that keeps every decision "
            f"({_said(lowest)}, {comparison.measures(*lowest)['nll']:.4f}; difference "
            f"{_written(gap)}), and it is the simpler map"
        )
    if chosen[0] == "uncalibrated":
        return f"{reason}: no calibrator improves on it beyond chance."
    first, then = comparison.uncalibrated["ece"], comparison.measures(*chosen)["ece"]
    turn = "ECE falls" if then <= first else "but ECE rises"
    return f"{reason}. Uncalibrated, NLL is {before:.4f}; {turn} from {first:.2%} to {then:.2%}."


def _about_rivals(comparison: Comparison) -> str | None:
    """Say whether a map that keeps decisions by itself beats every repaired one."""

    def nll(pair: Report) -> float:
        return comparison.measures(*pair)["nll"]

    rivals = [(entry.key, "direct") for entry in comparison if entry.keeps_decisions]
    repairs = [(entry.key, "repaired") for entry in comparison if not entry.keeps_decisions]
    if not rivals or not repairs:
        return None
    rival, repair = min(rivals, key=nll), min(repairs, key=nll)
    gap = comparison.difference(rival, repair, "nll")
    if not gap.clear:
        return (
            f"{rival[0]}, which keeps decisions by itself, and {repair[0]} with CORD cannot be "
            f"told apart by NLL (difference {_written(gap)})."
        )
    if gap.estimate < 0:
        return (
            f"{rival[0]}, which keeps decisions by itself, beats every repaired calibrator: its "
            f"NLL is lower than that of {repair[0]} with CORD by {_written(gap, flip=True)}."
        )
    return (
        f"{repair[0]} with CORD beats the best map that keeps decisions by itself, {rival[0]}, "
        f"by {_written(gap)} in NLL."
    )


def _changes_that_pay(comparison: Comparison) -> Entry | None:
    """Return the calibrator whose changes raise accuracy most, if any do beyond chance."""
    payers = [entry for entry in comparison if entry.gain["accuracy"].low > 0.0]
    return max(payers, key=lambda entry: entry.gain["accuracy"].estimate, default=None)


def _about_paying(comparison: Comparison) -> str:
    payer = _changes_that_pay(comparison)
    if payer is None:
        costly = [entry for entry in comparison if entry.gain["nll"].high < 0.0]
        if not costly:
            return "Keeping the decisions costs no calibrator likelihood beyond chance."
        dearest = min(costly, key=lambda entry: entry.gain["nll"].estimate)
        return (
            f"Keeping the decisions costs at most {_written(dearest.gain['nll'], flip=True)} in "
            f"NLL ({dearest.key}), and no calibrator's changes lift accuracy beyond chance."
        )
    accuracy, nll = payer.gain["accuracy"], payer.gain["nll"]
    cost = "no likelihood beyond chance"
    if nll.high < 0.0:
        cost = f"{_written(nll, flip=True)} in NLL"
    return (
        f"The changes that {payer.key} makes are worth having: they lift accuracy by "
        f"{_written(accuracy, scale=100, unit=' points')}; keeping the decisions costs {cost}. "
        f"If decisions may change, deploy its direct report."
    )


def _simplicity(pair: Report, classes: int) -> tuple[float, bool]:
    """Return what the simpler report has less of: fitted numbers, then repairs."""
    key, report = pair
    return 0.0 if key == "uncalibrated" else simplicity(key, classes), report == "repaired"


def _said(pair: Report) -> str:
    return f"{pair[0]} with CORD" if pair[1] == "repaired" else pair[0]


def _points(share: float) -> str:
    return f"{100 * share:+.2f} points".replace("-", "−")


def _written(interval: Interval, *, scale: float = 1.0, unit: str = "", flip: bool = False) -> str:
    """Write an interval; ``flip`` turns a reduction into a positive amount."""
    sign = -scale if flip else scale
    low, high = sorted((sign * interval.low, sign * interval.high))
    digits = 2 if scale == 100 else 4
    text = f"{sign * interval.estimate:.{digits}f}{unit} [{low:.{digits}f}, {high:.{digits}f}]"
    return text.replace("-", "−")
