"""Run a study: read and check everything, compute what is missing, make the chapters."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from cordcal import InputError, __version__
from cordcal_study.benchmark.calarena import csv_files
from cordcal_study.benchmark.trials import Trial, TrialResult, left_out, schedule
from cordcal_study.calibrators import is_network
from cordcal_study.cells import Cell, Fit, Plan, Task, merge
from cordcal_study.chapters import Chapter
from cordcal_study.data import SetFacts, load_set
from cordcal_study.experiments import BENCHMARK_EXPERIMENTS, CELL_EXPERIMENTS, main, runtime
from cordcal_study.experiments.benchmark import results_of
from cordcal_study.runner import Advance, Job, run_jobs
from cordcal_study.schema import read_study
from cordcal_study.specs import SetSpec, Study
from cordcal_study.tidy import Bin, Result, Row, Timing, diagrams, read_records, tidy_rows


class SetSummary(NamedTuple):
    """What the index shows of a set."""

    group: str
    name: str
    file: str
    evaluation: str | None
    source: str
    family: str
    kind: str
    classes: int
    calibration_rows: int
    evaluation_rows: int
    features: bool
    splits: int
    digest: str


class NotRun(NamedTuple):
    """A calibrator that did not run on a set, and why."""

    group: str
    set: str
    calibrator: str
    why: str


class FitWarning(NamedTuple):
    """The first warning of a calibrator's fits on a set, and in how many cells there was one."""

    group: str
    set: str
    calibrator: str
    cells: int
    note: str


