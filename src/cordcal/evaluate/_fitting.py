"""One calibrator on every split: fitted, its reports measured, direct and repaired."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cordcal._door.arrays import first_argmax
from cordcal._door.types import Kind
from cordcal.calibrators._crossfit import direct_of
from cordcal.calibrators._registry import takes_features
from cordcal.calibrators.blend import Blend, masses_held_out
from cordcal.evaluate._pictures import Pictures
from cordcal.evaluate._splits import Split
from cordcal.evaluate.given import Given
from cordcal.evaluate.price import Price, price_of_keeping, share_at_end
from cordcal.metrics import DecisionChanges, DecisionChangesStream
from cordcal.metrics._all import MeasuredReport, measure_report
from cordcal.metrics._rows import LabelledRows, Report
from cordcal.preserved import Preserved, Reports
from cordcal.repair import Lift
from cordcal.repair._clock import Stopwatch
from cordcal.repair._lift import Masses


@dataclass(frozen=True, eq=False)
class Fitted:
    """One calibrator, fitted and measured on every split."""

    key: str
    name: str
    keeps_decisions: bool
    direct: list[MeasuredReport]
    repaired: list[MeasuredReport]
    lift: list[MeasuredReport]
    changes: DecisionChanges
    fit_seconds: float
    apply_seconds: float
    notes: tuple[str, ...]
    pictures: Pictures
    size: Any
    price: Price | None
    at_bound: float
    shares: dict[str, float]

    def reports(self) -> dict[tuple[str, str], list[LabelledRows]]:
        """Return the rows to resample; a map that keeps decisions has one report, not three."""
        rows = {(self.key, "direct"): [measured.rows for measured in self.direct]}
        if not self.keeps_decisions:
            rows[self.key, "repaired"] = [measured.rows for measured in self.repaired]
        if self.lift:
            rows[self.key, "lift"] = [measured.rows for measured in self.lift]
        return rows


def fit_and_measure(
    name: str,
    candidate: Any,
    parts: list[Split],
    input: Kind,
    preserve: int | Literal["ranking"],
    columns: list[str],
    original: MeasuredReport,
) -> Fitted:
    """Fit one calibrator on every split and measure its reports."""
    changes = DecisionChangesStream()
    direct, repaired, lift = [], [], []
    first: tuple[Preserved, Reports] | None = None
    keeps = True
    bounds: list[float] = []
    fit_seconds, apply_seconds = 0.0, 0.0
    notes: list[str] = []
    given = candidate if isinstance(candidate, Given) else None
    with_features = given is None and takes_features(candidate)
    for split in parts:
        if given is not None:
            candidate, on_evaluation = given.between(split.fit.given, split.original.given)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model, seconds, told = _model(candidate, split, input, preserve, with_features)
            if given is not None:
                model.calibrator_ = on_evaluation
            watch = Stopwatch()
            features = split.features if with_features else None
            reports = model._reports_of(split.original, features)
            fit_seconds += seconds
            apply_seconds += watch.seconds()
            lifted = None
            kept = _keeps_decisions(model, reports, split)
            keeps = keeps and kept
            if preserve == 1 and given is None and not kept:
                lifted = _lifted(candidate, model, split, reports.direct, with_features)
        notes += [*told, *(str(warning.message) for warning in caught)]
        if lifted is not None:
            lift.append(measure_on(lifted, split, "lift"))
            bounds.append(share_at_end(reports.direct, lifted, reports.decision))
        direct.append(measure_on(reports.direct, split, "direct"))
        repaired.append(measure_on(reports.repaired, split, "repaired"))
        changes.add(reports.decision, first_argmax(reports.direct), split.labels)
        first = first or (model, reports)
    assert first is not None
    if keeps or len(lift) < len(parts):
        lift = []
    measured = {"original": original, "direct": direct[0]}
    measured |= {} if keeps else {"repaired": repaired[0]}
    measured |= {"lift": lift[0]} if lift else {}
    return Fitted(
        key=name,
        name=str(getattr(model.calibrator_, "title", name)),
        keeps_decisions=keeps,
        direct=direct,
        repaired=repaired,
        lift=lift,
        changes=changes.result(),
        fit_seconds=fit_seconds / len(parts),
        apply_seconds=apply_seconds / len(parts),
        notes=tuple(dict.fromkeys(notes)),
        pictures=_pictures(parts[0], first[1], columns, measured),
        size=getattr(model.calibrator_, "size", None),
        price=None if keeps else _price(first[1], parts[0], measured),
        at_bound=float(np.mean(bounds)) if bounds else 0.0,
        shares=_shares(first[0]),
    )


def _model(
    candidate: Any,
    split: Split,
    input: Kind,
    preserve: int | Literal["ranking"],
    with_features: bool,
) -> tuple[Preserved, float, tuple[str, ...]]:
    """Return a model with CORD, the seconds that fitting took, and what that told."""
    watch = Stopwatch()
    told: tuple[str, ...] = ()
    if not isinstance(candidate, str) or with_features:
        model = Preserved(candidate, input=input, preserve=preserve)
        features = split.fit_features if with_features else None
        model._fit_original(split.fit, split.fit_labels, None, features)
        return model, watch.seconds(), told
    fitted: Any
    if candidate == Blend.key:
        fitted = Blend(input=input)
        fitted._fit_from(split.workshop)
        before = fitted.seconds_
    else:
        made = split.workshop.fit(candidate)
        fitted, told, before = made.model, made.warnings, made.seconds
    watch = Stopwatch()
    model = Preserved(fitted, input=input, preserve=preserve, prefit=True)
    model._fit_original(split.fit, split.fit_labels, None)
    return model, before + watch.seconds(), told


def _lifted(
    candidate: Any,
    model: Preserved,
    split: Split,
    direct: npt.NDArray[Any],
    with_features: bool,
) -> npt.NDArray[Any] | None:
    """Return the report repaired by Lift; None where rows cannot be held out."""
    features = split.fit_features if with_features else None
    masses: Masses | None
    if isinstance(candidate, str) and not with_features and candidate != Blend.key:
        found, _ = split.workshop.candidate(candidate)
        masses = None if found is None else found.held_out.masses
    else:
        unfitted = Preserved(candidate, input=split.fit.kind)
        new = functools.partial(unfitted._new_calibrator, split.fit.kind)
        beside = (None, features)
        try:
            masses = masses_held_out(model.calibrator_, new, split.fit, split.fit_labels, *beside)
        except (ValueError, ArithmeticError, RuntimeError) as error:  # of one's own, anything may
            warnings.warn(f"no lift: {error}", UserWarning, stacklevel=2)
            masses = None
    if masses is None:
        return None
    rows = (split.fit.probabilities, direct_of(model.calibrator_, split.fit, features))
    lift = Lift()._fit(*rows, split.fit_labels, split.fit.decision, None, held_out=masses)
    at = split.original
    return lift._transform_rows(at.probabilities, direct, at.decision, np.float64)


def _keeps_decisions(model: Preserved, reports: Reports, split: Split) -> bool:
    """Tell whether a map keeps decisions by itself, by its kind and on these very rows.

    A map that keeps every argmax may still tie classes that the scores tell apart, by rounding
    or because it makes every row uniform; a tie is a decision only by the rule that breaks it.
    """
    if not getattr(model.calibrator_, "keeps_argmax", False):
        return False
    direct, decision = reports.direct, reports.decision
    rows = np.arange(len(decision))
    on_top = direct == direct.max(axis=1, keepdims=True)
    if not on_top[rows, decision].all():
        return False
    tied = np.flatnonzero(on_top.sum(axis=1) > 1)
    scores = split.original.given[tied]
    apart = scores < scores[np.arange(len(tied)), decision[tied]][:, None]
    return not (on_top[tied] & apart).any()


def _shares(model: Preserved) -> dict[str, float]:
    """Return what a blend is made of, the largest share first."""
    if not isinstance(model.calibrator_, Blend):
        return {}
    members = zip(model.calibrator_.members_, model.calibrator_.weights_.tolist(), strict=True)
    return dict(sorted(members, key=lambda member: -member[1]))


def _price(reports: Reports, split: Split, measured: Mapping[str, MeasuredReport]) -> Price | None:
    """Return what keeping the decisions costs."""
    nll = {name: float(found.measures.values["nll"]) for name, found in measured.items()}
    return price_of_keeping(
        reports.direct, reports.decision, split.labels, cord=nll["repaired"], lift=nll.get("lift")
    )


def _pictures(
    split: Split,
    reports: Reports,
    columns: list[str],
    measured: Mapping[str, MeasuredReport],
) -> Pictures:
    return Pictures.of(
        split.original.probabilities,
        reports,
        columns,
        measured,
        labels=split.labels,
        row_numbers=split.rows,
        groups=split.groups,
    )


def measure_on(report: npt.NDArray[Any], split: Split, name: str) -> MeasuredReport:
    return measure_report(Report.of(report, name), split.labels, None)


def means(measured: Sequence[MeasuredReport]) -> dict[str, float]:
    """Return each measure's mean over the splits."""
    values = [each.measures.values for each in measured]
    return {name: float(np.mean([each[name] for each in values])) for name in values[0]}
