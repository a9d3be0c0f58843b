"""The result of a comparison: every measure of every report, and what it means in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.types import Kind
from cordcal.evaluate import recommendation, tables
from cordcal.evaluate.caveats import Caveat
from cordcal.evaluate.constraint_cost import ConstraintCost
from cordcal.evaluate.likelihood_ratio import LikelihoodRatio, reading
from cordcal.evaluate.pictures import Pictures, lists_that_fit
from cordcal.evaluate.recommendation import SuggestedCommand, next_step
from cordcal.evaluate.statistics import ORIGINAL, Evidence, Report, percentile_interval
from cordcal.metrics import MEASURES, DecisionChanges

Measures = Mapping[str, float]

# Means of float64 rows agree to about this; no measure is reported as finely.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Interval:
    """A paired difference with its 95 % bootstrap interval."""

    estimate: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0.0 or self.high < 0.0

    def __post_init__(self) -> None:
        # A repair that has nothing to do still rounds; that is no difference.
        for name in ("estimate", "low", "high"):
            if abs(getattr(self, name)) < _ROUNDING:
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
        Whether the map by itself can change no decision, and on these rows ties none either
        with a class that the scores put below it.
    numbers : float
        How many numbers it is fitted with; infinite where nobody says.
    direct, repaired : mapping of str to float
        The measures of the direct report and of CORD's.
    lift : mapping of str to float, or None
        Those of the report repaired by Lift, where the map does not keep decisions by itself
        and rows of its own could be held out.
    changes : DecisionChanges
        What the direct report does to the decisions.
    gain : mapping of str to Interval
        Direct minus repaired, paired: above zero the repair is better, but for accuracy.
    lift_gain : mapping of str to Interval
        The same for the report repaired by Lift; empty without one.
    fit_seconds, apply_seconds : float
        Time to fit calibrator and repair, and to compute both reports of the evaluation rows.
    notes : tuple of str
        Warnings that fitting gave.
    price : Price or None
        What the constraint itself costs; None where the map keeps decisions anyway.
    at_bound : float
        The share of rows that lift would report on less surely, did it not keep the decision.
    shares : mapping of str to float
        What a blend is made of; empty for other maps.
    pictures : Pictures
        What a report draws, from the first split.
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
        """Return the entry as plain Python values; of many classes all if ``whole``."""
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
    """The best report by one measure."""

    key: str
    report: str
    value: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Calibrators compared on one data set; index it by key.

    Attributes
    ----------
    entries : tuple of Entry
        One a calibrator, in the order they were asked for.
    uncalibrated : mapping of str to float
        The measures of the classifier's own probabilities.
    left_out : mapping of str to str
        Calibrators that were not run, and why.
    n_calibration, n_evaluation, n_classes : int
        Sizes of the data; rows are those of one split.
    class_names : tuple of str or None
        One name a column.
    input, splits, seed, preserve
        As given to `compare`.
    fingerprint : str
        Tells whether two comparisons measured on the same rows: it digests the scores, labels,
        features and groups of every split, and ``input``, ``preserve`` and ``seed``.
        Calibrators and names are not part of it.
    seconds : float
        Time the comparison took.
    checks : tuple of Concern
        What the rows and labels give reason to doubt.
    needed : tuple of LikelihoodRatio
        Tests of whether calibration is needed at all.
    evidence : Evidence
        The rows of every report, and their resampled measures.
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
    evidence: Evidence = field(repr=False)

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
        """Return the measures of a report.

        Parameters
        ----------
        key : str
            A calibrator's key, or ``"uncalibrated"``.
        report : {"direct", "repaired", "lift"}, optional
            By default the repaired report.  ``"lift"`` exists where the entry's ``lift`` does;
            ``"uncalibrated"`` has one report, ``"original"``.

        Returns
        -------
        measures : mapping of str to float
            By the measures' names.
        """
        if key == ORIGINAL[0]:
            reports = {ORIGINAL[1]: self.uncalibrated}
        else:
            entry = self[key]
            reports = {"repaired": entry.repaired, "direct": entry.direct}
            if entry.lift is not None:
                reports["lift"] = entry.lift
        if report is None:
            return next(iter(reports.values()))
        if report not in reports:
            raise InputError(
                "report",
                f"is {report!r}, which {key!r} does not have",
                f"use {' or '.join(map(repr, reports))}",
            )
        return reports[report]

    def difference(self, first: tuple[str, str], second: tuple[str, str], measure: str) -> Interval:
        """Return how two reports differ by a measure, first minus second, paired by rows.

        Parameters
        ----------
        first, second : tuple of str
            Key and report, such as ``("svs", "repaired")``.
        measure : str
            One of the measures that are resampled, as all but classwise ECE are.
        """
        drawn = [self.replicates(*report, measure) for report in (first, second)]
        if drawn[0] is None or drawn[1] is None:
            resampled = ", ".join(self.evidence.replicates[ORIGINAL])
            raise InputError(
                "measure", f"is {measure!r}, which is not resampled", f"use one of {resampled}"
            )
        estimate = self.measures(*first)[measure] - self.measures(*second)[measure]
        return interval_of(estimate, drawn[0] - drawn[1])

    def replicates(self, key: str, report: str, measure: str) -> npt.NDArray[np.float64] | None:
        """Return a measure's bootstrap replicates; None where it is not resampled."""
        if measure not in self.measures(key, report):
            known = ", ".join(self.uncalibrated)
            raise InputError("measure", f"is {measure!r}", f"use one of {known}")
        return self.evidence.replicates[self._only((key, report))].get(measure)

    def _only(self, report: Report) -> Report:
        """Return the report itself; a map that keeps decisions has one, not two."""
        key = report[0]
        if key == ORIGINAL[0]:
            return ORIGINAL
        return (key, "direct") if self[key].keeps_decisions else report

    @property
    def best(self) -> dict[str, Best]:
        """The best decision-keeping report by each measure.

        Accuracy is left out: every report that keeps decisions has the classifier's.
        """
        found = {}
        for measure in self.uncalibrated:
            if measure != "accuracy":
                choose = min if MEASURES[measure].lower_is_better else max
                key, report = choose(
                    self.preserving(), key=lambda pair: self.measures(*pair)[measure]
                )
                found[measure] = Best(key, report, self.measures(key, report)[measure])
        return found

    def preserving(self) -> list[tuple[str, str]]:
        """Return the reports that keep every decision, the uncalibrated one first."""
        kept = [ORIGINAL]
        for entry in self.entries:
            kept.append((entry.key, "direct" if entry.keeps_decisions else "repaired"))
            if entry.lift is not None:
                kept.append((entry.key, "lift"))
        return kept

    @property
    def concerns(self) -> tuple[Caveat, ...]:
        """What to look at before any advice."""
        if any(concern.blocks_advice for concern in self.checks):
            return self.checks
        return (*self.checks, *self._indistinct)

    @cached_property
    def _indistinct(self) -> list[Caveat]:
        return recommendation.indistinct(self)

    @cached_property
    def recommendation(self) -> recommendation.Recommendation:
        """Which report to deploy, and why."""
        return recommendation.recommend(self)

    def interpret(self) -> str:
        """Return what the comparison means, in a few sentences."""
        found = self.recommendation
        doubts = [] if found.key is None else [concern.with_full_stop for concern in self.concerns]
        return " ".join(
            [*doubts, f"{found.headline}.", found.reason, *recommendation.sentences(self)]
        )

    def next_step(
        self,
        scores: str = "scores.npz",
        *,
        new: str = "new.npz",
        model: str = "model.safetensors",
        options: tuple[str, ...] = (),
    ) -> SuggestedCommand | None:
        """Return the lines that fit and apply the advised report; None if there is nothing to fit.

        Parameters
        ----------
        scores, new, model : str
            Paths of the calibration scores, of the rows to report on, and of the model file.
        options : tuple of str
            Options that the command needs to read the scores.
        """
        return next_step(self, scores, new, model, options)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python values, pictures included."""
        step, focus = self.next_step(), self._focus()
        listed = self._listed(focus)
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
            "need": reading(self.needed),
            "left_out": dict(self.left_out),
            "best": {measure: asdict(best) for measure, best in self.best.items()},
            "concerns": [concern.to_dict() for concern in self.concerns],
            "recommendation": self.recommendation.to_dict(),
            "reading": recommendation.sentences(self),
            "next_step": None if step is None else step.to_dict(),
        }

    def _focus(self) -> str | None:
        """Return the calibrator to look at first: the advised one, or the best by NLL."""
        advised = self.recommendation.key
        if advised in self.keys():
            return advised
        best = min(self.entries, key=lambda entry: entry.repaired["nll"], default=None)
        return None if best is None else best.key

    def _listed(self, focus: str | None) -> list[str]:
        """Return the calibrators whose every class is listed: the first one, the best by NLL."""

        def kept(entry: Entry) -> list[Mapping[str, float]]:
            return [entry.repaired] if entry.lift is None else [entry.repaired, entry.lift]

        def rank(entry: Entry) -> tuple[bool, float]:
            return entry.key != focus, min(report["nll"] for report in kept(entry))

        reports = {
            entry.key: 1 if entry.keeps_decisions else 1 + len(kept(entry))
            for entry in sorted(self.entries, key=rank)
        }
        return lists_that_fit(reports, self.n_classes)

    def to_frame(self) -> Any:
        """Return a pandas data frame with one row a report.

        Every measure has three columns, ``nll``, ``nll_low`` and ``nll_high``: its value and
        its 95 % bootstrap interval, moved by the bias of the resamples (binned errors have
        one).  A map that keeps decisions by itself is one row.
        """
        import pandas

        return pandas.DataFrame(tables.frame_rows(self))

    def to_markdown(self, measures: Sequence[str] | None = None, *, intervals: bool = True) -> str:
        """Return the comparison as a Markdown table.

        Parameters
        ----------
        measures : sequence of str, optional
            Which measures to show; by default accuracy and the leading ones.
        intervals : bool
            Show each value with its 95 % bootstrap interval.
        """
        return tables.markdown(tables.table_of(self, measures, intervals))

    def to_latex(self, measures: Sequence[str] | None = None, *, intervals: bool = True) -> str:
        """Return the comparison as a LaTeX table, for the packages booktabs and amssymb.

        Parameters
        ----------
        measures, intervals
            As for `to_markdown`.
        """
        return tables.latex(tables.table_of(self, measures, intervals))

    def to_html(self, measures: Sequence[str] | None = None, *, intervals: bool = True) -> str:
        """Return the comparison as an HTML table; `cordcal.report.write_html` writes a report.

        Parameters
        ----------
        measures, intervals
            As for `to_markdown`.
        """
        return tables.html(tables.table_of(self, measures, intervals))

    def _repr_html_(self) -> str:
        said = [concern.with_full_stop for concern in self.concerns]
        said += [f"{self.recommendation.headline}.", self.recommendation.reason]
        return f"<p>{escape(' '.join(said))}</p>{self.to_html(intervals=False)}"

    def __rich__(self) -> Any:
        from rich.console import Group

        from cordcal.evaluate.terminal import caveats_text, comparison_table

        data = self.to_dict()
        return Group(*caveats_text(each.sentence for each in self.concerns), comparison_table(data))

    def __repr__(self) -> str:
        return (
            f"Comparison of {len(self)} calibrators on {self.n_evaluation:,} rows × "
            f"{self.n_classes} classes: {self.recommendation.headline}"
        )


def interval_of(estimate: float, replicates: npt.NDArray[np.float64]) -> Interval:
    """Return the 95 % percentile interval of bootstrapped values around an estimate."""
    low, high = percentile_interval(replicates)
    return Interval(estimate, float(low), float(high))
