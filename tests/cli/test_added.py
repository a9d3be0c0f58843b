"""What `apply` adds and what it copies from the input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def model(tmp_path: Path, monkeypatch, call, logits: np.ndarray, labels: np.ndarray) -> str:
    monkeypatch.chdir(tmp_path)
    np.savez("s.npz", logits=logits, labels=labels)
    assert call("fit", "s.npz", "--calibrator", "ts")[0] == 0
    lines = [",".join([f"row{at}", *map(str, row)]) for at, row in enumerate(logits[:5].tolist())]
    Path("n.csv").write_text("id,s_0,s_1,s_2\n" + "\n".join(lines) + "\n")
    return "model.safetensors"


def heading(call, model: str, *options: str) -> list[str]:
    code, output, errors = call("apply", model, "n.csv", *options)
    assert code == 0, errors
    return output.splitlines()[0].split(",")


def test_columns_are_added_and_copied(model: str, call) -> None:
    plain = heading(call, model)
    assert plain[0] == "id"
    direct = [f"direct_{number}" for number in range(3)]
    assert heading(call, model, "--add", "direct") == [*plain, *direct]
    both = heading(call, model, "--add", "direct, explanation")
    assert both == heading(call, model, "--add", "explanation", "--add", "direct")
    assert set(plain) | set(direct) < set(both)
    assert heading(call, model, "--keep", "others") == plain
    assert heading(call, model, "--keep", "all") == ["id", "s_0", "s_1", "s_2", *plain[1:]]
    assert heading(call, model, "--keep", "none") == plain[1:]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--add", "explain"), "--add has 'explain'; write some of direct, explanation and"),
        (("--add", "direct=2%"), "--add has 'direct=2%'"),
        (("--add", "audit"), "--add has 'audit'"),
        (("--add", "audit=200%"), "--add is 200%; write a share between 0 and 1"),
        (("--add", ""), "--add has ''"),
        (("--keep", "id"), "--keep is 'id'; write others, all or none"),
    ],
)
def test_other_words_are_refused(model: str, call, options, message: str) -> None:
    code, _, errors = call("apply", model, "n.csv", *options)
    assert code == 2
    assert message in errors
