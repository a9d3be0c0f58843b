"""The recommendation: the default unless another option is clearly better."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from cordcal._errors import option_text
from cordcal._validation.caveats import Caveat
from cordcal.calibrators import available
from cordcal.evaluate.results.calibrators import RuleOffer
from cordcal.evaluate.results.recommendation import (
    DEFAULT,
    Alternative,
    ChangedPredictions,
    Recommendation,
    describe_output,
    format_interval,
)
from cordcal.evaluate.results.report import SuggestedCommand
from cordcal.evaluate.results.values import ORIGINAL, Output
from cordcal.evaluate.statistics import ROUNDING, joint_lower_bounds
from cordcal.metrics import METRICS
from cordcal.repair.results import MANY_AT_BOUND
from cordcal.report.tables import number

if TYPE_CHECKING:
    from cordcal.evaluate.comparison import Comparison

LEVEL = 0.95
# On average nothing beats the default, so a stronger proof is asked of what would replace it.
LEVEL_AGAINST_DEFAULT = 0.99
# Formats in which the suggested command writes what it read.
_WRITTEN_SUFFIXES = (".csv", ".jsonl", ".parquet")
# With fewer wrong predictions, a few rows decide which option has the lowest log loss.
MIN_ERRORS = 10
# From this share of the NLL on, a rule is worth the other argmax that it brings.
MIN_SAVING = 0.01
# Of outputs with equally many parameters, the one without a repair is simpler.
_SIMPLEST_FIRST = ("original", "direct", "repaired", "lift")


def recommend(comparison: Comparison) -> Recommendation:
    """Recommend the default, unless another option that keeps every prediction clearly beats it.

    Options are compared by NLL, a proper score, among those whose ECE is not clearly above the
    default's: the default gives up likelihood for an honest confidence.  With fewer than ten
    errors nothing is clear.  Without the default, the option with the lowest NLL is recommended.
    """
    rows, before = comparison.n_evaluation, comparison.uncalibrated
    blocking = tuple(caveat for caveat in comparison.caveats if caveat.blocks_advice)
    if blocking:
        reason = f"Check first: {blocking[0].with_full_stop}"
        return Recommendation(None, None, False, reason, rows, before, {}, blocking=blocking)
    options, reference = comparison.preserving(), reference_option(comparison)
    better: list[Output] = []
    if reference is not None and errors_of(comparison) >= MIN_ERRORS:
        honest = as_honest(comparison, reference, options)
        better = clearly_better(comparison, reference, honest, "nll", LEVEL_AGAINST_DEFAULT)
    if reference is not None and not better:
        chosen = reference
    else:
        chosen = min(better or options, key=lambda option: comparison.measures(*option)["nll"])
    return Recommendation(
        key=chosen[0],
        output=chosen[1],
        is_default=chosen == DEFAULT,
        reason=_reason(comparison, chosen, reference),
        n_rows=rows,
        before=before,
        after=comparison.measures(*chosen),
        alternatives=tuple(_alternatives(comparison, chosen)),
        changing=_changing(comparison),
        context=next((e.context for e in comparison if e.key == DEFAULT[0]), None),
        rule=_rule(comparison) if chosen == DEFAULT else None,
        confidence=_describe_confidence(comparison, chosen),
    )


def reference_option(comparison: Comparison) -> Output | None:
    """Return the default, or its repair by CORD where lift cannot run; None without a blend."""
    options = comparison.preserving()
    candidates = (DEFAULT, (DEFAULT[0], "repaired"))
    return next((option for option in candidates if option in options), None)


def clearly_better(
    comparison: Comparison,
    reference: Output,
    options: Sequence[Output],
    metric: str,
    level: float = LEVEL,
) -> list[Output]:
    """Return the options that beat the reference by more than chance explains.

    All options are compared with the reference on the same resampled rows, and the bounds on
    their leads hold together: the best of many options leads by chance more often than one.
    """
    others = [option for option in options if option != reference]
    if not others:
        return []
    sign = 1.0 if METRICS[metric].lower_is_better else -1.0
    values = np.array([comparison.measures(*option)[metric] for option in others])
    drawn = np.stack([comparison.resampled[option][metric] for option in others], axis=1)
    leads = sign * (comparison.measures(*reference)[metric] - values)
    resampled = sign * (comparison.resampled[reference][metric][:, None] - drawn)
    bounds = joint_lower_bounds(leads, resampled, level)
    return [option for option, bound in zip(others, bounds, strict=True) if bound > ROUNDING]


def as_honest(comparison: Comparison, reference: Output, options: Sequence[Output]) -> list[Output]:
    """Return the options whose ECE is not clearly above that of the reference."""
    return [
        option
        for option in options
        if option == reference or comparison.difference(option, reference, "ece").low <= 0.0
    ]


def errors_of(comparison: Comparison) -> int:
    """Return the number of wrong predictions among the evaluation rows."""
    return round(comparison.n_evaluation * (1.0 - comparison.uncalibrated["accuracy"]))


def _reason(comparison: Comparison, chosen: Output, reference: Output | None) -> str:
    default = describe_output(DEFAULT)
    if reference is None:
        why = comparison.left_out.get(DEFAULT[0])
        absent = "was not compared" if why is None else f"could not run ({why})"
        options = f"{len(comparison.preserving())} options that keep every prediction"
        return f"It has the lowest NLL of the {options}; the default, {default}, {absent}."
    errors = errors_of(comparison)
    if errors < MIN_ERRORS:
        return (
            f"Only {errors} of {comparison.n_evaluation:,} evaluation predictions are wrong, too "
            "few to tell options apart; on average none is better."
        )
    if chosen == DEFAULT:
        return "No other option is clearly better."
    if chosen == reference:
        return f"The default, {default}, could not run. No other option is clearly better."
    gap = format_interval(comparison.difference(reference, chosen, "nll"))
    return f"It clearly beats {describe_output(reference)}: its NLL is lower by {gap}."


def _alternatives(comparison: Comparison, chosen: Output) -> list[Alternative]:
    """Return the simpler options that the chosen one does not clearly beat, simplest first.

    A calibrator is named once, with its output of the lowest NLL of those that are as honest.
    """
    best: dict[str, Output] = {}
    options = as_honest(comparison, chosen, comparison.preserving())
    by_nll = sorted(options, key=lambda option: comparison.measures(*option)["nll"])
    for option in by_nll:
        best.setdefault(option[0], option)
    limit = simplicity(comparison, chosen)
    options = sorted(best.values(), key=lambda option: simplicity(comparison, option))
    gaps = {
        option: comparison.difference(option, chosen, "nll")
        for option in options
        if option[0] != chosen[0] and simplicity(comparison, option) < limit
    }
    return [Alternative(*option, gap) for option, gap in gaps.items() if gap.low <= 0.0]


def simplicity(comparison: Comparison, output: Output) -> tuple[bool, float, int]:
    """Return a sort key: fewer parameters first, then without a repair; the blend is last."""
    key, kind = output
    parameters = 0.0 if output == ORIGINAL else comparison[key].parameters
    return key == "blend", parameters, _SIMPLEST_FIRST.index(kind)


def _rule(comparison: Comparison) -> RuleOffer | None:
    """Return what a learnt rule saves the default, if it is clear and more than one per cent."""
    offer = comparison[DEFAULT[0]].rule
    is_clear = offer is not None and offer.saving.low > MIN_SAVING * offer.nll
    return offer if is_clear else None


def _changing(comparison: Comparison) -> ChangedPredictions | None:
    """Return the most accurate of the calibrators whose changes clearly improve accuracy."""
    changing = [(entry.key, "direct") for entry in comparison if entry.changes.n_changed]
    better = clearly_better(comparison, ORIGINAL, changing, "accuracy")
    if not better:
        return None
    best = max(better, key=lambda output: comparison.measures(*output)["accuracy"])
    return ChangedPredictions(
        key=best[0],
        n_changed=comparison[best[0]].changes.n_changed,
        accuracy=comparison.difference(best, ORIGINAL, "accuracy"),
        nll=comparison.measures(*best)["nll"],
    )


def indistinct(comparison: Comparison) -> list[Caveat]:
    """Return a caveat if no option is clearly better than the classifier's own probabilities."""
    options = comparison.preserving()
    if len(options) == 1 or clearly_better(comparison, ORIGINAL, options, "nll"):
        return []
    return [
        Caveat(
            "indistinct",
            f"on {comparison.n_evaluation:,} rows, none of the {len(options) - 1} options that "
            "keep every prediction is clearly better than the classifier's own probabilities",
            {"reports": len(options), "rows": comparison.n_evaluation},
        )
    ]


