"""The results of a benchmark in CalArena's format: one CSV file per calibrator.

Calibrators and metrics have CalArena's names where it has the same method; the implementations
are cordcal's. One column is added: the share of predictions changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cordcal_study.benchmark.trials import ALL, ORIGINAL, Output, Trial, TrialResult
from cordcal_study.calibrators import short_name
from cordcal_study.cells import Plan
from cordcal_study.repairs import CORDS, LIFT
from cordcal_study.tidy import csv_text

_MEASURES = {
    "brier": "brier",
    "logloss": "nll",
    "ece-15": "ece",
    "accuracy": "accuracy",
    "time": "seconds",
    "tpcr": "tpcr",
}
_NAMES = {
    ORIGINAL.calibrator: "Base-model",
    "dir-odir": "Dirichlet",
    "irova": "Isotonic",
    "cir": "CIR",
    "venn-abers": "Venn-Abers",
    "spline": "Spline",
    "platt": "Platt-logits",
    "beta": "Beta",
    "cdf-spline": "CDF-Spline",
}
_REPAIRS = {CORDS: "+CORD", LIFT: "+lift"}


def output_name(output: Output) -> str:
    """Return the name of an output in CalArena's tables.

    Examples
    --------
    >>> output_name(Output("irova")), output_name(Output("sms", "cord"))
    ('Isotonic', 'SMS+CORD')
    """
    own = _NAMES.get(output.calibrator) or short_name(output.calibrator)
    return own + _REPAIRS.get(output.repair, "")


def csv_files(plan: Plan, trials: Mapping[Trial, TrialResult]) -> dict[str, str]:
    """Return the files ``{benchmark}/{calibrator}.csv``: all calibration rows, first split."""
    benchmark = plan.study.benchmark
    assert benchmark is not None
    specs = {
        (spec.group, spec.name): spec for spec in plan.study.sets if spec.experiment is not None
    }
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for trial, result in trials.items():
        spec = specs.get((trial.group, trial.set))
        if spec is None or trial.rows != ALL or trial.seed != benchmark.seeds[0]:
            continue
        facts = plan.facts(spec)
        fitted, evaluated = facts.halves
        experiment = {
            "dataset": spec.source,
            "model": trial.set.rpartition("/")[2],
            "cal_size": min(fitted, benchmark.max_rows),
            "test_size": min(evaluated, benchmark.max_evaluation_rows),
            "n_classes": facts.classes,
        }
        for output, measured in result.measures.items():
            name = output_name(output)
            own = {f"{name}_{theirs}": measured.get(ours) for theirs, ours in _MEASURES.items()}
            lines.setdefault((trial.group, name), []).append({**experiment, **own})
    return {f"{group}/{name}.csv": _format_csv(rows) for (group, name), rows in lines.items()}


def _format_csv(lines: list[dict[str, Any]]) -> str:
    names = list(lines[0])
    return csv_text([names, *([line[name] for name in names] for line in lines)])
