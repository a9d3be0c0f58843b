"""What an audit found: frozen records, their reading in words, and their terminal form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from cordcal._errors import InputError
from cordcal.evaluate import tables
from cordcal.evaluate.caveats import Caveat
from cordcal.evaluate.terminal import Column, FittingTable
from cordcal.metrics import MEASURES, DecisionChanges, Reliability, TopkChanges

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

# Measures of two reports that differ by less have been rounded, not improved.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class GroupChanges:
    """Decision changes within one group of rows: a class, or a band of confidence.

    Attributes
    ----------
    group : str
        The class that the classifier decided for, or the band of its confidence.
    changes : DecisionChanges
        What the direct report does to these rows.
    """

    group: str
    changes: DecisionChanges

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return {"group": self.group, **self.changes.to_dict()}


@dataclass(frozen=True)
class ChangedRow:
    """A row whose decision the direct report changes.

    Attributes
    ----------
    row : int
        Its index.
    decision, direct_decision, label : str
        The original decision, the direct report's, and the true class (None without labels).
    original_mass, direct_mass, repaired_mass : float
        What the three reports put on the original decision.
    direct_confidence : float
        What the direct report puts on its own.
    """

    row: int
    decision: str
    direct_decision: str
    label: str | None
    original_mass: float
    direct_mass: float
    repaired_mass: float
    direct_confidence: float

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return asdict(self)


@dataclass(frozen=True)
class MeasureComparison:
    """One measure of the three reports.

    Attributes
    ----------
    measure : str
        Its name in `cordcal.metrics`.
    original, direct, repaired : float
        Its values.
    difference : float
        Repaired minus direct.
    low, high : float or None
        Paired bootstrap interval of the difference; None for classwise ECE, which is not
        resampled.
    """

    measure: str
    original: float
    direct: float
    repaired: float
    difference: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``same`` or ``unclear``: the repaired report's."""
        ends = (self.difference, self.low or 0.0, self.high or 0.0)
        if max(map(abs, ends)) <= _ROUNDING:
            return "same"
        if self.low is None or self.high is None or self.low <= 0.0 <= self.high:
            return "unclear"
        rises = self.low > 0.0
        return "worse" if rises == MEASURES[self.measure].lower_is_better else "better"

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain Python values."""
        return {**asdict(self), "verdict": self.verdict}


@dataclass(frozen=True, eq=False)
class Audit:
    """What a calibrator does to decisions and measures, and what the repair does about it.

    Attributes
    ----------
    n, n_classes : int
        Rows and classes.
    identical : bool
        Whether the direct report is the original one, entry by entry.
    changes : DecisionChanges
        How the direct report's decisions differ from the original ones.
    topk_changes : dict of str to TopkChanges
        How the order of the first classes (five, or one less than there are) differs from the
        original one, in the direct and in the repaired report.
    by_class, by_confidence : tuple of GroupChanges
        The changed decisions among the rows of each original decision, and of each band of
        the original confidence, the largest entry of the original report whatever ``decision``
        was given; empty groups are left out.
    rows : tuple of ChangedRow
        The changed rows whose direct report prefers its own decision most.
    measures : tuple of MeasureComparison
        Every measure of the three reports; empty without labels.
    reliability : dict of str to Reliability
        The bins of the three reports' diagrams; empty without labels.
    price : float
        What keeping the decisions costs one who believes the direct report, in nats a row: the
        mean divergence of its mass on the decision from the least that keeps it, where higher.
    eta : float, ndarray or None
        The shared scalar of the repair, or one a kept rank; a `Lift` has none.
    fitted_here : bool
        Whether the repair was fitted on the audited rows, no fitted one being given.
    level, resamples, seed
        How the intervals were made.
    warnings : tuple of str
        What makes the numbers less than they seem.
    concerns : tuple of Concern
        What to look at before believing any of it: labels that a shift would mend, too few rows.
    """

    n: int
    n_classes: int
    identical: bool
    changes: DecisionChanges
    topk_changes: dict[str, TopkChanges]
    by_class: tuple[GroupChanges, ...]
    by_confidence: tuple[GroupChanges, ...]
    rows: tuple[ChangedRow, ...]
    measures: tuple[MeasureComparison, ...]
    reliability: dict[str, Reliability]
    price: float
    eta: Any
    fitted_here: bool
    level: float
    resamples: int
    seed: int
    warnings: tuple[str, ...]
    concerns: tuple[Caveat, ...] = ()

    def interpret(self) -> str:
        """Return a short reading in plain words, what to check first in front."""
        doubts = [f"Check first: {concern.with_full_stop}" for concern in self.concerns]
        return "\n".join([*doubts, *self._reading()])

    def _reading(self) -> list[str]:
        """Return the sentences of `interpret` without those about what to check first."""
        lines = [*self._read_changes(), *self._read_order(), *self._read_measures()]
        return [*lines, *self.warnings]

    def _read_changes(self) -> list[str]:
        changes = self.changes
        if self.identical:
            return ["The direct report equals the original one in every entry: nothing changes."]
        if changes.n_changed == 0:
            return [f"The calibrator changes none of the {self.n:,} decisions."]
        lines = [
            f"The calibrator changes {changes.n_changed:,} of {self.n:,} decisions "
            f"({changes.tpcr:.2%}); the repaired report changes none."
        ]
        if changes.delta_accuracy is not None:
            net = changes.delta_accuracy
            moved = "stays the same" if net == 0 else f"{'rises' if net > 0 else 'falls'} by "
            size = "" if net == 0 else f"{abs(net) * 100:.2f} points"
            lines.append(
                f"Of these, {changes.n_gained:,} become right, {changes.n_lost:,} become wrong and "
                f"{changes.n_neutral:,} go from one wrong class to another; accuracy {moved}{size}."
            )
        for groups, words in (
            (self.by_class, "decisions for class {}"),
            (self.by_confidence, "rows with original confidence {}"),
        ):
            worst = max(groups, key=lambda group: (group.changes.n_changed, group.changes.tpcr))
            lines.append(
                f"Most changes are among {words.format(worst.group)}: "
                f"{worst.changes.n_changed:,} of {worst.changes.n:,} ({worst.changes.tpcr:.2%})."
            )
        return lines

    def _read_order(self) -> list[str]:
        direct, repaired = self.topk_changes["direct"], self.topk_changes["repaired"]
        if direct.k == 1 or direct.n_order_changed == 0:
            return []
        share = f"{repaired.order_changed:.2%}"
        left = f"In the repaired report: {share}; preserve={direct.k} keeps it."
        if repaired.n_order_changed == 0:
            left = "It is kept in the repaired report."
        return [
            f"The order of the first {direct.k} classes changes in {direct.order_changed:.2%} of "
            f"the rows.",
            left,
        ]

    def _read_measures(self) -> list[str]:
        if self.identical:
            return []
        if not self.measures:
            return [
                f"Keeping the decisions costs {self.price:.4f} nats a row, if the direct report is "
                f"believed.",
                "Without labels, nothing can be said about accuracy or calibration.",
            ]
        lines = []
        for verdict, words in (
            ("better", "The repaired report is better than the direct one in"),
            ("worse", "The repaired report is worse than the direct one in"),
            ("unclear", f"At {self.level:.0%} there is no clear difference in"),
        ):
            found = [
                _changed(each)
                for each in self.measures
                if each.verdict == verdict and each.low is not None
            ]
            if found:
                lines.append(f"{words} {_listed(found)}.")
        if self.fitted_here:
            lines.append(
                "The repair was fitted on these same rows (one number, no labels); one that was "
                "fitted on calibration rows can be audited instead."
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python values, ready for JSON."""
        return {
            "n": self.n,
            "n_classes": self.n_classes,
            "identical": self.identical,
            "changes": self.changes.to_dict(),
            "topk_changes": {name: each.to_dict() for name, each in self.topk_changes.items()},
            "by_class": [each.to_dict() for each in self.by_class],
            "by_confidence": [each.to_dict() for each in self.by_confidence],
            "rows": [each.to_dict() for each in self.rows],
            "measures": [each.to_dict() for each in self.measures],
            "reliability": {name: bins.to_dict() for name, bins in self.reliability.items()},
            "price": self.price,
            "eta": self.eta if np.ndim(self.eta) == 0 else self.eta.tolist(),
            "fitted_here": self.fitted_here,
            "level": self.level,
            "resamples": self.resamples,
            "seed": self.seed,
            "warnings": list(self.warnings),
            "concerns": [each.to_dict() for each in self.concerns],
            "interpretation": self.interpret(),
        }

    def to_frame(self, table: str = "measures") -> pd.DataFrame:
        """Return one of the tables as a data frame.

        Parameters
        ----------
        table : {"measures", "by_class", "by_confidence", "rows"}
            Which one.

        Returns
        -------
        frame : pandas.DataFrame
            One row a measure, class, band or changed row.
        """
        import pandas as pd

        tables = ("measures", "by_class", "by_confidence", "rows")
        if table not in tables:
            raise InputError("table", f"is {table!r}", f"use one of {', '.join(tables)}")
        return pd.DataFrame([each.to_dict() for each in getattr(self, table)])

    def __repr__(self) -> str:
        return (
            f"Audit({self.n:,} rows × {self.n_classes} classes: "
            f"{self.changes.n_changed:,} decision{'' if self.changes.n_changed == 1 else 's'} "
            f"changed, {self.changes.tpcr:.2%})"
        )

    def _repr_html_(self) -> str:
        said = f"<p>{escape(self.interpret())}</p>"
        return said + tables.html(self._paper_table()) if self.measures else said

    def _paper_table(self) -> tables.Table:
        """Return the measures as a table for a page."""
        rows = []
        for each in self.measures:
            measure = MEASURES[each.measure]
            values = (each.original, each.direct, each.repaired)
            change = measure.write(each.difference, signed=True)
            if each.low is not None and each.high is not None:
                low, high = (measure.write(end, signed=True) for end in (each.low, each.high))
                change = f"{change} [{low}, {high}]"
            cells = [measure.axis, *map(measure.write, values), change]
            rows.append(tuple((tables.Part(cell),) for cell in cells))
        header = ("", "Original", "Direct", "Repaired", "Change, repaired − direct")
        caption = f"{self.n:,} rows, {self.n_classes} classes; {self.level:.0%} intervals."
        return tables.Table("audit", caption, header, tuple(rows))

    def __rich__(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        from cordcal.evaluate.terminal import caveats_text

        loud = caveats_text(each.sentence for each in self.concerns)
        parts: list[RenderableType] = [*loud, Text("\n".join(self._reading()))]
        if self.measures:
            parts += ["", self._measures_table()]
        if self.changes.n_changed:
            parts += ["", self._groups_table("original confidence", self.by_confidence)]
            worst = sorted(self.by_class, key=lambda each: -each.changes.n_changed)[:10]
            parts += ["", self._groups_table("original decision", worst)]
        return Group(*parts)

    def _measures_table(self) -> FittingTable:
        table = FittingTable(
            [
                Column("measure", words=True),
                Column("original", goes=1),
                Column("direct"),
                Column("repaired"),
                Column("change", goes=2),
                Column(f"{self.level:.0%} interval", goes=3),
            ],
            title="Measures (change: repaired − direct)",
        )
        for each in self.measures:
            table.add(
                MEASURES[each.measure].short,
                *(f"{value:.5f}" for value in (each.original, each.direct, each.repaired)),
                f"{each.difference:+z.5f}",
                "–" if each.low is None else f"[{each.low:+z.5f}, {each.high:+z.5f}]",
            )
        return table

    def _groups_table(self, heading: str, groups: Sequence[GroupChanges]) -> FittingTable:
        labelled = self.changes.delta_accuracy is not None
        parts = [Column(name, goes=1) for name in (("C⁺", "C⁻", "C⁰") if labelled else ())]
        counts = [Column("rows", goes=2), Column("changed"), Column("share")]
        table = FittingTable(
            [Column(heading, words=True), *counts, *parts], title=f"Changes by {heading}"
        )
        for each in groups:
            found = each.changes
            split = (found.n_gained, found.n_lost, found.n_neutral) if labelled else ()
            table.add(
                each.group,
                f"{found.n:,}",
                f"{found.n_changed:,}",
                f"{found.tpcr:.2%}",
                *(f"{count:,}" for count in split),
            )
        return table


def _changed(each: MeasureComparison) -> str:
    """Write a measure before and after, in the digits of every table."""
    spec = MEASURES[each.measure]
    unit = f" {spec.unit}" if spec.unit else ""
    return f"{spec.short} ({spec.write(each.direct)} to {spec.write(each.repaired)}{unit})"


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
