"""Fit one calibrator of a comparison on every split, repair it and measure the outputs."""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from cordcal._numeric.arrays import first_argmax
from cordcal._numeric.types import Kind, NumPyArray
from cordcal.calibrators import Calibrator, Size, calibrator_class
from cordcal.calibrators.adapters import PrecomputedProbabilities, predict_calibrated
from cordcal.calibrators.blend import Blend
from cordcal.calibrators.crossfit import masses_held_out
from cordcal.evaluate.candidates import AnyCalibrator
from cordcal.evaluate.constraint_cost import measure_constraint_cost
from cordcal.evaluate.offers import offer_context, offer_rule
from cordcal.evaluate.pictures import pictures_of
from cordcal.evaluate.results.calibrators import Entry, KeptPredictions
from cordcal.evaluate.results.values import Output
from cordcal.evaluate.splits import Split
from cordcal.metrics import PredictionChangesStream
from cordcal.metrics.base import LabelledRows, ProbabilityMatrix
from cordcal.metrics.registry import MeasuredProbabilities, measure_probabilities
from cordcal.preserving import Outputs, PreservingCalibrator
from cordcal.repair import ConfidenceGap, Lift
from cordcal.repair.lift import Masses


class FittedCalibrator(NamedTuple):
    """A calibrator's entry, still without comparisons of its outputs, and the rows to resample."""

    entry: Entry
    rows: dict[Output, list[LabelledRows]]


def fit_and_measure(
    name: str,
    candidate: AnyCalibrator,
    parts: list[Split],
    input: Kind,
    preserve: int | Literal["ranking"],
    columns: list[str],
    original: MeasuredProbabilities,
) -> FittedCalibrator:
    """Fit one calibrator on every split and measure its direct and repaired probabilities."""
    changes = PredictionChangesStream()
    direct, repaired, lift = [], [], []
    first: tuple[PreservingCalibrator, Outputs] | None = None
    keeps = True
    bounds: list[float] = []
    gap: KeptPredictions | None = None
    fit_seconds, apply_seconds = 0.0, 0.0
    notes: list[str] = []
    precomputed = candidate if isinstance(candidate, PrecomputedProbabilities) else None
    for split in parts:
        if precomputed is not None:
            candidate, on_evaluation = precomputed.between(split.fit.raw, split.original.raw)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model, seconds, messages = _fit_model(candidate, split, input, preserve)
            if precomputed is not None:
                model.calibrator_ = on_evaluation
            started = time.perf_counter()
            outputs = model.predict_checked(split.original)
            fit_seconds += seconds
            apply_seconds += time.perf_counter() - started
            lifted = None
            keeps_here = _keeps_predictions(model, outputs, split)
            keeps = keeps and keeps_here
            if preserve == 1 and precomputed is None and not keeps_here:
                lifted = _apply_lift(candidate, model, split, outputs.direct)
        notes += [*messages, *(str(warning.message) for warning in caught)]
        if lifted is not None:
            lift.append(measure_on(lifted.confidence, split, "lift"))
            bounds.append(lifted.at_bound)
            if gap is None:
                gap = _confidence_gap(lifted, split, outputs)
        direct.append(measure_on(outputs.direct, split, "direct"))
        repaired.append(measure_on(outputs.repaired, split, "repaired"))
        changes.add(outputs.prediction, first_argmax(outputs.direct), split.labels)
        first = first or (model, outputs)
    assert first is not None
    (first_model, first_outputs), first_split = first, parts[0]
    if keeps or len(lift) < len(parts):
        lift = []
    measured = {"original": original, "direct": direct[0]}
    measured |= {} if keeps else {"repaired": repaired[0]}
    measured |= {"lift": lift[0]} if lift else {}
    cost = None
    if not keeps:
        cost = measure_constraint_cost(
            first_outputs.direct,
            first_outputs.prediction,
            first_split.labels,
            cord=float(measured["repaired"].metrics.values["nll"]),
            lift=float(lift[0].metrics.values["nll"]) if lift else None,
        )
    pictures = pictures_of(
        first_split.original.probabilities,
        first_outputs,
        columns,
        measured,
        labels=first_split.labels,
        row_numbers=first_split.rows,
        groups=first_split.groups,
    )
    size: Size | None = getattr(model.calibrator_, "size", None)
    entry = Entry(
        key=name,
        name=str(getattr(model.calibrator_, "title", name)),
        keeps_predictions=keeps,
        direct=means(direct),
        repaired=means(repaired),
        lift=means(lift) if lift else None,
        changes=changes.result(),
        pictures=pictures,
        parameters=math.inf if size is None else float(size.at(len(columns))),
        fit_seconds=fit_seconds / len(parts),
        apply_seconds=apply_seconds / len(parts),
        notes=tuple(dict.fromkeys(notes)),
        constraint_cost=cost,
        at_bound=float(np.mean(bounds)) if bounds else 0.0,
        kept=gap if lift else None,
        shares=_blend_shares(first_model),
        rule=offer_rule(first_model, first_split, first_outputs, lift[0]) if lift else None,
        context=offer_context(first_model, first_split, first_outputs) if lift else None,
    )
    by_output = {"direct": direct, "repaired": repaired, "lift": lift}
    rows = {(name, output): [part.rows for part in by_output[output]] for output in entry.outputs}
    return FittedCalibrator(entry, rows)


