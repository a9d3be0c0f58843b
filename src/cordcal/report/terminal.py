"""Results on a terminal: the answer first, then a table that fits.

If a terminal is too narrow, whole columns are omitted, never parts of numbers.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cordcal._errors import option_text, printable
from cordcal._validation.caveats import Caveat
from cordcal.evaluate.results.monitor import points
from cordcal.evaluate.results.pictures import GroupReport
from cordcal.evaluate.results.report import OutputRow, ReportData
from cordcal.evaluate.results.values import ORIGINAL, Measures
from cordcal.metrics import METRICS
from cordcal.report import tables
from cordcal.report.tables import columns, number, option_name, sorted_rows

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table

# Wider than any terminal, to measure the full width of a table.
_ANY_WIDTH = 10_000
# A longer heading takes two lines.
_LONG_HEADING = 14
# They replace the labels of `Recommendation`, up to the colon, and leave room for the texts.
_SIMPLER, _IF_CHANGING = "Simpler, as good", "If predictions may change"
# Longer lines of text are hard to read; shorter ones do not fit a label and a word.
_MAX_TEXT_WIDTH, _MIN_TEXT_WIDTH = 100, 30


@dataclass(frozen=True)
class TerminalColumn:
    """A column: its heading, whether it contains text, and when it is dropped.

    Parameters
    ----------
    heading : str
        The heading.
    text : bool
        Whether its entries are text: left-aligned, and wrapped if needed.
    drop : int
        Columns with 1 are dropped first, then those with 2, and so on; those with 0 never.
    """

    heading: str
    text: bool = False
    drop: int = 0


@dataclass
class FittingTable:
    """A table that rich prints with as many columns as fit.

    Parameters
    ----------
    columns : sequence of TerminalColumn
        All columns.
    caption, hint : str
        Text below; the hint shares a line with the names of columns that do not fit.

    Examples
    --------
    >>> from rich.console import Console
    >>> columns = [TerminalColumn("map", text=True), TerminalColumn("NLL")]
    >>> table = FittingTable([*columns, TerminalColumn("seconds", drop=1)])
    >>> table.add("ts", "0.2500", "0.01")
    >>> Console(width=24).print(table)
    ┏━━━━━┳━━━━━━━━┓
    ┃ map ┃    NLL ┃
    ┡━━━━━╇━━━━━━━━┩
    │ ts  │ 0.2500 │
    └─────┴────────┘
    a wider terminal
    (--verbose) adds seconds
    """

    columns: Sequence[TerminalColumn]
    caption: str = ""
    hint: str = ""
    _rows: list[tuple[RenderableType, ...]] = field(default_factory=list)

    def add(self, *cells: RenderableType) -> None:
        """Add a row of text or rich renderables, one per column."""
        self._rows.append(cells)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        chosen = self._columns_that_fit(console, options)
        from rich.text import Text

        yield self._table(chosen)
        left_out = [
            column.heading.partition(",")[0] for column in self.columns if column not in chosen
        ]
        wider = f"a wider terminal (--verbose) adds {', '.join(left_out)}" if left_out else ""
        for line in (self.caption, "; ".join(filter(None, (self.hint, wider)))):
            if line:
                yield Text(printable(line), style="italic")

    def _columns_that_fit(self, console: Console, options: ConsoleOptions) -> list[TerminalColumn]:
        """Return the columns that fit."""
        unlimited = options.update(max_width=_ANY_WIDTH)
        for stage in range(max(column.drop for column in self.columns) + 1):
            chosen = [column for column in self.columns if not 0 < column.drop <= stage]
            if console.measure(self._table(chosen), options=unlimited).maximum <= options.max_width:
                break
        return chosen

    def _table(self, chosen: Sequence[TerminalColumn]) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table()
        for column in chosen:
            table.add_column(
                Text(_stacked(column.heading)),
                justify="left" if column.text else "right",
                no_wrap=not column.text,
                overflow="fold",
            )
        shown = [index for index, column in enumerate(self.columns) if column in chosen]
        for cells in self._rows:
            row = (cells[index] for index in shown)
            # Text: a class named [red] must not be read as markup.
            table.add_row(
                *(Text(printable(cell)) if isinstance(cell, str) else cell for cell in row)
            )
        return table


def audit_view(
    caveats: Sequence[Caveat], sentences: Sequence[str], tables: Sequence[tables.Table]
) -> RenderableType:
    """Return an audit for a terminal: the answer first, then its tables.

    Parameters
    ----------
    caveats : sequence of Caveat
        Reasons to doubt it.
    sentences : sequence of str
        What it shows, the most important first.
    tables : sequence of Table
        Its tables.
    """
    from rich.console import Group

    parts = [*caveats_text(caveat.sentence for caveat in caveats), Bullets(sentences)]
    for table in tables:
        parts += ["", _fitting(table)]
    return Group(*parts)


def _fitting(table: tables.Table) -> FittingTable:
    """Return a table of a document for a terminal, its last columns dropped first."""
    last = len(table.header) - 1
    columns = [
        # The first column names the row, and one number must stay.
        TerminalColumn(heading, text=not place, drop=0 if place < 2 else last - place + 1)
        for place, heading in enumerate(table.header)
    ]
    fitting = FittingTable(columns, caption=table.caption)
    for row in table.rows:
        fitting.add(*(" / ".join(part.text for part in entry) for entry in row))
    return fitting


def _stacked(heading: str) -> str:
    r"""Return a long heading on two lines.

    Examples
    --------
    >>> _stacked("predictions changed, %")
    'predictions\nchanged, %'
    """
    return heading.replace(" ", "\n", 1) if len(heading) > _LONG_HEADING else heading


def comparison_view(data: ReportData) -> RenderableType:
    """Return a comparison for a terminal: the answer first, then the table."""
    from rich.console import Group

    caveats = caveats_text(caveat.sentence for caveat in data.caveats)
    return Group(*caveats, comparison_answer(data), comparison_table(data))


def act_table(data: ReportData) -> RenderableType:
    """Return the shares of predictions that may act at certified error rates."""
    from rich.table import Table

    title = "% of predictions that may act at a certified error of"
    table = Table("option", "1 %", "2 %", "5 %", "10 %", title=title, box=None)
    for row in tables.act_rows(data):
        table.add_row(*row)
    return table


def comparison_answer(data: ReportData, report: str = "") -> LabelledLines:
    """Return the recommendation with its main numbers, and the path of the report."""
    lines = [("Recommended", describe_option(data)), *_advice_lines(data)]
    lines.append(("Report", report))
    return LabelledLines([line for line in lines if line[1]])


def describe_option(data: ReportData) -> str:
    """Return the recommended option in a few words.

    Examples
    --------
    ``blend + lift (the default)``, ``ts (changes no prediction, needs no repair)``
    """
    if data.recommended is None:
        return "nothing yet; first check what is marked with ! above"
    if data.recommended == ORIGINAL:
        return "the classifier's own probabilities"
    key, output = data.recommended
    entry = data.entry(key)
    title = "" if entry.name in (key, "") else entry.name
    if data.recommended == data.default:
        title = "the default"
    if output == "direct":
        title = ", ".join([*([title] if title else []), "needs no repair"])
    option = option_name(key, output)
    rule = ""
    if data.advice is not None and data.advice.with_rule:
        rule = f", with {option_text('rule', 'learnt')}"
    return f"{option} ({title}){rule}" if title else option


def _advice_lines(data: ReportData) -> Iterator[tuple[str, str]]:
    advice = data.advice
    if advice is None:
        return
    if data.recommended is not None:
        yield "", advice.reason
        before = data.uncalibrated
        row = next(row for row in data.rows() if row.recommended)
        yield "Predictions changed", f"0 of {data.n_evaluation:,}"
        shown = [metric for metric in ("nll", "ece") if metric in before]
        changes = [format_change(metric, before, row.measures) for metric in shown]
        yield ", ".join(METRICS[metric].short for metric in shown), ", ".join(changes)
    yield "Confidence − accuracy", advice.confidence.partition(": ")[2]
    yield _SIMPLER, advice.simpler.partition(": ")[2]
    yield f"With {option_text('rule', 'learnt')}", advice.with_rule.partition(": ")[2]
    yield "With context", advice.with_context.partition(": ")[2]
    yield _IF_CHANGING, advice.if_changing.partition(": ")[2]


def format_change(metric: str, before: Measures, after: Measures) -> str:
    """Return a metric before and after, such as ``6.75 % → 2.52 %``."""
    first, second = (number(metric, values[metric]) for values in (before, after))
    return first if first == second else f"{first} → {second}"


@dataclass
class LabelledLines:
    """Short texts behind their labels, each wrapped in its own column; the first is bold.

    Parameters
    ----------
    lines : sequence of (label, text)
        The lines; an empty label continues the one above.

    Examples
    --------
    >>> from rich.console import Console
    >>> lines = [("Recommended", "blend + lift"), ("", "No other option is clearly better.")]
    >>> Console(width=45).print(LabelledLines(lines))
    Recommended  blend + lift
                 No other option is clearly
                 better.
    """

    lines: Sequence[tuple[str, str]]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        from rich.text import Text

        indent = max(len(label) for label, _ in self.lines) + 2
        available = min(options.max_width, _MAX_TEXT_WIDTH)
        below = available - indent < _MIN_TEXT_WIDTH  # too narrow for two columns
        indent = 2 if below else indent
        for position, (label, text) in enumerate(self.lines):
            lines = [" " * indent + line for line in textwrap.wrap(text, available - indent)]
            if below and label:
                lines.insert(0, label)
            elif label:
                lines[0] = f"{label:{indent}}{lines[0][indent:]}"
            yield Text("\n".join(lines), style="" if position else "bold")


@dataclass
class Bullets:
    """Sentences as a list, each wrapped behind its mark."""

    sentences: Sequence[str]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        from rich.text import Text

        width = min(options.max_width, _MAX_TEXT_WIDTH)
        for sentence in self.sentences:
            yield Text(textwrap.fill(f"• {printable(sentence)}", width, subsequent_indent="  "))


# A short table has the original, the default, the recommended option, and the best by NLL of each
# kind: without a need for a repair, repaired by CORD or lift, and changing predictions.
def short_rows(data: ReportData) -> list[OutputRow]:
    """Return the at most seven rows of the table that matter most, sorted by NLL."""
    rows = sorted_rows(data)
    kinds: set[tuple[str, bool]] = set()
    chosen = []
    for row in rows:
        kind = row.output, row.changes is None
        if kind not in kinds or row.recommended or row.default:
            chosen.append(row)
        kinds.add(kind)
    return chosen


def comparison_table(
    data: ReportData, *, all_rows: bool = False, hint: str = "to_frame() has"
) -> FittingTable:
    """Return the table of a comparison, sorted by NLL, the recommended row marked.

    Parameters
    ----------
    data : ReportData
        What is shown.
    all_rows : bool
        Whether to show every output, or the most important ones.
    hint : str
        What has the rows that are not shown.
    """
    from rich.text import Text

    shown = [column for column in columns(data) if column.on_console]
    rows = sorted_rows(data) if all_rows else short_rows(data)
    caption = "Sorted by NLL; green: best among those that change no prediction"
    if data.recommended is not None:
        caption += "; → recommended"
    others = len(data.rows()) - len(rows)
    more = f"{hint} {others} more {'row' if others == 1 else 'rows'}" if others else ""
    table = FittingTable(
        [
            TerminalColumn("", text=True),
            *(TerminalColumn(column.heading, column.text, column.drop) for column in shown),
        ],
        caption=caption,
        hint=more,
    )
    for row in rows:
        style = "bold" if row.recommended else ""
        table.add(
            Text("→" if row.recommended else "", style=style),
            *(
                Text(printable(column.cell(row)), style="bold green" if column.best(row) else style)
                for column in shown
            ),
        )
    return table


# Groups on the console: as many as leave room for the rest; the report has all.
_MAX_GROUPS = 8


def gaps_table(data: ReportData) -> FittingTable | None:
    """Return confidence minus accuracy per category without and with context, if it was measured.

    The largest differences come first; None without categories.
    """
    offers = [entry.context for entry in data.calibrators if entry.context is not None]
    if not offers or not offers[0].gaps:
        return None
    gaps = offers[0].gaps
    others = len(gaps) - _MAX_GROUPS
    table = FittingTable(
        [
            TerminalColumn("Context", text=True),
            TerminalColumn("Rows"),
            TerminalColumn("Without, points"),
            TerminalColumn("With, points"),
            TerminalColumn("Chance"),
        ],
        caption="Confidence minus accuracy without and with context; chance: how far from zero it "
        "is on average if the confidence is right",
        hint=f"--report shows {others} more" if others > 0 else "",
    )
    for gap in gaps[:_MAX_GROUPS]:
        cells = (
            f"{gap.column} {gap.value}",
            f"{gap.n:,}",
            points(gap.before),
            points(gap.after),
            f"{100 * gap.chance:.1f}",
        )
        table.add(*cells)
    return table


def groups_table(data: ReportData) -> FittingTable | None:
    """Return the groups of the recommended calibrator, the worst first; None without groups."""
    # Every calibrator has the original's measures, in case that is recommended.
    key, output = data.recommended or data.default or ORIGINAL
    entry = next((entry for entry in data.calibrators if entry.key == key), data.calibrators[0])
    groups = entry.pictures.groups
    return group_table(groups, output, option_name(key, output), data.n_classes) if groups else None


def group_table(
    groups: Sequence[GroupReport], output: str, name: str, classes: int
) -> FittingTable:
    """Return metrics per group, the worst first.

    Parameters
    ----------
    groups : sequence of GroupReport
        The groups, in their order.
    output, name : str
        The output to show, next to the original if that was measured, and what it is called.
    classes : int
        The number of classes, for the accuracy of guessing.
    """
    from rich.text import Text

    shown = ("nll", "ece")
    has_original = "original" in groups[0].measures
    others = len(groups) - _MAX_GROUPS
    table = FittingTable(
        [
            TerminalColumn("Group", text=True),
            TerminalColumn("Rows"),
            TerminalColumn("Accuracy"),
            *(TerminalColumn(metric.upper()) for metric in shown),
        ],
        caption=f"{name}{', before → after' if has_original else ''}; the worst group by NLL "
        f"first; guessing is right in {100 / classes:.1f} %",
        hint=f"--report or --json shows {others} more groups" if others > 0 else "",
    )
    for group in groups[:_MAX_GROUPS]:
        measures = group.measures
        before = measures.get("original", measures.get(output, {}))
        after = measures.get(output, before)
        cells = (
            group.name,
            f"{group.n:,}",
            f"{100 * before['accuracy']:.1f} %",
            *(format_change(metric, before, after) for metric in shown),
        )
        style = "dim" if group.small else ""
        table.add(*(Text(printable(cell), style=style) for cell in cells))
    return table


def caveats_text(sentences: Iterable[str]) -> list[RenderableType]:
    """Return caveats in bold red, one per line."""
    from rich.text import Text

    return [Text(f"! {printable(sentence)}", style="bold red") for sentence in sentences]
