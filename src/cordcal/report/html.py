"""Render results as one self-contained HTML file: the report, and the page of a check.

`render_page` is the skeleton of every page: head, styles, header, script and footer.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from markupsafe import Markup

from cordcal._errors import InputError
from cordcal._version import __version__
from cordcal.evaluate.results.audit import CertifiedErrorRate
from cordcal.evaluate.results.calibrators import Entry
from cordcal.evaluate.results.monitor import points
from cordcal.evaluate.results.pictures import MAX_DIAGRAMS, MAX_HEAT_MAP, ClassRow
from cordcal.evaluate.results.report import FileDigest, OutputRow, ReportData
from cordcal.evaluate.results.values import ORIGINAL, Interval, Measures
from cordcal.files.disk import write_text
from cordcal.metrics import METRICS
from cordcal.metrics.registry import leading_metrics
from cordcal.report import charts
from cordcal.report.tables import CHANGE_KINDS, Column, act_rows, columns, number, option_name

if TYPE_CHECKING:
    from jinja2 import Environment

# Changed rows and classes of a whole page, divided among its calibrators; each has a minimum.
_MAX_ROWS, _MAX_CLASSES, _MIN_EACH = 700, 300, 12
# Calibrators that the table shows before the folded ones.
_TABLE_ROWS = 10
# End tags that are optional in HTML: a fifth of a page of tables.
_OPTIONAL_END = re.compile(r"</t[dhr]>\s*(?=<(?:t[dhr]\b|/tr>|/tbody>|/thead>))")
# The script of a page, one file per topic, in this order.
_TOPICS = (
    "theme",
    "sort",
    "fold",
    "choose",
    "filter",
    "classes",
    "scroll",
    "slots",
    "tips",
    "copy",
)


class HasReportData(Protocol):
    """A result that has something to show, such as a `Comparison`."""

    def report_data(self) -> ReportData:
        """Return what every renderer shows."""
        ...


class Tile(NamedTuple):
    """A large number at the top of a page."""

    label: str
    value: str
    note: str


class Pair(NamedTuple):
    """The two diagrams at the top of the page: the original and the recommended output."""

    entry: Entry
    output: str
    before: Measures
    after: Measures


@cache
def environment() -> Environment:
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
    from importlib import resources

    folder = resources.files("cordcal.report").joinpath("templates")
    return Markup(folder.joinpath(name).read_text(encoding="utf-8"))


def render_page(
    template: str,
    *,
    title: str,
    facts: Sequence[str] = (),
    topics: Sequence[str] = ("theme", "scroll"),
    **values: object,
) -> str:
    """Return a page of the same look as every other, as one file that loads nothing.

    Parameters
    ----------
    template : str
        A template that extends ``base.html``.
    title : str
        The page's heading.
    facts : sequence of str
        Short facts below the heading.
    topics : sequence of str
        The files of ``templates/js`` that the page needs, in order.
    **values : object
        What the template uses by name.
    """
    script = Markup("").join(own_file(f"js/{topic}.js") for topic in topics)
    page = (
        environment()
        .get_template(template)
        .render(
            title=title,
            facts=facts,
            version=__version__,
            style=own_file("style.css"),
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            number=number,
            **values,
        )
    )
    return _OPTIONAL_END.sub("", page)


def render(
    data: ReportData | HasReportData,
    *,
    title: str,
    source: str | None = None,
    created: datetime | None = None,
) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    data : Comparison or ReportData
        What to show: a comparison, or what `Audit.report_data_with` returns.
    title : str
        The page's heading.
    source : str, optional
        Where the scores came from, such as a file's name.
    created : datetime, optional
        The date on the page; now, by default.
    """
    shown = _report_data(data)
    moment = datetime.now(UTC) if created is None else created
    return render_page(
        "page.html",
        title=title,
        facts=_facts(shown, source),
        topics=_TOPICS,
        data=shown,
        act_rows=act_rows(shown),
        settings=_settings(shown, source, moment),
        tiles=_tiles(shown),
        pair=_before_and_after(shown),
        specs=METRICS,
        leading=leading_metrics(),
        charts=charts,
        **_table_values(shown),
        **_detail_values(shown),
    )