@dataclass(frozen=True)
class StudyResult:
    """The results of a study.

    Attributes
    ----------
    study : Study
        What was run.
    chapters : tuple of Chapter
        One per experiment.
    sets : tuple of SetSummary
        The sets: rows, classes, kind, digest.
    left_out : tuple of NotRun
        What did not run where, and why.
    notes : tuple of FitWarning
        The warnings of fits.
    """

    study: Study
    chapters: tuple[Chapter, ...]
    sets: tuple[SetSummary, ...]
    left_out: tuple[NotRun, ...]
    notes: tuple[FitWarning, ...]

    def to_dict(self) -> dict[str, object]:
        """Return what the index shows, as plain Python values."""
        return {
            "title": self.study.title,
            "version": __version__,
            "seeds": list(self.study.seeds),
            "experiments": [chapter.key for chapter in self.chapters],
            "sets": [summary._asdict() for summary in self.sets],
            "left_out": [skipped._asdict() for skipped in self.left_out],
            "notes": [note._asdict() for note in self.notes],
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
        The folder of finished cells, which are not computed again.
    workers : int, optional
        Worker processes; by default one per processor. Results do not depend on it.
    advance : callable, optional
        Called with the number of finished cells, the number of all cells and the last one's name.

    Returns
    -------
    result : StudyResult
        Chapters of text, tables, figures' data and tidy rows.
    """
    specification = study if isinstance(study, Study) else read_study(study)
    if workers is not None and workers < 1:
        raise InputError("workers", f"is {workers}", "pass 1 or more")
    specs = {(spec.group, spec.name): spec for spec in specification.sets}
    # Read one by one and let go: all rows together may be more than memory.
    plan = Plan(specification, {place: load_set(spec).facts() for place, spec in specs.items()})
    folder = Path(cache)
    on_cells = [key for key in specification.experiments if key in CELL_EXPERIMENTS]
    requests = {key: CELL_EXPERIMENTS[key].requests(plan) for key in on_cells}
    merged = merge(request for group in requests.values() for request in group)
    tasks = [
        Task(
            fit,
            specs[fit.group, fit.set],
            plan.sets[fit.group, fit.set],
            repairs,
            folder,
            specification.own.get(fit.calibrator),
        )
        for fit, repairs in merged.items()
    ]
    on_trials = [key for key in specification.experiments if key in BENCHMARK_EXPERIMENTS]
    trial_tasks = schedule(plan, folder) if on_trials else []
    jobs: list[Job] = [*tasks, *trial_tasks]
    finished = run_jobs(jobs, workers=workers or os.cpu_count() or 1, advance=advance)
    cells = {task.fit: cell for task, cell in zip(tasks, finished, strict=False)}
    trials = {
        task.trial: result for task, result in zip(trial_tasks, finished[len(tasks) :], strict=True)
    }
    chapters = []
    for key in on_cells:
        experiment = CELL_EXPERIMENTS[key]
        chapter = experiment.chapter(plan, tidy_rows(requests[key], cells, experiment.measures))
        if key == "main":
            chapter = main.with_diagrams(chapter, plan, diagrams(requests[key], cells))
        chapters.append(chapter)
    results = results_of(plan, trials)
    for key in on_trials:
        chapter = BENCHMARK_EXPERIMENTS[key](plan, results)
        if key == "benchmark":
            chapter = replace(chapter, files=csv_files(plan, trials))
        chapters.append(chapter)
    if "runtime" in specification.experiments:
        timed = {
            place: Task(
                Fit(*place, runtime.CALIBRATOR, plan.splits(spec)[0]),
                spec,
                plan.sets[place],
                {},
                folder,
            )
            for place, spec in specs.items()
        }
        chapters.append(runtime.chapter(runtime.measure(timed)))
    return StudyResult(
        specification,
        tuple(chapters),
        tuple(_summary(plan, spec) for spec in specification.sets),
        _not_run(plan, cells, trials),
        _fit_warnings(cells),
    )


def render_study(study: str | os.PathLike[str], folder: str | os.PathLike[str]) -> StudyResult:
    """Make the chapters of an earlier run again from the data in its folder.

    Nothing is computed, and the data files of the study are not needed.

    Parameters
    ----------
    study : path
        The study file of that run.
    folder : path
        The folder of its results, with ``study.json`` and a data file for each experiment.

    Returns
    -------
    result : StudyResult
        The same as that of the run, with the text, tables and figures of this version.
    """
    top = Path(folder)
    specification = read_study(study, check_files=False)
    try:
        stored = json.loads((top / "study.json").read_text(encoding="utf-8"))
        sets = tuple(SetSummary(**fields) for fields in stored["sets"])
        left_out = tuple(NotRun(**fields) for fields in stored["left_out"])
        notes = tuple(FitWarning(**fields) for fields in stored["notes"])
        experiments = list(stored["experiments"])
    except FileNotFoundError:
        hint = "name the folder of an earlier run, or run the study without --render"
        raise InputError(str(top), "contains no results of a study", hint) from None
    except (ValueError, LookupError, TypeError):
        hint = "run the study again"
        raise InputError(str(top / "study.json"), "is not from this version", hint) from None
    facts = {(summary.group, summary.name): _facts_of(summary) for summary in sets}
    missing = [spec.name for spec in specification.sets if (spec.group, spec.name) not in facts]
    if missing:
        raise InputError(
            str(top), f"has no results for {missing[0]}", "run the study, which adds them"
        )
    # The experiments of CalArena's files are listed in those files, which may be elsewhere now.
    known = {(spec.group, spec.name): spec for spec in specification.sets}
    specs = tuple(known.get((summary.group, summary.name)) or _spec_of(summary) for summary in sets)
    specification = replace(specification, sets=specs)
    plan = Plan(specification, facts)

    def data(key: str, name: str = "data") -> Path:
        return top / key / f"{name}.{specification.format}"

    chapters = []
    for key in (experiment for experiment in experiments if data(experiment).is_file()):
        if key in CELL_EXPERIMENTS:
            chapter = CELL_EXPERIMENTS[key].chapter(plan, read_records(data(key), Row))
            if key == "main" and data(key, "diagrams").is_file():
                bins = read_records(data(key, "diagrams"), Bin)
                chapter = main.with_diagrams(chapter, plan, bins)
        elif key in BENCHMARK_EXPERIMENTS:
            chapter = BENCHMARK_EXPERIMENTS[key](plan, read_records(data(key), Result))
        else:
            chapter = runtime.chapter(read_records(data(key), Timing))
        chapters.append(chapter)
    return StudyResult(specification, tuple(chapters), sets, left_out, notes)


def _summary(plan: Plan, spec: SetSpec) -> SetSummary:
    facts = plan.facts(spec)
    calibration, evaluation = facts.halves
    return SetSummary(
        group=spec.group,
        name=spec.name,
        file=spec.file.name,
        evaluation=spec.experiment if spec.evaluation is None else spec.evaluation.name,
        source=spec.source,
        family=spec.family,
        kind=facts.kind + ("" if spec.scale == 1.0 else f" × {spec.scale:g}"),
        classes=facts.classes,
        calibration_rows=calibration,
        evaluation_rows=evaluation,
        features=facts.features,
        splits=len(plan.splits(spec)),
        digest=facts.digests["rows"].split()[-1][:12],
    )


def _spec_of(summary: SetSummary) -> SetSpec:
    return SetSpec(
        summary.name,
        summary.group,
        Path(summary.file),
        experiment=summary.evaluation,
        source=summary.source,
        family=summary.family,
    )


def _facts_of(summary: SetSummary) -> SetFacts:
    paired = summary.evaluation is not None
    rows = summary.calibration_rows + (0 if paired else summary.evaluation_rows)
    return SetFacts(
        "logits" if summary.kind.startswith("logits") else "probabilities",
        summary.classes,
        rows,
        summary.evaluation_rows if paired else None,
        summary.features,
        {"rows": summary.digest},
    )


def _not_run(
    plan: Plan, cells: Mapping[Fit, Cell], trials: Mapping[Trial, TrialResult]
) -> tuple[NotRun, ...]:
    reasons: dict[tuple[str, str, str], str] = {}
    benchmark = plan.study.benchmark if trials else None
    for spec in plan.study.sets:
        of_set = plan.left_out(spec) if cells else {}
        if benchmark is not None and spec.benchmark:
            of_benchmark = {
                key: why
                for key, why in left_out(plan, benchmark, spec).items()
                # The chapter states once that networks run on few sets.
                if spec.networks or not is_network(key)
            }
            of_set = {**of_benchmark, **of_set}
        for key, why in of_set.items():
            reasons[spec.group, spec.name, key] = why
    for fit, cell in cells.items():
        if cell.failure is not None:
            reasons[fit.group, fit.set, fit.calibrator] = f"it failed: {cell.failure}"
    for trial, result in trials.items():
        for key, why in result.refused.items():
            place = (trial.group, trial.set, key)
            reasons.setdefault(place, f"it failed on {trial.rows} rows: {why}")
    return tuple(NotRun(*place, why) for place, why in reasons.items())


def _fit_warnings(cells: Mapping[Fit, Cell]) -> tuple[FitWarning, ...]:
    """Count the cells of each set and calibrator whose fit warned, with the first warning."""
    warned: dict[tuple[str, str, str], list[str]] = {}
    for fit, cell in cells.items():
        if cell.notes:
            warned.setdefault((fit.group, fit.set, fit.calibrator), []).append(cell.notes[0])
    return tuple(FitWarning(*place, len(notes), notes[0]) for place, notes in warned.items())
