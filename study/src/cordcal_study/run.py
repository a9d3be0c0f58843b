"""Run a study: read and check everything, compute what is missing, tell each experiment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordcal._version import __version__
from cordcal.calibrators.registry import is_network
from cordcal_study.cells import Cell, Fit, Task, merge
from cordcal_study.chapters import Chapter
from cordcal_study.data import load_set
from cordcal_study.experiments import CELL_EXPERIMENTS, LEAGUE_EXPERIMENTS, runtime
from cordcal_study.league import fixtures
from cordcal_study.league.rounds import Played, Round
from cordcal_study.plan import Plan
from cordcal_study.runner import Advance, Job, run_jobs
from cordcal_study.schema import read_study
from cordcal_study.specs import Study


@dataclass(frozen=True)
class StudyResult:
    """Everything a study found.

    Attributes
    ----------
    study : Study
        What was run.
    chapters : tuple of Chapter
        One an experiment.
    sets : tuple of dict
        The facts of each set: rows, classes, kind, digest.
    left_out : tuple of dict
        What did not run where, and why.
    notes : tuple of dict
        What fits warned about, with how many cells said so.
    """

    study: Study
    chapters: tuple[Chapter, ...]
    sets: tuple[dict[str, Any], ...]
    left_out: tuple[dict[str, str], ...]
    notes: tuple[dict[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return what the index shows, as plain Python values."""
        return {
            "title": self.study.title,
            "version": __version__,
            "seeds": list(self.study.seeds),
            "experiments": [chapter.key for chapter in self.chapters],
            "sets": list(self.sets),
            "left_out": list(self.left_out),
            "notes": list(self.notes),
        }


def run_study(
    study: Study | str | os.PathLike[str],
    cache: str | os.PathLike[str],
    *,
    workers: int | None = None,
    advance: Advance | None = None,
) -> StudyResult:
    """Run a study and return its chapters.

    Parameters
    ----------
    study : Study or path
        A study, or the path of a study file.
    cache : path
        The folder of finished cells; what is there already is not computed again.
    workers : int, optional
        Worker processes; by default one a processor.  Results do not depend on it.
    advance : callable, optional
        Called with the cells finished, the cells in all and the last one's name.

    Returns
    -------
    result : StudyResult
        Chapters of words, tables, figures' data and tidy rows.
    """
    plan_of = study if isinstance(study, Study) else read_study(study)
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}; pass 1 or more")
    specs = {(spec.group, spec.name): spec for spec in plan_of.sets}
    # Read one by one and let go: all rows together may be more than memory.
    plan = Plan(plan_of, {place: load_set(spec).facts() for place, spec in specs.items()})
    folder = Path(cache)
    wanted = [key for key in plan_of.experiments if key in CELL_EXPERIMENTS]
    asked = {key: CELL_EXPERIMENTS[key].requests(plan) for key in wanted}
    merged = merge(request for requests in asked.values() for request in requests)
    tasks = [
        Task(
            fit,
            specs[fit.group, fit.set],
            plan.sets[fit.group, fit.set],
            repairs,
            folder,
            plan_of.own.get(fit.calibrator),
        )
        for fit, repairs in merged.items()
    ]
    played = [key for key in plan_of.experiments if key in LEAGUE_EXPERIMENTS]
    rounds = fixtures.tasks(plan, folder) if played else []
    jobs: list[Job] = [*tasks, *rounds]
    found = run_jobs(jobs, workers=workers or os.cpu_count() or 1, advance=advance)
    cells = {task.fit: cell for task, cell in zip(tasks, found, strict=False)}
    results = {task.round: each for task, each in zip(rounds, found[len(tasks) :], strict=True)}
    chapters = [CELL_EXPERIMENTS[key].chapter(plan, asked[key], cells) for key in wanted]
    chapters += [LEAGUE_EXPERIMENTS[key](plan, results) for key in played]
    if "runtime" in plan_of.experiments:
        timed = {
            place: Task(
                Fit(*place, "irova-ts", plan.splits(spec)[0]), spec, plan.sets[place], {}, folder
            )
            for place, spec in specs.items()
        }
        chapters.append(runtime.chapter(plan, runtime.measure(timed)))
    return StudyResult(
        plan_of, tuple(chapters), _facts(plan), _left_out(plan, cells, results), _notes(cells)
    )


def _facts(plan: Plan) -> tuple[Any, ...]:
    facts = []
    for spec in plan.study.sets:
        known = plan.facts(spec)
        calibration, evaluation = known.halves
        facts.append(
            {
                "group": spec.group,
                "name": spec.name,
                "file": spec.file.name,
                "evaluation": spec.experiment if spec.evaluation is None else spec.evaluation.name,
                "source": spec.source,
                "family": spec.family,
                "kind": known.kind + ("" if spec.scale == 1.0 else f" × {spec.scale:g}"),
                "classes": known.classes,
                "calibration_rows": calibration,
                "evaluation_rows": evaluation,
                "splits": len(plan.splits(spec)),
                "digest": known.digests["rows"].split()[-1][:12],
            }
        )
    return tuple(facts)


def _left_out(
    plan: Plan, cells: Mapping[Fit, Cell], rounds: Mapping[Round, Played]
) -> tuple[dict[str, str], ...]:
    found: dict[tuple[str, str, str], str] = {}
    league = plan.study.league if rounds else None
    for spec in plan.study.sets:
        reasons = plan.left_out(spec) if cells else {}
        if league is not None and spec.league:
            away = fixtures.left_out(plan, league, spec)
            # That networks play on named sets alone is told once, by the league.
            there = {key: why for key, why in away.items() if spec.networks or not is_network(key)}
            reasons = {**there, **reasons}
        for key, why in reasons.items():
            found[spec.group, spec.name, key] = why
    for fit, cell in cells.items():
        if cell.failure is not None:
            found[fit.group, fit.set, fit.calibrator] = f"it refused: {cell.failure}"
    for at, played in rounds.items():
        for key, why in played.refused.items():
            found.setdefault((at.group, at.set, key), f"it refused {at.rows} rows: {why}")
    return tuple(
        {"group": group, "set": name, "calibrator": key, "why": why}
        for (group, name, key), why in found.items()
    )


def _notes(cells: dict[Fit, Cell]) -> tuple[dict[str, Any], ...]:
    """Count the cells of each set and calibrator whose fit warned, with the first warning."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for fit, cell in cells.items():
        if cell.notes:
            found.setdefault((fit.group, fit.set, fit.calibrator), []).append(cell.notes[0])
    return tuple(
        {"group": group, "set": name, "calibrator": key, "cells": len(notes), "note": notes[0]}
        for (group, name, key), notes in found.items()
    )
