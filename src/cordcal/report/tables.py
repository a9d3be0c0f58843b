"""Tables of a comparison and of an audit, and any table as Markdown, LaTeX and HTML.

`columns` is the one list of a comparison's columns, for the console, pages, Markdown, LaTeX and
data frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Literal

from cordcal._errors import InputError
from cordcal.evaluate.results.audit import GroupChanges, MeasureComparison
from cordcal.evaluate.results.report import OutputRow, ReportData
from cordcal.evaluate.results.values import ORIGINAL
from cordcal.metrics import METRICS, Metric
from cordcal.metrics.registry import leading_metrics

if TYPE_CHECKING:
    import pandas as pd

SIGNS = {"": "", "better": "▼", "worse": "▲"}
_LATEX_SIGNS = {
    "": "",
    "better": r"\,$\blacktriangledown$",
    "worse": r"\,$\blacktriangle$",
}
# Characters that LaTeX interprets or its plain fonts lack; longer sequences first.
_LATEX = {
    "\\": r"\textbackslash{}",
    "s̄": r"$\bar{s}$",
    "b̄": r"$\bar{b}$",
    "10⁻³": r"$10^{-3}$",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": r"$-$",
    "–": "--",
    "×": r"$\times$",
    "Δ": r"$\Delta$",
    "λ": r"$\lambda$",
    "µ": r"$\mu$",
    "†": r"$^{\dagger}$",
    "≥": r"$\geq$",
    "|": r"$|$",
    "▼": r"$\blacktriangledown$",
    "▲": r"$\blacktriangle$",
    "<": r"$<$",
    ">": r"$>$",
}


@dataclass(frozen=True)
class Part:
    """One number of a table, with its emphasis.

    Attributes
    ----------
    text : str
        The formatted number.
    strong : bool
        Whether to print it in bold.
    mark : {"", "better", "worse"}
        A triangle: the repair lowers or raises the value.
    stars : str
        Asterisks of a test, or a dagger for one in the opposite direction.
    """

    text: str
    strong: bool = False
    mark: Literal["", "better", "worse"] = ""
    stars: str = ""


Entry = tuple[Part, ...]
"""One cell of a table; several parts are separated by slashes."""


@dataclass(frozen=True)
class Table:
    """A table in the form of the paper."""

    name: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]


def markdown(table: Table) -> str:
    """Return a table as Markdown, its caption below.

    Examples
    --------
    >>> print(markdown(Table("t", "A caption.", ("a", "b"), (((Part("x"),), (Part("1", True),)),))))
    | a | b |
    | --- | --- |
    | x | **1** |
    <BLANKLINE>
    A caption.
    """
    lines = [_markdown_row(_escape_cell(name) for name in table.header)]
    lines.append(_markdown_row("---" for _ in table.header))
    lines += [_markdown_row(_markdown_entry(entry) for entry in row) for row in table.rows]
    return "\n".join([*lines, "", _escape_text(table.caption)])


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape_cell(text: str) -> str:
    return _escape_text(text).replace("|", r"\|")


def _escape_text(text: str) -> str:
    # Markdown passes HTML through, and names come from users' files.
    return " ".join(text.split()).replace("<", "&lt;").replace("*", r"\*")


def _markdown_entry(entry: Entry) -> str:
    return " / ".join(_markdown_part(part) for part in entry)


def _markdown_part(part: Part) -> str:
    body = _escape_cell(part.text)
    if part.strong:
        body = f"**{body}**"
    sign = SIGNS[part.mark]
    return f"{body}{_escape_cell(part.stars)}{' ' + sign if sign else ''}"


def latex(table: Table) -> str:
    r"""Return a table as LaTeX for booktabs and amssymb; the first column shows a name once.

    Examples
    --------
    >>> rows = (((Part("a"),), (Part("1", stars="*"),)), ((Part("a"),), (Part("2"),)))
    >>> print(latex(Table("t", "50 %.", ("set", "x"), rows)).splitlines()[5])
    a & 1$^{*}$ \\
    """
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{{'l' + 'r' * (len(table.header) - 1)}}}",
        r"\toprule",
        rf"{' & '.join(_latex_text(name) for name in table.header)} \\ \midrule",
    ]
    previous = None
    for first, *others in table.rows:
        name = _latex_entry(first)
        if previous is not None and name != previous:
            lines.append(r"\addlinespace")
        cells = ["" if name == previous else name, *(_latex_entry(entry) for entry in others)]
        lines.append(rf"{' & '.join(cells)} \\")
        previous = name
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\caption{{{_latex_text(table.caption)}}}", rf"\label{{tab:{table.name}}}"]
    return "\n".join([*lines, r"\end{table}"])


def _latex_entry(entry: Entry) -> str:
    return " / ".join(_latex_part(part) for part in entry)


def _latex_part(part: Part) -> str:
    body = _latex_text(part.text)
    if part.strong:
        body = rf"\textbf{{{body}}}"
    stars = rf"$^{{{part.stars.replace('†', chr(92) + 'dagger ')}}}$" if part.stars else ""
    return f"{body}{stars}{_LATEX_SIGNS[part.mark]}"


def _latex_text(text: str) -> str:
    escaped, position = "", 0
    while position < len(text):
        matches = (piece for piece in _LATEX if text.startswith(piece, position))
        piece = next(matches, text[position])
        escaped += _LATEX.get(piece, piece)
        position += len(piece)
    return escaped


def html(table: Table) -> str:
    """Return a table as HTML without scripts or classes, for notebooks and other pages.

    Examples
    --------
    >>> print(html(Table("t", "A < B.", ("a", "b"), (((Part("x"),), (Part("1", True),)),))))
    <table>
    <caption>A &lt; B.</caption>
    <thead><tr><th>a</th><th>b</th></tr></thead>
    <tbody>
    <tr><td>x</td><td><strong>1</strong></td></tr>
    </tbody>
    </table>
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    caption = [f"<caption>{escape(table.caption)}</caption>"] if table.caption else []
    lines = ["<table>", *caption]
    lines += [f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    for row in table.rows:
        cells = "".join(f"<td>{' / '.join(map(_html_part, entry))}</td>" for entry in row)
        lines.append(f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</tbody>", "</table>"])


def _html_part(part: Part) -> str:
    body = escape(part.text)
    if part.strong:
        body = f"<strong>{body}</strong>"
    stars = f"<sup>{escape(part.stars)}</sup>" if part.stars else ""
    sign = SIGNS[part.mark]
    return f"{body}{stars}{' ' + sign if sign else ''}"


# The tables of a comparison.

Value = str | float | None

CHANGE_KINDS = (
    ("gained", "C⁺", "wrong to right"),
    ("lost", "C⁻", "right to wrong"),
    ("neutral", "C⁰", "wrong to wrong"),
)
"""The kinds of change: the field of `PredictionChanges`, the paper's symbol, and a description."""

OUTPUT_NAMES = {"repaired": "CORD", "lift": "lift", "direct": "direct", "original": "original"}
"""The kinds of output as tables show them."""

# On a narrow terminal NLL stays and ECE is dropped last; other metrics go before accuracy.
_METRIC_DROP = {"nll": 0, "ece": 6, "accuracy": 5}
_MANY_CLASSES = 100
# Rows that a notebook shows before the folded ones.
_NOTEBOOK_ROWS = 10
# The metrics that come first, so that a narrow screen shows them.
_FIRST = ("nll", "ece")


@dataclass(frozen=True)
class Column:
    """One column of the table of a comparison.

    Attributes
    ----------
    key : str
        Its name in a data frame.
    heading : str
        Its heading.
    value : callable
        Its value for a row, which a data frame shows and by which a page sorts.
    write : callable
        A value as text.
    hint : str
        What the heading means.
    metric : str
        The key of the metric that it shows; empty for other columns.
    text : bool
        Whether its values are text, left-aligned.
    on_page, on_console, in_documents : bool
        Whether a page, the console, and Markdown, LaTeX and notebooks show it; a data frame has
        every column.
    drop : int
        On a narrow terminal, columns with 1 are dropped first, then those with 2, and so on; those
        with 0 never.
    """

    key: str
    heading: str
    value: Callable[[OutputRow], Value]
    write: Callable[[Value], str] = str
    hint: str = ""
    metric: str = ""
    text: bool = False
    on_page: bool = True
    on_console: bool = True
    in_documents: bool = True
    drop: int = 0

    def cell(self, row: OutputRow) -> str:
        """Return the text of the column in a row."""
        return self.write(self.value(row))

    def best(self, row: OutputRow) -> bool:
        """Return whether the row is the best by this column that keeps every prediction."""
        return self.metric in row.best


def act_rows(data: ReportData) -> list[tuple[str, ...]]:
    """Return the table of the shares that may act: a name and four percentages per option."""
    return [
        (
            "uncalibrated" if (key, output) == ORIGINAL else option_name(key, output),
            *(f"{100.0 * share:.1f}" for share in shares),
        )
        for (key, output), shares in data.act.items()
    ]


def option_name(key: str, output: str) -> str:
    """Return the name of an output in a figure or a sentence.

    Examples
    --------
    >>> option_name("svs", "repaired"), option_name("ts", "direct")
    ('svs + CORD', 'ts')
    """
    return f"{key} + {OUTPUT_NAMES[output]}" if output in ("repaired", "lift") else key


def metric_as_shown(key: str, classes: int) -> Metric:
    """Return a metric with the digits to show it with.

    With K classes, the mean gap of the classes is at most 2 / K: many classes need more digits.
    """
    metric = METRICS[key]
    if key == "classwise_ece" and classes >= _MANY_CLASSES:
        return replace(metric, digits=metric.digits + len(str(classes)) - 2)
    return metric


def number(measure: str, value: float | None, *, signed: bool = False, classes: int = 0) -> str:
    """Return a formatted value with its unit; with many classes, in more digits.

    Examples
    --------
    >>> number("ece", 0.01234), number("nll", 0.5), number("accuracy", -0.001, signed=True)
    ('1.23 %', '0.5000', '−0.10 points')
    """
    if value is None or math.isnan(value):
        return "–"
    spec = metric_as_shown(measure, classes)
    text = spec.write(value, signed=signed)
    # A difference of percentages is in points; 2 % of 50 % would be one point.
    unit = "points" if signed and spec.unit == "%" else spec.unit
    return f"{text} {unit}" if unit else text


def columns(data: ReportData, metrics: Sequence[str] | None = None) -> list[Column]:
    """Return all columns of a comparison.

    Parameters
    ----------
    data : ReportData
        What is shown.
    metrics : sequence of str, optional
        Which metrics, in this order; by default all of them, NLL and ECE first.
    """
    chosen = _check_metrics(data, metrics)
    by_metric = [_metric_column(metric_as_shown(key, data.n_classes)) for key in chosen]
    return [
        Column("calibrator", "calibrator", lambda row: row.key, text=True),
        # On a page, one row shows all outputs of a calibrator.
        Column(
            "output",
            "output",
            lambda row: row.output,
            lambda value: OUTPUT_NAMES[str(value)],
            text=True,
            on_page=False,
        ),
        *by_metric[: len(_FIRST)],
        Column(
            "tpcr",
            "predictions changed, %",
            _share_changed("tpcr"),
            _percent,
            hint="share of predictions changed (TPCR)",
            drop=7,
        ),
        *by_metric[len(_FIRST) :],
        *(
            Column(
                kind,
                f"{sign}, %",
                _share_changed(kind),
                _percent,
                hint=f"predictions changed from {words}",
                on_page=False,  # the bars show them
                in_documents=False,
                drop=2,
            )
            for kind, sign, words in CHANGE_KINDS
        ),
        Column(
            "fit_seconds",
            "fit, s",
            lambda row: row.fit_seconds,
            lambda value: "" if value is None else f"{value:.2f}",
            hint="seconds to fit the calibrator and its repair",
            in_documents=False,
            drop=1,
        ),
    ]


def _metric_column(metric: Metric) -> Column:
    key = metric.key
    unit = f", {metric.unit}" if metric.unit else ""
    return Column(
        key,
        f"{metric.short}{unit}",
        lambda row: row.measures.get(key),
        lambda value: "–" if value is None else metric.write(float(value)),
        hint=metric.name,
        metric=key,
        on_console=metric.leading or key == "accuracy",
        drop=_METRIC_DROP.get(key, 3),
    )


def _share_changed(kind: str) -> Callable[[OutputRow], Value]:
    def share(row: OutputRow) -> Value:
        return 0.0 if row.changes is None else getattr(row.changes, kind)

    return share


def _percent(value: Value) -> str:
    return "–" if value is None else f"{100 * float(value):.2f}"


def _check_metrics(data: ReportData, metrics: Sequence[str] | None) -> list[str]:
    known = [key for key in METRICS if key in data.uncalibrated]
    if metrics is None:
        return [key for key in _FIRST if key in known] + [key for key in known if key not in _FIRST]
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    for name in names:
        if name not in known:
            raise InputError("measures", f"has {name!r}", f"use some of {', '.join(known)}")
    return names


def sorted_rows(data: ReportData) -> list[OutputRow]:
    """Return the rows of the table by NLL, the lowest first."""
    return sorted(data.rows(), key=lambda row: row.measures["nll"])


def table_of(
    data: ReportData, metrics: Sequence[str] | None = None, *, intervals: bool = True
) -> Table:
    """Return a comparison as a table for a document, sorted by NLL.

    The best values that keep every prediction are bold, and so is the recommended option.

    Parameters
    ----------
    data : ReportData
        What is shown.
    metrics : sequence of str, optional
        Which metrics; by default accuracy and the leading ones.
    intervals : bool
        Whether to show each value with its 95 % interval.
    """
    if metrics is None:
        metrics = [*_FIRST, "accuracy", *(key for key in leading_metrics() if key not in _FIRST)]
    shown = [column for column in columns(data, metrics) if column.in_documents]
    rows = []
    for row in sorted_rows(data):
        parts = []
        for column in shown:
            ends = row.intervals.get(column.metric) if intervals else None
            text = column.cell(row)
            if ends is not None:
                text = f"{text} [{', '.join(column.write(end) for end in ends)}]"
            strong = row.recommended if column.text else column.best(row)
            parts.append((Part(text, strong=strong),))
        rows.append(tuple(parts))
    caption = (
        f"{data.n_evaluation:,} evaluation rows, {data.n_classes} classes, sorted by NLL"
        f"{'; 95 % bootstrap intervals' if intervals else ''}. Bold: the recommended option, and "
        "the best values among those that change no prediction."
    )
    header = tuple(column.heading[0].upper() + column.heading[1:] for column in shown)
    return Table("comparison", caption, header, tuple(rows))


def notebook_html(data: ReportData) -> str:
    """Return a comparison for a notebook: the recommendation, then ten rows of its table.

    The rows are sorted by NLL and the recommended one is marked; the others are folded.
    """
    sentences = [caveat.with_full_stop for caveat in data.caveats]
    if data.advice is not None:
        advice = data.advice
        sentences += [f"{advice.headline}. {advice.reason}", advice.figures]
        sentences += [advice.confidence, advice.simpler, advice.with_rule, advice.with_context]
        sentences += [advice.if_changing]
    text = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences if sentence)
    table = table_of(data, intervals=False)
    recommended = [row.recommended for row in sorted_rows(data)]
    rows = [
        ((Part("→" if marked else ""),), *cells)
        for marked, cells in zip(recommended, table.rows, strict=True)
    ]
    last = max(recommended.index(True), _NOTEBOOK_ROWS - 1) if any(recommended) else 0
    # The recommended row takes the last place if it would be folded.
    order = [*range(_NOTEBOOK_ROWS - 1), last] if last >= _NOTEBOOK_ROWS else range(_NOTEBOOK_ROWS)
    shown = [rows[place] for place in order if place < len(rows)]
    folded = [row for place, row in enumerate(rows) if place not in order]
    header = ("", *table.header)
    caption = f"{table.caption} →: the recommended option."
    text += html(replace(table, header=header, caption=caption, rows=tuple(shown)))
    if folded:
        others = replace(table, header=header, caption="", rows=tuple(folded))
        count = f"{len(folded)} more row{'' if len(folded) == 1 else 's'}"
        text += f"<details><summary>{count}</summary>{html(others)}</details>"
    return text


def frame_of(data: ReportData) -> pd.DataFrame:
    """Return a comparison as a data frame: every column, with the ends of its interval."""
    records = []
    for row in data.rows():
        record: dict[str, Value] = {}
        for column in columns(data):
            record[column.key] = column.value(row)
            if column.metric in row.intervals:
                low, high = row.intervals[column.metric]
                record |= {f"{column.key}_low": low, f"{column.key}_high": high}
        records.append(record)
    return frame(records)


def frame(records: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Return records as a data frame."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("data frames need pandas; install it with: pip install pandas") from error
    return pd.DataFrame(records)


# The tables of an audit.


def measures_table(measures: Sequence[MeasureComparison], level: float, caption: str) -> Table:
    """Return every metric of the original, direct and repaired probabilities.

    Parameters
    ----------
    measures : sequence of MeasureComparison
        The metrics.
    level : float
        Level of the intervals.
    caption : str
        Text below the table.
    """
    rows = []
    for values in measures:
        metric = METRICS[values.measure]
        interval = "–"
        if values.low is not None and values.high is not None:
            low, high = (metric.write(end, signed=True) for end in (values.low, values.high))
            interval = f"[{low}, {high}]"
        outputs = (values.original, values.direct, values.repaired)
        change = metric.write(values.difference, signed=True)
        rows.append(_row(metric.axis, *map(metric.write, outputs), change, interval))
    header = ("metric", "original", "direct", "repaired", "repaired − direct")
    return Table("metrics", caption, (*header, f"{100 * level:.0f} % interval"), tuple(rows))


def changes_table(heading: str, groups: Sequence[GroupChanges]) -> Table:
    """Return how many predictions change in each group, and with labels of which kind.

    Parameters
    ----------
    heading : str
        What the groups are, such as ``"original prediction"``.
    groups : sequence of GroupChanges
        The groups.
    """
    labelled = groups[0].changes.delta_accuracy is not None
    kinds = CHANGE_KINDS if labelled else ()
    rows = []
    for group in groups:
        changes = group.changes
        total, changed = f"{changes.n:,}", f"{changes.n_changed:,}"
        counts = [f"{getattr(changes, f'n_{kind}'):,}" for kind, _, _ in kinds]
        rows.append(_row(group.group, changed, f"{100 * changes.tpcr:.2f}", total, *counts))
    header = (heading, "changed", "changed, %", "rows", *(sign for _, sign, _ in kinds))
    caption = ", ".join(f"{sign}: {words}" for _, sign, words in kinds)
    return Table("changes", caption, header, tuple(rows))


def _row(*cells: str) -> tuple[tuple[Part, ...], ...]:
    return tuple((Part(cell),) for cell in cells)