def sentences(comparison: Comparison) -> list[str]:
    """Return what the rows show, in addition to the recommendation."""
    return [
        _describe_classifier(comparison),
        *_describe_changes(comparison),
        *_describe_constraint(comparison),
        *([f"Not run: {', '.join(comparison.left_out)}."] if comparison.left_out else []),
    ]


def _describe_classifier(comparison: Comparison) -> str:
    measures = comparison.uncalibrated
    return (
        f"On {comparison.n_evaluation:,} evaluation rows the classifier is right in "
        f"{100 * measures['accuracy']:.2f} %, and its confidence differs from its accuracy by "
        f"{100 * measures['ece']:.2f} points on average (ECE)."
    )


def _describe_changes(comparison: Comparison) -> list[str]:
    changing = [entry for entry in comparison if entry.changes.n_changed]
    if not changing:
        return ["None of the calibrators changes a prediction on these rows."]
    most = max(changing, key=lambda entry: entry.changes.tpcr)
    least = min(changing, key=lambda entry: entry.changes.tpcr)
    if most is least:
        share = f"{100 * most.changes.tpcr:.2f} %"
        sentence = f"Used directly, {most.key} changes {share} of the predictions"
    else:
        sentence = (
            f"Used directly, calibrators change between {100 * least.changes.tpcr:.2f} % "
            f"({least.key}) and {100 * most.changes.tpcr:.2f} % ({most.key}) of the predictions"
        )
    net = f"{100 * (most.changes.delta_accuracy or 0.0):+.2f} points".replace("-", "−")
    return [
        f"{sentence}; accuracy shows only the net effect, {net} for {most.key}.",
        "The repaired probabilities keep every prediction.",
    ]


