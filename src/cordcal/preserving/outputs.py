"""What a model returns: both sets of probabilities, and in which dtype."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric.arrays import dtype_name
from cordcal._numeric.types import ArrayLike, Arrays, Floats, NumPyDType, Predictions


@dataclass(frozen=True, eq=False)
class Outputs:
    """The direct and the repaired probabilities of the same rows, and the predictions.

    Attributes
    ----------
    direct : array of shape (n, K)
        The calibrator's own probabilities, in its own dtype.
    repaired : array of shape (n, K)
        The repaired probabilities, whose argmax is the prediction in every row; under a rule,
        the largest weight times probability is.
    prediction : array of int of shape (n,)
        The classifier's predictions, as column indices.
    """

    direct: Floats
    repaired: Floats
    prediction: Predictions

    def to_dict(self) -> Arrays:
        """Return the arrays by name."""
        return {"direct": self.direct, "repaired": self.repaired, "prediction": self.prediction}


def output_dtype(dtype: npt.DTypeLike | None, scores: ArrayLike) -> NumPyDType:
    """Return the dtype of the repaired probabilities: the one asked for, or that of the scores."""
    requested = getattr(scores, "dtype", np.float64) if dtype is None else dtype
    if dtype is not None and "float" not in dtype_name(dtype):
        raise InputError("dtype", f"is {dtype!r}", "pass float64, float32 or float16")
    if isinstance(requested, np.dtype) and requested.kind == "f" and requested.itemsize <= 8:
        return requested
    name = dtype_name(requested)
    # NumPy has no bfloat16; scores may be whole numbers.
    return np.dtype({"bfloat16": "float32"}.get(name, name if "float" in name else "float64"))
