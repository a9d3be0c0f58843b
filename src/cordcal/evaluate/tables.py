"""Tables of results as Markdown, LaTeX, HTML and data frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from cordcal._errors import InputError
from cordcal.evaluate.statistics import ORIGINAL, Output, percentile_interval
from cordcal.metrics import METRICS, DecisionChanges
from cordcal.metrics.registry import leading_metrics

if TYPE_CHECKING:
    from cordcal.evaluate.comparison import Comparison

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
    lines = ["<table>", f"<caption>{escape(table.caption)}</caption>"]
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


def outputs_of(comparison: Comparison) -> Iterator[tuple[Output, DecisionChanges | None]]:
    """Yield every output with the changes it makes, None if it keeps every prediction.

    A calibrator that needs no repair has one output.
    """
    yield ORIGINAL, None
    for entry in comparison:
        yield (entry.key, "direct"), None if entry.keeps_decisions else entry.changes
        if not entry.keeps_decisions:
            yield (entry.key, "repaired"), None
        if entry.lift is not None:
            yield (entry.key, "lift"), None


def frame_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return one mapping per output: its metrics, their intervals, and its changes."""
    rows = []
    for (key, report), changes in outputs_of(comparison):
        row: dict[str, Any] = {"calibrator": key, "report": report}
        for measure, value in comparison.measures(key, report).items():
            row[measure] = value
            interval = _interval(comparison, (key, report), measure)
            if interval is not None:
                row[f"{measure}_low"], row[f"{measure}_high"] = interval
        for name in ("tpcr", "gained", "lost", "neutral"):
            row[name] = 0.0 if changes is None else getattr(changes, name)
        rows.append(row)
    return rows


def table_of(comparison: Comparison, measures: Sequence[str] | None, intervals: bool) -> Table:
    """Return the comparison as a table, the best prediction-preserving values in bold."""
    shown = _check_measures(comparison, measures)
    headings = (METRICS[name].axis for name in shown)
    header = ("Calibrator", "Output", "Predictions changed (%)", *headings)
    best = {name: (record.key, record.report) for name, record in comparison.best.items()}
    rows = []
    for output, changes in outputs_of(comparison):
        cells = [Part(f"{0.0 if changes is None else 100.0 * changes.tpcr:.2f}")]
        for name in shown:
            write = METRICS[name].write
            text = write(comparison.measures(*output)[name])
            interval = _interval(comparison, output, name) if intervals else None
            if interval is not None:
                text = f"{text} [{', '.join(map(write, interval))}]"
            cells.append(Part(text, strong=best.get(name) == output))
        rows.append(tuple((cell,) for cell in (*map(Part, output), *cells)))
    caption = (
        f"{comparison.n_evaluation:,} evaluation rows, {comparison.n_classes} classes"
        f"{'; 95 % bootstrap intervals' if intervals else ''}. Bold: the best that changes no "
        "prediction."
    )
    return Table("comparison", caption, header, tuple(rows))


def _check_measures(comparison: Comparison, measures: Sequence[str] | None) -> Sequence[str]:
    known = list(comparison.uncalibrated)
    if measures is None:
        return ["accuracy", *leading_metrics()]
    names = [measures] if isinstance(measures, str) else list(measures)
    for name in names:
        if name not in known:
            raise InputError("measures", f"has {name!r}", f"use some of {', '.join(known)}")
    return names


def _interval(comparison: Comparison, output: Output, measure: str) -> tuple[float, float] | None:
    """Return the 95 % interval of a metric; None if it is not resampled."""
    drawn = comparison.replicates(*output, measure)
    if drawn is None:
        return None
    # Resamples repeat rows, which inflates binned errors.  Without this shift by the bias, an ECE
    # would lie below its own interval.
    value = comparison.measures(*output)[measure]
    low, high = map(float, percentile_interval(drawn - drawn.mean() + value))
    # The shifted interval must stay in the metric's range: no accuracy above one, and no negative
    # value of a non-negative metric.
    low = max(low, 0.0) if drawn.min() >= 0.0 else low
    return low, min(high, max(float(drawn.max()), value))
