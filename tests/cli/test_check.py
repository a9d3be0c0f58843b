"""``cordcal check``: exit codes, gates, baselines, and documents for CI."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> Path:
    np.savez(tmp_path / "old.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "new.npz", logits=np.round(logits), labels=labels)  # "quantised"
    np.savez(tmp_path / "cold.npz", logits=0.5 * logits, labels=labels)
    return tmp_path


def test_predictions_of_a_new_version(folder: Path, call: Call) -> None:
    code, out, err = call("check", "cold.npz", "--original", "old.npz", "--max", "tpcr=0")
    assert (code, out) == (0, "✓ tpcr is 0, within 0\n")
    assert "passed" in err
    code, out, _ = call("check", "new.npz", "--original", "old.npz", "--max", "tpcr=0")
    assert code == 1
    assert out.startswith("✗ tpcr is ")


def test_what_cannot_be_evaluated_is_code_two(folder: Path, call: Call) -> None:
    code, out, _ = call("check", "new.npz", "--max", "tpcr=1")
    assert code == 2
    assert out == "? tpcr needs the original scores or predictions; pass --original\n"


def test_gates_are_checked_in_their_order(folder: Path, call: Call) -> None:
    gates = ("--max", "nll=5", "--min", "accuracy=0.3", "--max", "ece.class=90%")
    code, out, _ = call("check", "old.npz", *gates)
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()] == ["nll", "ece.class", "accuracy"]


def test_a_baseline_and_documents(folder: Path, call: Call) -> None:
    arguments = ("--max", "nll=9", "--output", "base.baseline")
    assert call("check", "old.npz", *arguments)[0] == 0
    code, out, _ = call(
        "check", "old.npz", "--max", "nll.increase=0.2", "--baseline", "base.baseline", "--json",
        "--report", "junit.xml",
    )  # fmt: skip
    content = json.loads(out)
    assert (code, content["outcome"]) == (0, "passed")
    assert content["gates"][0]["name"] == "nll.increase"
    assert len(content["facts"]["sha256 old.npz"]) == 64
    suite = ElementTree.parse(folder / "junit.xml").getroot()
    assert suite.get("tests") == "1"
    facts = {entry.get("name"): entry.get("value") for entry in suite.iter("property")}
    assert facts.keys() == content["facts"].keys()
    code, _, err = call("check", "old.npz", *arguments)
    assert code == 2
    assert "base.baseline exists already; pass --force" in err
    code, _, err = call("check", "old.npz", "--max", "nll=9", "--output", "base.json")
    assert code == 2
    assert ".baseline" in err


def test_limits_in_percent_and_a_target(folder: Path, call: Call) -> None:
    code, out, _ = call("check", "cold.npz", "--max", "ece=90%", "--error", "25%")
    assert code == 0
    assert "within 0.9" in out
    assert "at most 25 % are wrong" in out
    code, out, _ = call("check", "cold.npz", "--max", "ece=90%", "--error", "0.0001")
    assert code == 0
    assert "no threshold" in out
    assert call("check", "cold.npz", "--max", "ece=90")[0] == 2
    assert call("check", "cold.npz", "--min", "nll=0.1")[0] == 2
    assert call("check", "cold.npz", "--max", "ece=90%", "--error", "much")[0] == 2


def test_the_certificate_has_every_fact(folder: Path, call: Call) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "old.npz").write_bytes((folder / "cold.npz").read_bytes())
    call("check", "old.npz", "--max", "nll=9", "--output", "b.baseline")
    code, out, _ = call(
        "check", "sub/old.npz", "--original", "old.npz", "--max", "tpcr=0", "--max",
        "ece.class=50%", "--min", "accuracy=1%", "--baseline", "b.baseline", "--report",
        "page.html", "--json", "--report", "j.xml", "--error", "0.01%",
    )  # fmt: skip
    assert code == 0
    facts = json.loads(out)["facts"]
    # Two files of the same name are both recorded.
    assert {"sha256 sub/old.npz", "sha256 old.npz", "sha256 b.baseline"} <= facts.keys()
    page = (folder / "page.html").read_text()
    assert all(fact in page for fact in facts.values())
    assert facts["rows"] == "400"
    assert "no threshold" in facts["target error"]
    properties = ElementTree.parse(folder / "j.xml").getroot().iter("property")
    assert {entry.get("name"): entry.get("value") for entry in properties} == facts
    for text in ("of 400</b> predictions changed", "≤ 50 %", "≥ 1 %", "expected calibration error"):
        assert text in page


def test_labels_of_the_original_will_do(folder: Path, call: Call, logits: np.ndarray) -> None:
    np.savez(folder / "bare.npz", logits=0.5 * logits)
    gates = ("--max", "nll=9", "--max", "tpcr=0", "--json")
    code, out, err = call("check", "bare.npz", "--original", "old.npz", *gates)
    assert code == 0
    assert err.index("bare.npz") < err.index("old.npz")
    own = json.loads(call("check", "cold.npz", "--original", "old.npz", *gates)[1])
    assert json.loads(out)["gates"] == own["gates"]
    code, out, _ = call("check", "bare.npz", "--original", "bare.npz", "--max", "nll=9")
    assert (code, out) == (2, "? nll needs labels; pass --labels\n")


def test_groups_come_from_a_file(folder: Path, call: Call, labels: np.ndarray) -> None:
    np.save(folder / "groups.npy", np.arange(len(labels)) % 2)
    code, out, _ = call("check", "old.npz", "--groups", "groups.npy", "--max", "nll.group=9")
    assert code == 0
    assert "for the group" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "gates are missing; write --max NAME=VALUE"),
        (("--max", "nll"), "gate nll is ''; write a "),
        (("--max", "auc=1"), "not a metric; use one of tpcr"),
        (("--max", "nll=1", "--report", "r.pdf"), "a report is written with .html or .htm or .xml"),
        (("--max", "nll=1", "--error", "1"), "--error is 1; write a share between 0 and 1"),
        (("--max", "nll=1", "--baseline", "old.npz"), "old.npz is not a baseline file"),
        (("--max", "tpcr=0", "--original", "short.npz"), "both must hold the same rows"),
    ],
)
def test_mistakes(folder: Path, call: Call, arguments: tuple[str, ...], words: str) -> None:
    np.savez(folder / "short.npz", logits=np.eye(3))
    code, out, err = call("check", "old.npz", *arguments)
    assert (code, out) == (2, "")
    import re

    assert re.search(words, err)


def test_a_baseline_alone_needs_no_gate(folder: Path, call: Call) -> None:
    code, out, err = call("check", "old.npz", "--output", "b.baseline")
    assert (code, out) == (0, "")
    assert "baseline written" in err
    assert (folder / "b.baseline").exists()
    assert call("check", "old.npz")[0] == 2


def test_a_second_run_replaces_its_own_documents_only(folder: Path, call: Call) -> None:
    documents = ("--report", "j.xml", "--report", "page.html")
    for limit in ("9", "8"):
        assert call("check", "old.npz", "--max", f"nll={limit}", *documents)[0] == 0
    for name, content in (("j.xml", "<testsuite name='pytest'/>"), ("page.html", "<title>Mine")):
        (folder / name).write_text(content)
        code, _, err = call("check", "old.npz", "--max", "nll=9", *documents)
        assert code == 2
        assert f"{name} exists already" in err
        (folder / name).unlink()


def test_folders_have_a_digest_of_each_part(folder: Path, call: Call) -> None:
    (folder / "nights").mkdir()
    for name in ("a", "b"):
        (folder / "nights" / f"{name}.npz").write_bytes((folder / "old.npz").read_bytes())
    code, out, _ = call("check", "nights", "--max", "nll=9", "--json")
    assert code == 0
    facts = json.loads(out)["facts"]
    assert len(facts["sha256 nights/a.npz"]) == len(facts["sha256 nights/b.npz"]) == 64


def test_clusters_and_ids_that_repeat(folder: Path, call: Call) -> None:
    rng = np.random.default_rng(0)
    top = rng.uniform(0.5, 1.0, 200)
    lines = ["user,a,b,label"]
    lines += [
        f"u{i // 2},{p!r},{1 - p!r},{int(rng.random() > p)}" for i, p in enumerate(top.tolist())
    ]
    (folder / "p.csv").write_text("\n".join(lines))
    options = ("check", "p.csv", "--columns", "a,b", "--labels", "label", "--max", "nll=9")
    code, _, err = call(*options, "--id-column", "user")
    assert code == 0
    assert "100 rows repeat an id" in err
    bounds = []
    for more in ((), ("--cluster-column", "user")):
        code, out, err = call(*options, *more, "--json")
        assert code == 0, err
        bounds.append(json.loads(out)["certified"][0]["bound"])
    assert bounds[1] > bounds[0]
