"""Render the plain dict of a result as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
from collections.abc import Mapping
from functools import cache
from importlib import metadata, resources
from typing import Any

from cordcal._version import __version__
from cordcal.files import replacing
from cordcal.metrics import MEASURES
from cordcal.metrics._registry import leading
from cordcal.report import charts
from cordcal.report._svg import Markup
from cordcal.report.words import CHANGE_KINDS, number


@cache
def environment() -> Any:
    """Return the templates; whatever they show is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("cordcal.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def own_file(name: str) -> Markup:
    """Return one of our own files as it is; nothing of the caller's passes here."""
    folder = resources.files("cordcal.report").joinpath("templates")
    return Markup(folder.joinpath(name).read_text(encoding="utf-8"))


def render(data: Mapping[str, Any], *, title: str, source: str | None = None) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    data : mapping
        What `Comparison.to_dict` returns, or `cordcal.report.audit_data`.
    title : str
        The page's heading.
    source : str, optional
        Where the scores came from, such as a file's name.
    """
    entries = data["calibrators"]
    widest = max((entry["changes"]["tpcr"] for entry in entries), default=0.0)
    script = own_file("script.js")
    return str(
        environment()
        .get_template("page.html")
        .render(
            data=data,
            title=title,
            version=__version__,
            style=own_file("style.css"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            facts=_facts(data, source),
            tiles=_tiles(data),
            timed=all(entry["seconds"] for entry in entries),
            movers=[entry for entry in entries if entry["changes"]["n_changed"]],
            keepers=[entry["key"] for entry in entries if not entry["changes"]["n_changed"]],
            settings=_settings(data, source),
            measures=[name for name in MEASURES if name in (data["uncalibrated"] or ())],
            specs=MEASURES,
            leading=leading(),
            charts=charts,
            focus=_focus(data),
            change_kinds=CHANGE_KINDS,
            change_kind=_change_kind,
            kind_sign={kind: sign for kind, sign, _ in CHANGE_KINDS},
            number=number,
            bare=lambda measure, value: number(measure, value).split(" ")[0],
            signed=lambda value: f"{value:+d}".replace("-", "−") if value else "0",
            share=lambda part: f"{100 * part / widest:.3f}",
            verdict=_verdict,
            filled=charts.filled,
            is_best=lambda measure, entry: _is_best(data, measure, entry),
        )
    )


def write_html(
    data: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    title: str,
    source: str | None = None,
    overwrite: bool = True,
) -> None:
    """Write the report to ``path``, whole or not at all."""
    page = render(data, title=title, source=source)
    with replacing(path, overwrite=overwrite) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _facts(data: Mapping[str, Any], source: str | None) -> list[str]:
    facts = [] if source is None else [source]
    if data["n_calibration"] is not None:
        facts.append(f"{data['n_calibration']:,} rows to calibrate on")
    facts.append(f"{data['n_evaluation']:,} rows evaluated")
    facts.append(f"{data['n_classes']:,} classes")
    return facts


def _tiles(data: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the numbers of what is recommended; of an audit, of the audited pair."""
    if data["recommendation"] is None:
        return _audit_tiles(data)
    before = data["uncalibrated"]
    key, report = data["recommendation"]["key"], data["recommendation"]["report"]
    fitted = {entry["key"]: entry for entry in data["calibrators"]}.get(key)
    after = before if fitted is None else fitted[report]
    return [
        {"label": "Decisions changed", "value": "0", "note": "every decision is kept"},
        {"label": "Accuracy", "value": number("accuracy", before["accuracy"]), "note": "kept"},
        *_measure_tiles(before, after, "" if fitted is None else f", {key}"),
    ]


def _audit_tiles(data: Mapping[str, Any]) -> list[dict[str, str]]:
    (entry,) = data["calibrators"]
    changed = f"{100 * entry['changes']['tpcr']:.2f} %"
    tiles = [
        {"label": "Decisions changed, direct", "value": changed, "note": entry["key"]},
        {"label": "Decisions changed, repaired", "value": "0", "note": "by construction"},
    ]
    before = data["uncalibrated"]
    if not before:
        return tiles
    accuracy = number("accuracy", before["accuracy"])
    tiles.append({"label": "Accuracy", "value": accuracy, "note": "kept"})
    return tiles + _measure_tiles(before, entry["repaired"], ", repaired")


def _measure_tiles(
    before: Mapping[str, float], after: Mapping[str, float], whose: str
) -> list[dict[str, str]]:
    return [
        {
            "label": f"{MEASURES[measure].short}{whose}",
            "value": number(measure, after[measure]),
            "note": f"uncalibrated {number(measure, before[measure])}" if whose else "",
        }
        for measure in leading()
    ]


def _settings(data: Mapping[str, Any], source: str | None) -> dict[str, str]:
    shown = {} if source is None else {"scores": source}
    shown |= {name: str(value) for name, value in data["settings"].items()}
    shown["data fingerprint"] = data["fingerprint"]
    shown["cordcal"] = __version__
    shown["Python"] = platform.python_version()
    for package in ("numpy", "scipy", "scikit-learn"):
        shown[package] = metadata.version(package)
    return shown


def _focus(data: Mapping[str, Any]) -> str:
    """Return the calibrator to look at first: the recommended one if it changes decisions."""
    advice = data.get("recommendation")
    entries = data["calibrators"]
    changing = [entry for entry in entries if entry["changes"]["n_changed"]]
    if advice and any(entry["key"] == advice["key"] for entry in changing):
        return str(advice["key"])
    best = min(changing or entries, key=lambda entry: (entry["repaired"] or {}).get("nll", 0.0))
    return str(best["key"])


def _verdict(measure: str, gain: Mapping[str, float] | None) -> Markup:
    """Return the sign of a clear gain or cost of the repair; nothing where chance explains it."""
    if gain is None:
        return Markup("")
    falls, rises = gain["low"] > 0, gain["high"] < 0  # the gain is direct minus repaired
    if not (falls or rises):
        return Markup("")
    word = "better" if falls == MEASURES[measure].lower_is_better else "worse"
    arrow = "▼" if falls else "▲"
    return Markup('<span class="{}" role="img" aria-label="{}">{}</span>').format(word, word, arrow)


def _change_kind(row: Mapping[str, Any]) -> str | None:
    """Return the name of a changed row's kind, None without a label."""
    if row["label"] is None:
        return None
    if row["label"] == row["direct_decision"]:
        return "gained"
    return "lost" if row["label"] == row["decision"] else "neutral"


def _is_best(data: Mapping[str, Any], measure: str, entry: Mapping[str, Any]) -> bool:
    best = (data.get("best") or {}).get(measure)
    return best is not None and best["key"] == entry["key"]
