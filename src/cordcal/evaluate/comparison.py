"""The result of a comparison: every metric of every calibrator, and its interpretation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Kind
from cordcal.evaluate import recommendation
from cordcal.evaluate.caveats import Caveat
from cordcal.evaluate.constraint_cost import ConstraintCost
from cordcal.evaluate.likelihood_ratio import LikelihoodRatio, describe_tests
from cordcal.evaluate.next_step import SuggestedCommand, next_step
from cordcal.evaluate.pictures import Pictures, lists_that_fit
from cordcal.evaluate.statistics import ORIGINAL, ROUNDING, Output, Replicates, percentile_interval
from cordcal.evaluate.tables import frame_rows, table_of
from cordcal.metrics import METRICS, DecisionChanges
from cordcal.report import tables

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

Measures = Mapping[str, float]


@dataclass(frozen=True)
class Interval:
    """A paired difference with its 95 % bootstrap interval."""

    estimate: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0.0 or self.high < 0.0

    def __post_init__(self) -> None:
        # A repair that changes nothing still rounds; that is not a difference.
        for name in ("estimate", "low", "high"):
            if abs(getattr(self, name)) < ROUNDING:
                object.__setattr__(self, name, 0.0)

    def to_dict(self) -> dict[str, float]:
        """Return the record as plain Python values."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Entry:
    """One calibrator of a comparison.

    Attributes
    ----------
    key, name : str
        Its short key and its title.
    keeps_decisions : bool
        Whether the calibrator keeps every prediction without a repair; a prediction that it
        ties with a class of a lower score is not kept.
    numbers : float
        How many parameters it has; infinite if unknown.
    direct, repaired : mapping of str to float
        The metrics of the direct probabilities and of those repaired by CORD.
    lift : mapping of str to float, or None
        The metrics of the probabilities repaired by Lift; None if the calibrator needs no
        repair or rows could not be held out.
    changes : DecisionChanges
        Which predictions the direct probabilities change.
    gain : mapping of str to Interval
        Direct minus repaired, paired: above zero the repair is better, except for accuracy.
    lift_gain : mapping of str to Interval
        The same for Lift; empty without one.
    fit_seconds, apply_seconds : float
        Time to fit calibrator and repair, and to apply both to the evaluation rows.
    notes : tuple of str
        Warnings during fitting.
    price : ConstraintCost or None
        What the constraint itself costs; None if the calibrator needs no repair.
    at_bound : float
        The share of rows in which Lift is at the lowest confidence that keeps the prediction.
    shares : mapping of str to float
        The weights of a blend's members; empty for other calibrators.
    pictures : Pictures
        The data of the report's figures, from the first split.
    """

    key: str
    name: str
    keeps_decisions: bool
    numbers: float
    direct: Measures
    repaired: Measures
    lift: Measures | None
    changes: DecisionChanges
    gain: Mapping[str, Interval]
    lift_gain: Mapping[str, Interval]
    fit_seconds: float
    apply_seconds: float
    notes: tuple[str, ...]
    price: ConstraintCost | None
    at_bound: float
    shares: Measures
    pictures: Pictures = field(repr=False)

    def to_dict(self, *, whole: bool = True) -> dict[str, Any]:
        """Return the entry as plain Python values; every class if ``whole``, else a selection."""
        return {
            "key": self.key,
            "name": self.name,
            "keeps_decisions": self.keeps_decisions,
            "numbers": self.numbers if math.isfinite(self.numbers) else None,
            "direct": dict(self.direct),
            "repaired": dict(self.repaired),
            "lift": None if self.lift is None else dict(self.lift),
            "changes": self.changes.to_dict(),
            "gain": {name: interval.to_dict() for name, interval in self.gain.items()},
            "lift_gain": {name: interval.to_dict() for name, interval in self.lift_gain.items()},
            "seconds": {"fit": self.fit_seconds, "apply": self.apply_seconds},
            "notes": list(self.notes),
            "price": None if self.price is None else self.price.to_dict(),
            "at_bound": self.at_bound,
            "shares": dict(self.shares),
            **self.pictures.to_dict(whole=whole),
        }


