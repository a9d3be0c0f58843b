"""The row rule of CORD, written against the array API: the specification.

Section 3 of the paper, one function per step: `split` a row between the prediction and the
other classes, compute its interval and reference (`row_state`), the `response` to the shared
scalar, `rebuild` the row.  `repair_rows` is all of it.  Interval, response, clipping and
stabilisation are written here once; every other module calls them.  ``engine.py`` does the same
over blocks of NumPy arrays.

With ``class_weights`` w the prediction of a vector is the argmax of w · p instead of p (see
`cordcal.PredictionRule`).  The interval, the test for a changed row, the original masses and the
last step after rounding depend on them; w = 1 gives the same bits as none.

Names ending in ``_rest`` are complements (``1 - x``).  They are carried separately, because
subtraction would lose the digits of confident rows.

Every array library runs these functions.  Compiled torch modules and ONNX graphs trace them:
they pass ``xp``, because a tracer cannot be asked for its namespace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import array_api_compat
import numpy as np

from cordcal._numeric.arrays import UNIT_ROUNDOFF, dtype_name, namespace
from cordcal._numeric.types import Array, DType, Namespace

if TYPE_CHECKING:
    from cordcal.repair.ranking import Level

# ε_num of Eq. (4): how far inside its interval the repaired mass stays.
EPSILON = 1e-12
# Masses computed from equal entries differ by a few roundings: closer ones count as tied.
TIED = 2.0**-50
# δ_stab of Appendix A: the share of uniform mass mixed into a row with an exact zero.
DELTA = 1e-10

# A tail below this is scaled up by a power of two before it is divided by, since
# (1 - s) / tail would overflow; (1e-12 / 2^-900) is still far from the largest double.
TINY_TAIL = 2.0**-900
TINY_TAIL_SCALE = 2.0**900
# The same for libraries whose widest float is float32.
TINY_TAIL_32 = 2.0**-80
TINY_TAIL_SCALE_32 = 2.0**100

# The smallest positive number of each dtype, where a relative step vanishes.
SMALLEST = {
    "float64": 2.0**-1074,
    "float32": 2.0**-149,
    "float16": 2.0**-24,
    "bfloat16": 2.0**-133,
}
# How many representable numbers a prediction may rise after rounding before its rivals fall.
RAISED_STEPS = 8


@dataclass(frozen=True, slots=True)
class Split:
    """A distribution split between one class and all others.

    ``entry`` is the supplied entry of that class, ``tail`` the supplied row with zero in its
    place, ``top`` the largest entry of the tail and ``total`` the sum of the supplied row.
    ``boundary`` marks rows with an exact zero.  With class weights, ``rival`` is the largest of w_j
    times the stabilised entries of the other classes (see `largest_rival`), and ``own`` is w_a.
    Arithmetic uses the stabilised copy ``scale * row + offset``: ``mass`` is its entry,
    ``rest`` the sum of its tail.  Only ratios of its entries are used, so it need not sum to
    one.
    """

    entry: Array
    tail: Array
    top: Array
    total: Array
    mass: Array
    rest: Array
    scale: Array
    offset: Array
    boundary: Array
    rival: Array | None = None
    own: Array | None = None


@dataclass(frozen=True, slots=True)
class RowState:
    """What the shared scalar and the repair depend on, per row.

    ``reference`` and ``reference_rest`` are g and 1 − g of Eq. (5), ``lower`` is the left
    end of the interval in Eq. (4), ``direct_mass`` is b, and ``changed`` is whether the direct
    probabilities change the prediction.
    """

    prediction: Array
    direct_mass: Array
    direct_rest: Array
    reference: Array
    reference_rest: Array
    lower: Array
    changed: Array


def tiny_tail(values: Array, *, xp: Namespace | None = None) -> tuple[float, float]:
    """Return the size below which a tail of this dtype is scaled up, and the factor."""
    xp = namespace(values) if xp is None else xp
    if values.dtype == xp.float32:
        return TINY_TAIL_32, TINY_TAIL_SCALE_32
    return TINY_TAIL, TINY_TAIL_SCALE


def tail_scale(rest: Array, *, xp: Namespace) -> Array:
    """Return one per row, or the factor that scales up a tiny tail."""
    tiny, factor = tiny_tail(rest, xp=xp)
    one = xp.ones_like(rest)
    return xp.where(rest < tiny, one * factor, one)


def stabilisation(total: Array, classes: int, *, xp: Namespace) -> tuple[Array, float]:
    """Return scale and offset that move rows with these sums into the interior.

    The order-preserving stabilisation of Appendix A, on the normalised row.
    """
    return xp.ones_like(total) * (1.0 - DELTA) / total, DELTA / classes


def chosen_entries(values: Array, prediction: Array, *, xp: Namespace) -> Array:
    """Return a mask of the entries at the predictions."""
    columns = xp.arange(values.shape[1], device=values.device)
    return columns[None, :] == prediction[:, None]


def take_out(values: Array, prediction: Array, *, xp: Namespace) -> tuple[Array, Array]:
    """Return each row's entry at its prediction, and the row with zero in its place."""
    chosen = chosen_entries(values, prediction, xp=xp)
    tail = xp.where(chosen, xp.zeros_like(values), values)
    # Exactly one entry per row is chosen, so this sum does not round.
    return xp.sum(xp.where(chosen, values, xp.zeros_like(values)), axis=1), tail


