"""The experiments of a study: the cells each needs, and the chapter it makes of the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cordcal_study.cells import Plan, Request
from cordcal_study.chapters import COMPARED, Chapter
from cordcal_study.experiments import (
    ablations,
    answers,
    benchmark,
    curves,
    effects,
    main,
    rivals,
)
from cordcal_study.tidy import Result, Row


class Experiment(NamedTuple):
    """An experiment on cells: what it requests, its chapter, and the metrics it keeps (or all)."""

    requests: Callable[[Plan], list[Request]]
    chapter: Callable[[Plan, Sequence[Row]], Chapter]
    measures: tuple[str, ...] | None = COMPARED


# Runtime is not among them: it reads no cells, and runs alone.
CELL_EXPERIMENTS = {
    "main": Experiment(main.requests, main.chapter, None),
    "paired": Experiment(effects.paired_requests, effects.paired_chapter),
    "floor": Experiment(effects.floor_requests, effects.floor_chapter, effects.FLOOR_MEASURES),
    "minimal": Experiment(ablations.minimal_requests, ablations.minimal_chapter),
    "targets": Experiment(ablations.target_requests, ablations.target_chapter),
    "lambda": Experiment(ablations.lambda_requests, ablations.lambda_chapter),
    "ranking": Experiment(
        ablations.ranking_requests, ablations.ranking_chapter, ablations.RANKING_MEASURES
    ),
    "size": Experiment(curves.size_requests, curves.size_chapter),
    "shift": Experiment(curves.shift_requests, curves.shift_chapter),
    "rivals": Experiment(rivals.requests, rivals.chapter, rivals.MEASURES),
}
"""The experiments on cells, by key."""

BENCHMARK_EXPERIMENTS: dict[str, Callable[[Plan, Sequence[Result]], Chapter]] = {
    "benchmark": benchmark.chapter,
    "answers": answers.chapter,
}
"""Those on the trials of the benchmark, by key."""
