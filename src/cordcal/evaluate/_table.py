"""A comparison as a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cordcal.metrics import MEASURES
from cordcal.metrics._registry import leading

_PARTS = ("gained", "lost", "neutral")


def comparison_table(data: Mapping[str, Any]) -> Any:
    """Return a rich table: each report's accuracy, changes and main measures.

    Parameters
    ----------
    data : mapping
        What `Comparison.to_dict` returns.
    """
    from rich.table import Table
    from rich.text import Text

    # What fits beside the changes on a terminal; the HTML report has all measures.
    main = leading()
    table = Table(caption="percent, but for NLL and Brier; green: best that keeps every decision")
    table.add_column("calibrator")
    table.add_column("report")
    headings = ("accuracy", "TPCR", "C+", "C−", "C0", *(MEASURES[name].short for name in main))
    for heading in headings:
        table.add_column(heading, justify="right")
    table.add_column("fit, s", justify="right")

    def add(key: str, report: str, measures: Mapping[str, float], changes: Any, fit: str) -> None:
        parts = [0.0] * 4 if changes is None else [changes[name] for name in ("tpcr", *_PARTS)]
        cells = [Text(f"{100 * part:.2f}") for part in (measures["accuracy"], *parts)]
        for name in main:
            best = data["best"][name]
            style = "bold green" if (best["key"], best["report"]) == (key, report) else ""
            cells.append(Text(MEASURES[name].write(measures[name]), style=style))
        table.add_row(Text(key), Text(report), *cells, fit)

    add("uncalibrated", "original", data["uncalibrated"], None, "")
    for entry in data["calibrators"]:
        table.add_section()
        fit = f"{entry['seconds']['fit']:.2f}"
        add(entry["key"], "direct", entry["direct"], entry["changes"], fit)
        if not entry["keeps_decisions"]:
            add(entry["key"], "repaired", entry["repaired"], None, "")
        if entry["lift"] is not None:
            add(entry["key"], "lift", entry["lift"], None, "")
    return table


def concerns_text(data: Mapping[str, Any]) -> list[Any]:
    """Return what to check before any advice, one line each, loud.

    Parameters
    ----------
    data : mapping
        What `Comparison.to_dict` returns.
    """
    from rich.text import Text

    return [Text(f"! {each['sentence']}", style="bold red") for each in data["concerns"]]
