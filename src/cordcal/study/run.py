"""Run a study: read and check everything, compute what is missing, tell each experiment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordcal._version import __version__
from cordcal.study.cells import Cell, Fit, Task, merge
from cordcal.study.chapters import Chapter
from cordcal.study.data import load_set
from cordcal.study.experiments import CELL_EXPERIMENTS, runtime
from cordcal.study.plan import Plan
from cordcal.study.runner import Advance, make_tasks, run_tasks
from cordcal.study.schema import Study, read_study


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
    sets = {(spec.group, spec.name): load_set(spec) for spec in plan_of.sets}
    plan = Plan(plan_of, sets)
    specs = {(spec.group, spec.name): spec for spec in plan_of.sets}
    digests = {place: data.digests() for place, data in sets.items()}
    folder = Path(cache)
    wanted = [key for key in plan_of.experiments if key in CELL_EXPERIMENTS]
    asked = {key: CELL_EXPERIMENTS[key].requests(plan) for key in wanted}
    merged = merge(request for requests in asked.values() for request in requests)
    tasks = make_tasks(merged, specs, digests, folder)
    cells = run_tasks(tasks, sets, workers=workers or os.cpu_count() or 1, advance=advance)
    chapters = [CELL_EXPERIMENTS[key].chapter(plan, asked[key], cells) for key in wanted]
    if "runtime" in plan_of.experiments:
        timed = {
            place: Task(
                Fit(*place, "irova-ts", plan.splits(spec)[0]), spec, digests[place], {}, folder
            )
            for place, spec in specs.items()
        }
        chapters.append(runtime.chapter(plan, runtime.measure(plan, timed)))
    return StudyResult(
        plan_of, tuple(chapters), _facts(plan, digests), _left_out(plan, cells), _notes(cells)
    )


def _facts(plan: Plan, digests: dict[tuple[str, str], dict[str, str]]) -> tuple[Any, ...]:
    facts = []
    for spec in plan.study.sets:
        data = plan.data(spec)
        seed = plan.splits(spec)[0]
        calibration = data.calibration(seed, 1.0)
        facts.append(
            {
                "group": spec.group,
                "name": spec.name,
                "file": spec.file.name,
                "evaluation": None if spec.evaluation is None else spec.evaluation.name,
                "kind": data.kind + ("" if spec.scale == 1.0 else f" × {spec.scale:g}"),
                "classes": data.classes,
                "calibration_rows": len(calibration),
                "evaluation_rows": len(data.evaluated(seed, "clean")),
                "splits": len(plan.splits(spec)),
                "digest": digests[spec.group, spec.name]["rows"].split()[-1][:12],
            }
        )
    return tuple(facts)


def _left_out(plan: Plan, cells: dict[Fit, Cell]) -> tuple[dict[str, str], ...]:
    found: dict[tuple[str, str, str], str] = {}
    for spec in plan.study.sets:
        for key, why in plan.left_out(spec).items():
            found[spec.group, spec.name, key] = why
    for fit, cell in cells.items():
        if cell.failure is not None:
            found[fit.group, fit.set, fit.calibrator] = f"it refused: {cell.failure}"
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
