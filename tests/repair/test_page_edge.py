"""The kernels read whole vectors of entries, and yet nothing beyond an array's last one."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import pytest

from cordcal import CORD


@pytest.mark.skipif(sys.platform != "linux", reason="uses Linux' mprotect")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("classes", [2, 7, 10, 13])
def test_rows_that_end_at_a_forbidden_page(dtype: str, classes: int) -> None:
    rng = np.random.default_rng(classes)
    original, direct = rng.dirichlet(np.ones(classes), size=(2, 5)).astype(dtype)
    expected = CORD().fit(original, direct).transform(original, direct)
    size = original.nbytes
    memory = [mmap.mmap(-1, 2 * mmap.PAGESIZE) for _ in range(3)]
    libc = ctypes.CDLL(None, use_errno=True)
    at_edge = []
    for block in memory:
        start = ctypes.addressof(ctypes.c_char.from_buffer(block))
        assert libc.mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
        view = np.frombuffer(block, dtype, original.size, offset=mmap.PAGESIZE - size)
        at_edge.append(view.reshape(original.shape))
    p, q, out = at_edge
    p[...], q[...] = original, direct
    np.testing.assert_array_equal(CORD().fit(p, q).transform(p, q, out=out), expected)
