"""One list of columns: every renderer shows it, sorted, and marks what is recommended."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import cordcal
from cordcal.evaluate.results.recommendation import Recommendation
from cordcal.evaluate.results.report import ReportData
from cordcal.report import render
from cordcal.report.tables import columns, notebook_html, sorted_rows, table_of
from cordcal.report.terminal import (
    Bullets,
    act_table,
    comparison_answer,
    comparison_table,
    comparison_view,
    short_rows,
)


@pytest.fixture(scope="module")
def comparison() -> cordcal.Comparison:
    rng = np.random.default_rng(4)
    labels = rng.integers(4, size=1600)
    logits = 5.0 * np.eye(4)[labels] + 3.0 * rng.normal(size=(1600, 4)) + [0.8, 0.0, 0.0, -0.8]
    return cordcal.compare(logits, labels, ["ts", "mono", "vs", "svs", "irova", "blend"])


@pytest.fixture(scope="module")
def data(comparison: cordcal.Comparison) -> ReportData:
    return comparison.report_data()


def printed(shown: object, width: int = 80) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(shown)
    return file.getvalue()


def test_every_renderer_shows_the_list(comparison: cordcal.Comparison, data: ReportData) -> None:
    every = columns(data)
    frame = comparison.to_frame()
    intervals = {f"{column.key}_{end}" for column in every for end in ("low", "high")}
    assert [name for name in frame if name not in intervals] == [column.key for column in every]
    console = printed(comparison_table(data, all_rows=True), 300)
    page = render(data, title="t")
    markdown = comparison.to_markdown([column.metric for column in every if column.metric])
    for column in every:
        assert (column.heading in console.replace("\n", " ")) == column.on_console or " " in (
            column.heading
        )
        assert (f">{column.heading}</button>" in page) == (column.on_page and not column.text)
        heading = column.heading[0].upper() + column.heading[1:]
        assert (f"| {heading} |" in markdown) == column.in_documents


def test_the_cells_are_the_frames(comparison: cordcal.Comparison, data: ReportData) -> None:
    frame = comparison.to_frame()
    for place, row in enumerate(data.rows()):
        for column in columns(data):
            value = frame[column.key][place]
            if isinstance(value, float) and np.isnan(value):
                value = None
            assert column.write(value) == column.cell(row)


def test_tables_are_sorted_by_nll(data: ReportData) -> None:
    values = [row.measures["nll"] for row in sorted_rows(data)]
    assert values == sorted(values)
    assert len(values) == len(data.rows())
    shown = [row[2][0].text for row in table_of(data, intervals=False).rows]
    assert shown == sorted(shown)


def test_the_short_table_has_what_matters(data: ReportData) -> None:
    rows = short_rows(data)
    assert len(rows) <= 8
    assert [row.measures["nll"] for row in rows] == sorted(row.measures["nll"] for row in rows)
    outputs = [(row.key, row.output) for row in rows]
    assert len(set(outputs)) == len(outputs)
    assert ("uncalibrated", "original") in outputs
    assert data.default in outputs
    assert data.recommended in outputs
    for kind in ("repaired", "lift"):
        best = min(
            (row for row in data.rows() if row.output == kind), key=lambda row: row.measures["nll"]
        )
        assert (best.key, best.output) in outputs
    assert sum(row.recommended for row in rows) == 1
    text = printed(comparison_table(data, hint="--verbose shows"))
    others = len(data.rows()) - len(rows)
    assert f"--verbose shows {others} more rows" in " ".join(text.split())
    everything = printed(comparison_table(data, all_rows=True))
    assert everything.count("\n│") == len(data.rows())
    assert "more row" not in everything


def test_the_answer_comes_first_on_one_screen(data: ReportData) -> None:
    answer = printed(comparison_answer(data, "report.html"))
    assert answer.startswith("Recommended")
    assert len(answer.splitlines()) <= 14
    assert re.search(rf"Predictions changed +0 of {data.n_evaluation:,}\n", answer)
    nll, ece = r"\d\.\d{4} → \d\.\d{4}", r"\d+\.\d\d % → \d+\.\d\d %"
    assert re.search(rf"NLL, ECE +{nll}, {ece}\n", answer)
    assert re.search(r"If predictions may change +\S", answer)
    assert re.search(r"Report +report\.html\n", answer)
    whole = printed(comparison_view(data))
    assert whole.startswith(answer.split("Report")[0])
    # The answer and the table together.
    assert len(whole.splitlines()) <= 23


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_paragraph_is_unbroken(data: ReportData, width: int) -> None:
    parts = (
        *(comparison_answer(data), Bullets(data.reading)),
        *(comparison_table(data, all_rows=True), act_table(data)),
    )
    text = "".join(printed(part, width) for part in parts)
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines)
    prose = [line for line in lines if line and not re.match(r"[┏┃┡│└]", line)]
    assert all(len(line) <= 100 for line in prose if not line.startswith("→"))
    # Each sentence is an item of a list.
    starts = [line for line in lines if line.startswith("• ")]
    assert len(starts) == len(data.reading)


def test_without_a_recommendation_the_caveats_count(data: ReportData) -> None:
    no_recommendation = Recommendation(
        key=None,
        output=None,
        is_default=False,
        reason="Check first: x.",
        n_rows=0,
        before={},
        after={},
    )
    blocked = replace(data, advice=no_recommendation)
    answer = printed(comparison_answer(blocked))
    assert answer.startswith("Recommended  nothing yet; first check what is marked with ! above")
    assert len(answer.splitlines()) <= 4
    assert "→" not in answer
    assert "→" not in printed(comparison_table(blocked))
    page = render(blocked, title="t")
    assert "Predictions changed</dt>" not in page
    assert 'class="chosen' not in page


def test_a_notebook_shows_ten_rows_and_folds_the_others(data: ReportData) -> None:
    def marked(text: str) -> list[str]:
        return re.findall(r"<tr><td>→</td><td><strong>([^<]+)</strong></td>", text)

    text = notebook_html(data)
    shown, folded = text.split("<details>")
    assert shown.count("<tr><td>") == 10
    assert folded.count("<tr><td>") == len(data.rows()) - 10
    assert f"<summary>{len(data.rows()) - 10} more rows</summary>" in folded
    assert data.recommended is not None
    assert marked(shown) == [data.recommended[0]]
    # The recommended row is shown even if it is the last one.
    worst = sorted_rows(data)[-1]
    assert data.advice is not None
    other = replace(data, advice=replace(data.advice, key=worst.key, output=worst.output))
    shown, folded = notebook_html(other).split("<details>")
    assert shown.count("<tr><td>") == 10
    assert marked(shown) == [worst.key]
    few = replace(data, calibrators=data.calibrators[:2])
    assert "<details>" not in notebook_html(few)