def at_prediction(per_class: Array, rows: Array, prediction: Array, *, xp: Namespace) -> Array:
    """Return for each row the entry of a vector over the classes at the prediction."""
    return take_out(xp.zeros_like(rows) + per_class[None, :], prediction, xp=xp)[0]


def split(
    values: Array,
    prediction: Array,
    class_weights: Array | None = None,
    *,
    xp: Namespace | None = None,
) -> Split:
    """Split each row between its prediction and the other classes."""
    xp = namespace(values) if xp is None else xp
    entry, tail = take_out(values, prediction, xp=xp)
    boundary = xp.min(values, axis=1) == 0
    part = stabilised(entry, tail, xp.sum(tail, axis=1), xp.max(tail, axis=1), boundary, xp=xp)
    if class_weights is None:
        return part
    own, others = take_out(xp.zeros_like(tail) + class_weights[None, :], prediction, xp=xp)
    # A tiny tail is scaled first, so that no product is subnormal.
    scale = xp.where(boundary, xp.ones_like(part.scale), part.scale)
    top = xp.max((tail * scale[:, None]) * others, axis=1)
    rival = largest_rival(part, top, xp.max(class_weights[None, :], axis=1), xp=xp)
    return replace(part, rival=rival, own=own)


def largest_rival(part: Split, top: Array, heaviest: Array, *, xp: Namespace) -> Array:
    """Return the largest of w_j times the stabilised entries of the other classes.

    ``top`` is the largest of w · q among them.  The offset of rows with an exact zero is
    multiplied by the largest weight of all, which bounds its products.
    """
    scale = xp.where(part.boundary, part.scale, xp.ones_like(top))
    return scale * top + part.offset * heaviest


def stabilised(
    entry: Array, tail: Array, rest: Array, top: Array, boundary: Array, *, xp: Namespace
) -> Split:
    """Return split rows from the entry, and the tail with its sum and its largest entry."""
    mass, total, classes = entry, entry + rest, tail.shape[1]
    inner_scale, inner_offset = stabilisation(total, classes, xp=xp)
    zero = xp.zeros_like(mass)
    scale = xp.where(boundary, inner_scale, tail_scale(rest, xp=xp))
    offset = xp.where(boundary, zero + inner_offset, zero)
    mass = scale * mass + offset
    rest = scale * rest + offset * (classes - 1)
    return Split(entry, tail, top, total, mass, rest, scale, offset, boundary)


def row_state(
    original: Array,
    direct: Array,
    prediction: Array,
    moved: Array,
    class_weights: Array | None = None,
    *,
    xp: Namespace | None = None,
) -> tuple[RowState, Split]:
    """Compute each row's interval and local reference (Eqs. 4 and 5).

    Parameters
    ----------
    original, direct : array
        The supplied probabilities, widened to float64 where the library has it.
    prediction : array of int
        The class to keep, per row.
    moved : array of bool
        Whether the prediction of the direct probabilities, as supplied, is another class.
    class_weights : array, optional
        The weights w of the prediction rule, in the same dtype.
    xp
        The namespace of a tracer.

    Returns
    -------
    state : RowState
        Interval and reference.
    part : Split
        The direct rows, split at the prediction.
    """
    xp = namespace(direct) if xp is None else xp
    part = split(direct, prediction, class_weights, xp=xp)
    if class_weights is not None:
        original = unweighted(original, class_weights)
    masses = normalised(split(original, prediction, xp=xp))
    return split_state(part, masses, prediction, moved, xp=xp), part


