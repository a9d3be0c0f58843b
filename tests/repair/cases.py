"""Pairs of original and direct reports that CORD must get right, by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Case:
    original: np.ndarray
    direct: np.ndarray
    prediction: np.ndarray | None = None


def softmax(scores: np.ndarray) -> np.ndarray:
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def random_pair(rows: int, classes: int, *, noise: float = 1.0, seed: int = 0) -> Case:
    rng = np.random.default_rng([rows, classes, seed])
    scores = 2.0 * rng.normal(size=(rows, classes))
    moved = scores * rng.uniform(0.5, 1.5, classes) + noise * rng.normal(size=classes)
    return Case(softmax(scores), softmax(moved))


def with_zeros(case: Case, share: float = 0.3) -> Case:
    """Zero entries of either report, never a whole row."""
    rng = np.random.default_rng(5)
    made = []
    for report in (case.original, case.direct):
        zeroed = np.where(rng.random(report.shape) < share, 0.0, report)
        empty = zeroed.sum(axis=1) == 0.0
        zeroed[empty] = report[empty]
        made.append(zeroed / zeroed.sum(axis=1, keepdims=True))
    return Case(*made)


def _rows(*rows: list[float]) -> np.ndarray:
    return np.array(rows, dtype=np.float64)


def build() -> dict[str, Case]:
    plain = random_pair(40, 5)
    same = random_pair(30, 6).original
    rng = np.random.default_rng(9)
    eye = np.eye(4)
    tiny = 5e-324
    return {
        "random K=5": plain,
        "random K=10": random_pair(60, 10),
        "random K=8": random_pair(30, 8, noise=3.0),
        "random K=17": random_pair(30, 17, noise=2.0),
        "random K=130": random_pair(12, 130),
        "K=2": random_pair(50, 2),
        "one kept row": Case(_rows([0.6, 0.3, 0.1]), _rows([0.7, 0.2, 0.1])),
        "one changed row": Case(_rows([0.6, 0.3, 0.1]), _rows([0.2, 0.7, 0.1])),
        "all kept": Case(same, softmax(np.log(same) * 0.5)),
        "identical": Case(same, same),
        "all changed": Case(same, np.roll(same, 1, axis=1)),
        "boundary rows": with_zeros(random_pair(40, 6)),
        "mostly zeros": with_zeros(random_pair(40, 12, noise=3.0), 0.7),
        "one-hot direct": Case(random_pair(8, 4).original, eye[rng.integers(0, 4, 8)]),
        "one-hot both, agreeing": Case(eye, eye),
        "one-hot both, disagreeing": Case(eye, eye[::-1].copy()),
        "saturated": Case(
            _rows([1.0 - 1e-15, 5e-16, 5e-16], [1e-13, 1.0 - 2e-13, 1e-13], [0.5, 0.3, 0.2]),
            _rows([1.0 - 2e-14, 1e-14, 1e-14], [1e-15, 1.0 - 2e-15, 1e-15], [0.4, 0.5, 0.1]),
        ),
        "all above the upper bound": Case(
            _rows([0.9, 0.1], [0.8, 0.2]), _rows([1.0 - 1e-14, 1e-14], [1.0 - 2e-14, 2e-14])
        ),
        "subnormal tails": Case(
            _rows([1.0, tiny, tiny], [1.0, 1e-310, 3e-320], [0.2, 0.5, 0.3]),
            _rows([1.0, tiny, 2 * tiny], [1.0, 1e-320, 1e-300], [0.3, 0.4, 0.3]),
        ),
        "uniform direct": Case(random_pair(10, 5).original, np.full((10, 5), 0.2)),
        "uniform both": Case(np.full((6, 4), 0.25), np.full((6, 4), 0.25)),
        "ties at the top": Case(
            _rows([0.4, 0.4, 0.2], [0.2, 0.4, 0.4], [0.3, 0.4, 0.3]),
            _rows([0.2, 0.4, 0.4], [0.4, 0.4, 0.2], [0.4, 0.4, 0.2]),
        ),
        # Kept rows inside their intervals and changed rows that clip: flat stretches of
        # the mean response between the rows' edges.
        "plateau": Case(
            _rows([0.9, 0.1], [0.9, 0.1], [0.1, 0.9]),
            _rows([1.0 - 1e-13, 1e-13], [1e-3, 0.999], [1.0 - 1e-13, 1e-13]),
        ),
        "prediction given": Case(
            plain.original, plain.direct, np.random.default_rng(3).integers(0, 5, 40)
        ),
        "not quite normalised": Case(plain.original * (1 + 4e-6), plain.direct * (1 - 7e-6)),
    }


CASES = build()
