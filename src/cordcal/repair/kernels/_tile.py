"""The layout of a tile's scratch space.

It is one flat array with a stretch of `TILE` doubles for each quantity: LLVM vectorises
loops over stretches a constant distance apart, and gives up on that many separate arrays,
which might overlap.
"""

from __future__ import annotations

import numpy as np

# Rows of a tile: 64 amortise the phases.
TILE = 64

# How many rows one call of a kernel may sum up exactly (see ``_sums.py``).
SUM_ROWS = 2**15

(
    MASS,
    REST,
    TOP,
    LEAST,
    P_SUM,
    P_LEAST,
    P_MASS,
    P_REST,
    B,
    B_REST,
    G,
    G_REST,
    LOWER,
    SCALE,
    FACTOR,
    OFFSET,
    S,
    S_REST,
    SLOPE,
    RIVAL,
    OWN,
) = (np.uintp(i * TILE) for i in range(21))

SIZE = 21 * TILE

# Where ``limits`` holds, with class weights, `rule.rounding_margin` and the largest weight.
MARGIN, SLACK, HEAVIEST = 4, 5, 6
