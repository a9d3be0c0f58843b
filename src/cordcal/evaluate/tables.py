"""Tables of results as Markdown, LaTeX, HTML and data frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from cordcal._errors import InputError
from cordcal.evaluate.statistics import ORIGINAL, Report, percentile_interval
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
# What LaTeX reads otherwise, and what its plain fonts lack; longer pieces first.
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
        The number as it is printed.
    strong : bool
        Whether it is printed in bold.
    mark : {"", "better", "worse"}
        A triangle: the repair lowers or raises the value.
    stars : str
        Asterisks of a test, or a dagger for one that goes the other way.
    """

    text: str
    strong: bool = False
    mark: Literal["", "better", "worse"] = ""
    stars: str = ""


Entry = tuple[Part, ...]
"""One place of a table; several parts are printed with slashes between them."""


@dataclass(frozen=True)
class Table:
    """A table in the paper's form."""

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
    lines = [_line(_escaped(name) for name in table.header)]
    lines.append(_line("---" for _ in table.header))
    lines += [_line(_markdown_entry(entry) for entry in row) for row in table.rows]
    return "\n".join([*lines, "", _plain(table.caption)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return _plain(text).replace("|", r"\|")


def _plain(text: str) -> str:
    # Markdown lets HTML through, and names come from other people's files.
    return " ".join(text.split()).replace("<", "&lt;").replace("*", r"\*")


def _markdown_entry(entry: Entry) -> str:
    return " / ".join(_markdown_part(part) for part in entry)


def _markdown_part(part: Part) -> str:
    body = _escaped(part.text)
    if part.strong:
        body = f"**{body}**"
    sign = SIGNS[part.mark]
    return f"{body}{_escaped(part.stars)}{' ' + sign if sign else ''}"


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
    for first, *rest in table.rows:
        name = _latex_entry(first)
        if previous is not None and name != previous:
            lines.append(r"\addlinespace")
        cells = ["" if name == previous else name, *(_latex_entry(entry) for entry in rest)]
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
    done, rest = "", text
    while rest:
        piece = next((each for each in _LATEX if rest.startswith(each)), rest[0])
        done += _LATEX.get(piece, piece)
        rest = rest[len(piece) :]
    return done


def html(table: Table) -> str:
    """Return a table as HTML without scripts or classes, for notebooks and pages of one's own.

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


def reports_of(comparison: Comparison) -> Iterator[tuple[Report, DecisionChanges | None]]:
    """Yield every report with the changes it makes, None for those that keep decisions.

    A map that keeps decisions by itself has one report.
    """
    yield ORIGINAL, None
    for entry in comparison:
        yield (entry.key, "direct"), None if entry.keeps_decisions else entry.changes
        if not entry.keeps_decisions:
            yield (entry.key, "repaired"), None
        if entry.lift is not None:
            yield (entry.key, "lift"), None


def frame_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Return one mapping a report: its measures, their intervals, and what it changes."""
    rows = []
    for (key, report), changes in reports_of(comparison):
        row: dict[str, Any] = {"calibrator": key, "report": report}
        for measure, value in comparison.measures(key, report).items():
            row[measure] = value
            ends = _ends(comparison, key, report, measure)
            if ends is not None:
                row[f"{measure}_low"], row[f"{measure}_high"] = ends
        for name in ("tpcr", "gained", "lost", "neutral"):
            row[name] = 0.0 if changes is None else getattr(changes, name)
        rows.append(row)
    return rows


def table_of(comparison: Comparison, measures: Sequence[str] | None, intervals: bool) -> Table:
    """Return the comparison as a table; in bold the best of the reports that keep decisions."""
    chosen = _checked(comparison, measures)
    header = ["Calibrator", "Report", "TPCR (%)", *(METRICS[name].axis for name in chosen)]
    best = {name: (found.key, found.report) for name, found in comparison.best.items()}
    rows = []
    for (key, report), changes in reports_of(comparison):
        cells = [Part(f"{0.0 if changes is None else 100.0 * changes.tpcr:.2f}")]
        for name in chosen:
            write = METRICS[name].write
            shown = write(comparison.measures(key, report)[name])
            ends = _ends(comparison, key, report, name) if intervals else None
            if ends is not None:
                shown = f"{shown} [{', '.join(map(write, ends))}]"
            cells.append(Part(shown, strong=best.get(name) == (key, report)))
        rows.append(((Part(key),), (Part(report),), *((cell,) for cell in cells)))
    caption = (
        f"{comparison.n_evaluation:,} evaluation rows, {comparison.n_classes} classes"
        f"{'; 95 % bootstrap intervals' if intervals else ''}. TPCR: decisions changed. Bold: the "
        "best report that keeps every decision."
    )
    return Table("comparison", caption, tuple(header), tuple(rows))


def _checked(comparison: Comparison, measures: Sequence[str] | None) -> Sequence[str]:
    known = list(comparison.uncalibrated)
    if measures is None:
        return ["accuracy", *leading_metrics()]
    names = [measures] if isinstance(measures, str) else list(measures)
    for name in names:
        if name not in known:
            raise InputError("measures", f"has {name!r}", f"use some of {', '.join(known)}")
    return names


def _ends(
    comparison: Comparison, key: str, report: str, measure: str
) -> tuple[float, float] | None:
    """Return the ends of a measure's interval; None where it is not resampled."""
    drawn = comparison.replicates(key, report, measure)
    if drawn is None:
        return None
    # Binned errors of resamples are larger than the sample's, whose rows they draw twice: the
    # replicates are moved by that bias, or an ECE would lie below its own interval.
    value = comparison.measures(key, report)[measure]
    low, high = map(float, percentile_interval(drawn - drawn.mean() + value))
    # Moved, an interval must not leave the measure's range: no accuracy above one, and nothing
    # below zero that never is.
    low = max(low, 0.0) if drawn.min() >= 0.0 else low
    return low, min(high, max(float(drawn.max()), value))
