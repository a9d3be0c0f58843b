"""A slow scalar twin of CORD, written from the equations in 60-digit decimals.

It shares nothing with the package: no arrays, no complements carried along, no
grid, no exact integer sums.  With sixty digits it does not need any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext

DIGITS = 60
EPSILON = Decimal("1e-12")
DELTA = Decimal("1e-10")


@dataclass(frozen=True)
class Row:
    prediction: int
    b: Decimal
    g: Decimal
    alpha: list[Decimal]
    lower: Decimal
    upper: Decimal


def argmax(values: Sequence[float]) -> int:
    best = 0
    for index, value in enumerate(values):
        if value > values[best]:
            best = index
    return best


def simplex(values: Sequence[float | Decimal]) -> list[Decimal]:
    """The normalised row, mixed with the uniform one if it has an exact zero."""
    exact = [x if isinstance(x, Decimal) else Decimal(float(x)) for x in values]
    total = sum(exact)
    row = [value / total for value in exact]
    if any(value == 0 for value in exact):
        row = [(1 - DELTA) * value + DELTA / len(row) for value in row]
    return row


def describe(
    original: Sequence[float],
    direct: Sequence[float],
    prediction: int | None = None,
    weight: Decimal = Decimal("0.5"),
    rule: Sequence[float] | None = None,
) -> Row:
    """The row under the prediction rule with these class weights, by default equal ones."""
    a = argmax(original) if prediction is None else prediction
    w = [Decimal(1)] * len(direct) if rule is None else [Decimal(float(x)) for x in rule]
    p = simplex([Decimal(float(x)) / y for x, y in zip(original, w, strict=True)])
    q = simplex(direct)
    b = q[a]
    rest = sum(value for index, value in enumerate(q) if index != a)
    alpha = [value / rest if index != a else Decimal(0) for index, value in enumerate(q)]
    # What stabilisation adds to an entry counts with the largest weight.
    added = DELTA / len(q) / rest if any(value == 0 for value in direct) else Decimal(0)
    rivals = [w[index] * (value - added) for index, value in enumerate(alpha) if index != a]
    rho = (max(rivals) + max(w) * added) / w[a]
    # Ties and the order of products are those of float64, in which rules are applied.
    unchanged = argmax([float(x) * float(y) for x, y in zip(direct, w, strict=True)]) == a
    g = b if unchanged else weight * b + (1 - weight) * p[a]
    return Row(a, b, g, alpha, rho / (1 + rho) + EPSILON, 1 - EPSILON)


def interior(g: Decimal, eta: Decimal) -> Decimal:
    """The root in (0, 1) of (s - g) / (s (1 - s)) = eta."""
    if eta == 0:
        return g
    radius = ((eta - 1) ** 2 + 4 * eta * g).sqrt()
    return (eta - 1 + radius) / (2 * eta)


def psi(row: Row, eta: Decimal) -> Decimal:
    return min(max(interior(row.g, eta), row.lower), row.upper)


def shared_scalar(rows: Sequence[Row], weights: Sequence[float | Decimal] | None = None) -> Decimal:
    """Nearest-zero solution by plain bisection to 40 digits."""
    w = [Decimal(1)] * len(rows) if weights is None else [Decimal(x) for x in weights]

    def total(values: Sequence[Decimal]) -> Decimal:
        return sum((x * y for x, y in zip(w, values, strict=True)), Decimal(0))

    low = total([row.lower for row in rows])
    high = total([row.upper for row in rows])
    target = min(max(total([row.b for row in rows]), low), high)
    # Sixty digits carry rounding noise of their own; forty are compared.
    noise = Decimal("1e-40")

    def excess(eta: Decimal) -> Decimal:
        difference = total([psi(row, eta) for row in rows]) - target
        return Decimal(0) if abs(difference) < noise else difference

    start = excess(Decimal(0))
    if start == 0:
        return Decimal(0)
    sign = 1 if start < 0 else -1
    near, far = Decimal(0), Decimal(1)
    while sign * excess(sign * far) < 0:
        far *= 2
    for _ in range(130):
        middle = (near + far) / 2
        if sign * excess(sign * middle) >= 0:
            far = middle
        else:
            near = middle
    return sign * far


def repair(row: Row, eta: Decimal) -> list[Decimal]:
    s = psi(row, eta)
    return [s if j == row.prediction else (1 - s) * a for j, a in enumerate(row.alpha)]


def construct(
    original: Sequence[Sequence[float]],
    direct: Sequence[Sequence[float]],
    *,
    prediction: Sequence[int] | None = None,
    weights: Sequence[float] | None = None,
    rule: Sequence[float] | None = None,
) -> Decimal:
    with localcontext(prec=DIGITS):
        keep = [None] * len(direct) if prediction is None else prediction
        rows = [
            describe(p, q, a, rule=rule) for p, q, a in zip(original, direct, keep, strict=True)
        ]
        return shared_scalar(rows, None if weights is None else list(map(float, weights)))


def transform(
    original: Sequence[Sequence[float]],
    direct: Sequence[Sequence[float]],
    eta: float,
    *,
    prediction: Sequence[int] | None = None,
    rule: Sequence[float] | None = None,
) -> list[list[Decimal]]:
    with localcontext(prec=DIGITS):
        keep = [None] * len(direct) if prediction is None else prediction
        return [
            repair(describe(p, q, a, rule=rule), Decimal(eta))
            for p, q, a in zip(original, direct, keep, strict=True)
        ]


def mean_step(eta: float) -> float:
    """Return how far one step of the scalar's grid can move a response, and so their mean.

    A step is 2^-47 max(1, |η|).  The slope s(1 − s)/radius of a response is at most 1/2 up to
    |η| = 1 and at most 1/η² beyond, where references near zero or one reach it.
    """
    size = abs(eta)
    return 2.0**-48 if size <= 1.0 else 2.0**-47 / size
