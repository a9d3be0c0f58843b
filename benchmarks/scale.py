"""Throughput and memory on files of any size, against a plain copy of the same file.

    python benchmarks/scale.py              the sweep: 1e4 to 1e7 rows, K = 10, 100, 1000, and Dask
    python benchmarks/scale.py --large 4    one Parquet file of 4 GB at K = 1000

Files are made in a temporary folder and removed.  Every measured job is a process of its
own: its peak memory is what the system counted for it.  A copy reads the file's row groups
and writes them again with pyarrow alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import cordcal

GROUP = 8192
SIZES = (10**4, 10**5, 10**6, 10**7)

# A child's ru_maxrss begins at its parent's peak; the kernel's own mark of the process does not.
PEAK = """
import atexit, sys
status = "/proc/self/status"
atexit.register(lambda: sys.stderr.write(open(status).read().split("VmHWM:")[1].split()[0]))
"""
COPY = """
import sys, pyarrow.parquet as pq
file = pq.ParquetFile(sys.argv[1])
with pq.ParquetWriter(sys.argv[2], file.schema_arrow) as writer:
    for group in range(file.num_row_groups):
        writer.write_table(file.read_row_group(group))
"""
APPLY = "import sys; from cordcal.cli import main; sys.exit(main(sys.argv[1:]))"
DASK = """
import sys, time
import dask, dask.array as da, numpy as np
from distributed import Client, LocalCluster
import cordcal

def rows(block_info=None, classes=100):
    start, stop = block_info[None]["array-location"][0]
    rng = np.random.default_rng(start)
    values = rng.gamma(0.5, size=(stop - start, classes)) + 1e-9
    return values / values.sum(axis=1, keepdims=True)

if __name__ == "__main__":
    workers, n = int(sys.argv[1]), int(sys.argv[2])
    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster:
        with Client(cluster):
            chunks = ((n // 20,) * 20, (100,))
            p, q = (da.map_blocks(rows, chunks=chunks, dtype=float, meta=np.empty((0, 0)))
                    .persist() for _ in range(2))
            cordcal.CORD().fit(p[:n // 20], q[:n // 20])  # imported and connected
            start = time.perf_counter()
            cord = cordcal.CORD().fit(p, q[::-1])
            middle = time.perf_counter()
            cord.transform(p, q[::-1]).sum().compute()
            end = time.perf_counter()
            print(cord.construction_.passes, middle - start, end - middle, repr(cord.eta_))
"""


@dataclass(frozen=True)
class Run:
    """How long a process took, on all cores together, and how much memory it had at most."""

    seconds: float
    cpu: float
    megabytes: float


def run(code: str, *arguments: object) -> Run:
    """Run code in a process of its own."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", PEAK + code, *map(str, arguments)], stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(errors.decode())
    cpu = usage.ru_utime + usage.ru_stime
    return Run(time.perf_counter() - start, cpu, int(errors.split()[-1]) / 1024)


def make_scores(path: Path, rows: int, classes: int) -> None:
    """Write float32 logits as one column of fixed-size lists, in row groups."""
    rng = np.random.default_rng(0)
    kind = pa.list_(pa.float32(), classes)
    with pq.ParquetWriter(path, pa.schema({"logits": kind})) as writer:
        for start in range(0, rows, GROUP):
            shape = min(GROUP, rows - start), classes
            values = rng.standard_normal(shape, dtype=np.float32)
            values *= 3.0
            column = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), classes)
            writer.write_table(pa.table({"logits": column}))


def make_model(path: Path, classes: int) -> None:
    """Fit temperature scaling with CORD on a few rows."""
    rng = np.random.default_rng(1)
    labels = rng.integers(classes, size=2000)
    logits = 3.0 * rng.standard_normal((2000, classes), dtype=np.float32)
    logits[np.arange(2000), labels] += 4.0
    cordcal.save(cordcal.PreservingCalibrator("ts").fit(logits, labels), path)


def predictions_kept(scores: Path, output: Path) -> bool:
    """Whether every row of the output has its largest entry where the scores have it."""
    tops = []
    for path, role in ((scores, "scores"), (output, "repaired")):
        file = cordcal.files.open_scores(path, role=role)
        tops.append(np.concatenate([batch.values.argmax(axis=1) for batch in file]))
    return np.array_equal(*tops)


def measure(folder: Path, rows: int, classes: int, *, check: bool = False) -> tuple[Run, Run]:
    """Copy a file, and apply a model to it; print a line."""
    scores, output, model = folder / "s.parquet", folder / "o.parquet", folder / "m.safetensors"
    make_scores(scores, rows, classes)
    make_model(model, classes)
    copied = run(COPY, scores, folder / "copy.parquet")
    (folder / "copy.parquet").unlink()
    applied = run(APPLY, "apply", model, scores, "--output", output, "--force")
    checked = "" if not check else f"  predictions kept: {predictions_kept(scores, output)}"
    gigabytes = scores.stat().st_size / 1e9
    print(
        f"{rows:>11,} × {classes:<5} {gigabytes:6.2f} GB   copy {copied.seconds:7.2f} s "
        f"(cpu {copied.cpu:.2f}) {copied.megabytes:5.0f} MB   apply {applied.seconds:7.2f} s "
        f"(cpu {applied.cpu:.2f}) {applied.megabytes:5.0f} MB"
        f"   {1e6 * applied.seconds / rows:8.2f} µs a row"
        f"   throughput {copied.seconds / applied.seconds:6.1%} of the copy's{checked}",
        flush=True,
    )
    for file in (scores, output):
        file.unlink()
    return copied, applied


def sweep(folder: Path, most_bytes: float) -> None:
    """Grow the number of rows as far as the disk allows."""
    for classes in (10, 100, 1000):
        for rows in SIZES:
            if 4.0 * rows * classes > most_bytes:
                print(f"{rows:>11,} × {classes:<5} left out: more than {most_bytes / 1e9:.1f} GB")
                continue
            measure(folder, rows, classes)


def distributed(rows: int) -> None:
    """Construct and repair on one and on two workers."""
    for workers in (1, 2):
        rounds, fit, transform, eta = subprocess.run(
            [sys.executable, "-c", DASK, str(workers), str(rows)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        print(
            f"dask, {rows:,} × 100, {workers} worker(s): fit {float(fit):.2f} s in {rounds} "
            f"rounds, transform {float(transform):.2f} s, η* {eta}",
            flush=True,
        )


def main() -> None:
    """Run what the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", type=float, help="one file of this many GB at K = 1000")
    parser.add_argument("--most", type=float, help="the largest file of the sweep, in GB")
    parser.add_argument("--folder", help="where to make the files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        if options.large:
            rows = int(options.large * 1e9 / 4000)
            measure(folder, rows, 1000, check=True)
            return
        # The file, its copy and the output, and room for others.
        room = shutil.disk_usage(folder).free / 4
        sweep(folder, min(room, 1e9 * (options.most or 4.0)))
        distributed(200_000)


if __name__ == "__main__":
    main()
