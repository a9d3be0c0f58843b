"""Tables on narrow terminals: whole columns go, by importance, and no number is cut."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import cordcal

WIDTHS = (40, 60, 80, 120, 160)


def printed(what: Any, width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(what)
    return file.getvalue()


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=900)
    logits = 3.0 * (np.eye(3)[labels] + 0.7 * rng.normal(size=(900, 3)))
    comparison = cordcal.compare(logits, labels, ["ts", "irova"])
    model = cordcal.PreservingCalibrator("irova").fit(logits, labels)
    original = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    audit = cordcal.audit(original, model.direct_proba(logits), labels)
    return {"comparison": comparison, "audit": audit}


def cells(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith("│")]
    return [cell.strip() for line in lines for cell in line.strip("│").split("│")]


@pytest.mark.parametrize("name", ["comparison", "audit"])
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut(results, name: str, width: int) -> None:
    text = printed(results[name], width)
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())
    whole = set(cells(printed(results[name], 300)))
    numbers = {cell for cell in cells(text) if re.match(r"[+−-]?\d", cell)}
    assert numbers
    assert numbers <= whole


def headings(text: str) -> set[str]:
    lines = [line for line in text.splitlines() if line.startswith("┃")]
    return {cell.strip() for cell in lines[-1].strip("┃").split("┃")}


def test_the_least_important_columns_go_first(results) -> None:
    result = {width: headings(printed(results["comparison"], width)) for width in WIDTHS}
    assert result[160] == result[120] > result[80] > result[60]
    assert "fit, s" not in result[80]
    assert {"changed, %", "NLL", "ECE, %", "accuracy, %"} <= result[80]
    assert {"changed, %", "NLL"} <= result[60]
    assert "changed, %" not in result[40]


def test_omitted_columns_are_mentioned(results) -> None:
    assert "a wider terminal" not in printed(results["comparison"], 120)
    narrow = " ".join(printed(results["comparison"], 80).split())
    assert "a wider terminal (--verbose) adds Brier, C⁺, C⁻, C⁰, fit" in narrow
