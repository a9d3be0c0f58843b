"""The recommendation: the default unless another option is clearly better."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

from cordcal._errors import option_text
from cordcal._numeric.types import Record
from cordcal._validation.caveats import Caveat
from cordcal.calibrators import available
from cordcal.evaluate.results.calibrators import ContextOffer, RuleOffer
from cordcal.evaluate.results.report import SuggestedCommand
from cordcal.evaluate.results.values import ORIGINAL, Interval, Output
from cordcal.evaluate.statistics import ROUNDING, joint_lower_bounds
from cordcal.metrics import METRICS
from cordcal.repair.results import MANY_AT_BOUND
from cordcal.report.tables import number

if TYPE_CHECKING:
    from cordcal.evaluate.comparison import Comparison

LEVEL = 0.95
# On average nothing beats the default, so a stronger proof is asked of what would replace it.
LEVEL_AGAINST_DEFAULT = 0.99
DEFAULT: Output = ("blend", "lift")
# Formats in which the suggested command writes what it read.
_WRITTEN_SUFFIXES = (".csv", ".jsonl", ".parquet")
# With fewer wrong predictions, a few rows decide which option has the lowest log loss.
MIN_ERRORS = 10
# From this share of the NLL on, a rule is worth the other argmax that it brings.
MIN_SAVING = 0.01
# How many simpler alternatives a sentence names.
_MAX_NAMED = 3
# Of outputs with equally many parameters, the one without a repair is simpler.
_SIMPLEST_FIRST = ("original", "direct", "repaired", "lift")


@dataclass(frozen=True)
class Alternative(Record):
    """An option that is simpler than the recommended one and as good within noise.

    Attributes
    ----------
    key, output : str
        The calibrator and its output.
    difference : Interval
        Its NLL minus that of the recommended option, paired by rows.
    """

    key: str
    output: str
    difference: Interval

    @property
    def name(self) -> str:
        """Its name, such as ``"svs + CORD"``."""
        return describe_output((self.key, self.output))


@dataclass(frozen=True)
class ChangedPredictions(Record):
    """A calibrator whose changed predictions are clearly more often right.

    Attributes
    ----------
    key : str
        The calibrator; the other fields describe its direct probabilities.
    n_changed : int
        How many predictions it changes on the evaluation rows.
    accuracy : Interval
        Its accuracy minus that of the classifier.
    nll : float
        The NLL of its direct probabilities.
    """

    key: str
    n_changed: int
    accuracy: Interval
    nll: float


@dataclass(frozen=True)
class Recommendation(Record):
    """Which option to deploy: a calibrator and one of its outputs.  ``print`` shows it as text.

    Attributes
    ----------
    key, output : str or None
        The calibrator and its output: ``"direct"``, ``"repaired"`` (by CORD) or ``"lift"``; or
        ``"uncalibrated"`` and ``"original"``.  None if the data do not allow a recommendation.
    is_default : bool
        Whether this is what `cordcal.PreservingCalibrator` does without arguments.
    reason : str
        Why, in one sentence.
    n_rows : int
        Number of evaluation rows; none of their predictions changes.
    before, after : mapping of str to float
        The metrics of the classifier's own probabilities and of the recommended ones; ``after``
        is empty without a recommendation.
    alternatives : tuple of Alternative
        Simpler options that are as good within noise, the simplest first.
    changing : ChangedPredictions or None
        The most accurate calibrator if predictions may change; None if none of them is clearly
        more accurate than the classifier.
    rule : RuleOffer or None
        What a learnt rule saves if the default is recommended; None if that is not clear.
    context : ContextOffer or None
        What context brings the default, also where another option is recommended; None without
        context, or without the default.
    confidence : str
        Confidence minus accuracy before and after lift, the share of predictions kept against the
        evidence, and from 5 % on what that costs and the ways out; empty without lift.
    blocking : tuple of Caveat
        The caveats that rule out a recommendation; empty if there is one.

    Examples
    --------
    >>> import cordcal, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=600)
    >>> logits = 6.0 * np.eye(3)[labels] + 6.0 * rng.normal(size=(600, 3))
    >>> comparison = cordcal.compare(logits, labels, ["ts", "vs", "blend"])
    >>> print(comparison.recommendation)  # doctest: +ELLIPSIS
    Recommended: blend + lift (the default). No other option is clearly better.
    Predictions changed: 0 of 300. NLL 2.4282 → 0.8825, ECE 33.36 % → 8.97 %.
    Confidence minus accuracy: +33.4 points [+27.9, +38.8] → +7.3 points [+2.0, +12.5]. 2.0 % ...
    Simpler alternatives, as good within noise: ts, vs + CORD.
    If predictions may change: no calibrator is clearly more accurate.
    """

    _computed = (
        *("name", "headline", "figures", "simpler", "with_rule", "with_context"),
        "if_changing",
    )

    key: str | None
    output: str | None
    is_default: bool
    reason: str
    n_rows: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    alternatives: tuple[Alternative, ...] = ()
    changing: ChangedPredictions | None = None
    rule: RuleOffer | None = None
    context: ContextOffer | None = None
    confidence: str = ""
    blocking: tuple[Caveat, ...] = ()

    @property
    def name(self) -> str | None:
        """The option's name, such as ``"blend + lift"``; None without a recommendation."""
        if self.key is None or self.output is None:
            return None
        return describe_output((self.key, self.output))

    @property
    def headline(self) -> str:
        """The recommendation in a few words, without a full stop."""
        if self.name is None:
            return "No recommendation"
        if self.key == ORIGINAL[0]:
            return f"Recommended: keep {self.name}"
        rule = "" if self.rule is None else f", with {option_text('rule', 'learnt')}"
        return f"Recommended: {self.name}{' (the default)' if self.is_default else ''}{rule}"

    @property
    def figures(self) -> str:
        """What it brings on the evaluation rows, in one line; empty without a recommendation."""
        if not self.after:
            return ""
        count = f"Predictions changed: 0 of {self.n_rows:,}."
        if self.key == ORIGINAL[0]:
            return count
        return f"{count} {', '.join(map(self._change, ('nll', 'ece')))}."

    def _change(self, metric: str) -> str:
        before, after = number(metric, self.before[metric]), number(metric, self.after[metric])
        return f"{METRICS[metric].short} {before} → {after}"

    @property
    def simpler(self) -> str:
        """The simpler alternatives in one line; empty if there are none."""
        if not self.alternatives:
            return ""
        names = [alternative.name for alternative in self.alternatives]
        more = len(names) - _MAX_NAMED
        shown = ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"Simpler alternatives, as good within noise: {shown}."

    @property
    def if_changing(self) -> str:
        """What changing predictions would bring, in one line."""
        if self.name is None:
            return ""
        if self.changing is None:
            return "If predictions may change: no calibrator is clearly more accurate."
        gain = format_interval(self.changing.accuracy, scale=100, unit=" points")
        return (
            f"If predictions may change: {self.changing.key} (direct) changes "
            f"{self.changing.n_changed:,} of them and improves accuracy by {gain}."
        )

    @property
    def with_rule(self) -> str:
        """What a learnt rule would bring, and its cost, in one line; empty if not clearly much."""
        if self.rule is None:
            return ""
        return (
            f'With rule="learnt": NLL {self.rule.nll:.4f}, lower by '
            f"{format_interval(self.rule.saving)}. In {100 * self.rule.share:.0f} % of the rows "
            "the likeliest class is then not the predicted one: use the predictions, not the "
            "argmax."
        )

    @property
    def with_context(self) -> str:
        """What the columns next to the scores bring, in one line; empty without them."""
        offer = self.context
        if offer is None:
            return ""
        start = "With context: "
        if not self.is_default:  # the figures are of another option than the recommended one
            start += f"measured for {describe_output(DEFAULT)} only: "
        if not offer.is_clear:
            return f"{start}no clear gain; leave it out."
        ece, aurc = (
            f"{100 * before:.2f} → {100 * after:.2f} %" for before, after in (offer.ece, offer.aurc)
        )
        return (
            f'{start}{", ".join(offer.columns)}; log loss of "the prediction is right" '
            f"{offer.loss:.4f}, lower by {format_interval(offer.saving)}; ECE {ece}; area under "
            f"the risk-coverage curve {aurc}{_describe_gaps(offer)}. The fit needs it, "
            "and so does every later prediction."
        )

    def __str__(self) -> str:
        others = (
            self.with_rule,
            self.with_context,
            self.figures,
            self.confidence,
            self.simpler,
            self.if_changing,
        )
        lines = (f"{self.headline}. {self.reason}", *others)
        return "\n".join(line for line in lines if line)


