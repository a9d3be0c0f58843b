"""Groups on the console of `audit` and `check`: the worst first, with the chance level."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from cordcal.metrics import nll

pytest.importorskip("pyarrow")

REGIONS = ("north", "south", "west")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write two files of probabilities whose rows are harder in the south."""
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=300)
    region = np.array(REGIONS)[np.arange(300) % 3]
    spread = np.where(region == "south", 2.0, np.where(region == "west", 1.0, 0.5))
    logits = 2.0 * np.eye(4)[labels] + spread[:, None] * rng.normal(size=(300, 4))
    np.savez(tmp_path / "p.npz", probs=softmax(logits, axis=1), labels=labels, region=region)
    np.savez(tmp_path / "q.npz", probs=softmax(0.5 * logits, axis=1))
    return tmp_path


def places(text: str) -> list[int]:
    return [text.index(region) for region in ("south", "west", "north")]


def test_audit_prints_them(folder, call) -> None:
    audit = ("audit", "--original", "p.npz", "--direct", "q.npz")
    code, out, err = call(*audit, "--groups", "region", "--report", "a.html")
    assert code == 0, err
    assert "guessing is right in 25.0 %" in " ".join(out.split())
    assert places(out) == sorted(places(out))
    assert "Per group" in (folder / "a.html").read_text()
    assert "guessing" not in call(*audit)[1]
    _, out, _ = call(*audit, "--groups", "region", "--json")
    south = json.loads(out)["groups"][0]
    assert (south["name"], south["n"]) == ("south", 100)
    data = np.load(folder / "p.npz")
    rows = data["region"] == "south"
    expected = nll(data["probs"][rows], data["labels"][rows])
    assert south["measures"]["original"]["nll"] == pytest.approx(expected)


def test_audit_skips_rows_with_their_groups(folder, call) -> None:
    data = dict(np.load(folder / "p.npz"))
    data["probs"][1] = np.nan
    np.savez(folder / "bad.npz", **data)
    audit = ("audit", "--original", "bad.npz", "--direct", "q.npz", "--groups", "region")
    code, out, err = call(*audit, "--on-error", "skip", "--json")
    assert code == 0, err
    counts = {group["name"]: group["n"] for group in json.loads(out)["groups"]}
    assert counts == {"north": 100, "south": 99, "west": 100}


def test_audit_refuses_groups_of_other_rows(folder, call) -> None:
    np.save(folder / "short.npy", np.zeros(299, dtype=int))
    np.save(folder / "long.npy", np.zeros(301, dtype=int))
    audit = ("audit", "--original", "p.npz", "--direct", "q.npz", "--groups")
    for name in ("short.npy", "long.npy"):
        code, _, err = call(*audit, name)
        assert code == 2
        assert "groups" in err
    np.savez(folder / "unlabelled.npz", probs=np.load(folder / "p.npz")["probs"])
    audit = ("audit", "--original", "unlabelled.npz", "--direct", "q.npz")
    code, _, err = call(*audit, "--groups", "p.npz:region")
    assert code == 2
    assert "groups need labels" in " ".join(err.split()).replace(": ", " ")


def test_check_prints_them(folder, call) -> None:
    check = ("check", "p.npz", "--max", "nll=5", "--groups", "region")
    code, out, err = call(*check)
    assert code == 0, err
    assert "guessing is right in 25.0 %" in " ".join(out.split())
    assert places(out) == sorted(places(out))
    assert [group["name"] for group in json.loads(call(*check, "--json")[1])["groups"]] == [
        "south",
        "west",
        "north",
    ]
