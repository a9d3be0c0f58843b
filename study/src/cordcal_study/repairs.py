"""The repairs a study compares, by name, and what is measured on an output."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal.metrics import decision_changes, mean_retention, topk_changes
from cordcal.metrics.rows import ProbabilityMatrix
from cordcal.metrics.summary import MeasuredProbabilities, measure_probabilities
from cordcal.repair import CORD
from cordcal.repair.rule import DELTA
from cordcal_study.variants import MinimalRepair, RankingProjection, VariantCORD

DIRECT, CORDS, MINIMAL, RANKING, PROJECTION = "direct", "cord", "minimal", "ranking", "projection"
# The direct output with CORD's stabilisation and nothing else, and minimal repair on top of it:
# what they gain over their plain forms is not the repair's doing.
STABILISED, STABLE_MINIMAL = "stabilised", "minimal stabilised"
LIFT, CAPPED = "lift", "lift, capped"
TARGETS = {"none": "target none", "reference": "target reference", "projected": "target projected"}
RANKS = {2: "top 2", 5: "top 5"}
# Repairs that are also measured by the ranks they keep.
_RANKED = (DIRECT, CORDS, *RANKS.values(), RANKING, PROJECTION)
# NLL with the true class's probability floored elsewhere than at the measure's own 1e-12: a
# gain that comes from lifting exact zeros shrinks as the floor rises.
FLOORS = {"nll_1e-10": 1e-10, "nll_1e-6": 1e-6}
# What is drawn bin by bin.
_DRAWN = (DIRECT, CORDS)

Matrix = npt.NDArray[np.float64]
Measured = dict[str, Any]


def weighted(weight: float) -> str:
    """Return the name of CORD with another weight in the local reference.

    Examples
    --------
    >>> weighted(0.3), weighted(0.5)
    ('lambda 0.3', 'cord')
    """
    return CORDS if weight == 0.5 else f"lambda {weight:g}"


def stabilised(output: Matrix) -> Matrix:
    """Mix every row that has an exact zero with a little uniform mass (Appendix A).

    Examples
    --------
    >>> stabilised(np.array([[1.0, 0.0], [0.75, 0.25]]))
    array([[1.0e+00, 5.0e-11],
           [7.5e-01, 2.5e-01]])
    """
    boundary = output.min(axis=1) == 0.0
    out = output.copy()
    rows = output[boundary]
    out[boundary] = (1.0 - DELTA) * rows / rows.sum(axis=1, keepdims=True) + DELTA / rows.shape[1]
    return out


class Stabilisation:
    """CORD's stabilisation of the direct output, and then another repair or none."""

    def __init__(self, repair: MinimalRepair | None = None) -> None:
        self.repair = repair

    def fit(self, original: Matrix, direct: Matrix, *, decision: Any) -> Stabilisation:
        """Do nothing; there to be called like `CORD.fit`."""
        return self

    def transform(self, original: Matrix, direct: Matrix, *, decision: Any) -> Matrix:
        """Stabilise, and repair if there is a repair."""
        output = stabilised(direct)
        if self.repair is None:
            return output
        return self.repair.transform(original, output, decision=decision)


def make_repair(name: str, classes: int) -> Any:
    """Return the unfitted repair of a name, single-threaded."""
    kind, _, value = name.partition(" ")
    if kind == "target":
        return VariantCORD(target=value)  # type: ignore[arg-type]
    if kind == "lambda":
        return VariantCORD(reference_weight=float(value))
    if kind == "top":
        kept = int(value)
        return CORD("ranking" if kept >= classes else kept, threads=1)
    if name == STABILISED:
        return Stabilisation()
    if name == STABLE_MINIMAL:
        return Stabilisation(MinimalRepair())
    if name == MINIMAL:
        return MinimalRepair()
    if name == PROJECTION:
        return RankingProjection()
    return CORD("ranking" if name == RANKING else 1, threads=1)


def measure_plainly(
    name: str, output: Matrix, labels: npt.NDArray[Any], decision: npt.NDArray[np.intp]
) -> tuple[MeasuredProbabilities, Measured]:
    """Measure what needs only an output, its labels and the predictions."""
    found = measure_probabilities(ProbabilityMatrix.from_array(output, name), labels, None)
    changes = decision_changes(decision, output, labels)
    measured: Measured = {
        **found.metrics.to_dict(),
        "tpcr": changes.tpcr,
        "gained": changes.gained,
        "lost": changes.lost,
        "neutral": changes.neutral,
    }
    del measured["n"]
    for floored, floor in FLOORS.items():
        measured[floored] = float(-np.log(np.maximum(found.rows.true_mass, floor)).mean())
    return found, measured


def measure(
    repair: str,
    output: Matrix,
    labels: npt.NDArray[Any],
    *,
    original: Matrix,
    decision: npt.NDArray[np.intp],
    direct: Matrix,
) -> Measured:
    """Measure one output of a cell; every value is a plain number, or lists of them by bin."""
    found, measured = measure_plainly(repair, output, labels, decision)
    measured["mean_gap"] = mean_retention(decision, direct, output)
    if repair in _RANKED:
        classes = output.shape[1]
        for name, k in (("top2_changed", 2), ("top5_changed", 5), ("ranking_changed", classes)):
            measured[name] = topk_changes(original, output, k=min(k, classes)).order_changed
    if repair in _DRAWN:
        bins = found.reliability()
        measured["reliability"] = {
            "count": bins.count.tolist(),
            "accuracy": np.nan_to_num(bins.accuracy).tolist(),
            "confidence": np.nan_to_num(bins.confidence).tolist(),
        }
    return measured