def _describe_constraint(comparison: Comparison) -> list[str]:
    """Describe the largest cost of keeping predictions, and how close the repairs come."""
    costs = [
        (entry, entry.constraint_cost) for entry in comparison if entry.constraint_cost is not None
    ]
    if not costs:
        return []
    entry, cost = max(costs, key=lambda pair: pair[1].cost)
    repairs = {"CORD": cost.cord, "lift": cost.lift}
    gaps = [
        f"{name} is {nll - cost.kept:.4f}".replace("-", "−")
        for name, nll in repairs.items()
        if nll is not None
    ]
    return [
        f"The constraint itself costs at most {max(cost.cost, 0.0):.4f} nats ({entry.key}: "
        f"{cost.kept:.4f} against {cost.free:.4f} for the best monotone repairs, fitted on "
        f"these same rows); {' and '.join(gaps)} from the former."
    ]


def _describe_confidence(comparison: Comparison, chosen: Output) -> str:
    """Compare confidence and accuracy; from 5 % of rows at the bound on, name the ways out."""
    entry = comparison[chosen[0]] if chosen[1] == "lift" else None
    if entry is None or entry.kept is None:
        return ""
    gap, likelihood = entry.kept.gap, entry.kept.likelihood
    first = str(gap).splitlines()[0]
    text = f"{first} {100 * gap.at_bound:.1f} % of the predictions are kept against the evidence"
    if gap.at_bound < MANY_AT_BOUND:
        return f"{text}."
    nll, ece = number("nll", likelihood["nll"]), number("ece", likelihood["ece"])
    rule = "" if entry.rule is None else f" (NLL {number('nll', entry.rule.nll)})"
    direct = number("nll", entry.direct["nll"])
    return (
        f"{text}, at {gap.repaired_nll - gap.direct_nll:.4f} of NLL. Ways out: "
        f"{option_text('prefer', 'likelihood')} (NLL {nll}, ECE {ece}); "
        f"{option_text('rule', 'learnt')}{rule}; direct (NLL {direct}, {entry.changes.n_changed:,} "
        "predictions change)."
    )


