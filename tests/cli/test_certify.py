"""Certificates by commands: fit and hold out, certify, apply, check, and what each refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import cordcal

Call = Callable[..., tuple[int, str, str]]
ROWS = 3000


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=ROWS)
    logits = 3.0 * np.eye(3)[labels] + rng.normal(size=(ROWS, 3))
    table = pd.DataFrame(logits, columns=["logit_a", "logit_b", "logit_c"])
    return table.assign(key=np.arange(ROWS), site=np.arange(ROWS) % 3, label=labels)


@pytest.fixture
def folder(tmp_path: Path, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    frame[:1500].to_parquet("fit.parquet")
    frame[1500:].to_parquet("rest.parquet")
    return tmp_path


FIT = ("fit", "fit.parquet", "--calibrator", "ts", "--columns", "logit_*")


def test_from_fit_to_a_renewed_certificate(folder: Path, call: Call) -> None:
    code, out, _ = call(*FIT, "--certify", "2%", "--hold-out", "15%", "--id-column", "key")
    assert code == 0
    assert "of the predictions may go through" in out.replace("\n", " ")
    model = cordcal.load("model.safetensors")
    assert model.certificate_.rows == 225
    assert model.certificate_.caveats == ()
    assert "may go through" in call("info", "model.safetensors")[1]

    arguments = ("apply", "model.safetensors", "rest.parquet", "--add", "audit=20%")
    assert call(*arguments, "--output", "acted.parquet")[0] == 0
    acted = pd.read_parquet("acted.parquet")
    scores = acted.filter(regex="^p_").to_numpy()
    assert (acted["act"] == model.certificate_.accepts(scores)).all()
    assert acted["act"][acted["audit"]].all()
    assert 0.1 < acted["audit"].sum() / acted["act"].sum() < 0.3

    check = ("check", "acted.parquet", "--model", "model.safetensors", "--certify")
    assert call(*check, "violated")[0] == 0
    assert call(*check, "renewed", "--report", "j.xml", "--report", "page.html")[0] == 0
    suite = ElementTree.parse("j.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")
    assert "the certificate is renewed" in Path("page.html").read_text()

    code, out, _ = call(
        "certify", "rest.parquet", "--model", "model.safetensors", "--id-column", "key", "--json"
    )
    assert code == 0
    assert json.loads(out)["model"] == "model.safetensors"
    assert json.loads(out)["certificate"]["parts"][0]["rows"] == 1500
    assert cordcal.load("model.safetensors").certificate_.rows == 1500


def test_a_failed_answer_is_a_failed_test(folder: Path, call: Call, frame: pd.DataFrame) -> None:
    call(*FIT, "--certify", "2%")
    wrong = frame[1500:].copy()
    wrong.loc[wrong.index[::5], "label"] = (wrong["label"] + 1) % 3
    wrong.to_parquet("wrong.parquet")
    call("apply", "model.safetensors", "wrong.parquet", "--output", "acted.parquet")
    check = ("check", "acted.parquet", "--model", "model.safetensors", "--certify", "violated")
    code, out, _ = call(*check, "--json", "--report", "j.xml", "--report", "page.html")
    assert (code, json.loads(out)["outcome"]) == (1, "failed")
    assert ElementTree.parse("j.xml").getroot().get("failures") == "1"
    assert "the certificate is violated" in Path("page.html").read_text()
    assert call(*check, "--max", "nll=9")[0] == 1


def test_a_certificate_finds_its_classes_by_name(
    folder: Path, call: Call, frame: pd.DataFrame
) -> None:
    names = np.array(["a", "b", "c"])
    table = frame.assign(label=names[frame["label"]])
    # The third class is often wrong, so its threshold is another one.
    table.loc[table.index[::5], "label"] = "c"
    table[:1500].to_parquet("fit.parquet")
    table[1500:].to_parquet("rest.parquet")
    assert call(*FIT, "--certify", "10%", "--groups", "prediction")[0] == 0
    call("apply", "model.safetensors", "rest.parquet", "--output", "acted.parquet")
    acted = pd.read_parquet("acted.parquet").assign(label=table["label"][1500:].to_numpy())
    answers = []
    for order in (["p_a", "p_b", "p_c"], ["p_c", "p_a", "p_b"]):
        acted[[*order, "label"]].to_parquet("moved.parquet")
        check = ("check", "moved.parquet", "--model", "model.safetensors", "--json")
        out = call(*check, "--certify", "violated", "--labels", "label")[1]
        answers.append(json.loads(out)["certificate"])
    assert answers[0] == answers[1]
    assert sum(part["accepted"] for part in answers[0]["parts"]) > 0


def test_a_certificate_is_not_renewed_by_copies(
    folder: Path, call: Call, frame: pd.DataFrame
) -> None:
    call(*FIT, "--certify", "2%")
    frame[1500:1550].loc[lambda rows: rows.index.repeat(30)].to_parquet("copies.parquet")
    call("apply", "model.safetensors", "copies.parquet", "--output", "acted.parquet")
    check = ("check", "acted.parquet", "--model", "model.safetensors", "--certify", "renewed")
    assert call(*check)[0] == 0
    assert call(*check, "--cluster-column", "key")[0] == 1


def test_renewing_keeps_what_is_not_passed(folder: Path, call: Call) -> None:
    call(*FIT)
    certify = ("certify", "rest.parquet", "--model", "model.safetensors")

    def kind(*options: str) -> tuple[float, float, str]:
        assert call(*certify, *options)[0] == 0
        certificate = cordcal.load("model.safetensors").certificate_
        return certificate.error, certificate.confidence, certificate.by

    assert kind("--error", "3%", "--confidence", "90%", "--groups", "prediction") == (
        0.03,
        0.9,
        "class",
    )
    assert kind() == (0.03, 0.9, "class")
    assert kind("--groups", "none") == (0.03, 0.9, "all")
    assert kind("--confidence", "95%") == (0.03, 0.95, "all")
    assert kind("--groups", "site") == (0.03, 0.95, "group")
    code, _, err = call(*certify)
    assert (code, "--groups is missing: the certificate has groups" in err) == (2, True)
    assert kind("--groups", "none") == (0.03, 0.95, "all")


def test_fit_certifies_groups_of_the_rows_held_out(
    folder: Path, call: Call, frame: pd.DataFrame
) -> None:
    code, _, err = call(*FIT, "--certify", "5%", "--hold-out", "40%", "--groups", "site")
    assert code == 0, err
    fitted = cordcal.load("model.safetensors")
    assert fitted.certificate_.by == "group"
    assert {part.name for part in fitted.certificate_.parts} == {"0", "1", "2"}
    assert sum(part.rows for part in fitted.certificate_.parts) == 600
    # The same rows in a file of their own, certified by the other command.
    groups = {part.name: part.threshold for part in fitted.certificate_.parts}
    held = np.random.default_rng(0).permutation(1500)[:600]
    frame.iloc[np.sort(held)].to_parquet("held.parquet")
    certify = ("certify", "held.parquet", "--model", "model.safetensors", "--error", "5%")
    assert call(*certify, "--groups", "site")[0] == 0
    parts = cordcal.load("model.safetensors").certificate_.parts
    assert {part.name: part.threshold for part in parts} == groups


def test_the_rows_held_out_do_not_depend_on_the_names_of_clusters(
    folder: Path, call: Call, frame: pd.DataFrame
) -> None:
    certificates = []
    for prefix in ("", "c"):
        clusters = [f"{prefix}{row // 2}" if prefix else row // 2 for row in range(1500)]
        frame[:1500].assign(user=clusters).to_parquet("fit.parquet")
        assert call(*FIT, "--certify", "5%", "--cluster-column", "user", "--force")[0] == 0
        certificates.append(cordcal.load("model.safetensors").certificate_)
    assert certificates[0] == certificates[1]


def test_a_certificate_of_nothing_replaces_none(
    folder: Path, call: Call, frame: pd.DataFrame
) -> None:
    call(*FIT, "--certify", "2%")
    frame[1500:].assign(label=np.arange(1500) % 3).to_parquet("wrong.parquet")
    before = Path("model.safetensors").read_bytes()
    certify = ("certify", "wrong.parquet", "--model", "model.safetensors")
    code, _, err = call(*certify)
    assert (code, "--force" in err) == (1, True)
    assert Path("model.safetensors").read_bytes() == before
    assert call(*certify, "--force")[0] == 0
    assert cordcal.load("model.safetensors").certificate_.share == 0.0


def test_what_is_refused(folder: Path, call: Call, frame: pd.DataFrame) -> None:
    def refused(*arguments: str) -> str:
        code, _, err = call(*arguments)
        assert code == 2
        return err.splitlines()[-1]

    for share in ("0", "100%", "much"):
        assert "--certify" in refused(*FIT, "--certify", share)
    assert "--hold-out" in refused(*FIT, "--hold-out", "20%")
    assert "--groups" in refused(*FIT, "--groups", "prediction")
    assert "weighted" in refused(*FIT, "--certify", "2%", "--weights", "site")
    for share in ("99.99%", "0.01%"):
        assert "--hold-out leaves no rows" in refused(*FIT, "--certify", "2%", "--hold-out", share)
    frame[:90].to_parquet("few.parquet")
    few = refused("fit", "few.parquet", "--columns", "logit_*", "--certify", "2%")
    assert all(word in few for word in ("few.parquet", "149", "--hold-out"))
    in_clusters = (*FIT, "--certify", "2%", "--cluster-column", "site", "--hold-out", "67%")
    assert "74,500" in refused(*in_clusters)
    assert not Path("model.safetensors").exists()

    call(*FIT, "--id-column", "key")
    before = Path("model.safetensors").read_bytes()
    own = ("certify", "fit.parquet", "--model", "model.safetensors", "--id-column", "key")
    assert "used to fit" in refused(*own)
    assert "29,956" in refused(
        "certify", "rest.parquet", "--model", "model.safetensors", "--error", "0.01%"
    )
    assert "--add" in refused(
        "apply", "model.safetensors", "rest.parquet", "--add", "audit=2%", "--output", "o.csv"
    )
    assert Path("model.safetensors").read_bytes() == before


def test_a_part_without_rows_has_the_same_columns(
    folder: Path, call: Call, frame: pd.DataFrame
) -> None:
    call(*FIT, "--certify", "2%")
    frame[:0].to_parquet("none.parquet")
    apply = ("apply", "model.safetensors", "--add", "audit=2%")
    for name in ("none", "rest"):
        assert call(*apply, f"{name}.parquet", "--output", f"{name}_out.parquet")[0] == 0
    empty, full = pd.read_parquet("none_out.parquet"), pd.read_parquet("rest_out.parquet")
    assert empty.dtypes.to_dict() == full.dtypes.to_dict()


def test_compare_shows_the_share_that_may_act(
    folder: Path, call: Call, frame: pd.DataFrame
) -> None:
    arguments = ("compare", "fit.parquet", "--columns", "logit_*", "--calibrator", "ts")
    assert "that may act" not in call(*arguments)[1]
    out = call(*arguments, "--verbose")[1]
    comparison = cordcal.compare(
        frame[:1500].filter(regex="^logit_").to_numpy(), frame["label"][:1500].to_numpy(), ["ts"]
    )
    title = next(at for at, line in enumerate(out.splitlines()) if "that may act" in line)
    shown = {line.split()[0]: line.split()[1:] for line in out.splitlines()[title + 2 :] if line}
    assert shown["ts"] == [f"{100 * share:.1f}" for share in comparison.act["ts", "direct"]]


APPLY = ("apply", "model.safetensors", "new.parquet", "--groups", "kind")


@pytest.fixture
def by_group(folder: Path, call: Call, frame: pd.DataFrame) -> pd.DataFrame:
    """A model with a certificate for two kinds of rows, and new rows of these and others."""
    call(*FIT)
    rest = frame[1500:].reset_index(drop=True)
    rest["kind"] = np.where(np.arange(1500) % 2, "pdf", "photo")
    rest.to_parquet("held.parquet")
    certify = ("certify", "held.parquet", "--model", "model.safetensors", "--error", "5%")
    code, _, err = call(*certify, "--groups", "kind")
    assert code == 0, err
    new = rest.drop(columns="label")
    new.loc[:9, "kind"] = None
    new.loc[10:19, "kind"] = ""
    new.loc[20:49, "kind"] = "fax"
    new.to_parquet("new.parquet")
    return new


def accepted(new: pd.DataFrame) -> np.ndarray:
    """Return which rows the model accepts in Python."""
    model = cordcal.load("model.safetensors")
    scores = new.filter(regex="^logit_").to_numpy()
    return model.accepts(scores, groups=new["kind"].to_numpy())


def test_apply_acts_by_group(by_group: pd.DataFrame, call: Call) -> None:
    expected = accepted(by_group)
    assert not expected[:50].any()
    assert 0.3 < expected[50:].mean() < 1.0
    by_group.to_csv("new.csv", index=False)
    lines = by_group.to_json(orient="records", lines=True, double_precision=15)
    Path("new.jsonl").write_text(lines)
    for suffix, read in (
        ("parquet", pd.read_parquet),
        ("csv", pd.read_csv),
        ("jsonl", lambda path: pd.read_json(path, lines=True)),
    ):
        output = f"acted.{suffix}"
        arguments = (*APPLY[:2], f"new.{suffix}", *APPLY[3:], "--add", "audit=20%", "-o", output)
        code, _, err = call(*arguments)
        assert code == 0, err
        assert "kind is empty or not certified in 50 of 1,500 rows, which never act" in err
        acted = read(output)
        np.testing.assert_array_equal(acted["act"].to_numpy(bool), expected)
        assert acted["act"][acted["audit"]].all()
        assert 0.1 < acted["audit"].sum() / acted["act"].sum() < 0.3
        assert "kind" in acted
    for dtype in ("float32", "float64"):
        assert call(*APPLY, "--dtype", dtype, "--output", f"{dtype}.parquet")[0] == 0
        np.testing.assert_array_equal(pd.read_parquet(f"{dtype}.parquet")["act"], expected)
    _, out, _ = call(*APPLY, "--output", "again.parquet", "--json")
    assert json.loads(out)["uncertified"] == 50


def test_groups_of_arrays(by_group: pd.DataFrame, call: Call) -> None:
    kind = by_group["kind"].fillna("").to_numpy(str)
    np.savez("new.npz", logits=by_group.filter(regex="^logit_").to_numpy(), kind=kind)
    arguments = ("apply", "model.safetensors", "new.npz", "--groups", "kind")
    code, _, err = call(*arguments, "--output", "acted.npz")
    assert code == 0, err
    with np.load("acted.npz") as acted:
        np.testing.assert_array_equal(acted["act"], accepted(by_group))


def test_groups_in_parts(by_group: pd.DataFrame, call: Call) -> None:
    Path("parts").mkdir()
    for at in range(3):
        by_group[500 * at : 500 * at + 500].to_parquet(f"parts/{at}.parquet")
    by_group[:0].to_parquet("parts/3.parquet")
    arguments = (*APPLY[:2], "parts", *APPLY[3:], "--output", "acted")
    code, _, err = call(*arguments)
    assert code == 0, err
    assert "50 of 1,500 rows" in err
    parts = [pd.read_parquet(f"acted/{at}.parquet") for at in range(4)]
    np.testing.assert_array_equal(pd.concat(parts)["act"].to_numpy(bool), accepted(by_group))
    assert parts[3].dtypes.to_dict() == parts[2].dtypes.to_dict()
    _, _, err = call(*arguments, "--resume")
    assert "1,500 rows were up to date" in err
    assert "50 of 1,500 rows" in err
    _, _, err = call(*arguments[:-4], "--output", "acted", "--resume")
    assert "up to date" not in err
    assert "act" not in pd.read_parquet("acted/0.parquet")
    assert call(*APPLY[:2], "parts", *APPLY[3:], "--output", "one.parquet")[0] == 0
    np.testing.assert_array_equal(pd.read_parquet("one.parquet")["act"], accepted(by_group))


def test_groups_of_skipped_rows_and_of_numbers(by_group: pd.DataFrame, call: Call) -> None:
    by_group.loc[[3, 100], "logit_a"] = np.nan
    by_group.to_parquet("new.parquet")
    code, _, err = call(*APPLY, "--on-error", "skip", "--output", "acted.parquet")
    assert code == 0, err
    assert "49 of 1,498 rows" in err
    kept = by_group.drop(index=[3, 100])
    np.testing.assert_array_equal(pd.read_parquet("acted.parquet")["act"], accepted(kept))
    held = pd.read_parquet("held.parquet").assign(kind=np.arange(1500) % 2)
    held.to_parquet("held.parquet")
    certify = ("certify", "held.parquet", "--model", "model.safetensors", "--error", "5%")
    assert call(*certify, "--groups", "kind")[0] == 0
    numbers = held.drop(columns="label")
    for some in (1.0, np.nan):  # pandas stores whole numbers next to a null as floats
        numbers.loc[:9, "kind"] = some
        numbers.to_parquet("new.parquet")
        assert call(*APPLY, "--output", "acted.parquet", "--force")[0] == 0
        act = pd.read_parquet("acted.parquet")["act"]
        assert act[10:].mean() > 0.3
        assert act[:10].any() == (some == 1.0)


def test_groups_that_apply_cannot_use(by_group: pd.DataFrame, call: Call) -> None:
    code, _, err = call(*APPLY[:3], "--output", "acted.parquet")
    assert code == 0
    assert "model.safetensors is certified by group" in err
    assert "--groups" in err
    assert "act" not in pd.read_parquet("acted.parquet")
    code, _, err = call(*APPLY[:4], "sort", "--output", "x.parquet")
    assert code == 2
    assert "new.parquet has no key or column called 'sort' for the groups" in err
    assert "context" not in err
    assert call("certify", "held.parquet", "--model", "model.safetensors", "--json")[0] == 2
    call(*FIT, "--certify", "2%", "--force")
    code, _, err = call(*APPLY, "--output", "x.parquet")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "--groups is not used: model.safetensors has no certificate by group" in err
    assert not Path("x.parquet").exists()