def split_state(
    part: Split,
    original: tuple[Array, Array],
    prediction: Array,
    moved: Array,
    *,
    xp: Namespace,
) -> RowState:
    """Compute interval and reference of direct rows that are split already.

    ``original`` holds the original masses on the predictions and their complements; only those of
    changed rows are used.
    """
    b, b_rest = normalised(part)
    p, p_rest = original
    return RowState(
        prediction=prediction,
        direct_mass=b,
        direct_rest=b_rest,
        reference=xp.where(moved, mix(b, p), b),
        reference_rest=xp.where(moved, mix(b_rest, p_rest), b_rest),
        lower=lower_of(part),
        changed=moved,
    )


def unweighted(original: Array, class_weights: Array) -> Array:
    """Return p⁰ / w, whose prediction under the rule is the argmax of p⁰; not normalised."""
    return original * (1.0 / class_weights)[None, :]


def normalised(part: Split) -> tuple[Array, Array]:
    """Return the mass and the rest as shares of their sum."""
    total = part.mass + part.rest
    return part.mass / total, part.rest / total


def mix(direct: Array, original: Array, weight: float = 0.5) -> Array:
    """Return the reference of a changed row (Eq. 5), between direct and original mass."""
    return weight * direct + (1.0 - weight) * original


def lower_bound(top: Array, rest: Array | float) -> Array:
    """Return the left end of the interval (Eq. 4) from the tail's largest entry and its sum."""
    return top / (top + rest) + EPSILON


def lower_of(part: Split) -> Array:
    """Return the left end of the interval (Eq. 4) of split rows."""
    if part.rival is not None and part.own is not None:
        return lower_bound(part.rival, part.own * part.rest)
    return lower_bound(part.scale * part.top + part.offset, part.rest)


def inside_interval(mass: Array, rest: Array, lower: Array) -> Array:
    """Return which masses lie inside their interval (Eq. 4)."""
    return (mass >= lower) & (rest >= EPSILON)


def clip_to_interval(
    mass: Array, rest: Array, lower: Array, *, xp: Namespace | None = None
) -> tuple[Array, Array, Array, Array]:
    """Clip masses to their interval (Eq. 4).

    Returns the mass, its complement, and masks of the rows clipped at the lower and at the
    upper end.
    """
    xp = namespace(mass) if xp is None else xp
    low, high = mass < lower, rest < EPSILON
    one = 1.0 if xp is np else xp.ones_like(mass)  # only NumPy's where takes numbers
    mass = xp.where(low, lower, xp.where(high, one * (1.0 - EPSILON), mass))
    rest = xp.where(low, 1.0 - lower, xp.where(high, one * EPSILON, rest))
    return mass, rest, low, high


def response(
    eta: float,
    reference: Array,
    reference_rest: Array,
    lower: Array,
    *,
    xp: Namespace | None = None,
) -> tuple[Array, Array, Array]:
    """Return the repaired mass s, its complement 1 − s, and the derivative ds/dη.

    The closed form of Appendix A, clipped to the interval of Eq. (4).
    """
    mass, rest, radius = interior(eta, reference, reference_rest, xp=xp)
    slope = mass * rest / radius
    xp = namespace(reference) if xp is None else xp
    mass, rest, low, high = clip_to_interval(mass, rest, lower, xp=xp)
    return mass, rest, xp.where(low | high, xp.zeros_like(mass), slope)


