"""A study's tables as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cordcal.study.chapters import Entry, Part, Table

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


def markdown(table: Table) -> str:
    """Return a table as Markdown, its caption below.

    Examples
    --------
    >>> from cordcal.study.chapters import Part, Table
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
    >>> from cordcal.study.chapters import Part, Table
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
