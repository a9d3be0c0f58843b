"""The nested rule, slowly: scalars in 60-digit decimals, one row and one level at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext

import reference
from reference import EPSILON


@dataclass
class Nest:
    order: list[int]
    p: list[Decimal]
    q: list[Decimal]
    supplied: list[float]


def nest(original: Sequence[float], direct: Sequence[float], prediction: int | None) -> Nest:
    order = sorted(range(len(original)), key=lambda j: (-original[j], j))
    if prediction is not None:
        order.remove(prediction)
        order.insert(0, prediction)
    return Nest(order, reference.simplex(original), reference.simplex(direct), list(direct))


def level_row(row: Nest, level: int, levels: int, inside: Decimal | None) -> tuple:
    """(weight, Row) of one level; ``inside`` is the repaired mass of the next level."""
    current, later = row.order[level], row.order[level + 1 :]
    whole = sum(row.q[j] for j in row.order[level:])
    b = row.q[current] / whole
    p_whole = sum(row.p[j] for j in row.order[level:])
    if level == levels - 1:
        rho = max(row.q[j] for j in later) / sum(row.q[j] for j in later)
        top = max(row.supplied[j] for j in later)
        first = min(j for j in later if row.supplied[j] == top)
        mine = row.supplied[current]
        unchanged = mine > top or (mine == top and current < first)
    else:
        rho = inside
        rival = (1 - b) * inside
        # Sixty digits carry noise of their own; doubles tie at sixteen.
        close = abs(rival - b) < Decimal("1e-15") * b
        unchanged = current < row.order[level + 1] if close else b > rival
    g = b if unchanged else (b + row.p[current] / p_whole) / 2
    lower = rho / (1 + rho) + EPSILON
    return whole, reference.Row(current, b, g, [], lower, 1 - EPSILON)


def construct(original, direct, levels: int, prediction=None, weights=None) -> list[Decimal]:  # type: ignore[no-untyped-def]
    with localcontext(prec=reference.DIGITS):
        keep = [None] * len(direct) if prediction is None else prediction
        nests = [nest(p, q, a) for p, q, a in zip(original, direct, keep, strict=True)]
        sample = (
            [Decimal(1)] * len(nests) if weights is None else [Decimal(float(w)) for w in weights]
        )
        inside: list[Decimal | None] = [None] * len(nests)
        etas: list[Decimal] = []
        for level in range(levels - 1, -1, -1):
            described = [level_row(r, level, levels, s) for r, s in zip(nests, inside, strict=True)]
            mass = [w * m for w, (m, _) in zip(sample, described, strict=True)]
            rows = [row for _, row in described]
            eta = reference.shared_scalar(rows, mass)
            inside = [reference.psi(row, eta) for row in rows]
            etas.insert(0, eta)
        return etas


def transform(original, direct, etas: Sequence[float], prediction=None) -> list[list[Decimal]]:  # type: ignore[no-untyped-def]
    with localcontext(prec=reference.DIGITS):
        keep = [None] * len(direct) if prediction is None else prediction
        made = []
        levels = len(etas)
        for p, q, a in zip(original, direct, keep, strict=True):
            row = nest(p, q, a)
            inside, masses = None, []
            for level in range(levels - 1, -1, -1):
                _, described = level_row(row, level, levels, inside)
                inside = reference.psi(described, Decimal(float(etas[level])))
                masses.insert(0, inside)
            repaired = [Decimal(0)] * len(p)
            remaining = Decimal(1)
            for level, mass in enumerate(masses):
                repaired[row.order[level]] = remaining * mass
                remaining *= 1 - mass
            later = row.order[levels:]
            total = sum(row.q[j] for j in later)
            for j in later:
                repaired[j] = remaining * row.q[j] / total
            made.append(repaired)
        return made
