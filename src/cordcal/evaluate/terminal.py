"""Tables for a terminal: whole columns are left out where it is too narrow; no number is cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cordcal.metrics import MEASURES
from cordcal.metrics.registry import leading

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

# No terminal is as wide: what a table needs is measured against it.
_ANY_WIDTH = 10_000


@dataclass(frozen=True)
class Column:
    """A column: its heading, whether it holds words, and when it goes.

    Parameters
    ----------
    heading : str
        What stands above it.
    words : bool
        Whether its entries are words, set to the left, and may be broken into lines.
    goes : int
        The columns of 1 are left out first, then those of 2, and so on; those of 0 never.
    """

    heading: str
    words: bool = False
    goes: int = 0


@dataclass
class FittingTable:
    """Rows under columns; rich prints as many columns as there is room for.

    Parameters
    ----------
    columns : sequence of Column
        All columns.
    title, caption : str
        What stands above and below.

    Examples
    --------
    >>> from rich.console import Console
    >>> table = FittingTable([Column("map", words=True), Column("NLL"), Column("seconds", goes=1)])
    >>> table.add("ts", "0.2500", "0.01")
    >>> Console(width=24).print(table)
    ┏━━━━━┳━━━━━━━━┓
    ┃ map ┃    NLL ┃
    ┡━━━━━╇━━━━━━━━┩
    │ ts  │ 0.2500 │
    └─────┴────────┘
    no room for seconds: a
    wider terminal or --wide
    has it
    """

    columns: Sequence[Column]
    title: str = ""
    caption: str = ""
    _rows: list[tuple[Any, ...]] = field(default_factory=list)
    _sections: set[int] = field(default_factory=set)

    def add(self, *cells: Any) -> None:
        """Add a row: text, or what rich prints, one entry a column."""
        self._rows.append(cells)

    def add_section(self) -> None:
        """Draw a line below the last row."""
        self._sections.add(len(self._rows) - 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        chosen = self._chosen(console, options)
        yield self._table(chosen)
        left_out = [each.heading for each in self.columns if each not in chosen]
        lines = [self.caption] if self.caption else []
        if left_out:
            them = "it" if len(left_out) == 1 else "them"
            names = ", ".join(left_out)
            lines.append(f"no room for {names}: a wider terminal or --wide has {them}")
        from rich.text import Text

        for line in lines:
            yield Text(line, style="italic")

    def _chosen(self, console: Console, options: ConsoleOptions) -> list[Column]:
        """Return the columns that there is room for."""
        free = options.update(max_width=_ANY_WIDTH)
        for stage in range(max(column.goes for column in self.columns) + 1):
            chosen = [column for column in self.columns if not 0 < column.goes <= stage]
            if console.measure(self._table(chosen), options=free).maximum <= options.max_width:
                break
        return chosen

    def _table(self, chosen: Sequence[Column]) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=self.title or None, title_justify="left")
        for column in chosen:
            table.add_column(
                Text(column.heading),
                justify="left" if column.words else "right",
                no_wrap=not column.words,
                overflow="fold",
            )
        places = [place for place, column in enumerate(self.columns) if column in chosen]
        for number, cells in enumerate(self._rows):
            shown = (cells[place] for place in places)
            # Text: a class called [red] is a word, not a wish for colour.
            table.add_row(
                *(Text(cell) if isinstance(cell, str) else cell for cell in shown),
                end_section=number in self._sections,
            )
        return table


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


def caveats_text(sentences: Iterable[str]) -> list[Any]:
    """Return what to check before any advice, one line each, loud."""
    from rich.text import Text

    return [Text(f"! {sentence}", style="bold red") for sentence in sentences]
