"""A comparison as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cordcal.evaluate._fitting_table import Column, FittingTable
from cordcal.metrics import MEASURES
from cordcal.metrics._registry import leading

_PARTS = ("gained", "lost", "neutral")
# On a narrow terminal NLL stays and ECE goes last; other measures go before accuracy.
_MEASURES_GO = {"nll": 0, "ece": 5}


def comparison_table(data: Mapping[str, Any]) -> Any:
    """Return a rich table: each report's accuracy, changes and main measures.

    Parameters
    ----------
    data : mapping
        What `Comparison.to_dict` returns.
    """
    from rich.text import Text

    # What fits beside the changes on a terminal; the HTML report has all measures.
    main = leading()
    table = FittingTable(
        [
            Column("calibrator", words=True),
            Column("report", words=True),
            Column("accuracy", goes=4),
            Column("TPCR"),
            *(Column(name, goes=2) for name in ("C+", "C−", "C0")),
            *(Column(MEASURES[name].short, goes=_MEASURES_GO.get(name, 3)) for name in main),
            Column("fit, s", goes=1),
        ],
        caption="percent, but for NLL and Brier; green: best that keeps every decision",
    )

    def add(key: str, report: str, measures: Mapping[str, float], changes: Any, fit: str) -> None:
        parts = [0.0] * 4 if changes is None else [changes[name] for name in ("tpcr", *_PARTS)]
        cells = [Text(f"{100 * part:.2f}") for part in (measures["accuracy"], *parts)]
        for name in main:
            best = data["best"][name]
            style = "bold green" if (best["key"], best["report"]) == (key, report) else ""
            cells.append(Text(MEASURES[name].write(measures[name]), style=style))
        table.add(key, report, *cells, fit)

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


def concerns_text(sentences: Iterable[str]) -> list[Any]:
    """Return what to check before any advice, one line each, loud."""
    from rich.text import Text

    return [Text(f"! {sentence}", style="bold red") for sentence in sentences]
