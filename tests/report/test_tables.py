"""Tables as Markdown, LaTeX and HTML: emphasis, signs, and what must be escaped."""

from __future__ import annotations

import sys

import pytest

from cordcal.report.tables import Entry, Part, Table, frame, html, latex, markdown


def text(value: str) -> Entry:
    return (Part(value),)


TABLE = Table(
    "t",
    "50 % of rows, |s̄ − b̄|.",
    ("Group", "a_b", "×10⁻³"),
    (
        (text("A & B"), (Part("1.0", stars="**"),), (Part("2", True, "better"), Part("3"))),
        (text("A & B"), text("x|y"), (Part("−4", mark="worse", stars="†"),)),
        (text("C"), text("–"), text("#1")),
    ),
)


def test_markdown() -> None:
    lines = markdown(TABLE).splitlines()
    assert lines[0] == "| Group | a_b | ×10⁻³ |"
    assert lines[2] == r"| A & B | 1.0\*\* | **2** ▼ / 3 |"
    assert lines[3] == r"| A & B | x\|y | −4† ▲ |"
    assert lines[-1] == TABLE.caption


def test_markdown_carries_no_html() -> None:
    name = "<script>\nalert(1)</script>"
    result = markdown(Table("t", name, (name,), ((text(name),),)))
    assert "<" not in result
    assert len(result.splitlines()) == 5


def test_latex_shows_a_name_once_and_escapes() -> None:
    lines = latex(TABLE).splitlines()
    assert lines[4] == r"Group & a\_b & $\times$$10^{-3}$ \\ \midrule"
    assert lines[5] == r"A \& B & 1.0$^{**}$ & \textbf{2}\,$\blacktriangledown$ / 3 \\"
    assert lines[6] == r" & x$|$y & $-$4$^{\dagger }$\,$\blacktriangle$ \\"
    assert lines[7] == r"\addlinespace"
    assert lines[8] == r"C & -- & \#1 \\"
    assert r"\caption{50 \% of rows, $|$$\bar{s}$ $-$ $\bar{b}$$|$.}" in lines


def test_html_escapes_names_and_keeps_emphasis() -> None:
    evil = Table("t", "<b>", ("<i>",), (((Part("<script>", True, "better", "**"),),),))
    written = html(evil)
    assert "<script>" not in written
    assert "<td><strong>&lt;script&gt;</strong><sup>**</sup> ▼</td>" in written
    assert "<th>&lt;i&gt;</th>" in written


def test_a_data_frame_without_pandas_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        frame([{"rows": 1}])
