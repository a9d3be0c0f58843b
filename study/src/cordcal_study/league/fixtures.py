"""Fixtures: who plays in which rounds, and why somebody does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cordcal.calibrators import calibrator_class
from cordcal.calibrators.registry import is_network
from cordcal.evaluate.compare import left_out_by
from cordcal_study.league.rounds import Round, RoundTask
from cordcal_study.plan import Plan
from cordcal_study.repairs import CAPPED, CORDS, LIFT
from cordcal_study.specs import League, SetSpec

ALL, KEEPERS = "all", "keepers"


def left_out(plan: Plan, league: League, spec: SetSpec) -> dict[str, str]:
    """Return who does not play on a set, and why."""
    facts = plan.facts(spec)
    reasons = left_out_by(league.calibrators, facts.classes, facts.features)
    for key in league.calibrators:
        limit = league.most_classes.get(key)
        if limit is not None and facts.classes > limit:
            reasons.setdefault(key, f"the league has it up to {limit} classes, for its time")
        if is_network(key) and not spec.networks:
            reasons.setdefault(key, "networks play on the sets that the study names for them")
    return reasons


def tasks(plan: Plan, folder: Path) -> list[RoundTask]:
    """Return all rounds of a study's league."""
    league = plan.study.league
    if league is None:
        return []
    return [
        task
        for spec in plan.study.sets
        if spec.league
        for task in _of_set(plan, league, spec, folder)
    ]


def _of_set(plan: Plan, league: League, spec: SetSpec, folder: Path) -> Iterator[RoundTask]:
    facts = plan.facts(spec)
    missing = left_out(plan, league, spec)
    keys = tuple(key for key in league.calibrators if key not in missing)
    repairs = (CORDS, LIFT, *((CAPPED,) if spec.group in plan.study.answers else ()))
    there, evaluated = facts.halves
    for rows in league.rows:
        count = min(there, league.most_rows) if isinstance(rows, str) else rows
        if isinstance(rows, int) and rows >= there:
            continue  # that is all of them
        # Given rows that are all taken are the same for every seed.
        given = spec.paired and count == there and evaluated <= league.most_evaluation
        for seed in league.seeds[:1] if given else league.seeds:
            yield RoundTask(
                Round(spec.group, spec.name, str(rows), seed),
                spec,
                facts,
                keys,
                repairs,
                count,
                league.most_evaluation,
                folder,
            )


def possible_reports(keys: tuple[str, ...]) -> list[str]:
    """Return the names of all reports that a league of these calibrators can have."""
    names = list(keys)
    for key in keys:
        if not calibrator_class(key).keeps_argmax:
            names += [f"{key} + {repair}" for repair in (CORDS, LIFT)]
    return names
