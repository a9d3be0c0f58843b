"""``--header`` and ``--no-header``: every command that reads CSV files settles a first line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

ROWS = 200
COMMANDS = {
    "fit": ("fit", "s.csv", "--labels", "y.npy", "--calibrator", "ts", "--output", "f.safetensors"),
    "compare": ("compare", "s.csv", "--labels", "y.npy", "--calibrator", "ts"),
    "audit": ("audit", "--original", "s.csv", "--direct", "s.csv"),
    "check": ("check", "s.csv", "--original", "s.csv", "--labels", "y.npy", "--max", "tpcr=0"),
    "apply": ("apply", "m.safetensors", "s.csv", "--output", "o.csv"),
    "info": ("info", "s.csv"),
}


@pytest.fixture
def scores(call, tmp_path: Path) -> np.ndarray:
    """Probabilities of two classes under headings that may be a row, and a model of such."""
    rng = np.random.default_rng(1)
    labels = rng.integers(2, size=ROWS)
    top = 0.02 + 0.96 * rng.beta(2.0 + 2.0 * labels, 4.0 - 2.0 * labels)
    result = np.column_stack([1.0 - top, top])
    head = "1,0"
    reverse = result[:, ::-1]
    np.savetxt(tmp_path / "s.csv", reverse, delimiter=",", header=head, comments="", fmt="%.6f")
    np.save(tmp_path / "y.npy", labels)
    np.savez(tmp_path / "s.npz", probs=result, labels=labels)
    fit = ("fit", "s.npz", "--calibrator", "ts", "--output", "m.safetensors")
    assert call(*fit)[0] == 0
    return result


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_settles_a_first_line(call, scores: np.ndarray, name: str) -> None:
    code, _, errors = call(*COMMANDS[name])
    assert code == 2
    assert "--header or --no-header" in errors
    code, _, errors = call(*COMMANDS[name], "--header")
    assert code == 0, errors


def test_both_answers_are_taken_at_their_word(call, tmp_path: Path, scores: np.ndarray) -> None:
    for option, rows in (("--header", ROWS), ("--no-header", ROWS + 1)):
        code, _, errors = call(*COMMANDS["apply"], option, "--force")
        assert code == 0, errors
        assert f"{rows} rows" in errors
        assert len((tmp_path / "o.csv").read_text().splitlines()) == rows + 1
    code, _, errors = call(*COMMANDS["fit"], "--no-header")
    assert code == 2
    assert "y.npy" in errors


def test_parts_and_the_next_step_keep_the_answer(call, tmp_path: Path, scores: np.ndarray) -> None:
    (tmp_path / "parts").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "parts" / name).write_bytes((tmp_path / "s.csv").read_bytes())
    apply = ("apply", "m.safetensors", "parts", "--output", "outs/")
    code, _, errors = call(*apply)
    assert code == 2
    assert "a.csv begins with the line '1,0'" in errors
    code, _, errors = call(*apply, "--header")
    assert code == 0, errors
    assert f"{2 * ROWS} rows" in errors
    code, printed, errors = call(*COMMANDS["compare"], "--header", "--json")
    assert code == 0, errors
    step = json.loads(printed)["next_step"]
    assert step["shell"][0].startswith("cordcal fit s.csv --labels y.npy --header --calibrator")
    assert "read_scores('s.csv', labels='y.npy', header=True)" in step["python"][1]


def test_columns_headed_in_another_order(call, tmp_path: Path, scores: np.ndarray) -> None:
    np.savetxt(tmp_path / "r.csv", scores, delimiter=",", header="0,1", comments="", fmt="%.6f")
    for original in ("s.csv", "s.npz"):
        pair = ("--original", original, "--direct", "r.csv", "--header")
        code, output, _ = call("audit", *pair, "--json")
        assert code == 0
        assert json.loads(output)["changes"]["n_changed"] == 0
    apply = ("apply", "m.safetensors", "--header", "--output")
    assert call(*apply, "a.npy", "s.csv")[0] == call(*apply, "b.npy", "r.csv")[0] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))
