"""The repairs a study compares, and what is measured on their outputs.

Next to CORD these are the other repairs of the paper: minimal repairs, other mean targets and other
weights. They share every step with CORD except the varied one, and return NumPy arrays.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric import arrays
from cordcal._numeric.exact import scale_to_safe_exponent
from cordcal._numeric.exact import weighted as exact_sum
from cordcal._numeric.types import Predictions, Vector
from cordcal._validation.estimator import Estimator
from cordcal._validation.labels import check_predictions, check_weights
from cordcal._validation.table import match
from cordcal.metrics import mean_retention, prediction_changes, topk_changes
from cordcal.metrics.base import ProbabilityMatrix
from cordcal.metrics.registry import MeasuredProbabilities, measure_probabilities
from cordcal.repair import CORD, engine, ranking, rule
from cordcal.repair.construction import CalibrationRows, construct
from cordcal.repair.engine import Block, Description
from cordcal.repair.fitted import check_against_fit, check_fitted, check_pair, output_array
from cordcal.repair.results import Construction
from cordcal.repair.rule import DELTA, RowState

Reports = npt.NDArray[Any]


class VariantCORD(Estimator):
    """CORD with another mean target or another weight in the local reference.

    Parameters
    ----------
    target : {"direct", "reference", "projected", "none"}
        Which mean the repaired masses retain: that of the direct masses (CORD), of the local
        references, of the direct masses clipped to their intervals, or none (every reference
        is clipped to its interval).
    reference_weight : float
        λ of Appendix B: the direct mass's weight in a changed row's reference.

    Attributes
    ----------
    eta_ : float
        The shared scalar η*.
    construction_ : Construction
        The record of `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from cordcal import CORD
    >>> rng = np.random.default_rng(0)
    >>> original, direct = rng.dirichlet(np.ones(3), 50), rng.dirichlet(np.ones(3), 50)
    >>> VariantCORD(target="none").fit(original, direct).eta_
    0.0
    >>> VariantCORD().fit(original, direct).eta_ == CORD().fit(original, direct).eta_
    True
    """

    eta_: float
    construction_: Construction

    def __init__(
        self,
        *,
        target: Literal["direct", "reference", "projected", "none"] = "direct",
        reference_weight: float = 0.5,
    ) -> None:
        self.target = target
        self.reference_weight = reference_weight

    def fit(
        self, original: Any, direct: Any, *, prediction: Any = None, sample_weight: Any = None
    ) -> Self:
        """Find the shared scalar on calibration rows; see `CORD.fit`."""
        if self.target not in ("direct", "reference", "projected", "none"):
            raise InputError(
                "target",
                f"is {self.target!r}",
                "pass 'direct', 'reference', 'projected' or 'none'",
            )
        if not 0.0 <= self.reference_weight <= 1.0:
            raise InputError(
                "reference_weight", f"is {self.reference_weight}", "pass a number between 0 and 1"
            )
        rows = match(
            {"original": original, "direct": direct},
            prediction=prediction,
            sample_weight=sample_weight,
        )
        p, q = _numpy_pair(*rows.matrices)
        prediction, sample_weight = rows.prediction, rows.sample_weight
        keep = None if prediction is None else check_predictions(prediction, *q.shape)
        weight = None
        if sample_weight is not None:
            weight, _ = scale_to_safe_exponent(check_weights(sample_weight, len(q)))
        parts = [
            CalibrationRows(
                self._described(block.state, None if weight is None else weight[block.rows]),
                None if weight is None else weight[block.rows],
                q.shape[1],
            )
            for block in self._blocks(p, q, keep)
        ]
        construction = construct(
            parts, prediction_given=prediction is not None, free=self.target == "none"
        )
        self.__dict__.update(construction_=construction, eta_=construction.eta)
        return self

    def transform(
        self, original: Any, direct: Any, *, prediction: Any = None, dtype: Any = None
    ) -> npt.NDArray[Any]:
        """Repair rows with the fitted scalar; see `CORD.transform`."""
        check_fitted(self)
        rows = match({"original": original, "direct": direct}, prediction=prediction)
        p, q = _numpy_pair(*rows.matrices)
        prediction = rows.prediction
        keep = check_against_fit(self.construction_, q, prediction)
        out = output_array(q, dtype, None, False)
        for block in self._blocks(p, q, keep):
            engine.cord_rows(self.eta_, block, out[block.rows])
        return out

    def _blocks(self, p: Reports, q: Reports, keep: Predictions | None) -> Iterator[Block]:
        """Describe the rows with λ in the references of changed rows (Eq. 5)."""
        for block in engine.described_blocks(p, q, keep):
            state, weight = block.state, self.reference_weight
            changed = np.flatnonzero(state.changed)
            if changed.size:
                mass, rest = engine.prediction_masses(
                    p[block.rows][changed], state.prediction[changed]
                )
                g, g_rest = state.direct_mass.copy(), state.direct_rest.copy()
                g[changed] = rule.mix(g[changed], mass, weight)
                g_rest[changed] = rule.mix(g_rest[changed], rest, weight)
                state = replace(state, reference=g, reference_rest=g_rest)
            yield replace(block, state=state)

    def _described(self, state: RowState, weight: Vector | None) -> Description:
        """Return the rows' description with the mean target's masses."""
        cord = Description.from_state(state, weight)
        if self.target in ("direct", "none"):
            return cord
        mass, rest = state.reference, state.reference_rest
        if self.target == "projected":
            b, b_rest = state.direct_mass, state.direct_rest
            mass, rest, _, _ = rule.clip_to_interval(b, b_rest, state.lower)
        gap = rule.gap(state.reference, state.reference_rest, mass, rest)
        return replace(
            cord, target_sum=exact_sum(mass, weight), reference_shift=exact_sum(gap, weight)
        )

    def __repr__(self) -> str:
        return f"VariantCORD(target={self.target!r}, reference_weight={self.reference_weight})"


def _numpy_pair(original: Any, direct: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return both arrays as NumPy arrays."""
    p, q = check_pair(original, direct)
    return arrays.to_numpy(p), arrays.to_numpy(q)


class _Fixed(Estimator):
    """A repair of each row by itself, with nothing to fit."""

    def fit(
        self, original: Any, direct: Any, *, prediction: Any = None, sample_weight: Any = None
    ) -> Self:
        """Do nothing; for the same interface as `CORD.fit`."""
        return self

    def transform(
        self, original: Any, direct: Any, *, prediction: Any = None, dtype: Any = None
    ) -> npt.NDArray[Any]:
        """Repair rows; see `CORD.transform`."""
        rows = match({"original": original, "direct": direct}, prediction=prediction)
        p, q = _numpy_pair(*rows.matrices)
        prediction = rows.prediction
        keep = None if prediction is None else check_predictions(prediction, *q.shape)
        out = output_array(q, dtype, None, False)
        self._write(p, q, keep, out)
        return out

    @abstractmethod
    def _write(self, p: Reports, q: Reports, keep: Predictions | None, out: Reports) -> None:
        """Write the repaired rows to ``out``."""


class MinimalRepair(_Fixed):
    """The smallest change that preserves each prediction: changed rows go to their lower bound.

    Rows whose direct argmax is the prediction are returned as they are; there is nothing to fit.

    Examples
    --------
    >>> import numpy as np
    >>> original, direct = np.array([[0.6, 0.4], [0.7, 0.3]]), np.array([[0.2, 0.8], [0.9, 0.1]])
    >>> MinimalRepair().fit(original, direct).transform(original, direct).round(3)
    array([[0.5, 0.5],
           [0.9, 0.1]])
    """

    def _write(self, p: Reports, q: Reports, keep: Predictions | None, out: Reports) -> None:
        for block in engine.described_blocks(p, q, keep):
            state = block.state
            rebuilt = rule.rebuild(
                block.direct, state.prediction, block.part, state.lower, 1.0 - state.lower
            )
            unchanged = normalised_rows(block.direct, block.part.total, block.level)
            repaired = np.where(state.changed[:, None], rebuilt, unchanged)
            # Unchanged rows may tie, as supplied or after rounding.
            out[block.rows] = rule.raise_prediction(repaired.astype(out.dtype), state.prediction)


class RankingProjection(_Fixed):
    """The smallest change that preserves the whole ranking: the KL projection onto the order.

    Each row becomes the distribution u in the original's order that minimises KL(direct‖u):
    runs of classes in the wrong order share their mean (pool adjacent violators), and are then
    separated by the smallest steps of the dtype.  There is nothing to fit.

    Examples
    --------
    >>> import numpy as np
    >>> original, direct = np.array([[0.5, 0.3, 0.2]]), np.array([[0.5, 0.1, 0.4]])
    >>> repaired = RankingProjection().fit(original, direct).transform(original, direct)
    >>> repaired.round(3), bool(repaired[0, 1] > repaired[0, 2])
    (array([[0.5 , 0.25, 0.25]]), True)
    """

    def _write(self, p: Reports, q: Reports, keep: Predictions | None, out: Reports) -> None:
        levels = q.shape[1] - 1  # the last rank has nothing below it
        for block in engine.checked_blocks(p, q, keep):
            order = ranking.kept_order(block.original, block.prediction)
            direct = normalised_rows(block.wide_direct, block.wide_direct.sum(axis=1), block.level)
            ranked = np.take_along_axis(direct, order, axis=1)
            projected = np.empty_like(ranked)
            np.put_along_axis(projected, order, _nonincreasing(ranked), axis=1)
            rows = ranking.rank_rows(block.wide_original, block.wide_direct, order, levels)
            out[block.rows] = ranking.raise_order(projected.astype(out.dtype), rows, levels)


def normalised_rows(rows: Vector, total: Vector, level: float) -> Vector:
    """Return the rows; those whose sums deviate from one by more than ``level`` normalised."""
    return rows / np.where(rule.sums_to_one(total, level), 1.0, total)[:, None]


def _nonincreasing(rows: Vector) -> Vector:
    """Return each row's nearest nonincreasing row in least squares, which is that in KL, too."""
    from scipy.optimize import isotonic_regression

    fitted = rows.copy()
    for row in np.flatnonzero((np.diff(rows, axis=1) > 0.0).any(axis=1)):
        fitted[row] = isotonic_regression(rows[row], increasing=False).x
    return fitted


DIRECT, CORDS, MINIMAL, RANKING, PROJECTION = "direct", "cord", "minimal", "ranking", "projection"
# The direct output with CORD's stabilisation and nothing else, and minimal repair on top of it:
# what they gain over their plain forms is not the repair's doing.
STABILISED, STABLE_MINIMAL = "stabilised", "minimal stabilised"
LIFT, LIKELY = "lift", "lift, likelihood"
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

    def fit(self, original: Matrix, direct: Matrix, *, prediction: Any) -> Stabilisation:
        """Do nothing; there to be called like `CORD.fit`."""
        return self

    def transform(self, original: Matrix, direct: Matrix, *, prediction: Any) -> Matrix:
        """Stabilise, and repair if there is a repair."""
        output = stabilised(direct)
        if self.repair is None:
            return output
        return self.repair.transform(original, output, prediction=prediction)


def make_repair(name: str, classes: int) -> Any:
    """Return the unfitted repair of a name, single-threaded."""
    kind, _, value = name.partition(" ")
    if kind == "target":
        return VariantCORD(target=value)  # type: ignore[arg-type]
    if kind == "lambda":
        return VariantCORD(reference_weight=float(value))
    if kind == "top":
        levels = int(value)
        return CORD("ranking" if levels >= classes else levels, threads=1)
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
    name: str, output: Matrix, labels: npt.NDArray[Any], prediction: npt.NDArray[np.intp]
) -> tuple[MeasuredProbabilities, Measured]:
    """Measure what needs only an output, its labels and the predictions."""
    result = measure_probabilities(ProbabilityMatrix.from_array(output, name), labels, None)
    changes = prediction_changes(prediction, output, labels)
    measured: Measured = {
        **result.metrics.to_dict(),
        "tpcr": changes.tpcr,
        "gained": changes.gained,
        "lost": changes.lost,
        "neutral": changes.neutral,
    }
    del measured["n"]
    for floored, floor in FLOORS.items():
        measured[floored] = float(-np.log(np.maximum(result.rows.true_mass, floor)).mean())
    return result, measured


def measure(
    repair: str,
    output: Matrix,
    labels: npt.NDArray[Any],
    *,
    original: Matrix,
    prediction: npt.NDArray[np.intp],
    direct: Matrix,
) -> Measured:
    """Measure one output of a cell; every value is a plain number, or lists of them by bin."""
    result, measured = measure_plainly(repair, output, labels, prediction)
    measured["mean_gap"] = mean_retention(prediction, direct, output)
    if repair in _RANKED:
        classes = output.shape[1]
        for name, k in (("top2_changed", 2), ("top5_changed", 5), ("ranking_changed", classes)):
            measured[name] = topk_changes(original, output, k=min(k, classes)).order_changed
    if repair in _DRAWN:
        bins = result.reliability()
        measured["reliability"] = {
            "count": bins.count.tolist(),
            "accuracy": np.nan_to_num(bins.accuracy).tolist(),
            "confidence": np.nan_to_num(bins.confidence).tolist(),
        }
    return measured
