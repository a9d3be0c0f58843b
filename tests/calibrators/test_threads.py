"""Every fit gives the same bits whatever number of threads BLAS may use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import one_of_each_family

# BLAS shares out products of this size; those of a few hundred rows and ten classes it does not.
SCRIPT = """
import hashlib
import sys
import warnings
from contextlib import nullcontext

import numpy as np
from threadpoolctl import threadpool_info

import cordcal
from cordcal.calibrators import _base

warnings.simplefilter("ignore")  # some searches say that the rows are separable
threads, keys = int(sys.argv[1]), sys.argv[2:]
rng = np.random.default_rng(0)
labels = rng.integers(30, size=3000)
scores = 2.0 * np.eye(30)[labels] + rng.normal(size=(3000, 30))
pools = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
assert pools == {threads}, pools


def digests(key):
    model = cordcal.PreservingCalibrator(key).fit(scores[:2500], labels[:2500])
    outputs = model.predict_both(scores[2500:])
    return [hashlib.sha256(rows).hexdigest() for rows in (outputs.direct, outputs.repaired)]


for key in keys:
    print(key, *digests(key))
_base.one_blas_thread = nullcontext
print("unlimited", *digests("ms"))
"""


def fitted_with(threads: int, keys: list[str]) -> dict[str, list[str]]:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(threads), *keys],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
            **dict.fromkeys(names, str(threads)),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return {key: digests for key, *digests in lines}


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_fits_are_the_same_with_one_thread_and_with_two(every: bool) -> None:
    from cordcal.calibrators import available, calibrator_class

    # Networks are held to one thread in training.
    keys = [key for key in available() if calibrator_class(key).extra is None]
    if not every:
        keys = one_of_each_family()
    alone, shared = fitted_with(1, keys), fitted_with(2, keys)
    assert set(keys) < set(alone)
    power = alone.pop("unlimited") != shared.pop("unlimited")
    assert shared == alone
    if not power:
        pytest.skip("this BLAS gives the same bits with two threads, limited or not")
