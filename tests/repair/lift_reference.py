"""A slow twin of Lift, written from its definition in decimals; see ``reference.py``."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext

from reference import describe

DIGITS = 60
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
    original: Sequence[float],
    direct: Sequence[float],
    curve: Sequence[float],
    prefer: str,
    rule: Sequence[float] | None = None,
    margin: tuple[float, float] = (0.0, 1.01e-4),
) -> list[Decimal]:
    """One row: the curve's confidence, pooled, and what keeps the prediction at the bound."""
    with localcontext(prec=DIGITS):
        row = describe(original, direct, rule=rule)
        a, classes = row.prediction, len(row.alpha)
        w = [ONE] * classes if rule is None else [Decimal(float(x)) for x in rule]
        share, slack = map(Decimal, margin)
        alpha, beta, gamma, pooled_below, pooled = curve
        s = confidence((alpha, beta, gamma), *masses(original, direct, a))
        smallest = least(w, a, share, slack)
        if s <= Decimal(pooled_below):
            s = Decimal(pooled)
        s = min(s, row.upper)
        lifted = [(ONE - s) * x for x in row.alpha]
        if all(w[j] * lifted[j] <= w[a] * s * (ONE - share) - slack for j in others(a, classes)):
            result = lifted
        elif prefer == "likelihood":
            s, result = projected(lifted, s, a, w, share, slack)
        else:
            s = max(s, smallest)
            lifted = [(ONE - s) * x for x in row.alpha]
            result = capped(lifted, s, a, w, share, slack)
        return [s if j == a else x for j, x in enumerate(result)]


def others(a: int, classes: int) -> list[int]:
    return [j for j in range(classes) if j != a]


def least(w: Sequence[Decimal], a: int, share: Decimal, slack: Decimal) -> Decimal:
    """The s at which classes in steps of one percent below it sum to 1 − s."""
    step = Decimal("0.01")
    capacity = (ONE - step) * sum(ONE / w[j] for j in others(a, len(w))) + step / max(w)
    return (ONE + slack * capacity) / (ONE + (ONE - share) * w[a] * capacity)


def projected(
    lifted: Sequence[Decimal],
    s: Decimal,
    a: int,
    w: Sequence[Decimal],
    share: Decimal,
    slack: Decimal,
) -> tuple[Decimal, list[Decimal]]:
    """Pool the prediction with its largest rival until it is on top of the next one."""
    result, mass, level, inverse = list(lifted), s, s, Decimal(0)
    rivals = sorted(others(a, len(w)), key=lambda j: -w[j] * lifted[j])
    pooled: list[int] = []
    for j in rivals:
        if w[j] * lifted[j] <= w[a] * level * (ONE - share) - slack:
            break
        pooled.append(j)
        mass += lifted[j]
        inverse += ONE / w[j]
        level = (mass + slack * inverse) / (ONE + w[a] * (ONE - share) * inverse)
    for j in pooled:
        result[j] = (w[a] * level * (ONE - share) - slack) / w[j]
    return level, result


def capped(
    lifted: Sequence[Decimal],
    s: Decimal,
    a: int,
    w: Sequence[Decimal],
    share: Decimal,
    slack: Decimal,
) -> list[Decimal]:
    """min(c·p_j, cap_j) with c found by bisection."""
    largest = max(w[j] * lifted[j] for j in others(a, len(w)))
    step, top = Decimal("0.01"), w[a] * s * (ONE - share) - slack
    caps = [top * (ONE - step + step * w[j] * x / largest) / w[j] for j, x in enumerate(lifted)]
    low, high = Decimal(0), Decimal(10) ** 40
    for _ in range(400):
        middle = (low + high) / 2
        filled = [min(middle * x, cap) for x, cap in zip(lifted, caps, strict=True)]
        if sum(filled[j] for j in others(a, len(w))) < ONE - s:
            low = middle
        else:
            high = middle
    return [min(high * x, cap) for x, cap in zip(lifted, caps, strict=True)]
