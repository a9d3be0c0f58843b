"""Hostile rows as torch tensors, bfloat16 among them, and as Dask arrays: what NumPy gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from attacks.promises import Rng, hold, in_order
from attacks.rows import nudged, report
from cordcal import CORD

ENTRIES = 20_000
DTYPES = ("float64", "float32", "float16", "bfloat16")


def trial(rng: Rng, folder: Path) -> int:
    """Repair some rows with torch and Dask."""
    import dask.array
    import torch

    classes = int(rng.choice([2, 3, 5, 10, 17, 64, 100]))
    rows = int(rng.integers(2, 2 + ENTRIES // classes))
    name = str(rng.choice(DTYPES))
    original, direct = (report(rng, rows, classes, np.dtype("float64")) for _ in range(2))
    if rng.random() < 0.3:
        direct = nudged(original, rng)
    tensors = [
        stored(torch.from_numpy(array), getattr(torch, name)) for array in (original, direct)
    ]
    preserve = min(int(rng.choice([1, 1, 2, 3])), classes - 1)
    cord = CORD(preserve).fit(*tensors)
    repaired = cord.transform(*tensors)
    hold(repaired.dtype == tensors[1].dtype, f"{repaired.dtype} came out of {name}")
    result, original_rows = repaired.double().numpy(), tensors[0].double().numpy()
    hold((result >= 0).all() and np.isfinite(result).all(), "no probabilities")
    # Half precision keeps the first rank strictly, and no other out of order.
    hold(
        in_order(result, original_rows, preserve, strict=name[-2:] != "16"),
        f"an order not kept, {name}",
    )
    if name != "bfloat16":
        plain = [tensor.numpy() for tensor in tensors]
        twin = CORD(preserve).fit(*plain)
        expected = twin.transform(*plain)
        # torch adds in another order: numbers within 1e-12, and one step of a narrow dtype.
        torch_rows = twin.transform(*tensors).double().numpy()
        spare = 1e-12 if name == "float64" else np.spacing(expected).astype(np.float64)
        hold((np.abs(torch_rows - expected) <= spare).all(), "torch's repaired rows differ")
        chunk = int(rng.integers(1, rows + 1))
        lazy = [dask.array.from_array(array, chunks=(chunk, -1)) for array in plain]
        if rows // chunk < 20:  # each chunk is a task of its own
            spread = CORD(preserve).fit(*lazy)
            hold(np.array_equal(spread.eta_, twin.eta_), "Dask's shared scalars differ")
            computed = spread.transform(*lazy).compute()
            hold(computed.tobytes() == expected.tobytes(), "Dask's repaired rows differ")
    return rows


def stored(tensor: Any, dtype: Any) -> Any:
    """Return a report in a dtype; rows that its rounding makes no distributions are certain."""
    import torch

    content = tensor.to(dtype)
    off = (content.double().sum(axis=1) - 1.0).abs() > 5e-4
    sure = torch.nn.functional.one_hot(tensor.argmax(axis=1), tensor.shape[1]).to(dtype)
    return torch.where(off[:, None], sure, content)
