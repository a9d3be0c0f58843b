"""A league's results in CalArena's form: a CSV file a calibrator, with its names of measures.

The names of calibrators are CalArena's where it has the same method; the implementations are
cordcal's.  One column is added: the share of changed decisions.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from cordcal.calibrators.registry import short_name
from cordcal_study.league.fixtures import ALL
from cordcal_study.league.rounds import ORIGINAL, Played, Report, Round
from cordcal_study.plan import Plan
from cordcal_study.repairs import CORDS, LIFT

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


def report_name(report: Report) -> str:
    """Return a report's name in CalArena's tables.

    Examples
    --------
    >>> report_name(Report("irova")), report_name(Report("sms", "cord"))
    ('Isotonic', 'SMS+CORD')
    """
    own = _NAMES.get(report.calibrator) or short_name(report.calibrator)
    return own + _REPAIRS.get(report.repair, "")


def csv_files(plan: Plan, rounds: Mapping[Round, Played]) -> dict[str, str]:
    """Return what ``{benchmark}/{calibrator}.csv`` hold: all calibration rows, first split."""
    league = plan.study.league
    assert league is not None
    specs = {
        (spec.group, spec.name): spec for spec in plan.study.sets if spec.experiment is not None
    }
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for at, played in rounds.items():
        spec = specs.get((at.group, at.set))
        if spec is None or at.rows != ALL or at.seed != league.seeds[0]:
            continue
        facts = plan.facts(spec)
        fitted, evaluated = facts.halves
        experiment = {
            "dataset": spec.source,
            "model": at.set.rpartition("/")[2],
            "cal_size": min(fitted, league.most_rows),
            "test_size": min(evaluated, league.most_evaluation),
            "n_classes": facts.classes,
        }
        for report, measured in played.measures.items():
            name = report_name(report)
            own = {f"{name}_{key}": measured.get(key_here) for key, key_here in _MEASURES.items()}
            lines.setdefault((at.group, name), []).append({**experiment, **own})
    return {f"{group}/{name}.csv": _written(each) for (group, name), each in lines.items()}


def _written(lines: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
