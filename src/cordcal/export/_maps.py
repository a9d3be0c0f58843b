"""Every calibrator's map and the repair as array expressions: for torch modules and ONNX graphs.

The calibrators themselves predict in NumPy, block by block and in place.  What traces
needs the same maps without branches on data and without writing to arrays; here they are,
each a few lines of the array API, on (n, K) float64 arrays.  ``held`` are a calibrator's
fitted arrays and numbers by name, as arrays of the tracing library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.arrays import UNIT_ROUNDOFF, Array
from cordcal._door.scores import LOWEST_SHIFTED, Domain, Kind
from cordcal.calibrators import Calibrator
from cordcal.calibrators.isotonic import _TIE_BREAK
from cordcal.preserved import Preserved
from cordcal.repair import _array, _ranking
from cordcal.repair._ranking import RankedRows

Held = Mapping[str, Array]

# The gap between zero and the next number of each dtype, where a relative step vanishes.
_SMALLEST = {
    "float64": 2.0**-1074,
    "float32": 2.0**-149,
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
}
# Where numbers of full precision begin.
_SMALLEST_NORMAL = {
    "float64": 2.0**-1022,
    "float32": 2.0**-126,
    "float16": 2.0**-14,
    "bfloat16": 2.0**-126,
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a fitted `Preserved` does to a row, apart from its numbers."""

    key: str
    kind: Kind
    domain: Domain
    classes: int
    etas: tuple[float, ...]

    def direct(self, scores: Array, held: Held, *, xp: Any) -> Array:
        """Return the direct report of float64 scores."""
        working = in_domain(scores, self.kind, self.domain, held["log_floor_"], xp=xp)
        if self.key == "mcct-i" and self.kind == "probabilities":
            working = working - xp.log(held["log_floor_"])
        return _MAPS[self.key](working, held, xp)

    def original(self, scores: Array, held: Held, *, xp: Any) -> Array:
        """Return the classifier's own probabilities."""
        return in_domain(scores, self.kind, "probabilities", held["log_floor_"], xp=xp)


def recipe_of(model: Any) -> tuple[Recipe, dict[str, npt.NDArray[Any]]]:
    """Return a fitted model's recipe and its numbers; refuse what has no map here."""
    if not isinstance(model, Preserved):
        raise ValueError(
            f"model is a {type(model).__name__}; pass a fitted cordcal.Preserved, which holds "
            f"the calibrator and the repair"
        )
    if not hasattr(model, "cord_"):
        raise ValueError("model is not fitted yet; call fit(scores, labels) first")
    calibrator = model.calibrator_
    if not isinstance(calibrator, Calibrator):
        raise ValueError(
            f"the calibrator {type(calibrator).__name__} is not cordcal's, so its map is unknown "
            f"here; use one of {', '.join(_MAPS)}"
        )
    if calibrator.key not in _MAPS:
        raise ValueError(
            f"the calibrator {calibrator.key!r} cannot leave NumPy: it needs more than the "
            f"scores; use one of {', '.join(_MAPS)}"
        )
    arrays, meta = calibrator._state()
    numbers = {
        name: np.asarray(value, dtype=np.float64)
        for name, value in meta["fitted"].items()
        if name in ("temperature_", "mix_", "log_floor_")
    }
    if "knot_x_" in arrays:
        arrays["stride_"] = search_strides(arrays["knot_x_"], arrays.get("knot_start_"))
    etas = tuple(np.atleast_1d(model.cord_.eta_).tolist())
    recipe = Recipe(calibrator.key, model._kind(), calibrator.works_on, model.n_classes_, etas)
    return recipe, {**numbers, **arrays}


def repair(
    original: Array, direct: Array, decision: Array, etas: Sequence[float], dtype: str, *, xp: Any
) -> Array:
    """Return the repaired report in float64, the decision strictly on top once rounded.

    With more than one scalar the first ranks are kept in order as well.
    """

    def row_sum(rows: Array) -> Array:
        return xp.sum(rows, axis=1)

    if len(etas) > 1:
        order = _ranking.kept_order(original, decision, xp=xp)
        rows = _ranking.rank_rows(original, direct, order, len(etas), xp=xp, row_sum=row_sum)
        masses, rests, same = _ranking.respond(rows, etas, xp=xp)
        repaired = _ranking.rebuild(rows, masses, rests, xp=xp)
        if not any(etas):
            repaired = xp.where(same[:, None], direct, repaired)
        return strictly_ordered(repaired, rows, len(etas), dtype, xp=xp)
    (eta,) = etas
    moved = xp.argmax(direct, axis=1) != decision
    state, part = _array.row_state(original, direct, decision, moved, xp=xp, row_sum=row_sum)
    mass, rest, _ = _array.response(eta, state.reference, state.reference_rest, state.lower, xp=xp)
    repaired = _array.rebuild(direct, decision, part, mass, rest, xp=xp)
    if eta == 0.0:
        same = _array.unchanged(eta, part, state)
        repaired = xp.where(same[:, None], direct, repaired)
    return strictly_top(repaired, decision, dtype, xp=xp)


