"""CPU time of ``cordcal apply`` per format, against another version of cordcal.

    python benchmarks/apply.py --against OTHER/src [--repeats 3] [--rows 1000000]

OTHER is a checkout of the other version; what it needs must be installed. Both fit temperature
scaling with CORD, and apply it to the same files: Parquet with 100 classes, in one file and in 50
parts, CSV and JSONL with 12 classes and a fifth of the rows. Versions take turns, the least time
of each counts, and the peak memory is that of this version.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

OWN = Path(__file__).resolve().parents[1] / "src"
# A child's ru_maxrss begins at its parent's peak; the kernel's own mark of the process does not.
RUN = """
import atexit, sys
status = "/proc/self/status"
atexit.register(lambda: sys.stderr.write(open(status).read().split("VmHWM:")[1].split()[0]))
from cordcal.cli import main
sys.exit(main(sys.argv[1:]))
"""
ROWS_PER_GROUP = 8192


def cpu(source: Path, *arguments: object) -> tuple[float, float]:
    """Return the CPU seconds and the peak megabytes of a command."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN, *map(str, arguments), "--quiet"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    child = subprocess.Popen(command, env=environment, **pipes)
    printed = child.stderr.read().decode()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(map(str, arguments))}: {printed}")
    return usage.ru_utime + usage.ru_stime, float(printed.split()[-1]) / 1024


def scores(rows: int, classes: int) -> pa.Table:
    logits = 3.0 * np.random.default_rng(0).normal(size=(rows, classes)).astype(np.float32)
    names = [f"logit_{place:03d}" for place in range(classes)]
    columns = {"id": pa.array([f"row {place}" for place in range(rows)])}
    return pa.table(columns | dict(zip(names, map(pa.array, logits.T.copy()), strict=True)))


def write_inputs(folder: Path, rows: int) -> dict[str, tuple[Path, str]]:
    """Write the files; return the input and the name of the output of each case."""
    wide, narrow = scores(rows, 100), scores(rows // 5, 12)
    pa.parquet.write_table(wide, folder / "one.parquet", row_group_size=ROWS_PER_GROUP)
    (folder / "parts").mkdir()
    for part in range(50):
        cut = wide.slice(part * rows // 50, rows // 50)
        path = folder / "parts" / f"part-{part:02d}.parquet"
        pa.parquet.write_table(cut, path, row_group_size=ROWS_PER_GROUP)
    pa.csv.write_csv(narrow, folder / "rows.csv")
    with (folder / "rows.jsonl").open("w") as file:
        keys = [f'"{name}": ' for name in narrow.column_names]
        ids, *logits = (column.to_pylist() for column in narrow.columns)
        for row in zip([f'"{text}"' for text in ids], *logits, strict=True):
            pairs = (f"{key}{value}" for key, value in zip(keys, row, strict=True))
            file.write("{" + ", ".join(pairs) + "}\n")
    for name, classes in (("wide", 100), ("narrow", 12)):
        rng = np.random.default_rng(1)
        labels = rng.integers(classes, size=3000)
        logits = 2.0 * np.eye(classes)[labels] + rng.normal(size=(3000, classes))
        np.savez(folder / f"{name}.npz", logits=logits, labels=labels)
    return {
        "Parquet, one file": (folder / "one.parquet", "out.parquet"),
        "Parquet, 50 parts": (folder / "parts", "out"),
        "CSV": (folder / "rows.csv", "out.csv"),
        "JSONL": (folder / "rows.jsonl", "out.jsonl"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, required=True, help="src of another checkout")
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    sources = {"own": OWN, "other": options.against.resolve()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = write_inputs(folder, options.rows)
        for version, source in sources.items():
            for model in ("wide", "narrow"):
                output = folder / f"{model}-{version}.safetensors"
                fit = ("fit", folder / f"{model}.npz", "--calibrator", "ts", "--output", output)
                cpu(source, *fit)
        print(f"{'case':20} {'own':>8} {'other':>8} {'ratio':>7} {'peak MB':>8}")
        for case, (path, output) in cases.items():
            model = "wide" if case.startswith("Parquet") else "narrow"
            seconds = dict.fromkeys(sources, np.inf)
            peak = 0.0
            for _ in range(options.repeats):
                for version, source in sources.items():
                    target = folder / version / output
                    target.parent.mkdir(exist_ok=True)
                    fitted = folder / f"{model}-{version}.safetensors"
                    used, memory = cpu(source, "apply", fitted, path, "--output", target)
                    seconds[version] = min(seconds[version], used)
                    peak = max(peak, memory if version == "own" else 0.0)
                    shutil.rmtree(target.parent)
            own, other = seconds["own"], seconds["other"]
            print(f"{case:20} {own:8.2f} {other:8.2f} {own / other:7.2f} {peak:8.0f}", flush=True)


if __name__ == "__main__":
    main()
