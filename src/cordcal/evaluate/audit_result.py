"""The result of an audit, and its interpretation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from cordcal._errors import InputError, option_text
from cordcal._numeric.exact import ordinary_weights
from cordcal._numeric.types import Record, Vector
from cordcal._validation.caveats import Caveat
from cordcal.evaluate.results.audit import CertifiedErrorRate, GroupChanges, MeasureComparison
from cordcal.evaluate.results.calibrators import Entry
from cordcal.evaluate.results.pictures import MIN_ROWS_PER_GROUP, ChangedRow, Pictures
from cordcal.evaluate.results.report import ReportData
from cordcal.evaluate.results.values import Json
from cordcal.evaluate.statistics import paired_interval
from cordcal.metrics import METRICS, PredictionChanges, Reliability, TopkChanges
from cordcal.report import tables

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

# The sentences state the error rate above this confidence, or the next lower one.
_CERTIFIED_THRESHOLD = 0.9


@dataclass(frozen=True, eq=False)
class Audit(Record):
    """What a calibrator does to predictions and metrics, and what the repair does about it.

    Attributes
    ----------
    n, n_classes : int
        Numbers of rows and classes.
    identical : bool
        Whether the direct probabilities equal the original ones, entry by entry.
    changes : PredictionChanges
        How the direct predictions differ from the original ones.
    topk_changes : dict of str to TopkChanges
        How the order of the top classes (five, or K - 1 if fewer) differs from the original order,
        in the direct and in the repaired probabilities.
    by_class, by_confidence : tuple of GroupChanges
        The changed predictions per original prediction, and per band of the original confidence
        (the largest original probability, whatever ``prediction`` is); empty groups are omitted.
    rows : tuple of ChangedRow
        The changed rows whose direct probabilities favour the new prediction most.
    measures : tuple of MeasureComparison
        Every metric of the three sets of probabilities; empty without labels.
    reliability : dict of str to Reliability
        The bins of the three reliability diagrams; empty without labels.
    cost : float
        What keeping the predictions costs if the direct probabilities are correct, in nats per
        row: the mean divergence of the direct mass on the prediction from the lowest mass that
        keeps it, where that is higher.
    eta : float, ndarray or None
        The shared scalar of the repair, or one per preserved rank; a `Lift` has none.
    fitted_here : bool
        Whether the repair was fitted on the audited rows because none was passed.
    level, resamples, seed
        Settings of the bootstrap intervals.
    warnings : tuple of str
        Reasons why the numbers are unreliable.
    caveats : tuple of Caveat
        Reasons to doubt the audit: shifted labels, too few rows.
    certified : tuple of CertifiedErrorRate
        Upper bounds of the error rate above several confidences of the repaired probabilities,
        which hold together with probability ``level`` if the rows were not used to fit.  Empty
        without labels, with weights, and for rows that the repair was fitted on.
    by_rule : bool
        Whether predictions follow a rule with a weight per class, not the argmax.
    """

    n: int
    n_classes: int
    identical: bool
    changes: PredictionChanges
    topk_changes: dict[str, TopkChanges]
    by_class: tuple[GroupChanges, ...]
    by_confidence: tuple[GroupChanges, ...]
    rows: tuple[ChangedRow, ...]
    measures: tuple[MeasureComparison, ...]
    reliability: dict[str, Reliability]
    cost: float
    eta: float | Vector | None
    fitted_here: bool
    level: float
    resamples: int
    seed: int
    warnings: tuple[str, ...]
    caveats: tuple[Caveat, ...] = ()
    certified: tuple[CertifiedErrorRate, ...] = ()
    by_rule: bool = False

    def interpret(self) -> str:
        """Return a short interpretation in plain words, caveats first."""
        caveats = [f"Check first: {caveat.with_full_stop}" for caveat in self.caveats]
        return "\n".join([*caveats, *self._sentences()])

    def _sentences(self) -> list[str]:
        """Return the sentences of `interpret` without the caveats."""
        return [
            *self._describe_changes(),
            *self._describe_order(),
            *self._describe_measures(),
            *self._describe_confidence(),
            *self._describe_certified(),
            *self.warnings,
        ]

    def _describe_changes(self) -> list[str]:
        changes = self.changes
        if self.identical:
            return ["The direct probabilities equal the original ones in every entry."]
        if changes.n_changed == 0:
            return [f"The calibrator changes none of the {self.n:,} predictions."]
        lines = [
            f"The calibrator changes {changes.n_changed:,} of {self.n:,} predictions "
            f"({100 * changes.tpcr:.2f} %); the repaired probabilities change none."
        ]
        if changes.delta_accuracy is not None:
            net = changes.delta_accuracy
            effect = "stays the same"
            if net != 0:
                effect = f"{'rises' if net > 0 else 'falls'} by {abs(net) * 100:.2f} points"
            lines.append(
                f"Of these, {changes.n_gained:,} become right, {changes.n_lost:,} become wrong and "
                f"{changes.n_neutral:,} go from one wrong class to another; accuracy {effect}."
            )
        for groups, template in (
            (self.by_class, "predictions of class {}"),
            (self.by_confidence, "rows with original confidence {}"),
        ):
            worst = max(groups, key=lambda group: (group.changes.n_changed, group.changes.tpcr))
            lines.append(
                f"Most changes are among {template.format(worst.group)}: "
                f"{worst.changes.n_changed:,} of {worst.changes.n:,} "
                f"({100 * worst.changes.tpcr:.2f} %)."
            )
        return lines

    def _describe_order(self) -> list[str]:
        direct, repaired = self.topk_changes["direct"], self.topk_changes["repaired"]
        if direct.k == 1 or direct.n_order_changed == 0:
            return []
        # Only the argmax has a repair that keeps the order of further classes.
        remedy = "" if self.by_rule else f"; {option_text('preserve', str(direct.k))} keeps it"
        share = f"{100 * repaired.order_changed:.2f} %"
        after = f"The repaired probabilities change it in {share}{remedy}."
        if repaired.n_order_changed == 0:
            after = "The repaired probabilities keep it."
        return [
            f"The order of the top {direct.k} classes changes in "
            f"{100 * direct.order_changed:.2f} % of the rows.",
            after,
        ]

    def _describe_measures(self) -> list[str]:
        if self.identical:
            return []
        if not self.measures:
            return [
                f"Keeping the predictions costs {self.cost:.4f} nats per row if the direct "
                f"probabilities are correct.",
                "Without labels, nothing can be said about accuracy or calibration.",
            ]
        lines = []
        for verdict, start in (
            ("better", "The repaired probabilities are better than the direct ones in"),
            ("worse", "The repaired probabilities are worse than the direct ones in"),
            ("unclear", f"At {100 * self.level:.0f} % there is no clear difference in"),
        ):
            items = [
                _describe_measure(measure)
                for measure in self.measures
                if measure.verdict == verdict and measure.low is not None
            ]
            if items:
                lines.append(f"{start} {_join(items)}.")
        if self.fitted_here:
            lines.append(
                "The repair was fitted on these same rows (one number, no labels); pass "
                f"{option_text('fitted_repair', 'model')} to audit one that was fitted on "
                "calibration rows."
            )
        return lines

    def _describe_confidence(self) -> list[str]:
        """Compare confidence and accuracy of the kept predictions before and after the repair."""
        if self.identical or not self.reliability:
            return []
        before, after = (_gap(self.reliability[name]) for name in ("original", "repaired"))
        return [f"Confidence minus accuracy: {before} → {after}."]

    def _describe_certified(self) -> list[str]:
        rates = [
            rate
            for rate in self.certified
            if rate.threshold <= _CERTIFIED_THRESHOLD and rate.n >= MIN_ROWS_PER_GROUP
        ]
        if not rates or self.identical:
            return []
        return [
            f"For the repaired probabilities, with {100.0 * self.level:.4g} % confidence: "
            f"{rates[-1]}, if these rows were not used to fit."
        ]

    def to_dict(self) -> Json:
        """Return everything as plain Python values, ready for JSON."""
        return {**super().to_dict(), "interpretation": self.interpret()}

    def report_data_with(
        self,
        pictures: Pictures,
        *,
        name: str,
        fingerprint: str,
        class_names: tuple[str, ...] | None = None,
    ) -> ReportData:
        """Return what the report shows.

        Parameters
        ----------
        pictures : Pictures
            The data of the figures of the same rows.
        name : str
            The name of the audited calibrator.
        fingerprint : str
            Identifies the audited rows.
        class_names : tuple of str, optional
            One name per column.
        """

        def values(output: str) -> dict[str, float]:
            return {metric.measure: getattr(metric, output) for metric in self.measures}

        entry = Entry(
            key=name,
            name="the audited calibrator",
            keeps_predictions=False,
            direct=values("direct"),
            repaired=values("repaired"),
            lift=None,
            changes=self.changes,
            gain={
                # An audit has repaired minus direct, a comparison direct minus repaired.
                metric.measure: paired_interval(-metric.difference, -metric.high, -metric.low)
                for metric in self.measures
                if metric.low is not None and metric.high is not None
            },
            pictures=pictures,
        )
        headline, *sentences = self._sentences()
        return ReportData(
            n_calibration=None,
            n_evaluation=self.n,
            n_classes=self.n_classes,
            class_names=class_names,
            settings={
                "repair fitted on": "the audited rows" if self.fitted_here else "other rows",
                "bootstrap resamples": str(self.resamples),
                "seed": str(self.seed),
            },
            fingerprint=fingerprint,
            uncalibrated=values("original"),
            calibrators=(entry,),
            headline=headline,
            reading=tuple(sentences),
            caveats=self.caveats,
            focus=name,
            listed=frozenset([name]),
            certified=self.certified,
            certified_level=f"{100.0 * self.level:.4g} %",
        )

    def to_frame(self, table: str = "measures") -> pd.DataFrame:
        """Return one of the tables as a data frame.

        Parameters
        ----------
        table : {"measures", "by_class", "by_confidence", "rows"}
            Which one.

        Returns
        -------
        frame : pandas.DataFrame
            One row per metric, class, band or changed row.
        """
        names = ("measures", "by_class", "by_confidence", "rows")
        if table not in names:
            raise InputError("table", f"is {table!r}", f"use one of {', '.join(names)}")
        return tables.frame([record.to_dict() for record in getattr(self, table)])

    def __repr__(self) -> str:
        return (
            f"Audit({self.n:,} rows × {self.n_classes} classes: "
            f"{self.changes.n_changed:,} prediction{'' if self.changes.n_changed == 1 else 's'} "
            f"changed, {100 * self.changes.tpcr:.2f} %)"
        )

    def _repr_html_(self) -> str:
        text = "".join(f"<p>{escape(line)}</p>" for line in self.interpret().splitlines())
        return text + tables.html(self._measures_table()) if self.measures else text

    def _measures_table(self) -> tables.Table:
        caption = f"{self.n:,} rows, {self.n_classes} classes; {100 * self.level:.0f} % intervals."
        return tables.measures_table(self.measures, self.level, caption)

    def __rich__(self) -> RenderableType:
        from cordcal.report.terminal import audit_view

        shown = [self._measures_table()] if self.measures else []
        if self.changes.n_changed:
            worst = sorted(self.by_class, key=lambda group: -group.changes.n_changed)[:10]
            shown.append(tables.changes_table("original confidence", self.by_confidence))
            shown.append(tables.changes_table("original prediction", worst))
        return audit_view(self.caveats, self._sentences(), shown)


def _gap(bins: Reliability) -> str:
    """Return mean confidence minus accuracy in points, with its 95 % interval."""
    share = ordinary_weights(bins.weight)
    share = share / share.sum()
    filled = share > 0.0
    gap = float((share * np.where(filled, bins.confidence - bins.accuracy, 0.0)).sum())
    accuracy = np.where(filled, bins.accuracy, 0.0)
    # Within a bin the confidence hardly varies; what varies is whether a prediction is right.
    variance = float((share * accuracy * (1.0 - accuracy)).sum())
    error = 1.96 * math.sqrt(variance / float(bins.count.sum()))
    points = (100 * gap, 100 * (gap - error), 100 * (gap + error))
    return "{:+.1f} points [{:+.1f}, {:+.1f}]".format(*points).replace("-", "−")


def _describe_measure(values: MeasureComparison) -> str:
    """Return a metric before and after the repair, with the digits of the tables."""
    metric = METRICS[values.measure]
    unit = f" {metric.unit}" if metric.unit else ""
    before, after = metric.write(values.direct), metric.write(values.repaired)
    return f"{metric.short} ({before} to {after}{unit})"


def _join(items: Sequence[str]) -> str:
    """Join items with commas, and the last with "and"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
