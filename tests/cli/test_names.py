"""Columns are matched by name: any order gives the same output, other classes are refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

import cordcal
from cordcal.files import open_scores, read_scores

arrow = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

NAMES = ("ant", "bee", "cat", "dove")
TS = ("--calibrator", "ts")
PREFIX = "score_"
ROWS = 120
# Files that are read as arrays have a list of class names; the others have headings.
ARRAYS = ("npz", "h5", "pt")
TABLES = ("csv", "jsonl", "parquet", "feather")
NEEDS = {"h5": "h5py", "pt": "torch"}


@dataclass(frozen=True)
class Part:
    """Rows of some classes, and how they are changed."""

    values: np.ndarray
    words: Sequence[str]
    names: Sequence[str] = NAMES

    def changed(self, what: str, rng: np.random.Generator) -> tuple[Part, str]:
        """Return the part with other columns, and the class that this is about."""
        names, values = list(self.names), self.values
        at = int(rng.integers(len(names)))
        if what == "permute":
            order = rng.permutation(len(names))
            while (order == np.arange(len(names))).all():
                order = rng.permutation(len(names))
            return Part(values[:, order], self.words, [names[k] for k in order]), ""
        if what == "rename":
            about, names[at] = names[at], "wolf"
        elif what == "drop":
            about = names.pop(at)
            values = np.delete(values, at, axis=1)
        else:
            about = "wolf"
            names.insert(at, about)
            values = np.insert(values, at, 0.01, axis=1)
        return Part(values, self.words, names), about


def write(path: Path, part: Part, prefix: str = "") -> None:
    """Write a part with an identifier and labels that are words."""
    path.parent.mkdir(exist_ok=True)
    kind = path.name.partition(".")[2]
    values, names = part.values, list(part.names)
    keys = [f"r{at}" for at in range(len(values))]
    columns = {f"{prefix}{name}": values[:, at] for at, name in enumerate(names)}
    if kind == "csv":
        lines = [",".join(["key", *columns, "label"])]
        lines += [
            ",".join([key, *map(repr, row), word])
            for key, row, word in zip(keys, values.tolist(), part.words, strict=True)
        ]
        path.write_text("\n".join(lines) + "\n")
    elif kind == "jsonl":
        rows = zip(keys, values.tolist(), part.words, strict=True)
        lines = [
            json.dumps({"key": key, **dict(zip(columns, row, strict=True)), "label": word})
            for key, row, word in rows
        ]
        path.write_text("\n".join(lines) + "\n")
    elif kind == "npz":
        np.savez(path, scores=values, labels=np.array(part.words), class_names=np.array(names))
    elif kind == "h5":
        import h5py

        with h5py.File(path, "w") as file:
            file["scores"], file["labels"] = values, list(part.words)
            file["class_names"] = names
    elif kind == "pt":
        import torch

        stored = {"scores": torch.tensor(values), "labels": list(part.words), "class_names": names}
        torch.save(stored, path)
    else:
        scores: dict[str, Any] = dict(columns)
        metadata = None
        if kind.startswith("lists."):
            scores, metadata = {"scores": values.tolist()}, {"class_names": json.dumps(names)}
        table = arrow.table({"key": keys, **scores, "label": list(part.words)})
        table = table.replace_schema_metadata(metadata)
        if kind.endswith("parquet"):
            parquet.write_table(table, path, row_group_size=25)
        else:
            feather.write_feather(table, path, chunksize=25)


def parts_of(values: np.ndarray, truth: np.ndarray) -> list[Part]:
    words = [NAMES[label] for label in truth]
    edges = (0, 40, 70, ROWS)
    return [Part(values[start:stop], words[start:stop]) for start, stop in pairwise(edges)]


def output_of(path: Path) -> dict[str, Any]:
    """Return what a command wrote: bytes by name, of a file or of a folder."""
    if path.is_dir():
        parts = (file for file in sorted(path.iterdir()) if not file.name.startswith("_"))
        return {file.name: file.read_bytes() for file in parts}
    return {path.name: path.read_bytes()}


def printed_by(text: str) -> Any:
    """Return what a command printed, without the time that it took."""
    return _untimed(json.loads(text)) if text.startswith("{") else text


def _untimed(value: Any) -> Any:
    """Drop durations, and the date and digests of files, which differ by their layout."""
    if isinstance(value, dict):
        left_out = ("seconds", "facts")
        return {key: _untimed(entry) for key, entry in value.items() if key not in left_out}
    return [_untimed(entry) for entry in value] if isinstance(value, list) else value


def repaired(path: Path) -> np.ndarray:
    """Return the reports that apply wrote, in the order of the classes."""
    opened = open_scores(path, role="repaired", classes=NAMES)
    return np.concatenate([batch.values for batch in opened])


CASES = [(kind, "") for kind in ARRAYS] + [(kind, p) for kind in TABLES for p in ("", PREFIX)]
# By default every command with two of the formats, and every third with each other.
EVERY_COMMAND = [("csv", PREFIX), ("npz", "")]
TURNS = [
    pytest.param(*case, turn, marks=pytest.mark.exhaustive if turn is None else ())
    for at, case in enumerate(CASES)
    for turn in ([at % 3, None] if case not in EVERY_COMMAND else [0, 1, 2])
]


@pytest.mark.filterwarnings("default:some parts lack a column")
@pytest.mark.parametrize(("kind", "prefix", "turn"), TURNS)
def test_columns_in_any_part(
    call, tmp_path: Path, kind: str, prefix: str, turn: int | None
) -> None:
    """Try every third command from `turn` on, or all of them."""
    if kind in NEEDS and find_spec(NEEDS[kind]) is None:
        pytest.skip(f"needs {NEEDS[kind]}")
    rng = np.random.default_rng([ord(letter) for letter in kind + prefix])
    truth = rng.integers(4, size=ROWS)
    logits = 2.0 * np.eye(4)[truth] + rng.normal(size=(ROWS, 4))
    probabilities = softmax(logits, axis=1)
    inputs = {
        "s": logits,
        "p": probabilities,
        "q": softmax(0.6 * logits + [0.5, 0, 0, 0], axis=1),
    }
    folders = {name: parts_of(values, truth) for name, values in inputs.items()}
    for name, parts in folders.items():
        for at, part in enumerate(parts):
            write(tmp_path / name / f"{at}.{kind}", part, prefix)
    read = ("--columns", f"{PREFIX}*") if prefix else ()
    assert call("fit", "s", *read, *TS, "--output", "m.safetensors")[0] == 0
    assert (
        call("fit", "--original", "p", "--direct", "q", *read, "--output", "c.safetensors")[0] == 0
    )
    pair = ("--original", "p", "--direct", "q")
    commands: dict[str, tuple[tuple[str, ...], str]] = {
        "fit": (("fit", "s", *read, *TS, "--force", "--output", "out.safetensors"), "s"),
        "fit pair": (("fit", *pair, *read, "--force", "--output", "out.safetensors"), "pq"),
        "compare": (("compare", "s", *read, *TS, "--json"), "s"),
        "audit": (("audit", *pair, *read, "--json"), "pq"),
        "check": (("check", "q", *read, "--original", "p", "--max", "tpcr=1", "--json"), "pq"),
        "one file": (
            ("apply", "m.safetensors", "s/1." + kind, "--force", "--output", "o.csv"),
            "s",
        ),
        "into one": (("apply", "m.safetensors", "s", "--force", "--output", "o.parquet"), "s"),
        "pair into one": (("apply", "c.safetensors", *pair, "--force", "--output", "o.csv"), "pq"),
    }
    if kind not in (*NEEDS, "npz"):
        folder = ("apply", "m.safetensors", "s", *read, "--force", "--output", "o")
        commands["into folder"] = (folder, "s")
    for name in list(commands)[turn::3] if turn is not None else commands:
        command, used = commands[name]
        first = {"apply m.safetensors": "", "check q": "q"}.get(" ".join(command[:2]), "sp")
        target = tmp_path / str(command[-1])
        code, expected, errors = call(*command)
        assert code == 0, (name, errors)
        files = output_of(target) if target.exists() else {}
        reports = repaired(target) if command[0] == "apply" else None
        for what in ("permute", "rename", "drop", "add"):
            folder_name = used[int(rng.integers(len(used)))]
            at = 1 if name == "one file" else int(rng.integers(3))
            if what == "permute" and folder_name in first:
                at = int(rng.integers(1, 3))  # the order of the output is that of the first part
            part, about = folders[folder_name][at].changed(what, rng)
            path = tmp_path / folder_name / f"{at}.{kind}"
            write(path, part, prefix)
            code, printed, errors = call(*command)
            case = (name, what, folder_name, at, errors)
            if what == "permute":
                assert code == 0, case
                assert printed_by(printed) == printed_by(expected), case
                assert not files or output_of(target) == files, case
            elif code == 0:
                # A column that is not one of the model's or the report's classes is not a score.
                assert (what, prefix, kind in TABLES) == ("add", "", True), case
                assert command[0] in ("apply", "check") or "--original" in command, case
                same = printed_by(printed) == printed_by(expected)
                assert command[0] == "apply" or same, case
                assert reports is None or (repaired(target) == reports).all(), case
            else:
                assert code == 2, case
                assert about in errors, case
                # Where the first part is the odd one, every other part differs from it.
                assert at == 0 or f"{at}.{kind}" in errors, case
            write(path, folders[folder_name][at], prefix)


def table(path: Path, names: Sequence[str], rows: np.ndarray, labels: Sequence[object]) -> None:
    path.parent.mkdir(exist_ok=True)
    lines = [",".join([*names, "label"])]
    lines += [
        ",".join([*map(repr, row), str(y)]) for row, y in zip(rows.tolist(), labels, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def parts(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> Path:
    """Two parts of one table, the second with its columns in another order."""
    words = np.array(NAMES)[labels]
    table(tmp_path / "s/a.csv", NAMES[:3], logits[:200], words[:200])
    table(tmp_path / "s/b.csv", ("cat", "bee", "ant"), logits[200:, ::-1], words[200:])
    return tmp_path


def test_the_functions_match_parts_by_name(parts: Path, logits: np.ndarray) -> None:
    opened = open_scores(parts / "s")
    values = np.concatenate([batch.values for batch in opened])
    np.testing.assert_array_equal(values, logits)
    whole = read_scores(parts / "s")
    np.testing.assert_array_equal(whole.values, logits)
    assert whole.class_names == opened.class_names == NAMES[:3]
    other = read_scores(parts / "s", class_names=("bee", "ant", "cat"))
    np.testing.assert_array_equal(other.values, logits[:, [1, 0, 2]])


def test_labels_that_count_columns_are_refused_in_another_order(
    call, parts: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    table(parts / "s/a.csv", NAMES[:3], logits[:200], labels[:200])
    table(parts / "s/b.csv", ("cat", "bee", "ant"), logits[200:, ::-1], labels[200:])
    for more in ((), ("--on-error", "skip")):
        code, _, errors = call(
            "fit", "s", *TS, *more, "--columns", "ant,bee,cat", "--output", "m.safetensors"
        )
        assert code == 2
        assert "numbers for labels" in errors
    # A file of labels has one numbering for all parts.
    np.save(parts / "y.npy", labels)
    assert (
        call(
            "fit",
            "s",
            "--labels",
            "y.npy",
            *TS,
            "--columns",
            "ant,bee,cat",
            "--output",
            "m.safetensors",
        )[0]
        == 0
    )
    # Nothing depends on them here.
    assert call("apply", "m.safetensors", "s", "--output", "o")[0] == 0


def test_parts_without_names_agree_in_their_number_of_columns(call, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    np.savez(tmp_path / "s/a.npz", logits=np.eye(3), labels=[0, 1, 2])
    np.savez(tmp_path / "s/b.npz", logits=np.ones((2, 4)), labels=[0, 1])
    code, _, errors = call("fit", "s", *TS)
    assert code == 2
    assert "b.npz has 4 columns of logits but s/a.npz has 3" in errors
    np.savez(tmp_path / "s/b.npz", logits=np.eye(3), labels=[0, 1, 2], class_names=NAMES[:3])
    for more in ((), ("--on-error", "skip")):
        code, _, errors = call("fit", "s", *TS, *more)
        assert code == 2
        assert "b.npz names its classes, unlike s/a.npz" in errors


def test_the_pattern_is_kept_in_the_model(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    words = np.array(NAMES)[labels]
    headings = [f"logit_{name}" for name in NAMES[:3]]
    table(tmp_path / "s.csv", headings, logits, words)
    table(tmp_path / "t.csv", headings[::-1], logits[:, ::-1], words)
    table(tmp_path / "plain.csv", ("bee", "ant", "cat"), logits[:, [1, 0, 2]], words)
    table(tmp_path / "other.csv", [f"{name}:z" for name in NAMES[:3]], logits, words)
    pattern = ("--columns", "logit_*")
    assert call("fit", "s.csv", *pattern, *TS, "--output", "m.safetensors")[0] == 0
    assert json.loads(call("info", "m.safetensors", "--json")[1])["columns"] == ["logit_*"]
    outputs = []
    for at, name in enumerate(("s.csv", "t.csv", "plain.csv")):
        passed = pattern if at == 1 else ()
        code, _, errors = call("apply", "m.safetensors", name, *passed, "--output", f"{at}.npy")
        assert code == 0, errors
        outputs.append((tmp_path / f"{at}.npy").read_bytes())
    assert outputs[0] == outputs[1] == outputs[2]
    assert call("apply", "m.safetensors", "other.csv", "--output", "3.npy")[0] == 0
    assert (tmp_path / "3.npy").read_bytes() == outputs[0]


def test_a_report_is_checked_against_its_original_by_name(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    words = np.array(NAMES)[labels]
    headings = [f"logit_{name}" for name in NAMES[:3]]
    table(tmp_path / "s.csv", headings, logits, words)
    table(tmp_path / "t.csv", headings[::-1], logits[:, ::-1], words)
    table(tmp_path / "u.csv", headings[::-1], logits, words)  # each score under another name
    assert call("fit", "s.csv", "--columns", "logit_*", *TS, "--output", "m.safetensors")[0] == 0
    assert call("apply", "m.safetensors", "t.csv", "--output", "o.csv")[0] == 0
    for name, changed in (("s.csv", False), ("t.csv", False), ("u.csv", True)):
        for columns in ((), ("--columns", "logit_*"), ("--columns", "p_*")):
            gate = ("--max", "tpcr=0", *columns)
            code, _, errors = call("check", "o.csv", "--original", name, *gate)
            assert code == int(changed), errors
        code, printed, errors = call("audit", "--original", name, "--direct", "o.csv", "--json")
        assert code == 0, errors
        assert (json.loads(printed)["changes"]["n_changed"] > 0) == changed
    text = (tmp_path / "t.csv").read_text()
    (tmp_path / "t.csv").write_text(text.replace("logit_cat", "logit_wolf", 1))
    for command in (
        ("check", "o.csv", "--original", "t.csv", "--max", "tpcr=0"),
        ("audit", "--original", "t.csv", "--direct", "o.csv"),
    ):
        code, _, errors = call(*command)
        assert code == 2
        assert "t.csv" in errors


def test_the_evaluation_file_is_matched_by_name(
    call, parts: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    words = np.array(NAMES)[labels]
    table(parts / "e.csv", NAMES[:3], logits[200:], words[200:])
    command = ("compare", "s/a.csv", *TS, "--json", "--hold-out")
    expected, result = (json.loads(call(*command, name)[1]) for name in ("e.csv", "s/b.csv"))
    assert _untimed(result["calibrators"]) == _untimed(expected["calibrators"])
    table(parts / "e.csv", ("ant", "bee", "wolf"), logits, words)
    code, _, errors = call(*command, "e.csv")
    assert code == 2
    assert "e.csv has no column of numbers for the class 'cat', which s/a.csv has" in errors


def test_a_baseline_is_of_the_same_classes(
    call, parts: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    read = ("--input", "logits", "--max", "nll.increase=9")
    written = ("--output", "base.baseline", "--max", "nll=9", "--input", "logits")
    assert call("check", "s/a.csv", *written)[0] == 0
    code, _, errors = call("check", "s/b.csv", *read, "--baseline", "base.baseline")
    assert code == 0, errors
    words = np.array(("ant", "bee", "wolf"))[labels]
    table(parts / "c.csv", ("ant", "bee", "wolf"), logits, words)
    code, _, errors = call("check", "c.csv", *read, "--baseline", "base.baseline")
    assert code == 2
    assert "c.csv has the class 'wolf' but not 'cat', which base.baseline has" in errors


@pytest.mark.filterwarnings("default:some parts lack a column")
def test_other_columns_of_parts_are_matched_by_name(call, parts: Path) -> None:
    assert call("fit", "s", *TS, "--output", "m.safetensors")[0] == 0
    rows = {name: [0.1, 0.2] for name in NAMES[:3]}
    (parts / "t").mkdir()
    first = arrow.table({"n": arrow.array([1, 2], arrow.int64()), "site": ["a", "b"], **rows})
    parquet.write_table(first, parts / "t/1.parquet")
    changed = {
        "order": first.select(["site", "cat", "n", "ant", "bee"]),
        "type": first.set_column(0, "n", arrow.array([1, 2], arrow.int32())),
        "null": first.set_column(0, "n", arrow.array([1.0, None])),
        "less": first.drop_columns(["site"]),
        "more": first.append_column("user", arrow.array(["x", "y"])),
        "other": first.set_column(0, "n", arrow.array(["1", "2"])),
    }
    for what, second in changed.items():
        parquet.write_table(second, parts / "t/2.parquet")
        for name in ("o.parquet", "o.feather", "o.csv"):
            code, _, errors = call("apply", "m.safetensors", "t", "--force", "--output", name)
            if what == "other":
                assert code == 2, name
                for word in ("'n'", "t/2.parquet", "t/1.parquet"):
                    assert word in errors
                continue
            assert code == 0, (what, name, errors)
            columns = passthrough_of(parts / name)
            expected = [1, 2, *second["n"].to_pylist()]
            assert columns["n"] == expected
            if what != "order":
                assert columns["site"][:2] == ["a", "b"]
        assert call("apply", "m.safetensors", "t", "--force", "--output", "o")[0] == 0
        # Without the other columns there is nothing to disagree on.
        dropped = ("--keep", "none", "--force", "--output", "o.csv")
        assert call("apply", "m.safetensors", "t", *dropped)[0] == 0


def passthrough_of(path: Path) -> dict[str, list[Any]]:
    """Return the columns of an output that are not probabilities."""
    if path.suffix == ".csv":
        pandas = pytest.importorskip("pandas")
        frame = pandas.read_csv(path, dtype={"site": str}, keep_default_na=False)
        numbers = [None if cell == "" else float(cell) for cell in frame["n"]]
        return {"n": numbers, "site": frame["site"].tolist()}
    read = parquet.read_table if path.suffix == ".parquet" else feather.read_table
    columns: dict[str, list[Any]] = read(path).to_pydict()
    return columns


def test_parts_of_several_precisions_are_read_in_the_widest(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    close = np.array([[0.1, 0.1 + 1e-12]])
    np.savez(tmp_path / "s/a.npz", logits=np.zeros((1, 2), np.float32))
    np.savez(tmp_path / "s/b.npz", logits=close)
    values = np.concatenate([batch.values for batch in open_scores(tmp_path / "s")])
    np.testing.assert_array_equal(values[1:], close)


def test_a_model_file_with_and_without_a_pattern(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    table(tmp_path / "s.csv", [f"logit_{name}" for name in NAMES[:3]], logits, labels)
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels, class_names=NAMES[:3])
    pattern = ("--columns", "logit_*")
    assert call("fit", "s.csv", *pattern, *TS, "--output", "a.safetensors")[0] == 0
    assert call("fit", "s.npz", *TS, "--output", "b.safetensors")[0] == 0
    with_pattern, without = (cordcal.load(tmp_path / f"{name}.safetensors") for name in "ab")
    assert with_pattern.score_columns_ == ("logit_*",)
    assert not hasattr(without, "score_columns_")
    np.testing.assert_array_equal(with_pattern.predict_proba(logits), without.predict_proba(logits))
    cordcal.save(with_pattern, tmp_path / "c.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "c.safetensors").read_bytes()


def test_columns_headed_with_numbers_and_an_array(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    report = softmax(logits, axis=1)
    np.save(tmp_path / "p.npy", report)
    table(tmp_path / "q.csv", ("2", "1", "0"), report[:, ::-1], labels)
    pair = ("--original", "p.npy", "--direct", "q.csv", "--header")
    code, printed, errors = call("audit", *pair, "--json")
    assert code == 0, errors
    assert json.loads(printed)["changes"]["n_changed"] == 0
    for pair in (("p.npy", "q.csv"), ("q.csv", "p.npy")):
        gate = ("--max", "tpcr=0", "--header")
        code, _, errors = call("check", pair[0], "--original", pair[1], *gate)
        assert code == 0, errors


def test_columns_of_probabilities_have_the_name_that_was_asked_for(call, parts: Path) -> None:
    assert call("fit", "s/a.csv", *TS, "--output", "m.safetensors", "--force")[0] == 0
    applied = ("apply", "m.safetensors", "s/a.csv", "--output", "named.csv", "--names")
    assert call(*applied, "q_{class}")[0] == 0
    header = (parts / "named.csv").read_text().split("\n", 1)[0]
    assert header.endswith("confidence,q_ant,q_bee,q_cat")
    code, _, errors = call(*applied, "q", "--force")
    assert (code, "--names" in errors, "{class}" in errors) == (2, True, True)