def _fit_model(
    candidate: AnyCalibrator,
    split: Split,
    input: Kind,
    preserve: int | Literal["ranking"],
) -> tuple[PreservingCalibrator, float, tuple[str, ...]]:
    """Return a model with CORD, the seconds that fitting took, and its warnings."""
    started = time.perf_counter()
    messages: tuple[str, ...] = ()
    if not isinstance(candidate, str):
        model = PreservingCalibrator(candidate, input=input, preserve=preserve)
        model.fit_checked(split.fit, split.fit_labels, None)
        return model, time.perf_counter() - started, messages
    fitted: Calibrator
    if candidate == Blend.key:
        fitted = Blend(input=input)
        fitted.fit_from(split.fit_cache)
        fit_seconds = fitted.seconds_
    else:
        fit = split.fit_cache.fit(candidate)
        fitted, messages, fit_seconds = fit.model, fit.warnings, fit.seconds
    started = time.perf_counter()
    model = PreservingCalibrator(fitted, input=input, preserve=preserve, prefit=True)
    model.fit_checked(split.fit, split.fit_labels, None)
    return model, fit_seconds + time.perf_counter() - started, messages


def is_lifted(candidate: AnyCalibrator, preserve: int | Literal["ranking"]) -> bool:
    """Return whether a candidate is a key whose fits on folds lift will need."""
    if preserve != 1 or not isinstance(candidate, str) or candidate == Blend.key:
        return False
    return not calibrator_class(candidate).keeps_argmax


def _apply_lift(
    candidate: AnyCalibrator,
    model: PreservingCalibrator,
    split: Split,
    direct: NumPyArray,
) -> _Lifted | None:
    """Return the probabilities repaired by Lift; None if rows cannot be held out."""
    masses: Masses | None
    if isinstance(candidate, str) and candidate != Blend.key:
        cached, _ = split.fit_cache.candidate(candidate)
        masses = None if cached is None else cached.held_out.masses
    else:
        unfitted = PreservingCalibrator(candidate, input=split.fit.kind)
        new = functools.partial(unfitted.make_calibrator, split.fit.kind)
        try:
            masses = masses_held_out(model.calibrator_, new, split.fit, split.fit_labels, None)
        # A user's own calibrator may fail in any of these ways.
        except (ValueError, ArithmeticError, RuntimeError) as error:
            warnings.warn(f"no lift: {error}", UserWarning, stacklevel=2)
            masses = None
    if masses is None:
        return None
    fit_direct = predict_calibrated(model.calibrator_, split.fit)
    original = split.original
    rows = {}
    for prefer in ("confidence", "likelihood"):
        lift = split.fit_lift(Lift(prefer), fit_direct, masses)
        rows[prefer] = split.repair(lift, direct)
    at_bound = lift.explain_checked(original.probabilities, direct, original.prediction).at_bound
    return _Lifted(rows["confidence"], rows["likelihood"], float((at_bound < 0).mean()))


class _Lifted(NamedTuple):
    """Probabilities repaired by Lift with both preferences, and the share at the bound."""

    confidence: NumPyArray
    likelihood: NumPyArray
    at_bound: float


def _confidence_gap(lifted: _Lifted, split: Split, outputs: Outputs) -> KeptPredictions:
    """Return how honest the confidence is on the evaluation rows, and what it costs."""
    gap = ConfidenceGap.of(
        split.original.probabilities,
        outputs.direct,
        lifted.confidence,
        outputs.prediction,
        split.labels,
        at_bound=lifted.at_bound,
    )
    values = measure_on(lifted.likelihood, split, "likelihood").metrics.values
    return KeptPredictions(gap, {key: float(values[key]) for key in ("nll", "ece")})


def _keeps_predictions(model: PreservingCalibrator, outputs: Outputs, split: Split) -> bool:
    """Return whether a calibrator keeps predictions without a repair, by design and on these rows.

    A calibrator that keeps every argmax may still tie classes with different scores, by rounding
    or because it makes every row uniform.  Such a tie keeps the prediction only by the tie rule.
    """
    if not getattr(model.calibrator_, "keeps_argmax", False):
        return False
    direct, prediction = outputs.direct, outputs.prediction
    rows = np.arange(len(prediction))
    on_top = direct == direct.max(axis=1, keepdims=True)
    if not on_top[rows, prediction].all():
        return False
    tied = np.flatnonzero(on_top.sum(axis=1) > 1)
    scores = split.original.raw[tied]
    lower = scores < scores[np.arange(len(tied)), prediction[tied]][:, None]
    return not (on_top[tied] & lower).any()


def _blend_shares(model: PreservingCalibrator) -> dict[str, float]:
    """Return the weights of a blend's members, the largest first; empty for others."""
    if not isinstance(model.calibrator_, Blend):
        return {}
    members = zip(model.calibrator_.members_, model.calibrator_.weights_.tolist(), strict=True)
    return dict(sorted(members, key=lambda member: -member[1]))


def measure_on(probabilities: NumPyArray, split: Split, name: str) -> MeasuredProbabilities:
    """Compute every metric of some probabilities on the evaluation rows of a split."""
    return measure_probabilities(
        ProbabilityMatrix.from_array(probabilities, name), split.labels, None
    )


def means(measured: Sequence[MeasuredProbabilities]) -> dict[str, float]:
    """Return each metric's mean over the splits."""
    splits = [result.metrics.values for result in measured]
    return {name: float(np.mean([values[name] for values in splits])) for name in splits[0]}