def write_html(
    data: ReportData | HasReportData,
    path: str | os.PathLike[str],
    *,
    title: str = "cordcal",
    source: str | None = None,
    created: datetime | None = None,
    overwrite: bool = True,
) -> None:
    """Write the report to ``path``, completely or not at all.

    Parameters
    ----------
    data, title, source, created
        As for `render`.
    path : path
        The HTML file.
    overwrite : bool
        Whether to replace an existing file.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            "path",
            f"is of type {type(path).__name__}",
            'pass the result first and then the file: write_html(comparison, "report.html")',
        )
    write_text(path, render(data, title=title, source=source, created=created), overwrite=overwrite)


def _report_data(data: ReportData | HasReportData) -> ReportData:
    if isinstance(data, ReportData):
        return data
    make = getattr(data, "report_data", None)
    if make is None:
        raise InputError(
            "data",
            f"is of type {type(data).__name__}",
            "pass what cordcal.compare returned, or what audit.report_data_with(…) returns",
        )
    result: ReportData = make()
    return result


def _facts(data: ReportData, source: str | None) -> list[str]:
    """Return the sizes of the data, for the page's header."""
    items = [] if source is None else [source]
    if data.n_calibration is not None:
        items.append(f"{data.n_calibration:,} rows to calibrate on")
    items.append(f"{data.n_evaluation:,} rows evaluated")
    items.append(f"{data.n_classes:,} classes")
    return items


def _tiles(data: ReportData) -> list[Tile]:
    """Return the main numbers of the recommendation, or of an audit."""
    before = data.uncalibrated
    if data.advice is None:
        (entry,) = data.calibrators
        tiles = [
            Tile("Predictions changed, direct", f"{100 * entry.changes.tpcr:.2f} %", entry.key),
            Tile("Predictions changed, repaired", "0", "by construction"),
        ]
        after, suffix = entry.repaired, ", repaired"
    else:
        tiles = []
        if data.recommended is not None:
            tiles.append(Tile("Predictions changed", f"0 of {data.n_evaluation:,}", ""))
        after, suffix = before, ""
        key, output = data.recommended or ORIGINAL
        if (key, output) != ORIGINAL:
            after, suffix = data.entry(key).measures(output), f", {option_name(key, output)}"
    if not before:
        return tiles
    note = "" if data.advice is not None and data.recommended is None else "unchanged"
    tiles.append(Tile("Accuracy", number("accuracy", before["accuracy"]), note))
    return tiles + [
        Tile(
            f"{METRICS[measure].short}{suffix}",
            number(measure, after[measure]),
            # A non-breaking space keeps the number and its unit on one line.
            f"before: {number(measure, before[measure])}".replace(" ", "\u00a0") if suffix else "",
        )
        for measure in leading_metrics()
    ]


def _before_and_after(data: ReportData) -> Pair | None:
    """Return the original and the recommended output; None if there are not two to show."""
    key, output = data.focus, "repaired"
    if data.advice is not None:
        key, output = data.recommended or ORIGINAL
    entry = next((entry for entry in data.calibrators if entry.key == key), None)
    if entry is None or output not in entry.pictures.reliability:
        return None
    return Pair(entry, output, data.uncalibrated, entry.measures(output))


def _settings(data: ReportData, source: str | None, created: datetime) -> dict[str, str]:
    """Return the date, the settings and the versions that produced the result."""
    from importlib import metadata

    shown = {"date": f"{created:%Y-%m-%d %H:%M} {created.tzname() or ''}".strip()}
    if source is not None:
        shown["scores"] = source
    shown |= data.settings
    shown["data fingerprint"] = data.fingerprint
    shown["cordcal"] = __version__
    shown["Python"] = platform.python_version()
    for package in ("numpy", "scipy", "scikit-learn"):
        shown[package] = metadata.version(package)
    return shown


def _table_values(data: ReportData) -> dict[str, object]:
    """Return what the template of the table uses by name."""
    recommended = None if data.recommended is None else data.recommended[0]

    def lowest(entry: Entry) -> tuple[bool, float]:
        """Sort by NLL, the recommended calibrator first."""
        nll = min(entry.measures(output).get("nll", 0.0) for output in entry.preserving)
        return entry.key != recommended, nll

    timed = all(entry.fit_seconds is not None for entry in data.calibrators)
    on_page = [
        column
        for column in columns(data)
        if column.on_page and (timed or column.key != "fit_seconds") and not column.text
    ]
    original, *_ = data.rows()
    return {
        "columns": on_page,
        "original": original,
        "ranked": sorted(data.calibrators, key=lowest),
        "table_rows": _TABLE_ROWS,
        "recommended_key": recommended,
        "sort_value": _sort_value,
        "verdict": _verdict,
    }