def strictly_top(repaired: Array, decision: Array, dtype: str, *, xp: Any) -> Array:
    """Raise the decision until rounding to ``dtype`` cannot tie it with a rival."""
    chosen = _array.chosen_entries(repaired, decision, xp=xp)
    zeros = xp.zeros_like(repaired)
    rival = xp.max(xp.where(chosen, zeros, repaired), axis=1)
    mass = xp.max(xp.where(chosen, repaired, zeros), axis=1)
    mass = safely_above(mass, rival, dtype, xp)
    return xp.where(chosen, mass[:, None], repaired)


def strictly_ordered(
    repaired: Array, rows: RankedRows, levels: int, dtype: str, *, xp: Any
) -> Array:
    """Raise the kept ranks until rounding to ``dtype`` cannot tie them.

    Half precision has no room for that: only the first rank is strict there, and rounding
    may tie the others but not invert them.
    """
    strict = _ranking.strict_dtype(dtype)
    below = rows.rank >= levels
    zeros = xp.zeros_like(repaired)
    ranked = xp.take_along_axis(repaired, rows.order[:, :levels], axis=1)
    bound = xp.max(xp.where(below, repaired, zeros), axis=1)
    lifted: list[Array] = []
    for level in range(levels - 1, -1, -1):
        mass = at_least(ranked[:, level], bound, xp)
        if strict or level == 0:
            mass = safely_above(mass, bound, dtype, xp)
            # A chain of subnormal numbers would be flushed to zero by many a device.
            mass = at_least(mass, _SMALLEST_NORMAL[dtype], xp)
        lifted.insert(0, mass)
        bound = mass
    head = xp.stack(lifted, axis=1)
    position = xp.where(below, xp.zeros_like(rows.rank), rows.rank)
    return xp.where(below, repaired, xp.take_along_axis(head, position, axis=1))


def safely_above(mass: Array, rival: Array, dtype: str, xp: Any) -> Array:
    """Return ``mass``, or a little more, such that it rounds to a larger number than ``rival``.

    Two numbers further apart than the gap of the larger one's binade round apart, and
    that gap is at most 2u times the larger.  The margin is applied before the rounding,
    because compilers and graph optimisers may drop a rounding in the middle.
    """
    # The factor 1 + 4u pays for "larger" and for a first rounding to float32 on the way.
    unit = UNIT_ROUNDOFF[dtype]
    apart = rival * (1.0 + 2.0 * unit * (1.0 + 4.0 * unit))
    return at_least(at_least(mass, apart, xp), rival + 1.25 * _SMALLEST[dtype], xp)


def in_domain(scores: Array, kind: Kind, domain: Domain, log_floor: Array, *, xp: Any) -> Array:
    """Return what a map works on; see `cordcal._door.scores.read_scores`."""
    if kind == "probabilities":
        scores = scores / xp.sum(scores, axis=1, keepdims=True)
        if domain == "probabilities":
            return scores
        scores = xp.log(at_least(scores, log_floor, xp))
    elif domain == "probabilities":
        return softmax(scores, xp)
    if domain == "shifted":
        shifted = scores - xp.max(scores, axis=1, keepdims=True)
        return at_least(shifted, LOWEST_SHIFTED, xp)
    if domain == "log-probabilities" and kind == "logits":
        shifted = scores - xp.max(scores, axis=1, keepdims=True)
        return shifted - xp.log(xp.sum(xp.exp(shifted), axis=1, keepdims=True))
    return scores


def at_least(values: Array, bound: Any, xp: Any) -> Array:
    """Return the larger of each entry and a number or array."""
    return xp.where(values < bound, xp.zeros_like(values) + bound, values)


def softmax(scores: Array, xp: Any) -> Array:
    """Return row-wise softmax."""
    powers = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    return powers / xp.sum(powers, axis=1, keepdims=True)


def _tempered(shifted: Array, held: Held, xp: Any) -> Array:
    return softmax(shifted * (1.0 / held["temperature_"]), xp)


