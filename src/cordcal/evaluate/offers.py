"""What a learnt rule and columns next to the scores would bring the default."""

from __future__ import annotations

import math
import warnings

import numpy as np

from cordcal._numeric.arrays import first_argmax
from cordcal._numeric.types import Flags, Floats
from cordcal._validation.context import ContextValues, is_present
from cordcal._validation.labels import MAX_GROUPS, Groups, rows_by_group
from cordcal.calibrators.adapters import predict_calibrated
from cordcal.calibrators.blend import Blend
from cordcal.calibrators.learnt_rule import learn_rule
from cordcal.evaluate.results.calibrators import ContextOffer, GroupGap, RuleOffer
from cordcal.evaluate.splits import Split
from cordcal.evaluate.statistics import mean_interval
from cordcal.metrics import ece, risk_coverage
from cordcal.metrics.proper import NLL_FLOOR
from cordcal.metrics.registry import MeasuredProbabilities
from cordcal.preserving import Outputs, PreservingCalibrator
from cordcal.repair import Lift


def offer_rule(
    model: PreservingCalibrator, split: Split, outputs: Outputs, lifted: MeasuredProbabilities
) -> RuleOffer | None:
    """Return what a learnt rule saves a blend over Lift; None for others, or without weights."""
    if not isinstance(model.calibrator_, Blend):
        return None
    fit = split.fit
    direct = predict_calibrated(model.calibrator_, fit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit with the rule issues them
        rule, _ = learn_rule(direct, fit.prediction)
    if rule.is_argmax:
        return None
    lift = split.fit_lift(Lift(rule=rule), direct, model.calibrator_.held_out_.masses)
    repaired = split.repair(lift, outputs.direct)
    true_mass = repaired[np.arange(len(repaired)), split.labels]
    losses, ruled = (
        -np.log(np.maximum(mass, NLL_FLOOR)) for mass in (lifted.rows.true_mass, true_mass)
    )
    return RuleOffer(
        nll=float(ruled.mean()),
        saving=mean_interval(losses - ruled, split.original.clusters),
        share=float(np.mean(first_argmax(repaired) != outputs.prediction)),
    )


def offer_context(
    model: PreservingCalibrator, split: Split, outputs: Outputs
) -> ContextOffer | None:
    """Return what context brings a blend with Lift; None for others, or without context."""
    if split.contexts is None or not isinstance(model.calibrator_, Blend):
        return None
    first, second = split.contexts
    direct = predict_calibrated(model.calibrator_, split.fit)
    lift = split.fit_lift(Lift(), direct, model.calibrator_.held_out_.masses, first)
    assert lift.context_ is not None
    rows, right = np.arange(len(split.labels)), outputs.prediction == split.labels
    losses, eces, areas, masses = [], [], [], []
    for context in (None, second):
        repaired = split.repair(lift, outputs.direct, context)
        mass = repaired[rows, outputs.prediction]
        losses.append(-np.log(np.maximum(np.where(right, mass, 1.0 - mass), NLL_FLOOR)))
        eces.append(float(ece(repaired, split.labels)))
        areas.append(risk_coverage(repaired, split.labels).aurc)
        masses.append(mass)
    return ContextOffer(
        columns=tuple(column.name for column in lift.context_.columns),
        loss=float(losses[1].mean()),
        saving=mean_interval(losses[0] - losses[1], split.original.clusters),
        ece=(eces[0], eces[1]),
        aurc=(areas[0], areas[1]),
        gaps=_group_gaps(masses[0], masses[1], right, second, split.groups),
    )


def _group_gaps(
    before: Floats, after: Floats, right: Flags, context: ContextValues, groups: Groups | None
) -> tuple[GroupGap, ...]:
    """Return confidence minus accuracy per category and group, the largest before first."""
    columns = {
        name: values
        for name, values in context.columns.items()
        if values.dtype == object and len(set(values)) <= MAX_GROUPS
    }
    if groups is not None:
        columns["group"] = np.asarray(groups, dtype=object)
    gaps = []
    for name, values in columns.items():
        present = np.flatnonzero(is_present(values))
        for value, at in rows_by_group(values[present].astype(str)):
            part = present[at]
            own, later, accuracy = before[part], after[part], float(right[part].mean())
            # The mean distance from zero of a normal variable with this variance.
            noise = math.sqrt(2.0 / math.pi * float((later * (1.0 - later)).sum())) / len(part)
            distances = float(own.mean()) - accuracy, float(later.mean()) - accuracy
            gaps.append(GroupGap(name, value, len(part), *distances, noise))
    return tuple(sorted(gaps, key=lambda gap: -abs(gap.before)))
