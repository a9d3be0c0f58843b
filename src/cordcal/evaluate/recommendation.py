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
from cordcal.evaluate.statistics import ORIGINAL, Output, percentile_interval
from cordcal.metrics import METRICS

if TYPE_CHECKING:
    from cordcal.evaluate.comparison import Comparison, Interval

Name = TypeVar("Name")

LEVEL = 0.95
# Means of float64 rows agree to about this: a repair that has nothing to do still rounds.
ROUNDING = 1e-9


def confidence_set(
    estimates: Mapping[Name, float], replicates: Mapping[Name, Vector], *, level: float = LEVEL
) -> list[Name]:
    """Return the candidates that cannot be distinguished from the best (model confidence set).

    Parameters
    ----------
    estimates : mapping of name to float
        Each candidate's mean loss; lower is better.
    replicates : mapping of name to ndarray
        Its mean loss in each resample; the resamples are the same for all candidates.
    level : float
        With this probability the best candidate is among those returned.

    Returns
    -------
    names : list
        In the order of ``estimates``; never empty.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> shared = rng.normal(size=500)
    >>> losses = {"good": 0.50, "same": 0.51, "bad": 0.60}
    >>> resampled = {name: loss + 0.1 * shared + 0.02 * rng.normal(size=500)
    ...              for name, loss in losses.items()}
    >>> confidence_set(losses, resampled)
    ['good', 'same']
    """
    names = list(estimates)
    losses = np.array([estimates[name] for name in names])
    drawn = np.stack([replicates[name] for name in names], axis=1)
    gaps, deviations = _studentised(losses, drawn)
    remaining = list(range(len(names)))
    while len(remaining) > 1:
        observed = gaps[np.ix_(remaining, remaining)]
        resampled = deviations[np.ix_(range(len(deviations)), remaining, remaining)]
        largest = np.abs(resampled).max(axis=(1, 2))
        if np.mean(largest >= observed.max()) >= 1.0 - level:
            break
        del remaining[int(observed.max(axis=1).argmax())]
    return [names[index] for index in remaining]


def _studentised(losses: Vector, drawn: Vector) -> tuple[Vector, Vector]:
    """Return pairwise differences and their deviations by resample, in standard errors."""
    gaps = losses[:, None] - losses[None, :]
    deviations = drawn[:, :, None] - drawn[:, None, :] - gaps
    errors = np.sqrt(np.mean(deviations * deviations, axis=0))
    same = (errors < ROUNDING) & (np.abs(gaps) < ROUNDING)
    # A constant difference is clear, whatever its size; a zero difference is none.
    errors = np.maximum(errors, ROUNDING)
    return np.where(same, 0.0, gaps / errors), np.where(same, 0.0, deviations / errors)