@dataclass(frozen=True)
class Best:
    """The best output by one metric."""

    key: str
    report: str
    value: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Calibrators compared on one data set; index it by key.

    Attributes
    ----------
    entries : tuple of Entry
        One per calibrator, in the order of the arguments.
    uncalibrated : mapping of str to float
        The metrics of the classifier's own probabilities.
    left_out : mapping of str to str
        Calibrators that were not run, and why.
    n_calibration, n_evaluation, n_classes : int
        Sizes of the data; rows are those of one split.
    class_names : tuple of str or None
        One name per column.
    input, splits, seed, preserve
        The arguments of `compare`.
    fingerprint : str
        Equal if two comparisons used the same rows: a hash of the scores, labels, features and
        groups of every split, and of ``input``, ``preserve`` and ``seed``.  Calibrators and
        names are not part of it.
    seconds : float
        Time the comparison took.
    checks : tuple of Caveat
        Reasons to doubt the rows and labels.
    needed : tuple of LikelihoodRatio
        Tests of whether calibration is needed at all.
    resampled : mapping of output to mapping of str to ndarray
        By key and output, each metric's value in every resample of the rows.
    """

    entries: tuple[Entry, ...]
    uncalibrated: Measures
    left_out: Mapping[str, str]
    n_calibration: int
    n_evaluation: int
    n_classes: int
    class_names: tuple[str, ...] | None
    input: Kind
    splits: int
    seed: int
    preserve: int | str
    fingerprint: str
    seconds: float
    checks: tuple[Caveat, ...]
    needed: tuple[LikelihoodRatio, ...]
    resampled: Mapping[Output, Replicates] = field(repr=False)

    def __getitem__(self, key: str) -> Entry:
        for entry in self.entries:
            if entry.key == key:
                return entry
        raise KeyError(f"{key!r} was not compared; there are {', '.join(self.keys())}")

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def keys(self) -> list[str]:
        """Return the keys of the calibrators compared."""
        return [entry.key for entry in self.entries]

    def measures(self, key: str, report: str | None = None) -> Measures:
        """Return the metrics of one output.

        Parameters
        ----------
        key : str
            A calibrator's key, or ``"uncalibrated"``.
        report : {"direct", "repaired", "lift"}, optional
            By default the repaired probabilities.  ``"lift"`` exists if the entry's ``lift`` is
            not None; ``"uncalibrated"`` has only ``"original"``.

        Returns
        -------
        measures : mapping of str to float
            By the metrics' names.
        """
        if key == ORIGINAL[0]:
            outputs = {ORIGINAL[1]: self.uncalibrated}
        else:
            entry = self[key]
            outputs = {"repaired": entry.repaired, "direct": entry.direct}
            if entry.lift is not None:
                outputs["lift"] = entry.lift
        if report is None:
            return next(iter(outputs.values()))
        if report not in outputs:
            raise InputError(
                "report",
                f"is {report!r}, which {key!r} does not have",
                f"use {' or '.join(map(repr, outputs))}",
            )
        return outputs[report]

    def difference(self, first: Output, second: Output, measure: str) -> Interval:
        """Return how two outputs differ by a metric, first minus second, paired by rows.

        Parameters
        ----------
        first, second : tuple of str
            Key and output, such as ``("svs", "repaired")``.
        measure : str
            A metric that is resampled: any except classwise ECE.
        """
        drawn = [self.replicates(*output, measure) for output in (first, second)]
        if drawn[0] is None or drawn[1] is None:
            resampled = ", ".join(self.resampled[ORIGINAL])
            raise InputError(
                "measure", f"is {measure!r}, which is not resampled", f"use one of {resampled}"
            )
        estimate = self.measures(*first)[measure] - self.measures(*second)[measure]
        return interval_of(estimate, drawn[0] - drawn[1])

    def replicates(self, key: str, report: str, measure: str) -> npt.NDArray[np.float64] | None:
        """Return a metric's bootstrap replicates; None if it is not resampled."""
        if measure not in self.measures(key, report):
            known = ", ".join(self.uncalibrated)
            raise InputError("measure", f"is {measure!r}", f"use one of {known}")
        output = (key, report)
        if key != ORIGINAL[0] and self[key].keeps_decisions:
            output = (key, "direct")  # nothing was repaired
        return self.resampled[output].get(measure)

    @property
    def best(self) -> dict[str, Best]:
        """The best output by each metric, among those that keep every prediction.

        Accuracy is omitted: all of these have the classifier's accuracy.
        """
        best = {}
        for measure in self.uncalibrated:
            if measure != "accuracy":
                choose = min if METRICS[measure].lower_is_better else max
                key, report = choose(
                    self.preserving(), key=lambda pair: self.measures(*pair)[measure]
                )
                best[measure] = Best(key, report, self.measures(key, report)[measure])
        return best

    def preserving(self) -> list[Output]:
        """Return the outputs that keep every prediction, the uncalibrated one first."""
        outputs = [ORIGINAL]
        for entry in self.entries:
            outputs.append((entry.key, "direct" if entry.keeps_decisions else "repaired"))
            if entry.lift is not None:
                outputs.append((entry.key, "lift"))
        return outputs

    @property
    def concerns(self) -> tuple[Caveat, ...]:
        """Reasons to doubt the result."""
        if any(caveat.blocks_advice for caveat in self.checks):
            return self.checks
        return (*self.checks, *self._indistinct)

    @cached_property
    def _indistinct(self) -> list[Caveat]:
        return recommendation.indistinct(self)

    @cached_property
    def recommendation(self) -> recommendation.Recommendation:
        """Which calibrator and output to deploy, and why."""
        return recommendation.recommend(self)

    def interpret(self) -> str:
        """Return the recommendation and what else the rows show, one statement per line."""
        advice = self.recommendation
        caveats = [] if advice.key is None else [caveat.with_full_stop for caveat in self.concerns]
        return "\n".join([*caveats, str(advice), *recommendation.sentences(self)])

    def next_step(
        self,
        scores: str = "scores.npz",
        *,
        new: str = "new.npz",
        model: str = "model.safetensors",
        options: tuple[str, ...] = (),
    ) -> SuggestedCommand | None:
        """Return commands that fit and apply the recommendation; None if there is nothing to fit.

        Parameters
        ----------
        scores, new, model : str
            Paths of the calibration scores, of the new rows, and of the model file.
        options : tuple of str
            Options that the command needs to read the scores.
        """
        return next_step(self, scores, new, model, options)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python values, including the figures' data."""
        command, focus = self.next_step(), self._focus()
        listed = self._with_class_list(focus)
        return {
            "n_calibration": self.n_calibration,
            "n_evaluation": self.n_evaluation,
            "n_classes": self.n_classes,
            "class_names": None if self.class_names is None else list(self.class_names),
            "settings": {
                "input": self.input,
                "splits": self.splits,
                "seed": self.seed,
                "preserve": self.preserve,
            },
            "fingerprint": self.fingerprint,
            "seconds": self.seconds,
            "has_labels": True,
            "uncalibrated": dict(self.uncalibrated),
            "calibrators": [entry.to_dict(whole=entry.key in listed) for entry in self.entries],
            "focus": focus,
            "needed": [test.to_dict() for test in self.needed],
            "need": describe_tests(self.needed),
            "left_out": dict(self.left_out),
            "best": {measure: asdict(best) for measure, best in self.best.items()},
            "concerns": [caveat.to_dict() for caveat in self.concerns],
            "recommendation": self.recommendation.to_dict(),
            "reading": recommendation.sentences(self),
            "next_step": None if command is None else command.to_dict(),
        }

    def _focus(self) -> str | None:
        """Return the calibrator to show first: the recommended one, or the best by NLL."""
        recommended = self.recommendation.key
        if recommended in self.keys():
            return recommended
        best = min(self.entries, key=lambda entry: entry.repaired["nll"], default=None)
        return None if best is None else best.key

    def _with_class_list(self, focus: str | None) -> list[str]:
        """Return the calibrators that a page lists with every class: the first, the best by NLL."""

        def repaired(entry: Entry) -> list[Measures]:
            return [entry.repaired] if entry.lift is None else [entry.repaired, entry.lift]

        def rank(entry: Entry) -> tuple[bool, float]:
            return entry.key != focus, min(measures["nll"] for measures in repaired(entry))

        outputs = {
            entry.key: 1 if entry.keeps_decisions else 1 + len(repaired(entry))
            for entry in sorted(self.entries, key=rank)
        }
        return lists_that_fit(outputs, self.n_classes)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas data frame with one row per output.

        Every metric has three columns, ``nll``, ``nll_low`` and ``nll_high``: its value and
        its 95 % bootstrap interval, corrected for the bias of the resamples (binned errors
        have one).  A calibrator that needs no repair has one row.
        """
        import pandas as pd

        return pd.DataFrame(frame_rows(self))

    def to_markdown(self, measures: Sequence[str] | None = None, *, intervals: bool = True) -> str:
        """Return the comparison as a Markdown table.

        Parameters
        ----------
        measures : sequence of str, optional
            Which metrics to show; by default accuracy and the leading ones.
        intervals : bool
            Show each value with its 95 % bootstrap interval.
        """
        return tables.markdown(table_of(self, measures, intervals))

    def to_latex(self, measures: Sequence[str] | None = None, *, intervals: bool = True) -> str:
        """Return the comparison as a LaTeX table, for the packages booktabs and amssymb.

        Parameters
        ----------
        measures, intervals
            As for `to_markdown`.
        """
        return tables.latex(table_of(self, measures, intervals))

    def to_html(self, measures: Sequence[str] | None = None, *, intervals: bool = True) -> str:
        """Return the comparison as an HTML table; `cordcal.report.write_html` writes a report.

        Parameters
        ----------
        measures, intervals
            As for `to_markdown`.
        """
        return tables.html(table_of(self, measures, intervals))

    def _repr_html_(self) -> str:
        sentences = [caveat.with_full_stop for caveat in self.concerns]
        sentences += [f"{self.recommendation.headline}.", self.recommendation.reason]
        return f"<p>{escape(' '.join(sentences))}</p>{self.to_html(intervals=False)}"

    def __rich__(self) -> RenderableType:
        from rich.console import Group

        from cordcal.report.terminal import caveats_text, comparison_table

        data = self.to_dict()
        return Group(
            *caveats_text(caveat.sentence for caveat in self.concerns), comparison_table(data)
        )

    def __repr__(self) -> str:
        return (
            f"Comparison of {len(self)} calibrators on {self.n_evaluation:,} rows × "
            f"{self.n_classes} classes. {self.recommendation.headline}"
        )


def interval_of(estimate: float, replicates: npt.NDArray[np.float64]) -> Interval:
    """Return the 95 % percentile interval of bootstrapped values around an estimate."""
    low, high = percentile_interval(replicates)
    return Interval(estimate, float(low), float(high))