def next_step(
    comparison: Comparison,
    scores: Sequence[str],
    new: str | None,
    model: str,
    options: Mapping[str, str] | None = None,
    arguments: Mapping[str, object] | None = None,
) -> SuggestedCommand | None:
    """Return the commands for the recommendation; None if there is nothing to fit.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    scores : sequence of str
        Paths of the calibration scores.
    new, model : str
        Paths of the new rows, and of the model file.
    options : mapping of str to str
        Options that the command needs to read the scores, and their values; empty for flags.
    arguments : mapping of str to object
        The same as arguments of `cordcal.files.read_scores`.
    """
    options = options or {}
    advice = comparison.recommendation
    if advice.key is None or advice.key == ORIGINAL[0] or advice.key not in available():
        return None  # a user's own calibrator has no key to fit it by
    settings = {
        "calibrator": None if advice.is_default else advice.key,
        "input": None if comparison.input == "logits" else comparison.input,
        "preserve": None if comparison.preserve == 1 else comparison.preserve,
        "repair": "lift" if advice.output == "lift" and not advice.is_default else None,
        "rule": None if advice.rule is None else "learnt",
    }
    written = {name: value for name, value in settings.items() if value is not None}
    fit = ["cordcal", "fit", *scores, *filter(None, chain(*options.items()))]
    fit += [word for name, value in written.items() for word in (f"--{name}", str(value))]
    settings_text = ", ".join(f"{name}={value!r}" for name, value in written.items())
    paths = scores[0] if len(scores) == 1 else list(scores)
    read = [repr(paths), *(f"{name}={value!r}" for name, value in (arguments or {}).items())]
    suffix = PurePath(new or scores[0]).suffix
    suffix = suffix if suffix in _WRITTEN_SUFFIXES else ".npz"
    new = new or f"new{suffix}"
    apply = ["cordcal", "apply", model, new, "--output", f"repaired{suffix}"]
    if "--second-opinion" in options:
        apply += ["--second-opinion", f"new-opinion{suffix}"]
    offer, others, later = advice.context if advice.is_default else None, "", ""
    read_others = []
    if "--cluster-column" in options:
        column = options["--cluster-column"]
        read_others.append(f"clusters = ...  # column {column!r}, one value per row")
        others += ", clusters=clusters"
    if offer is not None and offer.is_clear:
        read_others.append("context = ...  # the columns next to the scores, one value per row")
        others += ", context=context"
        later = ", context=new_context"
    return SuggestedCommand(
        shell=(shlex.join([*fit, "--output", model]), shlex.join(apply)),
        python=(
            "import cordcal",
            f"rows = cordcal.files.read_scores({', '.join(read)})",
            *read_others,
            f"model = cordcal.PreservingCalibrator({settings_text})",
            f"model.fit(rows.values, rows.labels{others})",
            f"cordcal.save(model, {model!r})",
            f"repaired = model.predict_proba(cordcal.files.read_scores({new!r}).values{later})",
        ),
    )