@dataclass(frozen=True)
class SuggestedCommand:
    """How to fit the recommended calibrator and apply it to new rows.

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
    """Return the commands for the recommendation; None if there is nothing to fit.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    scores, new, model : str
        Paths of the calibration scores, of the new rows, and of the model file.
    options : tuple of str
        Options that the command needs to read the scores.
    """
    advice = comparison.recommendation
    if advice.key is None or advice.key == ORIGINAL[0] or advice.key not in available():
        return None  # a user's own calibrator has no key to fit it by
    repair = "lift" if advice.report == "lift" else None
    preserve = None if comparison.preserve == 1 else comparison.preserve
    kind = None if comparison.input == "logits" else comparison.input
    settings = {"input": kind, "preserve": preserve, "repair": repair}
    fit = ["cordcal", "fit", scores, *options, "--calibrator", advice.key]
    arguments = [repr(advice.key)]
    for name, value in settings.items():
        if value is not None:
            fit += [f"--{name}", str(value)]
            arguments.append(f"{name}={value!r}")
    read = [repr(scores), *_as_arguments(options)]
    return SuggestedCommand(
        shell=(
            shlex.join([*fit, "--output", model]),
            shlex.join(["cordcal", "apply", model, new, "--output", "repaired.npz"]),
        ),
        python=(
            "import cordcal",
            f"rows = cordcal.files.read_scores({', '.join(read)})",
            f"model = cordcal.PreservingCalibrator({', '.join(arguments)})",
            "model.fit(rows.values, rows.labels)",
            f"cordcal.save(model, {model!r})",
            f"repaired = model.predict_proba(cordcal.files.read_scores({new!r}).values)",
        ),
    )


def _as_arguments(options: tuple[str, ...]) -> list[str]:
    """Return options of the command as Python arguments of `read_scores`.

    Examples
    --------
    >>> _as_arguments(("--key", "probs", "--labels-column", "y"))
    ["key='probs'", "labels_column='y'"]
    >>> _as_arguments(("--key", "probs", "--no-header"))
    ["key='probs'", 'header=False']
    """
    switches = {"--header": "header=True", "--no-header": "header=False"}
    valued = [option for option in options if option not in switches]
    pairs = zip(valued[::2], valued[1::2], strict=True)
    # The command reads class names from a file; the function takes the names themselves.
    return [
        f"{name.lstrip('-').replace('-', '_')}={value!r}"
        for name, value in pairs
        if name != "--class-names"
    ] + [switches[option] for option in options if option in switches]


# Up to this many clipped rows are accidents if they are at most one in a thousand: at 27.6 nats
# each, that rate costs 0.03 nats per row; a higher rate recurs on new rows.
MAX_FLOORED_ROWS, _FLOORED_RATE = 3, 0.001
# From this share on, rows at lift's lower bound visibly raise the mean confidence.
MANY_AT_BOUND = 0.05
# Of outputs with equally many parameters, the one without a repair is simpler.
_SIMPLEST_FIRST = ("original", "direct", "repaired", "lift")


@dataclass(frozen=True)
class Recommendation:
    """Which calibrator and which of its outputs to deploy.

    Attributes
    ----------
    key, report : str or None
        The calibrator and its output: ``"direct"``, ``"repaired"`` or ``"lift"``.  The key
        ``"uncalibrated"`` needs no calibrator.  None if the data allow no recommendation.
    headline, reason : str
        The recommendation, and a sentence that gives the reason.
    changes_pay : str or None
        A calibrator whose changed predictions improve accuracy, if there is one.
    by_nll, by_brier : tuple of tuple of str
        The prediction-preserving outputs that no other clearly beats by the metric.
    floored : int
        Rows with clipped NLL that were disregarded for the recommended output.
    """

    key: str | None
    report: str | None
    headline: str
    reason: str
    changes_pay: str | None = None
    by_nll: tuple[Output, ...] = ()
    by_brier: tuple[Output, ...] = ()
    floored: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return {**asdict(self), "by_nll": list(self.by_nll), "by_brier": list(self.by_brier)}


def recommend(comparison: Comparison) -> Recommendation:
    """Choose among the outputs that keep every prediction.

    Two model confidence sets contain those that no other clearly beats, by NLL and by Brier
    score.  Both are proper scores; a low ECE can also be reached by discarding information.
    The simplest output in both sets is recommended.  A simpler one of the Brier set is
    recommended if it misses the NLL set only because of a few rows with clipped NLL.  If no
    output is in both sets, it is the simplest by NLL.  Outputs that are worse than the
    original probabilities on these rows are never recommended.
    """
    blocking = [caveat for caveat in comparison.concerns if caveat.blocks_advice]
    if blocking:
        return Recommendation(None, None, "No advice", f"Check first: {blocking[0].with_full_stop}")
    preserving = comparison.preserving()
    by_nll, by_brier = (unbeaten(comparison, preserving, name) for name in ("nll", "brier"))
    chosen, floored = _choose(comparison, by_nll, by_brier)
    improving = improving_changes(comparison)
    return Recommendation(
        key=chosen[0],
        report=chosen[1],
        headline=_headline(comparison, chosen, changes_improve=improving is not None),
        reason=_reason(comparison, chosen, floored),
        changes_pay=improving,
        by_nll=tuple(by_nll),
        by_brier=tuple(by_brier),
        floored=floored,
    )


def unbeaten(comparison: Comparison, outputs: Sequence[Output], measure: str) -> list[Output]:
    """Return the outputs that no other clearly beats by a metric.

    These are the model confidence set without the outputs that its best member clearly beats in
    a direct comparison: one output with a few very large losses widens every interval.
    """
    sign = 1.0 if METRICS[measure].lower_is_better else -1.0
    losses = {output: sign * comparison.measures(*output)[measure] for output in outputs}
    drawn = {output: sign * comparison.evidence.replicates[output][measure] for output in outputs}
    return _drop_clearly_worse(losses, drawn, confidence_set(losses, drawn))


def _drop_clearly_worse(
    losses: Mapping[Output, float], drawn: Mapping[Output, Vector], outputs: Sequence[Output]
) -> list[Output]:
    """Drop the outputs that are clearly worse than the best one, compared pairwise."""
    best = min(outputs, key=lambda output: losses[output])
    lows = {output: percentile_interval(drawn[output] - drawn[best])[0] for output in outputs}
    return [output for output in outputs if lows[output] <= ROUNDING]


def _choose(
    comparison: Comparison, by_nll: Sequence[Output], by_brier: Sequence[Output]
) -> tuple[Output, int]:
    """Return the recommended output, and how many clipped rows were disregarded for it."""
    evidence, preserving = comparison.evidence, comparison.preserving()
    max_floored = min(MAX_FLOORED_ROWS, _FLOORED_RATE * comparison.n_evaluation)

    def improving(outputs: Sequence[Output], measure: str) -> list[Output]:
        """Return the outputs that are no worse than the original, the simplest first."""
        better = [each for each in outputs if improves_on_original(comparison, each, measure)]
        return sorted(better, key=lambda output: simplicity(comparison, output))

    for output in improving(by_brier, "brier"):
        if output in by_nll and improves_on_original(comparison, output, "nll"):
            return output, 0
        at_floor = evidence.at_floor(output)
        if 0 < len(at_floor) <= max_floored:
            losses, drawn = evidence.nll_without(at_floor, preserving)
            best = _drop_clearly_worse(losses, drawn, confidence_set(losses, drawn))
            if output in best and losses[output] <= losses[ORIGINAL]:
                return output, len(at_floor)
    # Never empty: the lowest NLL is in its set, and not above the original's.
    return improving(by_nll, "nll")[0], 0


def improves_on_original(comparison: Comparison, output: Output, measure: str) -> bool:
    """Return whether a loss is not above the original one on the evaluated rows."""
    return comparison.measures(*output)[measure] <= comparison.measures(*ORIGINAL)[measure]


def simplicity(comparison: Comparison, output: Output) -> tuple[bool, float, int, float]:
    """Return a sort key: fewer parameters first, then without a repair; the blend is last.

    Of equally simple ones, the one with the lower NLL comes first.
    """
    key, kind = output
    parameters = 0.0 if output == ORIGINAL else comparison[key].numbers
    nll = comparison.measures(*output)["nll"]
    return key == "blend", parameters, _SIMPLEST_FIRST.index(kind), nll


def improving_changes(comparison: Comparison) -> str | None:
    """Return the calibrator whose changes improve accuracy most, if some clearly do."""
    changing = [(entry.key, "direct") for entry in comparison if entry.changes.n_changed]
    best = unbeaten(comparison, [ORIGINAL, *changing], "accuracy")
    if ORIGINAL in best or any(caveat.blocks_advice for caveat in comparison.concerns):
        return None
    return max(best, key=lambda output: comparison.measures(*output)["accuracy"])[0]


def indistinct(comparison: Comparison) -> list[Caveat]:
    """Return a caveat if no prediction-preserving output can be distinguished from another."""
    preserving = comparison.preserving()
    if len(preserving) == 1 or any(
        len(unbeaten(comparison, preserving, measure)) < len(preserving)
        for measure in ("nll", "brier")
    ):
        return []
    return [
        Caveat(
            "indistinct",
            f"the {len(preserving)} options that keep every prediction cannot be distinguished on "
            f"{comparison.n_evaluation:,} rows, the uncalibrated one included",
            {"reports": len(preserving), "rows": comparison.n_evaluation},
        )
    ]


def sentences(comparison: Comparison) -> list[str]:
    """Return what the rows show, in addition to the recommendation."""
    return [
        _describe_classifier(comparison),
        *_describe_changes(comparison),
        *_describe_unrepaired(comparison),
        _describe_preserving(comparison),
        *_describe_constraint(comparison),
        *_describe_bound(comparison),
        *([f"Not run: {', '.join(comparison.left_out)}."] if comparison.left_out else []),
    ]


def _describe_classifier(comparison: Comparison) -> str:
    measures = comparison.uncalibrated
    return (
        f"On {comparison.n_evaluation:,} evaluation rows the classifier is right in "
        f"{measures['accuracy']:.2%}, and its confidence differs from its accuracy by "
        f"{100 * measures['ece']:.2f} points on average (ECE)."
    )


def _describe_changes(comparison: Comparison) -> list[str]:
    changing = [entry for entry in comparison if entry.changes.n_changed]
    if not changing:
        return ["None of the calibrators changes a prediction on these rows."]
    most = max(changing, key=lambda entry: entry.changes.tpcr)
    least = min(changing, key=lambda entry: entry.changes.tpcr)
    if most is least:
        sentence = f"Used directly, {most.key} changes {most.changes.tpcr:.2%} of the predictions"
    else:
        sentence = (
            f"Used directly, calibrators change between {least.changes.tpcr:.2%} ({least.key}) "
            f"and {most.changes.tpcr:.2%} ({most.key}) of the predictions"
        )
    net = most.changes.delta_accuracy or 0.0
    return [
        f"{sentence}; accuracy shows only the net effect, {_format_points(net)} for {most.key}.",
        "The repaired probabilities keep every prediction.",
    ]


_REPAIRS = {"repaired": ", repaired by CORD", "lift": ", repaired by lift"}


def _headline(comparison: Comparison, chosen: Output, *, changes_improve: bool) -> str:
    key, kind = chosen
    if chosen == ORIGINAL:
        advice = "Keep the classifier's own probabilities"
    else:
        name = comparison[key].name
        title = key if name == key else f"{key} ({name})"
        advice = f"Use {title}{_REPAIRS.get(kind, '')}"
    return f"{advice}, if predictions must not change" if changes_improve else advice


def _reason(comparison: Comparison, chosen: Output, floored: int) -> str:
    def nll(output: Output) -> float:
        return comparison.measures(*output)["nll"]

    preserving = comparison.preserving()
    lowest = min(preserving, key=nll)
    sentence = f"Its NLL is {nll(chosen):.4f}"
    if chosen != ORIGINAL:
        sentence += f", uncalibrated {nll(ORIGINAL):.4f}"
    if chosen == lowest:
        options = f"{len(preserving)} options that keep every prediction"
        return f"{sentence}: the lowest of the {options}."
    gap = comparison.difference(chosen, lowest, "nll")
    sentence += (
        f"; the lowest is that of {describe_output(lowest)}, {_format_interval(gap)} nats lower"
    )
    if floored:
        rows = "row" if floored == 1 else "rows"
        return (
            f"{sentence}, but only because of {floored} {rows} whose true class has probability "
            f"below 1e-12; by Brier score it is the simplest option that no other clearly beats."
        )
    noise = "within noise" if not gap.clear else "no more than the best of many differs by chance"
    return (
        f"{sentence}, which is {noise}, and it is the simplest option that no other clearly beats."
    )


def _describe_unrepaired(comparison: Comparison) -> list[str]:
    """Compare the best calibrator that needs no repair with the best repaired one."""

    def nll(output: Output) -> float:
        return comparison.measures(*output)["nll"]

    outputs = [output for output in comparison.preserving() if output != ORIGINAL]
    direct = [output for output in outputs if output[1] == "direct"]
    repaired = [output for output in outputs if output[1] != "direct"]
    if not direct or not repaired:
        return []
    plain, repair = min(direct, key=nll), min(repaired, key=nll)
    gap = comparison.difference(plain, repair, "nll")
    if not gap.clear:
        return [
            f"{plain[0]}, which needs no repair, and {describe_output(repair)} cannot be "
            f"distinguished by NLL (difference {_format_interval(gap)})."
        ]
    if gap.estimate < 0:
        return [
            f"{plain[0]}, which needs no repair, beats every repaired calibrator: its NLL is lower "
            f"than that of {describe_output(repair)} by {_format_interval(gap, flip=True)}."
        ]
    return [
        f"{describe_output(repair)} beats the best calibrator that needs no repair, {plain[0]}, "
        f"by {_format_interval(gap)} in NLL."
    ]


def _describe_preserving(comparison: Comparison) -> str:
    """Describe what is lost or gained by keeping the predictions."""
    key = improving_changes(comparison)
    if key is None:
        costly = [entry for entry in comparison if entry.gain["nll"].high < 0.0]
        if not costly:
            return "Keeping your predictions costs nothing measurable here."
        worst = min(costly, key=lambda entry: entry.gain["nll"].estimate)
        return (
            f"Keeping your predictions costs at most "
            f"{_format_interval(worst.gain['nll'], flip=True)} in NLL ({worst.key}), and "
            f"no calibrator's changes clearly improve accuracy."
        )
    accuracy, nll = comparison[key].gain["accuracy"], comparison[key].gain["nll"]
    cost = "nothing measurable in NLL"
    if nll.high < 0.0:
        cost = f"{_format_interval(nll, flip=True)} in NLL"
    return (
        f"The changes that {key} makes are worth having: they improve accuracy by "
        f"{_format_interval(accuracy, scale=100, unit=' points')}; keeping your predictions costs "
        f"{cost}. If predictions may change, deploy its direct probabilities."
    )


def _describe_constraint(comparison: Comparison) -> list[str]:
    """Describe the largest cost of the constraint itself, and how close the repairs come."""
    costs = [(entry, entry.price) for entry in comparison if entry.price is not None]
    if not costs:
        return []
    entry, cost = max(costs, key=lambda pair: pair[1].cost)
    repairs = {"CORD": cost.cord, "lift": cost.lift}
    gaps = [
        f"{name} is {_format_number(nll - cost.kept)}"
        for name, nll in repairs.items()
        if nll is not None
    ]
    return [
        f"The constraint itself costs at most {max(cost.cost, 0.0):.4f} nats ({entry.key}: "
        f"{cost.kept:.4f} against {cost.free:.4f} for the best monotone repairs, fitted on "
        f"these same rows); {' and '.join(gaps)} from the former."
    ]


def _describe_bound(comparison: Comparison) -> list[str]:
    """Mention the cap if the recommended lift is often at its lower bound."""
    key, kind = comparison.recommendation.key, comparison.recommendation.report
    if key is None or kind != "lift" or comparison[key].at_bound < MANY_AT_BOUND:
        return []
    return [
        f"In {comparison[key].at_bound:.1%} of the rows lift is at the lowest confidence that "
        f'keeps the prediction; mode="cap" keeps its confidence there and lowers the other classes.'
    ]


def describe_output(output: Output) -> str:
    """Return an output's name for a sentence.

    Examples
    --------
    >>> describe_output(("svs", "lift"))
    'svs with lift'
    """
    key, kind = output
    return {"repaired": f"{key} with CORD", "lift": f"{key} with lift"}.get(kind, key)


def _format_points(share: float) -> str:
    return f"{100 * share:+.2f} points".replace("-", "−")


def _format_number(value: float) -> str:
    return f"{value:.4f}".replace("-", "−")


def _format_interval(
    interval: Interval, *, scale: float = 1.0, unit: str = "", flip: bool = False
) -> str:
    """Return an estimate with its interval; ``flip`` turns a reduction into a positive amount."""
    sign = -scale if flip else scale
    low, high = np.sort([sign * interval.low, sign * interval.high])
    digits = 2 if scale == 100 else 4
    text = f"{sign * interval.estimate:.{digits}f}{unit} [{low:.{digits}f}, {high:.{digits}f}]"
    return text.replace("-", "−")
