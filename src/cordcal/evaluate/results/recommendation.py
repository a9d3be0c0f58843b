"""The recommendation of a comparison, and how it is worded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordcal._errors import option_text
from cordcal._numeric.types import Record
from cordcal._validation.caveats import Caveat
from cordcal.evaluate.results.calibrators import ContextOffer, RuleOffer
from cordcal.evaluate.results.values import ORIGINAL, Interval, Output
from cordcal.metrics import METRICS

if TYPE_CHECKING:
    pass
DEFAULT: Output = ("blend", "lift")
# How many simpler alternatives a sentence names.
_MAX_NAMED = 3


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
        return None if self.choice is None else describe_output(self.choice)

    @property
    def choice(self) -> Output | None:
        """The calibrator and its output together; None without a recommendation."""
        return None if self.key is None or self.output is None else (self.key, self.output)

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
        spec = METRICS[metric]
        unit = f" {spec.unit}" if spec.unit else ""
        before, after = (spec.write(values[metric]) + unit for values in (self.before, self.after))
        return f"{spec.short} {before} → {after}"

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