def _ensemble(shifted: Array, held: Held, xp: Any) -> Array:
    weights = held["weights_"]
    uniform = weights[2] / shifted.shape[1]
    return weights[0] * _tempered(shifted, held, xp) + weights[1] * softmax(shifted, xp) + uniform


def _vector(scores: Array, held: Held, xp: Any) -> Array:
    return softmax(scores * held["scale_"] + held["bias_"], xp)


def _matrix(scores: Array, held: Held, xp: Any) -> Array:
    return softmax(xp.matmul(scores, held["weight_"].T) + held["bias_"], xp)


def _mixed(shifted: Array, held: Held, xp: Any) -> Array:
    uniform = held["mix_"] / shifted.shape[1]
    return xp.log(_tempered(shifted, held, xp) * (1.0 - held["mix_"]) + uniform)


def _rankwise(scores: Array, held: Held, xp: Any) -> Array:
    # Stable and descending: of tied scores the smallest index ranks highest.
    order = xp.argsort(scores, axis=1, descending=True, stable=True)
    place = (scores.shape[1] - 1) - xp.argsort(order, axis=1)
    return softmax(scores * held["scale_"][place] + held["bias_"][place], xp)


def _isotonic_each(probabilities: Array, original: Array, held: Held, xp: Any) -> Array:
    start = held["knot_start_"]
    mapped = interpolate(probabilities, held, start[:-1], start[1:], xp)
    total = xp.sum(mapped, axis=1, keepdims=True)
    empty = total == 0.0
    return xp.where(empty, original, mapped / xp.where(empty, xp.ones_like(total), total))


def _isotonic_pooled(probabilities: Array, held: Held, xp: Any) -> Array:
    knots = held["knot_x_"].shape[0]
    mapped = interpolate(probabilities, held, 0, knots, xp) + _TIE_BREAK * probabilities
    mapped = mapped / xp.sum(mapped, axis=1, keepdims=True)
    # Probabilities within 1e-7 of each other may round to a tie: the top one wins.
    top = xp.argmax(probabilities, axis=1)
    lost = (xp.argmax(mapped, axis=1) != top)[:, None]
    above = xp.max(mapped, axis=1, keepdims=True) * (1.0 + 2.0**-52)
    chosen = _array.chosen_entries(mapped, top, xp=xp)
    return xp.where(chosen & lost, above, mapped)


def search_strides(
    knot_x: npt.NDArray[Any], knot_start: npt.NDArray[Any] | None
) -> npt.NDArray[np.int64]:
    """Return the strides with which any knot of a class is reached from its first one.

    Examples
    --------
    >>> search_strides(np.arange(9.0), np.array([0, 3, 9]))
    array([4, 2, 1])
    """
    most = len(knot_x) if knot_start is None else int(np.diff(knot_start).max())
    return 2 ** np.arange((most - 1).bit_length(), dtype=np.int64)[::-1]


def interpolate(x: Array, held: Held, first: Any, end: Any, xp: Any) -> Array:
    """Interpolate linearly between knots ``first`` to ``end`` of each column, as `numpy.interp`.

    The knot to the left is found by halving steps that all entries take together.
    """
    knot_x, knot_y = held["knot_x_"], held["knot_y_"]
    last = end - 1
    left = xp.astype(xp.zeros_like(x), xp.int64) + first
    for number in range(held["stride_"].shape[0]):
        further = left + held["stride_"][number]
        inside = further <= last
        further = xp.where(inside, further, left)
        left = xp.where(inside & (knot_x[further] <= x), further, left)
    right = xp.where(left < last, left + 1, left)
    x0, y0 = knot_x[left], knot_y[left]
    run = knot_x[right] - x0
    slope = (knot_y[right] - y0) / xp.where(run > 0.0, run, xp.ones_like(run))
    return slope * at_least(x - x0, 0.0, xp) + y0


_MAPS: dict[str, Callable[[Array, Held, Any], Array]] = {
    "ts": _tempered,
    "ts-tva": _tempered,
    "ets": _ensemble,
    "vs": _vector,
    "svs": lambda x, held, xp: _vector(_mixed(x, held, xp), held, xp),
    "ms": _matrix,
    "sms": lambda x, held, xp: _matrix(_mixed(x, held, xp), held, xp),
    "dir-odir": _matrix,
    "irova": lambda x, held, xp: _isotonic_each(x, x, held, xp),
    "irova-ts": lambda x, held, xp: _isotonic_each(
        _tempered(x, held, xp), softmax(x, xp), held, xp
    ),
    "irm": _isotonic_pooled,
    "mcct-i": _rankwise,
}