def interior(
    eta: float, reference: Array, reference_rest: Array, *, xp: Namespace | None = None
) -> tuple[Array, Array, Array]:
    """Return H(g, η) before clipping, its complement, and the radius of the closed form.

    It is arranged so that close numbers are never subtracted, with the complement from the
    symmetry ``1 − H(g, η) = H(1 − g, −η)``.
    """
    xp = namespace(reference) if xp is None else xp
    g, g_rest = reference, reference_rest
    if eta == 0.0:  # H(g, 0) = g, to the bit
        return g, g_rest, xp.ones_like(g)
    _, radius = shift_and_radius(eta, g, g_rest, xp.sqrt)
    mass = 2.0 * g / ((1.0 - eta) + radius) if eta <= 1.0 else ((eta - 1.0) + radius) / (2.0 * eta)
    rest = (
        2.0 * g_rest / ((1.0 + eta) + radius)
        if eta >= -1.0
        else ((-eta - 1.0) + radius) / (-2.0 * eta)
    )
    return mass, rest, radius


def repaired_mass(
    eta: float, state: RowState | Level, *, xp: Namespace | None = None
) -> tuple[Array, Array]:
    """Return the repaired mass s and its complement 1 − s of each row."""
    mass, rest, _ = interior(eta, state.reference, state.reference_rest, xp=xp)
    mass, rest, _, _ = clip_to_interval(mass, rest, state.lower, xp=xp)
    return mass, rest


def shift_and_radius(
    eta: float, g: Array, g_rest: Array, root: Callable[[Array], Array] = np.sqrt
) -> tuple[Array, Array]:
    """Return η + 2g − 1 and √((η + 2g − 1)² + 4g(1 − g)), the terms of the closed form."""
    shift = eta + (g - g_rest)
    return shift, root(shift * shift + 4.0 * (g * g_rest))


def multiplier(mass: Array, rest: Array, reference: Array) -> Array:
    """Return h_g(s) = (s − g) / (s (1 − s)), the scalar at which the response is ``mass``."""
    return (mass - reference) / (mass * rest)


def gap(mass: Array, rest: Array, reference: Array, reference_rest: Array) -> Array:
    """Return s − g, computed from the complements where those are smaller."""
    xp = namespace(mass)
    return xp.where(rest < mass, reference_rest - rest, mass - reference)


def rebuild(
    direct: Array,
    prediction: Array,
    part: Split,
    mass: Array,
    rest: Array,
    *,
    xp: Namespace | None = None,
) -> Array:
    """Put the mass on the prediction, the rest on the other classes in direct ratios (Eq. 2)."""
    xp = namespace(direct) if xp is None else xp
    factor = rest / part.rest
    chosen = chosen_entries(direct, prediction, xp=xp)
    # Two products: scale times factor alone would overflow for a tiny tail.
    others = (part.tail * part.scale[:, None]) * factor[:, None] + (part.offset * factor)[:, None]
    return xp.where(chosen, mass[:, None], others)


def unchanged(part: Split, state: RowState, level: float) -> Any:
    """Return which rows η* = 0 leaves as they are: no zero entry, b inside its interval.

    ``level`` is how far from one a sum may be by rounding; other rows are normalised.
    """
    inside = inside_interval(state.direct_mass, state.direct_rest, state.lower)
    return inside & ~part.boundary & sums_to_one(part.total, level)


def sums_to_one(total: Array, level: float) -> Array:
    """Return which sums are one except for rounding."""
    return (total - 1.0 <= level) & (1.0 - total <= level)


def repair_rows(
    direct: Array,
    state: RowState,
    part: Split,
    eta: float,
    level: float,
    *,
    xp: Namespace | None = None,
) -> Array:
    """Return the repaired rows in the wide dtype, before they are rounded.

    Parameters
    ----------
    direct : array
        The direct probabilities, widened.
    state, part : RowState, Split
        What `row_state` returns for them.
    eta : float
        The shared scalar.
    level : float
        See `unchanged`.
    xp
        The namespace of a tracer.
    """
    mass, rest = repaired_mass(eta, state, xp=xp)
    repaired = rebuild(direct, state.prediction, part, mass, rest, xp=xp)
    if eta == 0.0:
        xp = namespace(direct) if xp is None else xp
        repaired = xp.where(unchanged(part, state, level)[:, None], direct, repaired)
    return repaired


def make_first(rounded: Array, prediction: Array, class_weights: Array | None) -> Array:
    """Make the prediction strictly the prediction after rounding, under class weights if any."""
    if class_weights is None:
        return raise_prediction(rounded, prediction)
    return enforce_rule(rounded, prediction, class_weights)


