"""Columns next to the scores and second opinions, in every command that takes them."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import cordcal

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

NAMES = ["ant", "bee", "wasp"]
SCORES = ("--columns", "logit_*")
COLUMNS = ("--context-columns", "source,blur", "--second-opinion", "other.parquet")
# One calibrator is fitted much faster than a blend.
FIT = ("fit", "cal.parquet", "--calibrator", "ts", "--repair", "lift", *COLUMNS)


def made(rows: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return scores with two columns that matter, and another model's scores, by id."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=rows)
    source = rng.choice(["pdf", "photo"], size=rows)
    blur = rng.normal(size=rows)
    spread = np.where(source == "photo", 2.0, 0.9) * np.exp(0.3 * blur)
    logits = 2.0 * np.eye(3)[labels] + spread[:, None] * rng.normal(size=(rows, 3))
    other = 1.5 * np.eye(3)[labels] + rng.normal(size=(rows, 3))
    ids = [f"q{seed}-{row}" for row in range(rows)]
    columns = {f"logit_{name}": logits[:, at] for at, name in enumerate(NAMES)}
    words = np.array(NAMES)[labels]
    frame = pd.DataFrame({"id": ids, **columns, "label": words, "source": source, "blur": blur})
    # Classes and rows in another order.
    backwards = {f"logit_{name}": other[:, at] for at, name in reversed([*enumerate(NAMES)])}
    second = pd.DataFrame({"id": ids, **backwards}).sample(frac=1, random_state=seed)
    return frame, second


@pytest.fixture(scope="module")
def rows() -> dict[str, pd.DataFrame]:
    cal, cal_other = made(700, 1)
    new, new_other = made(300, 2)
    return {"cal": cal, "new": new, "other": pd.concat([new_other, cal_other])}


@pytest.fixture
def folder(tmp_path: Path, rows, call) -> Path:
    for name, frame in rows.items():
        frame.to_parquet(tmp_path / f"{name}.parquet")
    assert call(*FIT, "--output", "m.safetensors")[0] == 0
    return tmp_path


def expected(model: object, new: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """Return the probabilities that the same model gives in Python."""
    scores = [f"logit_{name}" for name in NAMES]
    opinion = other.set_index("id").reindex(new["id"])[scores].to_numpy()
    context = {"source": new["source"], "blur": new["blur"], "second opinion": opinion}
    return model.predict_proba(new[scores].to_numpy(), context=context)


def written(path: Path) -> np.ndarray:
    frame = {".csv": pd.read_csv, ".jsonl": lambda file: pd.read_json(file, lines=True)}.get(
        path.suffix, pd.read_parquet
    )(path)
    return frame[[f"p_{name}" for name in NAMES]].to_numpy()


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_apply_gives_what_python_gives(folder, rows, call, suffix) -> None:
    new, other = rows["new"].copy(), rows["other"]
    new.loc[:4, "source"] = None
    new.loc[3:6, "blur"] = np.nan
    other = other[~other["id"].isin(new["id"][10:30])]
    for name, frame in (("n", new), ("o", other)):
        path = folder / f"{name}.{suffix}"
        if suffix == "csv":
            frame.to_csv(path, index=False)
        elif suffix == "jsonl":
            frame.to_json(path, orient="records", lines=True, double_precision=15)
        else:
            frame.to_parquet(path)
    apply = ("apply", "m.safetensors", f"n.{suffix}", "--second-opinion", f"o.{suffix}")
    code, _, err = call(*apply, "--output", f"out.{suffix}")
    assert code == 0, err
    model = cordcal.load(folder / "m.safetensors")
    np.testing.assert_allclose(
        written(folder / f"out.{suffix}"), expected(model, new, other), atol=1e-9
    )
    assert "source is unknown in 5 of 300 rows" in err
    assert "blur is unknown in 4 of 300 rows" in err
    assert "second opinion is unknown in 20 of 300 rows" in err


def test_fit_gives_what_python_gives(folder, rows, call) -> None:
    cal, other = rows["cal"], rows["other"]
    scores = [f"logit_{name}" for name in NAMES]
    opinion = other.set_index("id").reindex(cal["id"])[scores].to_numpy()
    context = {"source": cal["source"], "blur": cal["blur"], "second opinion": opinion}
    model = cordcal.PreservingCalibrator("ts", repair="lift", class_names=NAMES)
    model.fit(cal[scores].to_numpy(), cal["label"], context=context)
    stored = cordcal.load(folder / "m.safetensors")
    assert stored.context_effects() == model.context_effects()
    code, out, _ = call(*FIT, "--output", "again.safetensors", "--json")
    content = json.loads(out)
    assert code == 0
    assert content["context"][0]["column"] == "source"


def test_arrays_and_categories_in_numbers(tmp_path, rows, call) -> None:
    cal = rows["cal"]
    scores = cal[[f"logit_{name}" for name in NAMES]].to_numpy()
    labels = cal["label"].map(NAMES.index).to_numpy()
    np.savez(
        tmp_path / "a.npz",
        logits=scores,
        labels=labels,
        source=cal["source"].to_numpy(str),
        blur=cal["blur"].to_numpy(),
    )
    fit = ("fit", "a.npz", "--context-columns", "source,blur", "--output", "a.safetensors")
    assert call(*fit)[0] == 0
    assert call("apply", "a.safetensors", "a.npz", "--output", "a.parquet")[0] == 0
    model = cordcal.load(tmp_path / "a.safetensors")
    effects = {effect.column for effect in model.context_effects()}
    assert effects == {"source", "blur"}


@pytest.mark.parametrize("suffix", ["parquet", "feather", "npz"])
def test_text_that_looks_like_numbers_holds_categories(tmp_path, rows, call, suffix) -> None:
    shops = {"pdf": "07", "photo": "7"}
    for name in ("cal", "new"):
        frame = rows[name].assign(shop=rows[name]["source"].map(shops))
        if suffix == "npz":
            scores = frame[[f"logit_{name}" for name in NAMES]].to_numpy()
            labels = frame["label"].map(NAMES.index).to_numpy()
            shop = frame["shop"].to_numpy(str)
            np.savez(tmp_path / f"{name}.npz", logits=scores, labels=labels, shop=shop)
        else:
            getattr(frame, f"to_{suffix}")(tmp_path / f"{name}.{suffix}")
    scores = () if suffix == "npz" else SCORES
    fit = (f"cal.{suffix}", "--calibrator", "ts", "--repair", "lift", *scores)
    code, _, err = call("fit", *fit, "--context-columns", "shop", "--output", "s.safetensors")
    assert code == 0, err
    effects = cordcal.load(tmp_path / "s.safetensors").context_effects()
    assert [effect.value for effect in effects] == ["07", "7"]
    code, _, err = call("apply", "s.safetensors", f"new.{suffix}", "--output", f"out.{suffix}")
    assert code == 0, err


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_text_files_do_not_say_whether_numbers_are_categories(tmp_path, rows, call, suffix) -> None:
    frame = rows["cal"].assign(shop=rows["cal"]["source"].map({"pdf": "10", "photo": "20"}))
    if suffix == "csv":
        frame.to_csv(tmp_path / "cal.csv", index=False)
    else:
        frame.to_json(tmp_path / "cal.jsonl", orient="records", lines=True)
    fit = ("fit", f"cal.{suffix}", "--calibrator", "ts", "--repair", "lift", *SCORES)
    code, _, err = call(*fit, "--context-columns", "shop", "--output", "s.safetensors")
    assert code == 0, err
    effects = cordcal.load(tmp_path / "s.safetensors").context_effects()
    assert [effect.value for effect in effects] == ["+1 sd"]


def test_parts_in_another_order_and_resume(folder, rows, call) -> None:
    new, other = rows["new"], rows["other"]
    (folder / "new").mkdir()
    (folder / "others").mkdir()
    for at in range(3):
        new.iloc[at * 100 : at * 100 + 100].to_parquet(folder / "new" / f"{at}.parquet")
    for at, start in enumerate((600, 0, 300)):
        other.iloc[start : start + 300 if at else None].to_parquet(
            folder / "others" / f"{at}.parquet"
        )
    apply = ("apply", "m.safetensors", "new", "--output", "out")
    assert call(*apply, "--second-opinion", "others")[0] == 0
    parts = [written(folder / "out" / f"{at}.parquet") for at in range(3)]
    model = cordcal.load(folder / "m.safetensors")
    np.testing.assert_array_equal(np.concatenate(parts), expected(model, new, other))
    _, _, err = call(*apply, "--second-opinion", "others", "--resume")
    assert "300 rows were up to date" in err
    # Another second opinion is another job.
    _, _, err = call(*apply, "--second-opinion", "other.parquet", "--resume")
    assert "up to date" not in err


def test_work_on_other_machines_reads_the_second_opinion_there(folder, rows) -> None:
    from cordcal.files.apply import ApplyOptions, PartWork
    from cordcal.files.columns import ColumnSpec, TextOptions
    from cordcal.files.context import SecondOpinion, context_of_model
    from cordcal.files.scores import open_with_spec

    model = cordcal.load(folder / "m.safetensors")
    names = tuple(NAMES)
    opinion = SecondOpinion(str(folder / "other.parquet"), "id", names, TextOptions())
    context = context_of_model(model.repair_.context_, None, opinion, ".")
    opinion.load()
    path = str(folder / "new.parquet")
    spec = ColumnSpec(columns=("logit_*",), classes=names, context=context.to_read)
    work = PartWork(model, (open_with_spec(path, spec).opener,), ApplyOptions(names), context)
    sent = pickle.dumps(work)
    assert len(sent) < 2 * len(pickle.dumps(model)) + 5000  # without the second opinion
    pickle.loads(sent)(((path,), str(folder / "out.parquet")))
    np.testing.assert_array_equal(
        written(folder / "out.parquet"), expected(model, rows["new"], rows["other"])
    )


def test_a_second_opinion_above_the_limit_is_refused(folder, call, monkeypatch) -> None:
    monkeypatch.setenv("CORDCAL_READ_LIMIT", "100000")
    apply = ("apply", "m.safetensors", "new.parquet", "--output", "out.parquet")
    code, _, err = call(*apply, "--second-opinion", "other.parquet")
    assert code == 2
    assert "a second opinion is joined by id in memory" in err
    assert "other.parquet" in err


def test_rows_that_are_skipped_keep_their_context(folder, rows, call) -> None:
    new = rows["new"].copy()
    new.loc[[0, 7], "logit_ant"] = np.nan
    new.to_parquet(folder / "bad.parquet")
    apply = ("apply", "m.safetensors", "bad.parquet", "--second-opinion", "other.parquet")
    assert call(*apply, "--output", "out.parquet", "--on-error", "skip")[0] == 0
    model = cordcal.load(folder / "m.safetensors")
    kept = new.drop(index=[0, 7])
    np.testing.assert_array_equal(
        written(folder / "out.parquet"), expected(model, kept, rows["other"])
    )
    cal = rows["cal"].copy()
    cal.loc[3, "logit_bee"] = np.nan
    cal.to_parquet(folder / "cal.parquet")
    code, _, err = call(*FIT, "--output", "skipped.safetensors", "--on-error", "skip")
    assert code == 0, err
    assert cordcal.load(folder / "skipped.safetensors").context_effects()


def test_info_prints_the_effects(folder, call) -> None:
    _, out, _ = call("info", "m.safetensors")
    model = cordcal.load(folder / "m.safetensors")
    for effect in model.context_effects():
        assert str(effect) in out
    _, out, _ = call("info", "m.safetensors", "--json")
    assert json.loads(out)["context"] == ["source", "blur", "second opinion"]
    assert json.loads(out)["without_effect"] is None


def test_info_names_columns_without_effect(folder, rows, call) -> None:
    rows["cal"].assign(even=["yes", "no"] * 350).to_parquet(folder / "even.parquet")
    fit = ("fit", "even.parquet", "--calibrator", "ts", "--repair", "lift", *SCORES)
    columns = ("--context-columns", "source,even", "--output", "even.safetensors")
    assert call(*fit, *columns)[0] == 0
    _, out, _ = call("info", "even.safetensors")
    assert re.search(r"without effect +even ", out)


def test_certify_check_and_monitor_see_the_confidence(folder, rows, call) -> None:
    opinion = ("--second-opinion", "other.parquet")
    certify = ("certify", "new.parquet", "--model", "m.safetensors", "--error", "10%")
    code, out, err = call(*certify, *opinion)
    assert code == 0, err
    with_context = cordcal.load(folder / "m.safetensors").certificate_
    # Without the context less is certain, here nothing; the certificate is only replaced by force.
    assert call(*certify, "--context-columns", "none")[0] == 1
    assert cordcal.load(folder / "m.safetensors").certificate_ == with_context
    call(*certify, "--context-columns", "none", "--force")
    assert with_context.share > cordcal.load(folder / "m.safetensors").certificate_.share
    assert call(*certify, *opinion)[0] == 0
    check = ("check", "new.parquet", "--model", "m.safetensors", *opinion)
    code, out, err = call(*check, "--max", "tpcr=0", "--max", "nll=5", "--json")
    assert code == 0, err
    truth = rows["new"]["label"].map(NAMES.index).to_numpy()
    probabilities = expected(cordcal.load(folder / "m.safetensors"), rows["new"], rows["other"])
    nll = json.loads(out)["gates"][1]["value"]
    assert nll == pytest.approx(cordcal.metrics.nll(probabilities, truth))
    apply = ("apply", "m.safetensors", "new.parquet", *opinion, "--output", "out.parquet")
    assert call(*apply)[0] == 0
    assert "act" in pd.read_parquet(folder / "out.parquet")
    init = ("monitor", "init", "s.monitor", "--baseline")
    assert call(*init, "out.parquet")[0] == 0
    code, _, err = call(*init, "new.parquet", "--model", "m.safetensors", "--force")
    assert code == 2
    assert "pass what `apply --second-opinion` wrote, without --model" in err


def test_a_column_may_be_context_and_group(folder, rows, call) -> None:
    opinion = ("--second-opinion", "other.parquet")
    by_group = ("--groups", "source", *opinion)
    certify = ("certify", "new.parquet", "--model", "m.safetensors", "--error", "25%", *by_group)
    code, _, err = call(*certify)
    assert code == 0, err
    new = rows["new"].copy()
    new.loc[:9, "source"] = None
    new.to_parquet(folder / "some.parquet")
    apply = ("apply", "m.safetensors", "some.parquet", *by_group, "--output", "out.parquet")
    code, _, err = call(*apply)
    assert code == 0, err
    assert "source is unknown in 10 of 300 rows" in err
    assert "source is empty or not certified in 10 of 300 rows" in err
    model = cordcal.load(folder / "m.safetensors")
    probabilities = expected(model, new, rows["other"])
    act = model.certificate_.accepts(probabilities, groups=new["source"])
    np.testing.assert_array_equal(pd.read_parquet(folder / "out.parquet")["act"], act)
    assert act[10:].any()
    assert not act[:10].any()


def test_monitor_reads_the_columns_of_the_model(folder, call) -> None:
    fit = ("fit", "cal.parquet", "--context-columns", "source", "--output", "one.safetensors")
    assert call(*fit, *SCORES)[0] == 0
    init = ("monitor", "init", "s.monitor", "--baseline", "new.parquet")
    code, _, err = call(*init, "--model", "one.safetensors")
    assert code == 0, err


def test_compare_measures_and_suggests_it(folder, call) -> None:
    compare = ("compare", "cal.parquet", "--calibrator", "ts,blend", *SCORES)
    options = ("--context-columns", "source", "--second-opinion", "other.parquet")
    code, out, err = call(*compare, *options, "--report", "r.html")
    assert code == 0, err
    assert "mean gap per source" in out
    assert "source photo" in out
    assert "--context-columns source --second-opinion other.parquet --output model" in out
    assert "--second-opinion new-opinion.parquet" in out
    page = (folder / "r.html").read_text()
    assert "With context: confidence minus accuracy" in page
    assert "source photo" in page
    code, out, err = call(*compare, *options, "--hold-out", "new.parquet", "--json")
    assert code == 0, err
    offer = json.loads(out)["calibrators"][1]["context"]
    assert sum(gap["n"] for gap in offer["gaps"]) == 300
    gap = offer["gaps"][0]
    assert abs(gap["after"]) < abs(gap["before"])
    assert 0.0 < gap["chance"] < 0.1


def test_compare_without_the_default_says_that_context_is_unused(folder, call) -> None:
    compare = ("compare", "cal.parquet", "--calibrator", "ts,vs", *SCORES)
    code, out, err = call(*compare, "--context-columns", "source")
    assert code == 0, err
    assert "the context was not used" in " ".join(out.split())


def test_held_out_rows_are_certified_with_their_context(folder, call) -> None:
    code, out, err = call(*FIT, "--certify", "20%", "--output", "c.safetensors")
    assert code == 0, err
    assert "May go through" in out
    assert "have an effect" in out


def test_leaks_are_named(folder, rows, call) -> None:
    cal = rows["cal"].assign(copy=rows["cal"]["label"], constant="x", number=range(700))
    cal.to_parquet(folder / "leak.parquet")
    fit = (
        "fit",
        "leak.parquet",
        *SCORES,
        "--output",
        "l.safetensors",
        "--force",
        "--context-columns",
    )
    _, _, err = call(*fit, "copy,constant")
    assert "--context-columns copy determines the labels in 100.0 %" in err
    assert "is the same in every row" in err
    code, _, err = call(*fit, "id")
    assert code == 2
    assert "--context-columns id has 700 different values in 700 rows, as identifiers do" in err
    compare = ("compare", "leak.parquet", "--calibrator", "blend", *SCORES)
    _, out, _ = call(*compare, "--context-columns", "copy")
    assert "determines the labels in 100.0 %" in out.replace("\n", " ")


WRONG = {
    "no second opinion": ((), "--second-opinion is missing"),
    "another column": (("--context-columns", "day"), "fit had source, blur, second opinion"),
    "a file without ids": (
        ("--second-opinion", "other.parquet", "--id-column", "key"),
        "has no key or column called 'key'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_of_apply_are_refused(folder, call, case) -> None:
    options, message = WRONG[case]
    code, _, err = call("apply", "m.safetensors", "new.parquet", "-o", "x.csv", *options)
    assert code == 2
    assert message in err


def test_columns_that_are_absent_are_refused_or_named(folder, rows, call) -> None:
    rows["new"].drop(columns="source").to_parquet(folder / "less.parquet")
    apply = ("apply", "m.safetensors", "less.parquet", "--output", "x.parquet")
    opinion = ("--second-opinion", "other.parquet")
    code, _, err = call(*apply, *opinion)
    assert code == 2
    assert "has no key or column called 'source' for the context" in err
    assert "--context-columns" in err
    code, _, err = call(*apply, *opinion, "--context-columns", "blur")
    assert code == 0
    assert "source is unknown in 300 of 300 rows" in err
    explain = ("--add", "explanation", "--force")
    assert call(*apply, *explain, "--context-columns", "none")[0] == 0
    frame = pd.read_parquet(folder / "x.parquet")
    np.testing.assert_allclose(frame["repaired_mass"], frame["confidence"])


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_columns_that_options_name_are_not_scores(folder, rows, call, command) -> None:
    plain = rows["cal"].rename(columns=lambda name: name.removeprefix("logit_"))
    plain.assign(patient=np.arange(700) // 2).to_csv(folder / "plain.csv", index=False)
    run = (command, "plain.csv", "--calibrator", "ts", "--context-columns", "source,blur")
    run = (*run, "--output", "p.safetensors", "--force") if command == "fit" else run
    code, _, err = call(*run)
    assert code == 2
    assert "no row is labelled 'patient'" in err
    code, _, err = call(*run, "--cluster-column", "patient")
    assert code == 0 if command == "compare" else "needs a repair that learns" in err
    code, _, err = call(*run, "--repair", "lift", "--cluster-column", "patient")
    assert command == "compare" or code == 0, err


def test_scores_named_as_context_are_refused(folder, rows, call) -> None:
    plain = rows["cal"].rename(columns=lambda name: name.removeprefix("logit_"))
    plain.drop(columns="blur").to_csv(folder / "plain.csv", index=False)
    wrong = ("--context-columns", "bee", "--output", "w.safetensors")
    for columns in ((), ("--columns", "ant,bee,wasp")):
        code, _, err = call("fit", "plain.csv", "--calibrator", "ts", *columns, *wrong)
        assert code == 2
        assert "scores in the column 'bee', so that it cannot be context" in err


def test_times_are_refused_by_option(folder, rows, call) -> None:
    rows["cal"].assign(day=pd.Timestamp("2026-01-01")).to_parquet(folder / "times.parquet")
    fit = ("fit", "times.parquet", *SCORES, "--output", "t.safetensors")
    code, _, err = call(*fit, "--context-columns", "day")
    assert code == 2
    assert "--context-columns day holds times; store a number" in err


def test_one_row_is_one_row(folder, rows, call) -> None:
    rows["new"][:1].to_parquet(folder / "one.parquet")
    code, _, err = call(
        *("apply", "m.safetensors", "one.parquet", "--second-opinion", "other.parquet"),
        *("--output", "one_out.parquet"),
    )
    assert code == 0, err
    assert "one_out.parquet: 1 row × 3 classes" in err


def test_another_suffix_is_refused_with_the_right_one(folder, call) -> None:
    check = ("check", "cal.parquet", "--output", "base.json", "--max", "ece=0.5")
    code, _, err = call(*check)
    assert code == 2
    assert "a baseline is written with .baseline or .safetensors; name it base.baseline" in err


def test_ids_that_do_not_match_are_named(folder, rows, call) -> None:
    options = ("fit", "cal.parquet", *SCORES, "--force", "--output", "m.safetensors")
    other = rows["other"]
    other.drop(columns="id").to_parquet(folder / "noid.parquet")
    code, _, err = call(*options, "--second-opinion", "noid.parquet")
    assert code == 2
    assert "noid.parquet has no key or column called 'id'" in err
    assert "--id-column NAME" in err
    code, _, err = call(*options, "--second-opinion", "other.parquet", "--id-column", "nr")
    assert code == 2
    assert "cal.parquet has no key or column called 'nr'" in err
    assert "--id-column NAME" in err
    assert "--context-columns" not in err
    other.assign(id="x" + other["id"]).to_parquet(folder / "far.parquet")
    code, _, err = call(*options, "--second-opinion", "far.parquet")
    assert code == 2
    assert "far.parquet has none of the ids of cal.parquet: id is 'xq" in err
    assert "and 'q1-0' there" in err


def test_explanations_are_those_of_the_confidence(folder, call) -> None:
    apply = (
        "apply",
        "m.safetensors",
        "new.parquet",
        "--output",
        "x.parquet",
        "--add",
        "explanation",
    )
    assert call(*apply, "--second-opinion", "other.parquet")[0] == 0
    frame = pd.read_parquet(folder / "x.parquet")
    np.testing.assert_allclose(frame["repaired_mass"], frame["confidence"])
    sure = frame["confidence"] > 0.6  # others may be pooled
    np.testing.assert_allclose(frame["reference"][sure], frame["confidence"][sure])


def test_ids_that_occur_twice_are_refused(folder, rows, call) -> None:
    other = rows["other"]
    pd.concat([other, other[:1]]).to_parquet(folder / "twice.parquet")
    apply = ("apply", "m.safetensors", "new.parquet", "-o", "x.csv")
    code, _, err = call(*apply, "--second-opinion", "twice.parquet")
    assert code == 2
    assert "row 1000 has the id" in err


def test_a_model_without_context_takes_none(folder, call) -> None:
    assert call("fit", "cal.parquet", *SCORES, "--output", "plain.safetensors")[0] == 0
    apply = ("apply", "plain.safetensors", "new.parquet", "-o", "x.csv")
    code, _, err = call(*apply, "--context-columns", "source")
    assert code == 2
    assert "plain.safetensors has no context" in err


def test_a_second_opinion_of_another_kind(folder, rows, call) -> None:
    """Probabilities next to logits mean the same."""
    other = rows["other"].copy()
    columns = [f"logit_{name}" for name in NAMES]
    mass = np.exp(other[columns])
    other[columns] = mass.div(mass.sum(axis=1), axis=0)
    other.rename(columns=lambda name: name.replace("logit", "p")).to_parquet(folder / "p.parquet")
    apply = ("apply", "m.safetensors", "new.parquet", "--second-opinion")
    for name in ("other", "p"):
        assert call(*apply, f"{name}.parquet", "--output", f"{name}-out.parquet")[0] == 0
    np.testing.assert_allclose(
        written(folder / "other-out.parquet"), written(folder / "p-out.parquet"), atol=1e-9
    )


def test_parts_without_rows(folder, rows, call) -> None:
    new = rows["new"]
    (folder / "new").mkdir()
    new[:200].to_csv(folder / "new" / "a.csv", index=False)
    new[:0].to_csv(folder / "new" / "b.csv", index=False)
    (folder / "new" / "c.csv").touch()
    new[200:].to_csv(folder / "new" / "d.csv", index=False)
    apply = ("apply", "m.safetensors", "new", "--second-opinion", "other.parquet", "--output")
    for output in ("out", "out.csv"):
        code, _, err = call(*apply, output)
        assert code == 0, err
    parts = [written(folder / "out" / f"{name}.csv") for name in "abcd"]
    np.testing.assert_array_equal(np.concatenate(parts), written(folder / "out.csv"))
    assert len(written(folder / "out.csv")) == 300


def test_bad_values_are_named_by_row_or_skipped(folder, rows, call) -> None:
    new = rows["new"].astype({"blur": object})
    new.loc[250, "blur"], new.loc[270, "blur"] = "much", "inf"
    new.to_csv(folder / "bad.csv", index=False)
    opinion = ("--second-opinion", "other.parquet")
    apply = ("apply", "m.safetensors", "bad.csv", *opinion, "--output", "out.csv")
    code, _, err = call(*apply)
    assert code == 2
    assert "row 250 has text in the column 'blur', in which fit had numbers" in err
    code, _, err = call(*apply, "--on-error", "skip")
    assert code == 0
    assert "skipped 1 row: has text in the column 'blur'" in err
    assert "skipped 1 row: holds an infinite number in the column 'blur'" in err
    assert len(written(folder / "out.csv")) == 298
    code, _, err = call("certify", "bad.csv", "--model", "m.safetensors", *opinion)
    assert code == 2
    assert "bad.csv: row 250 has text" in err
