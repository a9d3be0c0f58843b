"""Type aliases for arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = Any
"""An array of any array-API library: NumPy, torch or JAX."""

Kind = Literal["logits", "probabilities"]
"""What the caller's scores are."""

Domain = Literal["logits", "shifted", "log-probabilities", "probabilities"]
"""What a calibrator's map takes; ``shifted`` logits have maximum 0 in every row."""

Floats = npt.NDArray[np.floating]
"""Scores or probabilities in their original dtype."""

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]

Classes = npt.NDArray[np.intp]
"""Class indices 0..K-1, one per row."""

Labels = Classes
Decisions = Classes
Parameters = Mapping[str, Array]
"""The fitted arrays of a calibrator by name, in the library that computes with them."""
