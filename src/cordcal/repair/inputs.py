"""Check the arguments of a repair: pairs of probabilities, batches, and output arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import array_api_compat
import numpy as np
import numpy.typing as npt

from cordcal._errors import InputError
from cordcal._numeric import arrays
from cordcal._numeric.types import Array, Decisions
from cordcal._validation.labels import check_decisions
from cordcal._validation.names import column_names, in_column_order
from cordcal._validation.scores import as_matrix, check_same_shape
from cordcal.repair.results import Construction, LiftConstruction, RankingConstruction

_OUTPUT_DTYPES = (np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16))


def check_pair(original: Any, direct: Any, *, allow_row: bool = False) -> tuple[Any, Any]:
    """Return original and direct probabilities as arrays of one shape and one library."""
    p = as_matrix(original, "original", allow_row=allow_row)
    direct = in_column_order(direct, "direct", column_names(original), "original")
    q = as_matrix(direct, "direct", allow_row=allow_row)
    check_same_shape(p, "original", q, "direct")
    arrays.namespace(p, q)
    if isinstance(p, np.ndarray) != isinstance(q, np.ndarray):
        raise TypeError(
            f"original is a {type(p).__name__} and direct a {type(q).__name__}; pass one kind"
        )
    return p, q


def batch_arguments(batch: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch's arguments by name."""
    names = ("original", "direct", "decision", "sample_weight")
    if not isinstance(batch, Mapping):
        if len(batch) not in (2, 3, 4):
            raise InputError(
                "batches",
                f"has a batch with {len(batch)} entries",
                f"pass pairs (original, direct), or mappings with the keys {', '.join(names)}",
            )
        return dict(zip(names, batch, strict=False))
    unknown = sorted(set(batch) - set(names))
    if unknown or not {"original", "direct"} <= set(batch):
        raise InputError(
            "batches",
            f"has a batch with the keys {', '.join(map(repr, batch))}",
            "pass original and direct, and optionally decision and sample_weight",
        )
    return dict(batch)


def output_dtype(direct: Array, dtype: Any) -> Any:
    """Return the output dtype as a dtype of the library of ``direct``."""
    name = arrays.dtype_name(dtype)
    xp = arrays.namespace(direct)
    supported = [str(output) for output in _OUTPUT_DTYPES]
    if array_api_compat.is_torch_array(direct):
        supported.append("bfloat16")
    if name not in supported or not hasattr(xp, name):
        choices = f"{', '.join(supported[:-1])} or {supported[-1]}"
        raise InputError("dtype", f"{name} is not supported", f"use {choices}")
    return np.dtype(name) if xp is np else getattr(xp, name)


def output_array(
    direct: npt.NDArray[Any],
    dtype: Any,
    out: npt.NDArray[Any] | None,
    single: bool,
) -> npt.NDArray[Any]:
    """Return the (n, K) array to write to, which may be a view of ``out``."""
    if dtype is not None:
        dtype = output_dtype(direct, dtype)
    if out is None:
        return np.empty(direct.shape, dtype=direct.dtype if dtype is None else dtype)
    expected = direct.shape[1:] if single else direct.shape
    if not isinstance(out, np.ndarray) or out.shape != expected:
        shape = getattr(out, "shape", type(out).__name__)
        raise InputError("out", f"has shape {shape}", f"pass an ndarray of shape {expected}")
    required = out.dtype if dtype is None else dtype
    if out.dtype not in _OUTPUT_DTYPES or out.dtype != required:
        matching = "" if dtype is None else f" that equals dtype={required}"
        raise InputError(
            "out",
            f"has dtype {out.dtype}",
            f"pass one of float64, float32 or float16{matching}",
        )
    if not out.flags.writeable:
        raise InputError("out", "is read-only", "pass a writeable array")
    return out[None, :] if single else out


def same_array(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> bool:
    """Whether two arrays are views of the same memory, entry for entry."""
    return x.__array_interface__["data"][0] == y.__array_interface__["data"][0] and (
        (x.shape, x.strides, x.dtype) == (y.shape, y.strides, y.dtype)
    )


def check_fitted(repair: Any) -> None:
    """Raise an error unless the repair is fitted."""
    if not hasattr(repair, "construction_"):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(
            f"this {type(repair).__name__} is not fitted yet; call fit(original, direct) first"
        )


def check_against_fit(
    construction: Construction | RankingConstruction | LiftConstruction,
    direct: Array,
    decision: Any,
) -> Decisions | None:
    """Check rows and decisions against those of the fit; return the decisions."""
    rows, classes = direct.shape
    if classes != construction.n_classes:
        raise InputError(
            "direct",
            f"has {classes} classes but fit saw {construction.n_classes}",
            "pass the same columns as in fit",
        )
    if decision is None:
        if construction.decision_given:
            raise InputError(
                "decision",
                "is missing: fit had decision=, so transform needs it too",
                "pass decision=",
            )
        return None
    return check_decisions(decision, rows, classes)
