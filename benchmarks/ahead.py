"""Count how often each calibrator is ahead in the benchmark.

Run with ``python benchmarks/ahead.py``; it reads the results in ``docs/results``.
A trial is one set and number of calibration rows, averaged over the seeds.  A calibrator is
*lowest* if one of its outputs that keep predictions has the lowest NLL (or Brier score) of all
of them, and *ahead* if it is also below the default, blend + lift, with every seed; *clearly
ahead* of the default means by more than noise: every seed, and a paired t-interval of 95 %.
Those that are never ahead, and not members of the blend, are in cordcal-study.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t as student

from cordcal.calibrators import calibrator_class
from cordcal_study.calibrators import available

RESULTS = Path(__file__).parent.parent / "docs/results/benchmark/data.parquet"
DEFAULT = ("blend", "lift")


def counts(data: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return how often each calibrator is lowest, ahead, and clearly ahead by a metric."""
    values = data[data.measure == metric].pivot_table(
        index=["group", "set", "rows", "seed"],
        columns=["calibrator", "repair"],
        values="value",
        observed=True,
    )
    trials = values.groupby(level=[0, 1, 2], observed=True)
    best = trials.mean().idxmin(axis=1)
    rows = {}
    for output in values.columns:
        lead = (values[DEFAULT] - values[output]).groupby(level=[0, 1, 2], observed=True)
        mean, seeds = lead.mean(), lead.count()
        every = lead.min() > 0.0
        margin = student.ppf(0.975, seeds - 1) * lead.std() / np.sqrt(seeds)
        lowest = best == output
        rows[output] = {
            "lowest": lowest.sum(),
            "ahead": (lowest & every).sum(),
            "clearly ahead": (every & (mean > margin)).sum(),
        }
    return pd.DataFrame(rows).T.groupby(level=0).sum()


def main() -> None:
    """Print the table."""
    data = pd.read_parquet(RESULTS)
    changed = data[data.measure == "tpcr"]
    most = changed.groupby(["calibrator", "repair"], observed=True).value.max()
    ran = set(data.calibrator)
    keys = [key for key in available() if key in ran and calibrator_class(key).extra is None]
    outputs = [output for output in most[most == 0.0].index if output[0] in keys]
    index = pd.MultiIndex.from_frame(data[["calibrator", "repair"]])
    data = data[index.isin(outputs)]
    parts = [counts(data, metric) for metric in ("nll", "brier")]
    print("| calibrator | lowest NLL | ahead | clearly | lowest Brier | ahead | clearly |")
    print("|---|---|---|---|---|---|---|")
    for key in keys:
        numbers = [int(value) for part in parts for value in part.loc[key]]
        print(f"| `{key}` | {' | '.join(map(str, numbers))} |")


if __name__ == "__main__":
    main()