def raise_prediction(rounded: Array, prediction: Array) -> Array:
    """Make the prediction strictly the largest entry after rounding to a narrow dtype.

    Rounding preserves order but can create a tie; the prediction then takes the next
    representable number.
    """
    xp = namespace(rounded)
    chosen = chosen_entries(rounded, prediction, xp=xp)
    rival = xp.max(xp.where(chosen, xp.zeros_like(rounded), rounded), axis=1)
    mass = xp.max(xp.where(chosen, rounded, xp.zeros_like(rounded)), axis=1)
    tied = mass <= rival
    if not bool(xp.any(tied)):
        return rounded
    raised = xp.where(tied, next_above(rival), mass)
    return xp.where(chosen, raised[:, None], rounded)


def rounding_margin(heaviest: float, dtype: DType) -> tuple[float, float]:
    """Return the factor and the summand by which w_a s must exceed w_j p_j to stay larger.

    Rounding p and w to ``dtype`` and multiplying them in it cannot reverse such an order: on both
    sides of the comparison a probability, a weight and their product are rounded, after a
    handful of roundings in float64.  ``heaviest`` is the largest weight.
    """
    name = dtype_name(dtype)
    slack = 2.0 * SMALLEST[name] * (1.0 + heaviest)
    return 1.0 + (8.0 * UNIT_ROUNDOFF[name] + 24.0 * UNIT_ROUNDOFF["float64"]), slack


def enforce_rule(rounded: Array, prediction: Array, class_weights: Array) -> Array:
    """Make the prediction strictly the argmax of w · p after rounding to a narrow dtype.

    It holds with w and the products in the wide dtype, and with both in the dtype of the rows.
    The prediction rises by up to eight representable numbers; where that does not suffice, or it
    holds more than half of the mass already, its rivals fall instead.
    """
    xp = namespace(rounded)
    chosen = chosen_entries(rounded, prediction, xp=xp)
    # Twice, in the wide and in the narrow dtype: the rivals' weights and those of the predictions.
    weights = []
    for dtype in (class_weights.dtype, rounded.dtype):
        spread = xp.zeros_like(rounded, dtype=dtype) + xp.astype(class_weights, dtype)[None, :]
        weights.append((dtype, *take_out(spread, prediction, xp=xp)))

    def products(mass: Array) -> list[Array]:
        return [xp.astype(mass, dtype) * own for dtype, own, _ in weights]

    def rivals(rows: Array) -> list[Array]:
        return [xp.astype(rows, dtype) * others for dtype, _, others in weights]

    tops = [xp.max(product, axis=1) for product in rivals(rounded)]

    def is_first(mass: Array) -> Array:
        wide, narrow = (own > top for own, top in zip(products(mass), tops, strict=True))
        return wide & narrow

    supplied = xp.max(xp.where(chosen, rounded, xp.zeros_like(rounded)), axis=1)
    mass = supplied
    for _ in range(RAISED_STEPS):
        mass = xp.where(is_first(mass) | (supplied > 0.5), mass, next_above(mass))
    raised = is_first(mass)
    rows = xp.where(chosen, xp.where(raised, mass, supplied)[:, None], rounded)
    bounds = [own[:, None] for own in products(supplied)]
    lowered = ~chosen & ~raised[:, None]
    while True:
        wide, narrow = (rival >= bound for rival, bound in zip(rivals(rows), bounds, strict=True))
        high = lowered & (wide | narrow) & (rows > 0.0)
        if not bool(xp.any(high)):
            return rows
        rows = xp.where(high, next_below(rows), rows)


def next_above(values: Array) -> Array:
    """Return the next representable number above each non-negative entry."""
    xp = namespace(values)
    if array_api_compat.is_torch_array(values) and values.element_size() == 2:
        # torch has no nextafter for half precision; the bits of non-negative floats count up.
        return (values.view(xp.int16) + 1).view(values.dtype)
    return xp.nextafter(values, xp.ones_like(values))


def next_below(values: Array) -> Array:
    """Return the representable number below each positive entry; zero stays."""
    xp = namespace(values)
    if array_api_compat.is_torch_array(values) and values.element_size() == 2:
        below = (values.view(xp.int16) - 1).view(values.dtype)
        return xp.where(values > 0.0, below, values)
    return xp.nextafter(values, xp.zeros_like(values))
