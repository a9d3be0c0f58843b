"""``apply`` and labels: it needs none, and passes those of the input on as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

NAMES = ("ant", "bee", "cat")


@pytest.fixture
def model(call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> str:
    """A model with class names."""
    table(tmp_path / "cal.csv", logits, [NAMES[label] for label in labels])
    code, _, errors = call("fit", "cal.csv", "--calibrator", "ts", "--output", "m.safetensors")
    assert code == 0, errors
    return "m.safetensors"


def table(path: Path, scores: np.ndarray, labels: list[str]) -> None:
    frame = pandas.DataFrame(scores, columns=NAMES)
    frame["label"] = labels
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif path.suffix == ".feather":
        frame.to_feather(path)
    else:
        frame.to_parquet(path)


def labels_in(path: Path) -> list[str]:
    read = {
        ".csv": pandas.read_csv,
        ".jsonl": lambda path: pandas.read_json(path, lines=True),
        ".feather": pandas.read_feather,
        ".parquet": pandas.read_parquet,
    }[path.suffix]
    return read(path)["label"].tolist()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".feather"])
@pytest.mark.parametrize("options", [(), ("--on-error", "skip")])
def test_a_new_class_passes_through(
    call, tmp_path: Path, model: str, logits: np.ndarray, suffix: str, options: tuple[str, ...]
) -> None:
    words = ["wasp", "ant", "bee"] * 10
    (tmp_path / "parts").mkdir()
    for name in ("new", "parts/a", "parts/b"):
        table((tmp_path / name).with_suffix(suffix), logits[:30], words)
    code, _, errors = call("apply", model, f"new{suffix}", "--output", f"out{suffix}", *options)
    assert code == 0, errors
    assert "30 rows" in errors
    assert labels_in(tmp_path / f"out{suffix}") == words
    code, _, errors = call("apply", model, "parts", "--output", "outs/", *options)
    assert code == 0, errors
    for name in ("a", "b"):
        assert labels_in((tmp_path / "outs" / name).with_suffix(suffix)) == words
    code, _, errors = call("apply", model, "parts", "--output", f"both{suffix}", *options)
    assert code == 0, errors
    assert labels_in(tmp_path / f"both{suffix}") == words + words
    # A command that needs the labels refuses the same file.
    assert call("fit", f"new{suffix}", "--calibrator", "ts", "--output", "n.safetensors")[0] == 2


def test_labels_that_do_not_fit_the_rows_of_an_archive(
    call, tmp_path: Path, model: str, logits: np.ndarray
) -> None:
    np.savez(tmp_path / "new.npz", logits=logits[:20], labels=np.arange(20) + 2**40)
    code, _, errors = call("apply", model, "new.npz", "--output", "out.npz")
    assert code == 0, errors
    assert np.load(tmp_path / "out.npz")["repaired"].shape == (20, 3)


def test_a_repair_alone_needs_no_labels(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    words = [NAMES[label] for label in labels]
    table(tmp_path / "p.csv", chances, words)
    table(tmp_path / "q.csv", np.sqrt(chances) / np.sqrt(chances).sum(1, keepdims=True), words)
    pair = ("--original", "p.csv", "--direct", "q.csv")
    code, _, errors = call("fit", *pair, "--output", "r.safetensors")
    assert code == 0, errors
    table(tmp_path / "p.csv", chances, ["wasp"] * 400)
    code, _, errors = call("apply", "r.safetensors", *pair, "--output", "out.csv")
    assert code == 0, errors
    assert labels_in(tmp_path / "out.csv") == ["wasp"] * 400


def test_audit_skips_rows_without_a_label(
    call, tmp_path: Path, model: str, logits: np.ndarray, labels: np.ndarray
) -> None:
    words = [NAMES[label] for label in labels]
    table(tmp_path / "all.csv", logits, words)
    table(tmp_path / "some.csv", logits, ["" if at in (2, 5) else w for at, w in enumerate(words)])
    assert call("apply", model, "all.csv", "--keep", "none", "--output", "q.csv")[0] == 0
    audit = ("audit", "--original", "some.csv", "--direct", "q.csv", "--json")
    code, _, errors = call(*audit)
    assert code == 2
    assert "row 2 has no label; leave out rows without a label, or pass --on-error skip" in errors
    code, _, errors = call(*audit, "--on-error", "skip")
    assert code == 0, errors
    assert "skipped 2 rows: has no label" in errors
