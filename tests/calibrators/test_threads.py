"""Every fit gives the same bits whatever number of threads BLAS may use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import hashlib
import warnings

from threadpoolctl import threadpool_info

import cordcal
from cordcal.cli.demo import _CALIBRATION, _scores

warnings.simplefilter("ignore")  # some searches say that the rows are separable
scores, labels = _scores()
assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == THREADS
for key in cordcal.calibrators.available():
    if not cordcal.calibrators.calibrator_class(key).needs_torch:  # held to one thread in training
        model = cordcal.Preserved(key).fit(scores[:_CALIBRATION], labels[:_CALIBRATION])
        found = model.reports(scores[_CALIBRATION:])
        print(key, *(hashlib.sha256(rows).hexdigest() for rows in (found.direct, found.repaired)))
"""


def fitted_with(threads: int) -> dict[str, list[str]]:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("THREADS", f"{{{threads}}}")],
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


def test_the_demo_fits_the_same_with_one_thread_and_with_two() -> None:
    alone = fitted_with(1)
    assert "ms" in alone
    assert fitted_with(2) == alone
