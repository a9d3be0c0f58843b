"""What a comparison's reports lost on each row, and what chance does to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cordcal._door.types import Classes, Vector
from cordcal.evaluate.bootstrap import Replicates, resampled
from cordcal.metrics._rows import LabelledRows
from cordcal.metrics._scores import NLL_FLOOR, NLLStream

Report = tuple[str, str]
"""Key and report, such as ``("svs", "repaired")``."""

ORIGINAL: Report = ("uncalibrated", "original")


@dataclass(frozen=True, eq=False)
class Evidence:
    """The rows of every report, a few numbers each, and their resampled measures.

    Attributes
    ----------
    rows : mapping of report to sequence of LabelledRows
        One entry a split.
    splits : sequence of ndarray of int
        Which rows of the population each split evaluates on.
    population : int
        Rows that resamples draw from.
    seed : int
        Seed of the draws.
    replicates : mapping of report to mapping of str to ndarray
        Each measure's value in every resample.
    """

    rows: Mapping[Report, Sequence[LabelledRows]]
    splits: Sequence[Classes]
    population: int
    seed: int
    replicates: Mapping[Report, Replicates]

    @classmethod
    def of(
        cls,
        rows: Mapping[Report, Sequence[LabelledRows]],
        splits: Sequence[Classes],
        population: int,
        seed: int,
    ) -> Evidence:
        """Resample the measures of all reports together."""
        replicates = resampled(rows, splits, population, seed=seed)
        return cls(rows, splits, population, seed, replicates)

    def at_floor(self, report: Report) -> Classes:
        """Return the rows whose true class the report gives so little that NLL is floored."""
        found = [
            split[part.true_mass <= NLL_FLOOR]
            for split, part in zip(self.splits, self.rows[report], strict=True)
        ]
        return np.unique(np.concatenate(found))

    def nll_without(
        self, left_out: Classes, reports: Sequence[Report]
    ) -> tuple[dict[Report, float], dict[Report, Vector]]:
        """Return reports' NLL, and its replicates, on the other rows alone."""
        kept = [~np.isin(split, left_out) for split in self.splits]
        rows = {
            name: [part.take(keep) for part, keep in zip(self.rows[name], kept, strict=True)]
            for name in reports
        }
        splits = [split[keep] for split, keep in zip(self.splits, kept, strict=True)]
        drawn = resampled(rows, splits, self.population, seed=self.seed, measures=("nll",))
        estimates = {
            name: float(np.mean([NLLStream.of_rows(part).mean() for part in parts]))
            for name, parts in rows.items()
        }
        return estimates, {name: values["nll"] for name, values in drawn.items()}