def _sort_value(column: Column, rows: Sequence[OutputRow]) -> float:
    """Return the value by which a column sorts a calibrator.

    It is that of the best output that keeps every prediction.  All of these have the same accuracy
    and change nothing, so accuracy and changes are sorted by the direct output.
    """
    preserving = [row for row in rows if row.changes is None]
    if not column.metric or column.metric == "accuracy" or not preserving:
        value = column.value(rows[0])
        return 0.0 if value is None else float(value)
    choose = min if METRICS[column.metric].lower_is_better else max
    return choose(row.measures[column.metric] for row in preserving)


def _verdict(measure: str, gain: Interval | None) -> Markup:
    """Return an arrow for a clear gain or cost of the repair; empty if it is not clear."""
    if gain is None or not gain.clear:
        return Markup("")
    falls = gain.low > 0  # the gain is direct minus repaired
    word = "better" if falls == METRICS[measure].lower_is_better else "worse"
    arrow = "▼" if falls else "▲"
    return Markup('<span class="{}" role="img" aria-label="{}">{}</span>').format(word, word, arrow)


def _detail_values(data: ReportData) -> Mapping[str, object]:
    """Return what the other templates use by name."""
    entries = data.calibrators
    widest = max((entry.changes.tpcr for entry in entries), default=0.0)
    classes: dict[str, list[ClassRow]] = {
        entry.key: entry.pictures.classes.to_list(every_class=entry.key in data.listed)
        for entry in entries
    }
    return {
        "changing": sorted(
            (entry for entry in entries if entry.changes.n_changed),
            key=lambda entry: -entry.changes.tpcr,
        ),
        "preserving": [entry.key for entry in entries if not entry.changes.n_changed],
        "rows_shown": max(_MIN_EACH, _MAX_ROWS // max(len(entries), 1)),
        "classes_shown": max(_MIN_EACH, _MAX_CLASSES // max(len(entries), 1)),
        "classes": classes,
        "few_classes": data.n_classes <= MAX_DIAGRAMS,
        "listed": [key for key, rows in classes.items() if rows and rows[0].bins],
        "draw_heat_map": data.n_classes <= MAX_HEAT_MAP,
        "change_kinds": CHANGE_KINDS,
        "kind_sign": {kind: sign for kind, sign, _ in CHANGE_KINDS},
        "bare": lambda measure, value: number(measure, value).split(" ")[0],
        "share": lambda part: f"{100 * part / widest:.3f}",
        "option_name": option_name,
        "points": points,
    }


# The page of a check.


@dataclass(frozen=True)
class GateLine:
    """One gate.

    Attributes
    ----------
    name : str
        Its name in the command.
    outcome : {"passed", "failed", "not evaluated"}
        Whether the limit is met.
    value, limit : str
        The figure and the limit, with their unit.
    detail : str
        The metric, the rows that the figure belongs to, and how it was computed.
    """

    name: str
    outcome: Literal["passed", "failed", "not evaluated"]
    value: str
    limit: str
    detail: str


@dataclass(frozen=True)
class Certificate:
    """Everything that the page of a check shows.

    Attributes
    ----------
    outcome : {"passed", "failed", "not evaluated"}
        The result of all gates together.
    rows, classes : int
        Size of the checked probabilities.
    changed : int or None
        Predictions that differ from the original; None if it was not passed.
    gates : sequence of GateLine
        The gates in their order.
    certified : sequence of CertifiedErrorRate
        Statements about error rates that hold together.
    target : str
        The statement about the target error rate; empty without one.
    settings : mapping of str to str
        Date and versions.
    files : sequence of FileDigest
        The files that were read.
    """

    outcome: Literal["passed", "failed", "not evaluated"]
    rows: int
    classes: int
    changed: int | None
    gates: Sequence[GateLine]
    certified: Sequence[CertifiedErrorRate]
    target: str
    settings: Mapping[str, str]
    files: Sequence[FileDigest]


def render_certificate(certificate: Certificate, *, source: str) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    certificate : Certificate
        What to show.
    source : str
        The name of the checked file.
    """
    return render_page(
        "certificate.html",
        title=f"Check of {source}",
        facts=[
            f"{certificate.rows:,} rows",
            f"{certificate.classes:,} classes",
            certificate.settings["date"],
        ],
        certificate=certificate,
    )


def write_certificate(
    certificate: Certificate, path: str | os.PathLike[str], *, source: str, overwrite: bool = True
) -> None:
    """Write the page to ``path``, completely or not at all.

    Parameters
    ----------
    certificate : Certificate
        What to show.
    path : path
        Where to.
    source : str
        The name of the checked file.
    overwrite : bool
        Whether a file of that name may be replaced.
    """
    write_text(path, render_certificate(certificate, source=source), overwrite=overwrite)
