"""Tables as Markdown, LaTeX and HTML."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Literal

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
