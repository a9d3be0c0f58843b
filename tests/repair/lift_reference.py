"""A slow twin of Lift, written from its definition in decimals; see ``reference.py``."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext

from reference import describe

# Logarithms of sixty digits are slow, and doubles are compared.
DIGITS = 34
ONE = Decimal(1)


def masses(original: Sequence[float], direct: Sequence[float], a: int) -> tuple[Decimal, Decimal]:
    # The complement of a mass next to one is a difference: 700 digits leave it some.
    with localcontext(prec=700):
        row = describe(original, direct, a)
        return row.b, ONE - row.b


def confidence(curve: Sequence[float], b: Decimal, rest: Decimal) -> Decimal:
    alpha, beta, gamma = map(Decimal, curve)
    z = alpha * b.ln() - beta * rest.ln() + gamma
    return ONE / (ONE + (-z).exp())


def gradient(
    curve: Sequence[float],
    rows: Sequence[tuple[Decimal, Decimal, bool]],
    weights: Sequence[float] | None,
    ridge: float,
) -> list[Decimal]:
    """The slope of the penalised loss in the three numbers."""
    with localcontext(prec=DIGITS):
        w = [ONE] * len(rows) if weights is None else [Decimal(float(x)) for x in weights]
        identity = (ONE, ONE, Decimal(0))
        slope = [
            Decimal(ridge) * (Decimal(x) - one) for x, one in zip(curve, identity, strict=True)
        ]
        for (b, rest, right), weight in zip(rows, w, strict=True):
            error = weight * (confidence(curve, b, rest) - (1 if right else 0))
            for at, column in enumerate((b.ln(), -rest.ln(), ONE)):
                slope[at] += error * column
        return slope


def transform(
    original: Sequence[float], direct: Sequence[float], curve: Sequence[float]
) -> list[Decimal]:
    """One row by the rule ``raise``."""
    with localcontext(prec=DIGITS):
        row = describe(original, direct)
        s = min(
            max(confidence(curve, *masses(original, direct, row.prediction)), row.lower), row.upper
        )
        return [s if j == row.prediction else (ONE - s) * a for j, a in enumerate(row.alpha)]


def water_filled(shares: Sequence[float], cap: Decimal, total: Decimal) -> list[Decimal]:
    """min(c·share, cap) with c found by bisection."""
    with localcontext(prec=DIGITS):
        exact = [Decimal(float(share)) for share in shares]
        low, high = Decimal(0), Decimal(10) ** 40
        for _ in range(400):
            middle = (low + high) / 2
            if sum(min(middle * share, cap) for share in exact) < total:
                low = middle
            else:
                high = middle
        return [min(high * share, cap) for share in exact]
