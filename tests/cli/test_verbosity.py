"""What the command prints: quiet, verbose, logs, JSON errors and Ctrl-C."""

from __future__ import annotations

import itertools
import json
import queue
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cordcal.cli import _console

TS = ("--calibrator", "ts")


@pytest.fixture
def folder(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> Path:
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels)
    holes = logits.copy()
    holes[[4, 9]] = np.nan
    np.savez(tmp_path / "holes.npz", logits=holes, labels=labels)
    return tmp_path


def test_quiet_says_nothing_but_results(call, folder: Path) -> None:
    assert call("fit", "s.npz", *TS, "--output", "m.safetensors", "-q")[::2] == (0, "")
    assert call("apply", "m.safetensors", "s.npz", "--output", "o.npz", "--quiet") == (0, "", "")
    code, out, errors = call("compare", "s.npz", *TS, "--quiet")
    assert (code, errors) == (0, "")
    assert not out.startswith("cordcal compare")


def test_quiet_keeps_warnings_and_errors(call, folder: Path) -> None:
    skip = ("--on-error", "skip", "--quiet")
    assert "skipped 2 rows" in call("fit", "holes.npz", *TS, *skip)[2]
    assert "does not exist" in call("fit", "nowhere.npz", "--quiet")[2]


def test_compare_takes_keys_with_commas_and_skips_rows(call, folder: Path) -> None:
    compare = ("compare", "holes.npz", "--calibrator", "ts,platt", "--calibrator", "vs", "--json")
    assert call(*compare)[0] == 2
    code, out, errors = call(*compare, "--on-error", "skip")
    assert code == 0
    result = json.loads(out)
    assert [entry["key"] for entry in result["calibrators"]] == ["ts", "platt", "vs"]
    assert result["n_calibration"] + result["n_evaluation"] == 398
    assert "skipped 2 rows" in errors


def test_groups_of_skipped_rows_are_skipped(call, folder: Path) -> None:
    bad = np.isin(np.arange(400), [4, 9])
    np.save(folder / "groups.npy", np.where(bad, "bad", "good"))
    options = ("--groups", "groups.npy", "--on-error", "skip", "--json")
    code, out, errors = call("compare", "holes.npz", *TS, *options)
    assert code == 0, errors
    groups = json.loads(out)["calibrators"][0]["groups"]
    assert {group["name"] for group in groups} == {"good"}
    np.save(folder / "groups.npy", np.zeros(300))
    assert "groups has shape (300,)" in call("compare", "holes.npz", *TS, *options)[2]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("fit", "holes.npz", *TS),
            {
                "argument": "holes.npz (logits)",
                "rows": [4, 9],
                "n_rows": 2,
                "reason": "contains NaN or an infinite value",
                "option": None,
            },
        ),
        (
            ("compare", "s.npz", "--hold-out", "2"),
            {
                "option": "--hold-out",
                "reason": "is 2.0",
                "hint": "pass a share between 0 and 1, or separate rows",
                "rows": [],
            },
        ),
        (("apply", "m", "s.npz", "--decimals", "few"), {"option": "--decimals", "argument": None}),
        (("compare", "nowhere.npz"), {"argument": "nowhere.npz", "reason": "does not exist"}),
    ],
)
def test_an_error_is_one_object(call, folder: Path, arguments, expected) -> None:
    code, out, errors = call(*arguments, "--json")
    result = json.loads(out)["error"]
    assert code == result["exit_code"] == 2
    assert f"cordcal: {result['sentence']}" in errors
    assert {name: result[name] for name in expected} == expected


def test_verbose_shows_where_an_error_comes_from(call, folder: Path) -> None:
    assert "Traceback" in call("fit", "holes.npz", *TS, "--verbose")[2]
    assert "Traceback" not in call("fit", "holes.npz", *TS)[2]


def test_a_log_has_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: queue.Queue[str] = queue.Queue()
    clock = itertools.count(100.0, 41.6)  # the start, and then a time for every line
    monkeypatch.setattr(_console, "echo_info", lines.put)
    monkeypatch.setattr(_console, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(_console, "_EVERY", 0.001)
    monkeypatch.setattr(_console.VERBOSITY, "quiet", False)
    with _console.progress("comparing", 3) as advance:
        advance("ts")
        # One step is reported repeatedly while it lasts.
        assert lines.get(timeout=60) == "comparing: ts, 0 of 3, 42 s"
        assert lines.get(timeout=60) == "comparing: ts, 0 of 3, 83 s"
        advance("svs")
        while (line := lines.get(timeout=60)).startswith("comparing: ts,"):
            pass
        assert line.startswith("comparing: svs, 1 of 3, ")


def test_a_quiet_log_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_console, "threading", None)  # nothing is started that could tell
    monkeypatch.setattr(_console.VERBOSITY, "quiet", True)
    with _console.progress("comparing", 3) as advance:
        advance("ts")


def test_fit_prints_figures_on_held_out_rows(call, folder: Path) -> None:
    code, out, errors = call("fit", "s.npz", *TS, "--output", "m.safetensors")
    assert code == 0
    assert "NLL " in out
    assert re.search(r"NLL +\d\.\d{4} → \d\.\d{4} \(change −0\.\d{4}, 95 % \[", out)
    assert re.search(r"ECE +\d+\.\d\d % → \d+\.\d\d % \(change [−+]\d+\.\d\d points", out)
    assert "400 rows held out in 5 folds" in out
    assert "scalar" not in out + errors
    code, out, errors = call("fit", "s.npz", "--calibrator", "svs", "--force", "--verbose")
    assert "scalar" in errors  # the repair's inner life
    code, out, _ = call("fit", "s.npz", *TS, "--force", "--json")
    result = json.loads(out)["held_out"]
    assert result["repaired"]["nll"] < result["original"]["nll"]


def test_a_class_of_one_row_leaves_the_fit_alone(call, tmp_path: Path) -> None:
    """The model is written although a fold lacks a class."""
    rng = np.random.default_rng(0)
    labels = np.append(rng.integers(2, size=60), 2)
    np.savez(tmp_path / "s.npz", logits=rng.normal(size=(61, 3)), labels=labels)
    code, _, errors = call("fit", "s.npz", "--calibrator", "irova")
    assert code == 0, errors
    assert (tmp_path / "model.safetensors").exists()