def _describe_gaps(offer: ContextOffer) -> str:
    """Return the mean gap per group of each column, before and after."""
    return "".join(
        f"; mean gap per {column} {100 * before:.1f} → {100 * after:.1f} points "
        f"(chance {100 * chance:.1f})"
        for column, (before, after, chance) in offer.mean_gaps.items()
        if column in (*offer.columns, "group")
    )


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


def describe_output(output: Output) -> str:
    """Return an option's name.

    Examples
    --------
    >>> describe_output(("svs", "lift")), describe_output(("ts", "direct"))
    ('svs + lift', 'ts')
    """
    key, kind = output
    if output == ORIGINAL:
        return "the classifier's own probabilities"
    return {"repaired": f"{key} + CORD", "lift": f"{key} + lift"}.get(kind, key)


def format_interval(interval: Interval, *, scale: float = 1.0, unit: str = "") -> str:
    """Return an estimate with its interval."""
    digits = 2 if scale == 100 else 4
    low, high = scale * interval.low, scale * interval.high
    text = f"{scale * interval.estimate:.{digits}f}{unit} [{low:.{digits}f}, {high:.{digits}f}]"
    return text.replace("-", "−")


def next_step(
    comparison: Comparison,
    scores: Sequence[str],
    new: str | None,
    model: str,
    options: tuple[str, ...] = (),
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
    options : tuple of str
        Options that the command needs to read the scores.
    """
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
    fit = ["cordcal", "fit", *scores, *options]
    fit += [word for name, value in written.items() for word in (f"--{name}", str(value))]
    arguments = [f"{name}={value!r}" for name, value in written.items()]
    paths = scores[0] if len(scores) == 1 else list(scores)
    read = [repr(paths), *_as_arguments(options)]
    suffix = PurePath(new or scores[0]).suffix
    suffix = suffix if suffix in _WRITTEN_SUFFIXES else ".npz"
    new = new or f"new{suffix}"
    apply = ["cordcal", "apply", model, new, "--output", f"repaired{suffix}"]
    if "--second-opinion" in options:
        apply += ["--second-opinion", f"new-opinion{suffix}"]
    offer, others, later = advice.context if advice.is_default else None, "", ""
    read_others = []
    if "--cluster-column" in options:
        column = options[options.index("--cluster-column") + 1]
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
            f"model = cordcal.PreservingCalibrator({', '.join(arguments)})",
            f"model.fit(rows.values, rows.labels{others})",
            f"cordcal.save(model, {model!r})",
            f"repaired = model.predict_proba(cordcal.files.read_scores({new!r}).values{later})",
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
    # The command reads these from files; in Python they are values.
    from_files = (
        "--class-names",
        "--cluster-column",
        "--context-columns",
        "--second-opinion",
        "--id-column",
    )
    return [
        f"{name.lstrip('-').replace('-', '_')}={value!r}"
        for name, value in pairs
        if name not in from_files
    ] + [switches[option] for option in options if option in switches]
