"""Render the plain dict of a result as one self-contained HTML file."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
from collections.abc import Mapping
from functools import cache
from importlib import metadata, resources
from typing import Any

from cordcal._errors import InputError
from cordcal._version import __version__
from cordcal.files import replacing
from cordcal.metrics import METRICS
from cordcal.metrics.registry import leading_metrics
from cordcal.report import charts
from cordcal.report._svg import Markup
from cordcal.report.charts import CHANGE_KINDS, MAX_DIAGRAMS, MAX_HEAT_MAP, number

# Changed rows and classes of a whole page, divided among its calibrators; each has a minimum.
_MAX_ROWS, _MAX_CLASSES, _MIN_EACH = 700, 300, 12
# The metrics that a narrow screen shows first.
_FIRST = ("nll", "ece")


def helpers(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the functions and values that templates use by name."""
    entries = data["calibrators"]
    widest = max((entry["changes"]["tpcr"] for entry in entries), default=0.0)
    measures = [name for name in METRICS if name in (data["uncalibrated"] or ())]
    first = [name for name in _FIRST if name in measures]

    def format_value(measure: str, value: float | None, *, signed: bool = False) -> str:
        return number(measure, value, signed=signed, classes=data["n_classes"])

    return {
        "first": first,
        "others": [name for name in measures if name not in first],
        "timed": all(entry["seconds"] for entry in entries),
        "changing": [entry for entry in entries if entry["changes"]["n_changed"]],
        "preserving": [entry["key"] for entry in entries if not entry["changes"]["n_changed"]],
        "rows_shown": max(_MIN_EACH, _MAX_ROWS // max(len(entries), 1)),
        "classes_shown": max(_MIN_EACH, _MAX_CLASSES // max(len(entries), 1)),
        "few_classes": data["n_classes"] <= MAX_DIAGRAMS,
        "listed": [entry["key"] for entry in entries if lists_every_class(entry)],
        "first_list": next((e["classes"] for e in entries if e["key"] == data["focus"]), []),
        "draw_heat_map": data["n_classes"] <= MAX_HEAT_MAP,
        "change_kinds": CHANGE_KINDS,
        "change_kind": change_kind,
        "kind_sign": {kind: sign for kind, sign, _ in CHANGE_KINDS},
        "number": format_value,
        "bare": lambda measure, value: format_value(measure, value).split(" ")[0],
        "signed": lambda value: f"{value:+d}".replace("-", "−") if value else "0",
        "share": lambda part: f"{100 * part / widest:.3f}",
        "verdict": verdict,
        "is_best": lambda *output: is_best(data, *output),
        "sort_value": sort_value,
        "preserving_outputs": preserving_outputs,
    }


def facts(data: Mapping[str, Any], source: str | None) -> list[str]:
    """Return the sizes of the data, for the page's header."""
    items = [] if source is None else [source]
    if data["n_calibration"] is not None:
        items.append(f"{data['n_calibration']:,} rows to calibrate on")
    items.append(f"{data['n_evaluation']:,} rows evaluated")
    items.append(f"{data['n_classes']:,} classes")
    return items


def tiles(data: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the main numbers of the recommendation, or of an audit."""
    if data["recommendation"] is None:
        return _audit_tiles(data)
    before = data["uncalibrated"]
    key, report = data["recommendation"]["key"], data["recommendation"]["output"]
    fitted = {entry["key"]: entry for entry in data["calibrators"]}.get(key)
    after = before if fitted is None else fitted[report]
    return [
        {"label": "Predictions changed", "value": "0", "note": "every prediction is kept"},
        {"label": "Accuracy", "value": number("accuracy", before["accuracy"]), "note": "kept"},
        *_measure_tiles(before, after, "" if fitted is None else f", {key}"),
    ]


def _audit_tiles(data: Mapping[str, Any]) -> list[dict[str, str]]:
    (entry,) = data["calibrators"]
    changed = f"{100 * entry['changes']['tpcr']:.2f} %"
    items = [
        {"label": "Predictions changed, direct", "value": changed, "note": entry["key"]},
        {"label": "Predictions changed, repaired", "value": "0", "note": "by construction"},
    ]
    before = data["uncalibrated"]
    if not before:
        return items
    accuracy = number("accuracy", before["accuracy"])
    items.append({"label": "Accuracy", "value": accuracy, "note": "kept"})
    return items + _measure_tiles(before, entry["repaired"], ", repaired")


def _measure_tiles(
    before: Mapping[str, float], after: Mapping[str, float], suffix: str
) -> list[dict[str, str]]:
    return [
        {
            "label": f"{METRICS[measure].short}{suffix}",
            "value": number(measure, after[measure]),
            # A non-breaking space keeps the number and its unit on one line.
            "note": f"uncalibrated {_unbroken(measure, before)}" if suffix else "",
        }
        for measure in leading_metrics()
    ]


def _unbroken(measure: str, values: Mapping[str, float]) -> str:
    return number(measure, values[measure]).replace(" ", "\u00a0")


def settings(data: Mapping[str, Any], source: str | None) -> dict[str, str]:
    """Return the settings and versions that produced the result."""
    shown = {} if source is None else {"scores": source}
    shown |= {name: str(value) for name, value in data["settings"].items()}
    shown["data fingerprint"] = data["fingerprint"]
    shown["cordcal"] = __version__
    shown["Python"] = platform.python_version()
    for package in ("numpy", "scipy", "scikit-learn"):
        shown[package] = metadata.version(package)
    return shown


def before_and_after(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the two outputs at the top of the page: the original and the recommended one."""
    advice = data["recommendation"]
    key, report = (data["focus"], "repaired")
    if advice is not None:
        key, report = advice["key"], advice["output"]
    entry = next((entry for entry in data["calibrators"] if entry["key"] == key), None)
    if entry is None or report not in entry["reliability"]:
        return None
    return {"entry": entry, "report": report, "whole": data["uncalibrated"], "after": entry[report]}


def preserving_outputs(entry: Mapping[str, Any]) -> list[str]:
    """Return the outputs of a calibrator that keep every prediction."""
    if entry["keeps_decisions"]:
        return ["direct"]
    return ["repaired"] if entry["lift"] is None else ["repaired", "lift"]


def lists_every_class(entry: Mapping[str, Any]) -> bool:
    """Return whether the data contain every class of a calibrator, with its diagram."""
    return bool(entry["classes"] and entry["classes"][0]["bins"])


def sort_value(entry: Mapping[str, Any], measure: str) -> float:
    """Return a column's sort value: the best output that keeps every prediction.

    All of these have the same accuracy, so accuracy is sorted by the direct output.
    """
    if measure == "accuracy":
        return float(entry["direct"][measure])
    choose = min if METRICS[measure].lower_is_better else max
    return float(choose(entry[output][measure] for output in preserving_outputs(entry)))


def verdict(measure: str, gain: Mapping[str, float] | None) -> Markup:
    """Return an arrow for a clear gain or cost of the repair; empty if it is not clear."""
    if gain is None:
        return Markup("")
    falls, rises = gain["low"] > 0, gain["high"] < 0  # the gain is direct minus repaired
    if not (falls or rises):
        return Markup("")
    word = "better" if falls == METRICS[measure].lower_is_better else "worse"
    arrow = "▼" if falls else "▲"
    return Markup('<span class="{}" role="img" aria-label="{}">{}</span>').format(word, word, arrow)


def change_kind(row: Mapping[str, Any]) -> str | None:
    """Return the kind of a changed row, None without a label."""
    if row["label"] is None:
        return None
    if row["label"] == row["direct_decision"]:
        return "gained"
    return "lost" if row["label"] == row["decision"] else "neutral"


def is_best(data: Mapping[str, Any], measure: str, key: str, report: str) -> bool:
    """Return whether an output is the best by a metric among those that keep every prediction."""
    best = (data.get("best") or {}).get(measure)
    return best is not None and (best["key"], best["report"]) == (key, report)


# End tags that are optional in HTML: a fifth of a page of tables.
_OPTIONAL_END = re.compile(r"</t[dhr]>\s*(?=<(?:t[dhr]\b|/tr>|/tbody>|/thead>))")
# The page's script, one file per topic, in this order.
_TOPICS = ("theme", "sort", "choose", "filter", "classes", "scroll", "slots", "tips")


@cache
def environment() -> Any:
    """Return the template environment; it escapes everything by default."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("cordcal.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def own_file(name: str) -> Markup:
    """Return one of the package's own template files unescaped; never user data."""
    folder = resources.files("cordcal.report").joinpath("templates")
    return Markup(folder.joinpath(name).read_text(encoding="utf-8"))


def _script() -> Markup:
    return Markup("").join(own_file(f"js/{topic}.js") for topic in _TOPICS)


def render(data: Mapping[str, Any], *, title: str, source: str | None = None) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    data : mapping
        What `Comparison.to_dict` returns.
    title : str
        The page's heading.
    source : str, optional
        Where the scores came from, such as a file's name.
    """
    if not isinstance(data, Mapping) or "calibrators" not in data:
        raise InputError(
            "data",
            f"is a {type(data).__name__}, not what to_dict returns",
            "pass comparison.to_dict()",
        )
    script = _script()
    page = (
        environment()
        .get_template("page.html")
        .render(
            data=data,
            title=title,
            version=__version__,
            style=own_file("style.css"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            facts=facts(data, source),
            settings=settings(data, source),
            tiles=tiles(data),
            pair=before_and_after(data),
            specs=METRICS,
            leading=leading_metrics(),
            charts=charts,
            **helpers(data),
        )
    )
    return _OPTIONAL_END.sub("", page)


def write_html(
    data: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    title: str = "cordcal",
    source: str | None = None,
    overwrite: bool = True,
) -> None:
    """Write the report to ``path``, completely or not at all.

    Parameters
    ----------
    data, title, source
        As for `render`.
    path : path
        The HTML file.
    overwrite : bool
        Whether to replace an existing file.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            "path",
            f"is a {type(path).__name__}",
            'pass the data first and then the file: write_html(result.to_dict(), "report.html", …)',
        )
    page = render(data, title=title, source=source)
    with replacing(path, overwrite=overwrite) as temporary:
        temporary.write_text(page, encoding="utf-8")
