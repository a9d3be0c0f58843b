"""The kinds of attack, and the random numbers of each trial."""

from __future__ import annotations

import numpy as np

KINDS = {
    "rows": "rows in three dtypes",
    "files": "damaged files of all eight formats",
    "models": "hostile model files",
    "names": "commands with names that steer terminals",
    "kills": "kills, then run again",
    "races": "races of two writers",
    "rankings": "rows with two ranks or all of them kept",
    "lifts": "rows through Lift, for confidence and likelihood",
    "libraries": "rows as torch tensors and Dask arrays",
    "workers": "killed workers of a cluster",
    "encodings": "commands on terminals of other encodings",
    "streams": "commands with closed, full or abandoned streams",
    "indices": "calls with pandas indices and masks",
    "headings": "CSV files with odd headings, quotes and line ends",
    "parts": "parts with differing schemas and orders",
    "answers": "damaged answers of language models",
}
"""Each kind's module, and what it counts; new ones at the end, as places are seeds."""


def generator(kind: str, number: int) -> np.random.Generator:
    """Return the random numbers of a trial: the same for the same kind and number."""
    return np.random.default_rng([list(KINDS).index(kind), number])
