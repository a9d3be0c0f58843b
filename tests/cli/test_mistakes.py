"""Every mistake gets one sentence on stderr, exit code 2, and leaves nothing half written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

import cordcal
from cordcal.files.output import SUFFIXES


@pytest.fixture
def folder(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> Path:
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "bare.npz", logits=logits)
    np.savez(tmp_path / "p.npz", probs=softmax(logits, axis=1))
    np.savez(tmp_path / "short.npz", direct=softmax(logits[:9], axis=1))
    np.savez(tmp_path / "q.npz", direct=softmax(logits * [0.2, 1.0, 1.0], axis=1))
    np.savez(tmp_path / "bad_labels.npz", logits=logits, labels=labels + 1)
    top = np.sort(softmax(logits @ np.random.default_rng(0).normal(size=(3, 40)), axis=1), axis=1)
    np.savez(tmp_path / "topk.npz", logprobs=np.log(top[:, ::-1][:, :5]))
    np.savez(tmp_path / "both.npz", p=softmax(logits, axis=1), q=softmax(logits / 2, axis=1))
    (tmp_path / "there.html").write_text("mine")
    (tmp_path / "there.safetensors").write_text("mine")
    (tmp_path / "page.npz").write_text("<html><body>Not found</body></html>")
    return tmp_path


TS = ("--calibrator", "ts")
PAIR = ("--original", "p.npz", "--direct", "q.npz")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", "nowhere.npz"), "nowhere.npz does not exist"),
        (
            ("compare", "."),
            ". holds files of several kinds (.html, .npz, .safetensors); name those",
        ),
        (("compare", "page.npz"), "page.npz is an HTML page"),
        (
            ("compare", "s.npz", "--columns", "probs"),
            "has no column 'probs'; it has logits (400, 3)",
        ),
        (
            ("compare", "bare.npz"),
            "bare.npz does not contain labels; name their column, key or file with --labels",
        ),
        (("compare", "bare.npz", "--labels", "nowhere.npy"), "nowhere.npy does not exist"),
        (
            ("compare", "bare.npz", "--labels", "truth"),
            "has no key or column called 'truth' for the labels; it has logits (400, 3)",
        ),
        (("compare", "bad_labels.npz"), "row 0 has the label 3; with 3 columns"),
        (
            ("fit", "s.npz", *TS, "--rule", "1,2", "--output", "m.safetensors"),
            "--rule has 2 weights but s.npz has 3 classes; pass one weight per class",
        ),
        (
            (
                "fit",
                "s.npz",
                *TS,
                "--rule",
                "learnt",
                "--preserve",
                "2",
                "--output",
                "m.safetensors",
            ),
            "--preserve is 2, but a rule keeps one prediction, not a ranking; leave it out, or "
            "write --rule argmax",
        ),
        (("compare", "topk.npz"), "top-5 log-probabilities"),
        (("compare", "s.npz", "--calibrator", "irovaa"), "did you mean 'irova'? There are"),
        (("compare", "s.npz", "--report", "there.html"), "there.html exists already; pass --force"),
        (("compare", "s.npz", "--report", "no/r.html"), "the folder no does not exist"),
        (
            ("compare", "s.npz", "--hold-out", "2"),
            "--hold-out is 2.0; pass a share between 0 and 1, or separate rows",
        ),
        (("compare", "s.npz", "--hold-out", "150%"), "--hold-out is 1.5; pass a share between"),
        (("compare", "s.npz", "--splits", "5"), "No such option: --splits"),
        (
            ("compare", "s.npz", "--calibrator", "my.module:Class"),
            "compare a class of your own in Python",
        ),
        (("compare", "s.npz", *TS, "--preserve", "9"), "cordcal: --preserve is 9 but there are 3"),
        (("compare", "s.npz", "--preserve", "some"), "--preserve is 'some'; write 1"),
        (("compare", "s.npz", *TS, "--input", "probabilities"), "write --input logits"),
        (("compare", "s.npz", "--input", "odds"), "'--input'"),
        (("fit", "s.npz", *TS, "--output", "there.safetensors"), "pass --force to replace it"),
        (("fit",), "pass a file of scores, or --original and --direct"),
        (("fit", "s.npz", "--repair", "raise"), "repair is 'raise'; write"),
        (("fit", "--original", "p.npz"), "--direct is missing"),
        (("fit", "--original", "p.npz", "--direct", "short.npz"), "(400, 3) but short.npz has"),
        (("fit", "--original", "p.npz", "--direct", "s.npz"), "negative number"),
        (("fit", "s.npz", *TS, "--original", "p.npz"), "but not both"),
        (("audit", "--original", "p.npz", "--direct", "short.npz"), "same rows and classes"),
        (("fit", *PAIR, "--columns", "other"), "has no column 'other'; its scores are probs"),
        (("fit", *PAIR, "--labels", "y"), "--labels needs a file of scores and labels"),
        (
            ("audit", "--original", "both.npz", "--direct", "q.npz"),
            "several matrices of scores (p, q); choose one, as in --columns p",
        ),
        (
            ("audit", "--original", "p.npz", "--direct", "both.npz"),
            "several matrices of scores (p, q); choose one, as in --columns p",
        ),
        (
            ("compare", "both.npz"),
            "several matrices of scores (p, q); choose one, as in --columns p",
        ),
        (("audit", "--original", "-", "--direct", "-"), "--direct is stdin, as --original is"),
        (("apply", "nowhere.safetensors", "s.npz"), "there is no such model file"),
        (("apply", "s.npz", "s.npz"), "s.npz is not a model file; pass a file that"),
        (("apply", ".", "s.npz"), ". is a folder; name the model file in it"),
        (("demo", "--report", "no/x.html"), "no/x.html cannot be written: the folder no does not"),
        (("info", "nowhere.npz"), "nowhere.npz does not exist"),
        (("apply",), "Missing argument 'model'"),
    ],
)
def test_one_sentence(call, folder: Path, arguments: tuple[str, ...], message: str) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code, printed, errors = call(*arguments)
    assert code == 2
    assert printed.count("\n") <= 1
    # Some versions of typer write the name of a missing argument in capitals.
    assert message.casefold() in errors.casefold()
    assert errors.startswith("cordcal: ")
    assert errors.count("\n") == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_an_output_of_an_unknown_format(call, folder: Path) -> None:
    assert call("fit", "s.npz", *TS, "--output", "m.safetensors")[0] == 0
    code, _, errors = call("apply", "m.safetensors", "s.npz", "--output", "out.xlsx")
    assert code == 2
    assert f"use one of {', '.join(SUFFIXES)}" in errors
    assert not (folder / "out.xlsx").exists()


def test_a_model_in_the_second_place(call, folder: Path) -> None:
    call("fit", "s.npz", *TS, "--output", "m.safetensors")
    code, _, errors = call("apply", "s.npz", "m.safetensors")
    assert code == 2
    assert "the model comes first: cordcal apply m.safetensors s.npz" in errors


def test_a_model_of_the_other_kind(call, folder: Path) -> None:
    call("fit", "s.npz", *TS, "--output", "m.safetensors")
    code, _, errors = call("apply", "m.safetensors", "p.npz")
    assert code == 2
    assert "p.npz looks like probabilities but m.safetensors was fitted on logits" in errors
    code, _, errors = call("apply", "m.safetensors", "--original", "p.npz", "--direct", "q.npz")
    assert code == 2
    assert "holds a calibrator with its repair" in errors
    code, _, errors = call("apply", "m.safetensors")
    assert code == 2
    assert "scores is missing" in errors
    assert "--original" not in errors
    call("fit", "--original", "p.npz", "--direct", "q.npz", "--output", "c.safetensors")
    code, _, errors = call("apply", "c.safetensors", *PAIR, "--columns", "other")
    assert code == 2
    assert "has no column 'other'" in errors
    code, _, errors = call("apply", "c.safetensors", "s.npz")
    assert code == 2
    assert "holds a repair alone" in errors


def test_rows_that_may_be_of_either_kind(call, folder: Path) -> None:
    """Among logits with one decimal a row like this one is nothing unusual."""
    call("fit", "s.npz", *TS, "--output", "m.safetensors")
    model = cordcal.load("m.safetensors")
    Path("one.csv").write_text("s_a,s_b,s_c\n0.2,0.3,0.5\n")
    assert call("apply", "m.safetensors", "one.csv", "--output", "out.csv")[0] == 0
    written = pd.read_csv("out.csv").filter(regex="^p_").to_numpy()
    np.testing.assert_allclose(written, model.predict_proba([[0.2, 0.3, 0.5]]), rtol=1e-12)
    Path("plain.csv").write_text("s_a,s_b,s_c\n0.2031542,0.3012345,0.4956113\n")
    code, _, errors = call("apply", "m.safetensors", "plain.csv", "--output", "no.csv")
    assert code == 2
    assert "plain.csv looks like probabilities" in errors


def test_classes_in_another_order(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    np.savez(tmp_path / "a.npz", logits=logits, labels=labels, class_names=["x", "y", "z"])
    np.savez(tmp_path / "b.npz", logits=logits[:, [0, 2, 1]], class_names=["x", "z", "y"])
    np.savez(tmp_path / "c.npz", logits=logits, class_names=["x", "q", "z"])
    call("fit", "a.npz", *TS, "--output", "m.safetensors")
    assert call("apply", "m.safetensors", "a.npz", "--output", "a.npy")[0] == 0
    assert call("apply", "m.safetensors", "b.npz", "--output", "b.npy")[0] == 0
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()
    code, _, errors = call("apply", "m.safetensors", "c.npz")
    assert code == 2
    assert "c.npz has the class 'q' but not 'y', which m.safetensors has" in errors


def test_force_replaces(call, folder: Path) -> None:
    code, _, errors = call("fit", "s.npz", *TS, "--output", "there.safetensors", "--force")
    assert code == 0, errors
    assert (folder / "there.safetensors").read_bytes() != b"mine"


def test_an_interrupt_leaves_the_old_report(
    call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cordcal.evaluate.compare.fit_and_measure", stop)
    code, _, errors = call("compare", "s.npz", *TS, "--report", "there.html", "--force")
    assert code == 130
    assert errors == "cordcal: interrupted; nothing was written\n"
    assert (folder / "there.html").read_text() == "mine"
    assert not [path for path in folder.iterdir() if path.name.startswith(".there")]


def test_rows_of_nan_are_skipped_in_every_command(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    mask = np.arange(400) % 7 > 0
    holes = np.where(mask[:, None], logits, np.nan)
    np.savez(tmp_path / "sound.npz", logits=logits[mask], labels=labels[mask])
    np.savez(tmp_path / "holes.npz", logits=holes, labels=labels)
    cells = [",".join(map(str, row)).replace("nan", "") for row in holes.tolist()]
    (tmp_path / "holes.csv").write_text("\n".join(["p_ant,p_bee,p_wasp", *cells]))
    assert call("fit", "sound.npz", *TS, "--output", "sound.safetensors")[0] == 0
    code, _, errors = call("fit", "holes.npz", *TS)
    assert "row 0 contains NaN" in errors
    assert code == 2
    skip = ("--on-error", "skip")
    code, _, errors = call("fit", "holes.npz", *TS, *skip, "--output", "holes.safetensors")
    assert "skipped 58 rows: contains NaN" in errors
    assert code == 0
    for name in ("sound", "holes"):
        call("apply", f"{name}.safetensors", "sound.npz", "--output", f"{name}.npy")
    np.testing.assert_array_equal(*(np.load(tmp_path / f"{x}.npy") for x in ("sound", "holes")))
    code, _, errors = call("apply", "sound.safetensors", "holes.csv", *skip, "--output", "out.csv")
    assert "skipped 58 rows: contains NaN" in errors
    assert code == 0


def test_a_bad_row_names_the_way_around_it(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    np.savez(tmp_path / "s.npz", logits=logits, labels=labels)
    bad = logits.copy()
    bad[3, 1] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    assert call("fit", "s.npz", "--calibrator", "ts")[0] == 0
    code, _, errors = call("apply", "model.safetensors", "bad.npy", "--output", "o.csv")
    assert code == 2
    assert "row 3 contains NaN; drop or fix such rows" in errors
    assert ", or pass --on-error skip" in errors


def test_labels_that_a_shift_would_mend(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    np.savez(tmp_path / "s.npz", logits=logits, labels=(labels + 1) % logits.shape[1])
    code, _, errors = call("fit", "s.npz", "--calibrator", "irova", "--quiet")
    assert code == 0
    assert "cordcal: warning: s.npz: accuracy" in errors
    assert "are they numbered from 1?" in errors
    assert errors.count("warning") == 1


def test_fit_and_compare_print_caveats_once(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    np.savez(tmp_path / "s.npz", logits=logits[:, ::-1], labels=labels)
    code, _, errors = call("fit", "s.npz", *TS, "--quiet")
    assert code == 0
    assert errors.count("from the last to the first") == errors.count("warning") == 1
    code, shown, errors = call("compare", "s.npz", *TS, "--quiet")
    assert code == 0
    assert shown.count("! accuracy") == shown.count("from the last to the first") == 1
    assert "warning" not in errors
    np.savez(tmp_path / "few.npz", logits=logits[:5], labels=labels[:5])
    _, _, errors = call("fit", "few.npz", *TS, "--quiet", "--force")
    assert errors.count("warning: few.npz: only 5 rows") == 1


def test_rows_that_are_all_skipped(call, tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", logits=np.full((9, 3), np.nan), labels=np.zeros(9, int))
    code, _, errors = call("fit", "s.npz", *TS, "--on-error", "skip")
    assert "s.npz (logits) has no row that can be read" in errors
    assert code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("s.npz", "--calibrator", "tss"), "did you mean"),
        ((), "pass a file of scores, or --original"),
        (("nowhere.npz", *TS), "nowhere.npz does not exist"),
        (("bare.npz", *TS), "does not contain labels"),
        (("--original", "p.npz", "--direct", "short.npz"), "same rows and classes"),
        (("s.npz", *TS), "model.safetensors exists already"),
        (PAIR, "model.safetensors exists already"),
    ],
)
def test_the_input_is_checked_before_the_output(
    call, folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    (folder / "model.safetensors").write_text("mine")
    code, _, errors = call("fit", *arguments)
    assert code == 2
    assert message in errors
    assert errors.count("\n") == 1


def test_help_is_wrapped_by_the_terminal_alone(call) -> None:
    """Ends of lines of a docstring would remain in a terminal of another width."""
    lines = [line.strip() for line in call("check", "--help")[1].splitlines()]
    (line,) = [line for line in lines if line.startswith("A gate limits a metric")]
    following = lines[lines.index(line) + 1]
    assert len(line) + len(following.split()[0]) >= 75  # 78 columns, indented by two
