"""Tables for a terminal: if it is too narrow, whole columns are omitted, never parts of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cordcal.metrics import METRICS
from cordcal.metrics.registry import leading_metrics

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

# Wider than any terminal, to measure the full width of a table.
_ANY_WIDTH = 10_000


@dataclass(frozen=True)
class Column:
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
    columns : sequence of Column
        All columns.
    title, caption : str
        Text above and below.

    Examples
    --------
    >>> from rich.console import Console
    >>> table = FittingTable([Column("map", text=True), Column("NLL"), Column("seconds", drop=1)])
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
        """Add a row of text or rich renderables, one per column."""
        self._rows.append(cells)

    def add_section(self) -> None:
        """Draw a line below the last row."""
        self._sections.add(len(self._rows) - 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        chosen = self._columns_that_fit(console, options)
        yield self._table(chosen)
        left_out = [column.heading for column in self.columns if column not in chosen]
        lines = [self.caption] if self.caption else []
        if left_out:
            them = "it" if len(left_out) == 1 else "them"
            names = ", ".join(left_out)
            lines.append(f"no room for {names}: a wider terminal or --wide has {them}")
        from rich.text import Text

        for line in lines:
            yield Text(line, style="italic")

    def _columns_that_fit(self, console: Console, options: ConsoleOptions) -> list[Column]:
        """Return the columns that fit."""
        unlimited = options.update(max_width=_ANY_WIDTH)
        for stage in range(max(column.drop for column in self.columns) + 1):
            chosen = [column for column in self.columns if not 0 < column.drop <= stage]
            if console.measure(self._table(chosen), options=unlimited).maximum <= options.max_width:
                break
        return chosen

    def _table(self, chosen: Sequence[Column]) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=self.title or None, title_justify="left")
        for column in chosen:
            table.add_column(
                Text(column.heading),
                justify="left" if column.text else "right",
                no_wrap=not column.text,
                overflow="fold",
            )
        shown = [index for index, column in enumerate(self.columns) if column in chosen]
        for number, cells in enumerate(self._rows):
            row = (cells[index] for index in shown)
            # Text: a class named [red] must not be read as markup.
            table.add_row(
                *(Text(cell) if isinstance(cell, str) else cell for cell in row),
                end_section=number in self._sections,
            )
        return table


_CHANGE_KINDS = ("gained", "lost", "neutral")
# On a narrow terminal NLL stays and ECE is dropped last; other metrics go before accuracy.
_MEASURES_DROP = {"nll": 0, "ece": 5}


def comparison_table(data: Mapping[str, Any]) -> Any:
    """Return a rich table: accuracy, changes and main metrics of each output.

    Parameters
    ----------
    data : mapping
        What `Comparison.to_dict` returns.
    """
    from rich.text import Text

    # These fit a terminal next to the changes; the HTML report has all metrics.
    main = leading_metrics()
    table = FittingTable(
        [
            Column("calibrator", text=True),
            Column("output", text=True),
            Column("accuracy", drop=4),
            Column("changed"),
            *(Column(name, drop=2) for name in ("C+", "C−", "C0")),
            *(Column(METRICS[name].short, drop=_MEASURES_DROP.get(name, 3)) for name in main),
            Column("fit, s", drop=1),
        ],
        caption=(
            "accuracy, predictions changed (TPCR) and ECE in %; "
            "green: best among those that change no prediction"
        ),
    )

    def add(key: str, output: str, measures: Mapping[str, float], changes: Any, fit: str) -> None:
        shares = (
            [0.0] * 4 if changes is None else [changes[name] for name in ("tpcr", *_CHANGE_KINDS)]
        )
        cells = [Text(f"{100 * share:.2f}") for share in (measures["accuracy"], *shares)]
        for name in main:
            best = data["best"][name]
            style = "bold green" if (best["key"], best["report"]) == (key, output) else ""
            cells.append(Text(METRICS[name].write(measures[name]), style=style))
        table.add(key, output, *cells, fit)

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
    """Return caveats in bold red, one per line."""
    from rich.text import Text

    return [Text(f"! {sentence}", style="bold red") for sentence in sentences]
