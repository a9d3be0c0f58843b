"""The experiments of a study: what each asks of the cells, and what it tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from cordcal_study.cells import Cell, Fit, Request
from cordcal_study.chapters import Chapter
from cordcal_study.experiments import (
    ablations,
    answers,
    curves,
    floor,
    league,
    main,
    paired,
    ranking,
    rivals,
)
from cordcal_study.league.rounds import Played, Round
from cordcal_study.plan import Plan


class Experiment(NamedTuple):
    """The cells an experiment needs, and its chapter once they are there."""

    requests: Callable[[Plan], list[Request]]
    chapter: Callable[[Plan, Sequence[Request], Mapping[Fit, Cell]], Chapter]


# Runtime is not among them: it reads no cells, and runs alone.
CELL_EXPERIMENTS = {
    "main": Experiment(main.requests, main.chapter),
    "paired": Experiment(paired.requests, paired.chapter),
    "floor": Experiment(floor.requests, floor.chapter),
    "minimal": Experiment(ablations.minimal_requests, ablations.minimal_chapter),
    "targets": Experiment(ablations.target_requests, ablations.target_chapter),
    "lambda": Experiment(ablations.lambda_requests, ablations.lambda_chapter),
    "ranking": Experiment(ranking.requests, ranking.chapter),
    "size": Experiment(curves.size_requests, curves.size_chapter),
    "shift": Experiment(curves.shift_requests, curves.shift_chapter),
    "rivals": Experiment(rivals.requests, rivals.chapter),
}
"""The experiments that read cells, by key."""

LEAGUE_EXPERIMENTS: dict[str, Callable[[Plan, Mapping[Round, Played]], Chapter]] = {
    "league": league.chapter,
    "answers": answers.chapter,
}
"""Those that read the rounds of the league, by key."""
