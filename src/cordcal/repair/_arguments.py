"""The arguments of a repair: pairs of reports, batches of them, and arrays to write to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal import arrays

_OUTPUT_DTYPES = (np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16))


def report_pair(original: Any, direct: Any, *, allow_row: bool = False) -> tuple[Any, Any]:
    """Return both reports as arrays of one shape and one library."""
    p = arrays.as_matrix(original, "original", allow_row=allow_row)
    q = arrays.as_matrix(direct, "direct", allow_row=allow_row)
    arrays.check_same_shape(p, "original", q, "direct")
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
            raise ValueError(
                f"a batch has {len(batch)} entries; pass pairs (original, direct), or mappings "
                f"with the keys {', '.join(names)}"
            )
        return dict(zip(names, batch, strict=False))
    unknown = sorted(set(batch) - set(names))
    if unknown or not {"original", "direct"} <= set(batch):
        raise ValueError(
            f"a batch has the keys {', '.join(map(repr, batch))}; pass original and direct, and if "
            f"wanted decision and sample_weight"
        )
    return dict(batch)


def output_array(
    direct: npt.NDArray[Any],
    dtype: npt.DTypeLike | None,
    out: npt.NDArray[Any] | None,
    single: bool,
) -> npt.NDArray[Any]:
    """Return the (n, K) array to write to, which may be a view of ``out``."""
    if dtype is not None and np.dtype(dtype) not in _OUTPUT_DTYPES:
        raise ValueError(f"dtype {np.dtype(dtype)} is not served; use float64, float32 or float16")
    if out is None:
        return np.empty(direct.shape, dtype=direct.dtype if dtype is None else dtype)
    expected = direct.shape[1:] if single else direct.shape
    if not isinstance(out, np.ndarray) or out.shape != expected:
        found = getattr(out, "shape", type(out).__name__)
        raise ValueError(f"out has shape {found}; pass an ndarray of shape {expected}")
    wanted = out.dtype if dtype is None else np.dtype(dtype)
    if out.dtype not in _OUTPUT_DTYPES or out.dtype != wanted:
        raise ValueError(
            f"out has dtype {out.dtype}; pass one of float64, float32 or float16"
            + ("" if dtype is None else f" that equals dtype={wanted}")
        )
    if not out.flags.writeable:
        raise ValueError("out is read-only; pass a writeable array")
    return out[None, :] if single else out


def same_array(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> bool:
    """Whether two arrays are one and the same memory, entry for entry."""
    return x.__array_interface__["data"][0] == y.__array_interface__["data"][0] and (
        (x.shape, x.strides, x.dtype) == (y.shape, y.strides, y.dtype)
    )
