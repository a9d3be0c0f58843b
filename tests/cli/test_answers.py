"""Answers of language models in the command: JSONL in, the same JSONL out with probabilities."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LETTERS = "ABCDE"
HARNESS = Path(__file__).parents[1] / "data" / "harness"
ANSWERS = ("--answers",)


def reply(rng: np.random.Generator, count: int) -> dict[str, Any]:
    """Return a question of some options as a chat interface answers it, four tokens listed."""
    truth = int(rng.integers(count))
    evidence = 2.5 * (rng.normal(size=count) + 1.2 * np.eye(count)[truth])
    masses = np.exp(evidence) / np.exp(evidence).sum()
    tokens = {f" {LETTERS[index]}": 0.9 * mass for index, mass in enumerate(masses)}
    tokens["A"] = 0.04 * masses[0]
    top = sorted(tokens.items(), key=lambda item: -item[1])[:4]
    listed = [{"token": token, "logprob": math.log(mass)} for token, mass in top]
    first = {**listed[0], "top_logprobs": listed}
    return {
        "id": f"question {rng.integers(10**6)}",
        "choices": [{"logprobs": {"content": [first]}}],
        "options": list(LETTERS[:count]),
        "answer": LETTERS[truth],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name, counts in (("cal", (3, 4, 5)), ("new", (3, 4))):
        lines = [reply(rng, int(rng.choice(counts))) for _ in range(300)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(text)
    return tmp_path


@pytest.mark.parametrize("missing", ["even", "other"])
def test_lines_are_written_back_with_probabilities_that_keep_the_answer(
    call, folder: Path, missing: str
) -> None:
    how = ("--answers", "--missing", missing)
    code, _, errors = call("fit", "cal.jsonl", *how, "--calibrator", "svs")
    assert code == 0, errors
    assert "300 questions; " in errors
    assert "do not list every option" in errors
    code, _, errors = call(
        "apply", "model.safetensors", "new.jsonl", *how, "--output", "out.jsonl", "--with-direct"
    )
    assert code == 0, errors
    inputs, outputs = (
        [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("new.jsonl", "out.jsonl")
    )
    for before, after in zip(inputs, outputs, strict=True):
        added = {name: after.pop(name) for name in ("repaired", "direct")}
        assert after == before
        for vector in added.values():  # only the question's own options, and all probability
            other = ["other"] if missing == "other" else []
            assert list(vector) == [*before["options"], *other]
            assert sum(vector.values()) == pytest.approx(1.0, abs=1e-6)
    code, out, errors = call("check", "out.jsonl", *how, "--original", "new.jsonl", "--max=tpcr=0")
    assert (code, out) == (0, "✓ tpcr is 0, within 0\n"), errors


def test_check_and_audit_read_the_added_probabilities(call, folder: Path) -> None:
    call("fit", "cal.jsonl", *ANSWERS, "--calibrator", "svs")
    output = ("--output", "out.jsonl", "--with-direct")
    call("apply", "model.safetensors", "new.jsonl", *ANSWERS, *output)
    pair = ("--original", "new.jsonl", "--direct", "out.jsonl")
    code, out, errors = call("audit", *ANSWERS, *pair, "--json")
    assert code == 0, errors
    changed = json.loads(out)["changes"]["n_changed"]
    assert changed > 0
    limits = ("--original", "new.jsonl", "--max", "tpcr=0", "--key")
    assert call("check", "out.jsonl", *ANSWERS, *limits, "direct")[0] == 1
    assert call("check", "out.jsonl", *ANSWERS, *limits, "repaired")[0] == 0
    code, out, _ = call("apply", "model.safetensors", "new.jsonl", *ANSWERS)
    assert len(out.splitlines()) == 300
    assert "repaired" in json.loads(out.splitlines()[0])


def test_an_audit_reads_repaired_probabilities_if_there_are_no_direct_ones(
    call, folder: Path
) -> None:
    call("fit", "cal.jsonl", *ANSWERS, "--calibrator", "svs")
    call("apply", "model.safetensors", "new.jsonl", *ANSWERS, "--output", "out.jsonl")
    pair = ("--original", "new.jsonl", "--direct", "out.jsonl")
    result = json.loads(call("audit", *ANSWERS, *pair, "--json")[1])
    assert not result["identical"]
    assert result["changes"]["n_changed"] == 0


def test_compare_reads_answers(call, folder: Path) -> None:
    code, out, errors = call("compare", "cal.jsonl", *ANSWERS, "--calibrator", "ts,svs")
    assert code == 0, errors
    assert "next step" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "cal.jsonl", *ANSWERS, "--missing", "refuse"), "or pass --missing even"),
        (("fit", "cal.jsonl"), "has answers of a language model: chat replies; add --answers"),
        (("apply", "m.safetensors", "new.jsonl"), "chat replies; add --answers"),
        (("check", "new.jsonl", "--max", "nll=1"), "chat replies; add --answers"),
        (
            ("fit", "bare.jsonl", *ANSWERS),
            "row 0 does not list its options; name the options of all questions, as in ",
        ),
        (
            ("apply", "m.safetensors", "bare.jsonl", *ANSWERS, "--options", "D,C,B,A"),
            "name them in the model's order, with --options A,B,C,D",
        ),
        (
            ("fit", "cal.jsonl", *ANSWERS, "--missing", "odd"),
            "--missing is 'odd'; pass one of even",
        ),
        (("fit", "y.csv", "--options", "ABCD"), "--options goes with --answers only"),
        (
            ("fit", "cal.jsonl", *ANSWERS, "--options", "yes"),
            "--options is 'yes'; name two or more",
        ),
        (
            ("fit", "cal.jsonl", *ANSWERS, "--normalize", "words"),
            "--normalize is 'words'; pass one of none, characters, bytes, tokens",
        ),
        (
            ("fit", "cal.jsonl", *ANSWERS, "--normalize", "characters"),
            "does not have one log-likelihood per option; leave it out",
        ),
        (("fit", "cal.jsonl", *ANSWERS, "--variants", "some"), "--variants is 'some'; pass one of"),
        (
            ("fit", "cal.jsonl", *ANSWERS, "--columns", "a,b"),
            "name a field of probabilities with --key",
        ),
        (("fit", "cal.jsonl", *ANSWERS, "--labels-column", "id"), "as in --labels-column target"),
        (("apply", "m.safetensors", "cal.jsonl", *ANSWERS), "options but the model was fitted on"),
        (("apply", "m.safetensors", "new.jsonl", *ANSWERS, "--output", "o.csv"), "name a .jsonl"),
        (
            ("apply", "m.safetensors", "new.jsonl", *ANSWERS, "--resume", "--output", "o.jsonl"),
            "--resume does not go with --answers, which are read",
        ),
        (
            ("apply", "m.safetensors", "new.jsonl", *ANSWERS, "--drop-rest"),
            "--drop-rest does not go with --answers; leave it out",
        ),
        (
            ("apply", "m.safetensors", "new.jsonl", *ANSWERS, "--missing", "other"),
            "but the model has none; read the answers as for fitting, with --missing even",
        ),
        (
            ("check", "new.jsonl", *ANSWERS, "--key", "mine", "--max", "nll=1"),
            "row 0 has no probabilities under 'mine'",
        ),
    ],
)
def test_one_sentence(call, folder: Path, arguments: tuple[str, ...], message: str) -> None:
    bare = [json.loads(line) for line in (folder / "new.jsonl").read_text().splitlines()]
    text = "".join(json.dumps({**line, "options": None}) + "\n" for line in bare)
    (folder / "bare.jsonl").write_text(text)
    call("fit", "new.jsonl", *ANSWERS, "--calibrator", "ts", "--output", "m.safetensors")
    code, _, errors = call(*arguments)
    assert code == 2
    assert message in errors


def test_spellings_of_a_token(call, folder: Path) -> None:
    merged = "with several spellings of an option added up"
    fit = ("fit", "cal.jsonl", *ANSWERS, "--calibrator", "ts", "--force")
    assert merged in call(*fit, "--variants", "spaces")[2]
    assert merged not in call(*fit, "--variants", "exact")[2]


def test_a_model_of_letters_is_for_any_options_but_one_of_words_is_not(call, folder: Path) -> None:
    one = {"options": ["red", "green"], "logprobs": [-1.0, -0.5]}
    (folder / "one.jsonl").write_text(json.dumps(one))
    call("fit", "new.jsonl", *ANSWERS, "--calibrator", "ts", "--output", "letters.st")
    code, out, errors = call("apply", "letters.st", "one.jsonl", *ANSWERS)
    assert code == 0, errors
    assert list(json.loads(out)["repaired"]) == ["red", "green"]
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(100, 2))
    labels = (scores + rng.normal(size=(100, 2))).argmax(axis=1)
    lines = [
        {"options": ["no", "yes"], "logprobs": logprobs, "answer": label}
        for logprobs, label in zip(scores.tolist(), labels.tolist(), strict=True)
    ]
    (folder / "words.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    call("fit", "words.jsonl", *ANSWERS, "--calibrator", "ts", "--output", "words.st")
    code, _, errors = call("apply", "words.st", "one.jsonl", *ANSWERS)
    assert code == 2
    assert "has the options red, green but the model no, yes" in errors


def test_a_model_is_applied_to_the_scores_that_it_was_fitted_on(call, folder: Path) -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(200, 2)) - 4.0
    lines = [
        {"id": row, "options": ["a", "a long option"], "logprobs": logprobs, "answer": row % 2}
        for row, logprobs in enumerate(scores.tolist())
    ]
    (folder / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    how = ("--calibrator", "vs", "--output", "m.st", "--normalize", "characters")
    code, _, errors = call("fit", "x.jsonl", *ANSWERS, *how)
    assert code == 0, errors
    assert call("apply", "m.st", "x.jsonl", *ANSWERS, "--output", "out.jsonl")[0] == 0
    written = [
        json.loads(line)["repaired"] for line in (folder / "out.jsonl").read_text().splitlines()
    ]
    predictions = [list(vector.values()).index(max(vector.values())) for vector in written]
    assert predictions == (scores / [1, 13]).argmax(axis=1).tolist()
    assert predictions != scores.argmax(axis=1).tolist()
    check = ("check", "out.jsonl", *ANSWERS, "--original", "x.jsonl", "--max", "tpcr=0")
    assert call(*check, "--normalize", "characters")[0] == 0
    assert call(*check)[0] == 1
    code, _, errors = call("apply", "m.st", "x.jsonl", *ANSWERS, "--normalize", "none")
    assert code == 2
    assert "--normalize is none, but the model was fitted with characters" in errors


def test_the_note_on_acc_norm_is_for_scores_that_could_be_normalized(call, folder: Path) -> None:
    (samples,) = HARNESS.glob("samples_cordcal_choices_*")
    fit = ("fit", samples, *ANSWERS, "--calibrator", "ts", "--force")
    note = "those of acc_norm (8.33 %) are kept with --normalize characters"
    assert note in call(*fit)[2]
    for choice in ("none", "characters"):
        assert note not in call(*fit, "--normalize", choice)[2]
    call("apply", "model.safetensors", samples, *ANSWERS, "--output", "out.jsonl")
    assert note not in call("check", "out.jsonl", *ANSWERS, "--max", "nll=9")[2]


def spoil(path: Path, *spoilt: tuple[int, str]) -> None:
    """Replace some lines of a file."""
    lines = path.read_text().splitlines()
    for at, text in spoilt:
        lines[at] = text
    path.write_text("".join(line + "\n" for line in lines))


SPOILT = ((0, '{"id": "cut sh'), (5, '{"id": "no reply"}'))
LONG = (7, json.dumps({"options": list(LETTERS), "logprobs": [-1.0] * 5, "answer": 0}))


def test_invalid_lines_are_skipped_and_counted(call, folder: Path) -> None:
    call("fit", "new.jsonl", *ANSWERS, "--calibrator", "svs", "--output", "m.safetensors")
    spoil(folder / "new.jsonl", *SPOILT, LONG)
    apply = ("apply", "m.safetensors", "new.jsonl", *ANSWERS, "--output", "out.jsonl", "--force")
    code, _, errors = call(*apply)
    assert code == 2
    assert "new.jsonl: row 0 is not valid JSON" in errors
    code, _, errors = call(*apply, "--on-error", "skip")
    assert code == 0, errors
    for line in (
        "skipped 1 row: is not valid JSON",
        "skipped 1 row: has no log-probabilities",
        "skipped 1 row: has more options than the model was fitted on",
        "out.jsonl: 297 questions; ",
    ):
        assert line in errors
    inputs, outputs = (
        [json.loads(line) for line in (folder / name).read_text().splitlines()[1:]]
        for name in ("new.jsonl", "out.jsonl")
    )
    assert [line["row"] for line in outputs] == [at for at in range(2, 300) if at not in (5, 7)]
    assert all(line["id"] == inputs[line["row"] - 1]["id"] for line in outputs)
    code, out, _ = call(*apply, "--on-error", "skip", "--json")
    result = json.loads(out)
    assert (result["rows"], sum(result["skipped"].values())) == (297, 3)


def test_fit_and_compare_skip_invalid_lines(call, folder: Path) -> None:
    spoil(folder / "cal.jsonl", *SPOILT, (9, '{"logprobs": [-1.0, -2.0, -0.5]}'))
    for command in (
        ("fit", "cal.jsonl", "--calibrator", "ts"),
        ("compare", "cal.jsonl", "--calibrator", "ts"),
    ):
        code, _, errors = call(*command, *ANSWERS, "--on-error", "skip")
        assert code == 0, errors
        assert "skipped 1 row: has no right answer" in errors
        assert "297 questions" in errors
    assert call("fit", "cal.jsonl", *ANSWERS, "--calibrator", "ts", "--force")[0] == 2


def test_an_audit_skips_an_invalid_line_in_both_files(call, folder: Path) -> None:
    call("fit", "cal.jsonl", *ANSWERS, "--calibrator", "svs")
    call(
        *("apply", "model.safetensors", "new.jsonl", *ANSWERS, "--with-direct"),
        *("--output", "out.jsonl"),
    )
    for name, rows in (("new.jsonl", (0, 5)), ("out.jsonl", (5, 8))):
        spoil(folder / name, *((at, "no JSON") for at in rows))
    pair = ("--original", "new.jsonl", "--direct", "out.jsonl")
    assert call("audit", *ANSWERS, *pair)[0] == 2
    code, out, errors = call("audit", *ANSWERS, *pair, "--on-error", "skip", "--json")
    assert code == 0, errors
    assert "skipped 2 rows: is not valid JSON" in errors
    assert "skipped 1 row: is not in out.jsonl, or invalid there" in errors
    assert json.loads(out)["changes"]["n"] == 297


def rewrite(path: Path, change) -> None:
    """Replace the lines of a file by what a function makes of them."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in change(lines)))


def without(field: str):
    return lambda lines: [
        {name: value for name, value in line.items() if name != field} for line in lines
    ]


def test_questions_are_matched_by_id_then_by_row_then_by_position(call, folder: Path) -> None:
    call("fit", "new.jsonl", *ANSWERS, "--calibrator", "svs", "--output", "m.safetensors")
    spoil(folder / "new.jsonl", *SPOILT)
    apply = ("apply", "m.safetensors", "new.jsonl", *ANSWERS, "--output", "out.jsonl", "--force")
    assert call(*apply, "--on-error", "skip")[0] == 0
    rewrite(folder / "out.jsonl", lambda lines: lines[::-1])
    check = ("check", "out.jsonl", *ANSWERS, "--original", "new.jsonl", "--max", "tpcr=0")
    code, out, errors = call(*check)
    assert (code, out) == (0, "✓ tpcr is 0, within 0\n"), errors
    assert "2 of the lines of new.jsonl are not in out.jsonl" in errors
    pair = ("--original", "new.jsonl", "--direct", "out.jsonl")
    code, out, errors = call("audit", *ANSWERS, *pair, "--on-error", "skip", "--json")
    assert code == 0, errors
    assert json.loads(out)["changes"] | {"n": 298, "n_changed": 0} == json.loads(out)["changes"]

    rewrite(folder / "out.jsonl", without("id"))  # only the row numbers are left
    assert call(*check)[:2] == (0, "✓ tpcr is 0, within 0\n")
    rewrite(folder / "out.jsonl", without("row"))
    code, _, errors = call(*check)
    assert code == 2
    assert "new.jsonl has 300 lines but out.jsonl has 298" in errors
    code, _, errors = call(*check, "--join", "id")
    assert code == 2
    assert "out.jsonl: row 0 has no id" in errors


def test_questions_that_only_one_file_has_are_named(call, folder: Path) -> None:
    call("fit", "new.jsonl", *ANSWERS, "--calibrator", "svs", "--output", "m.safetensors")
    call("apply", "m.safetensors", "new.jsonl", *ANSWERS, "--output", "out.jsonl")
    gone = [json.loads(line)["id"] for line in (folder / "new.jsonl").read_text().splitlines()][:4]
    rewrite(folder / "new.jsonl", lambda lines: lines[4:])
    code, _, errors = call(
        "check", "out.jsonl", *ANSWERS, "--original", "new.jsonl", "--max", "tpcr=0"
    )
    assert code == 2
    assert f"has id {gone[0]!r}, {gone[1]!r}, {gone[2]!r} and 1 more, which new.jsonl" in errors
    pair = ("--original", "new.jsonl", "--direct", "out.jsonl")
    assert call("audit", *ANSWERS, *pair)[0] == 2
    assert call("audit", *ANSWERS, *pair, "--on-error", "skip")[0] == 0


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_labels_are_joined_by_id_in_any_order(call, folder: Path, suffix: str) -> None:
    """The normal case of a Batch API: replies in any order, without options or answers."""
    labelled = [json.loads(line) for line in (folder / "cal.jsonl").read_text().splitlines()]
    rng = np.random.default_rng(1)
    batch = [
        {
            "custom_id": f"q-{row}",
            "response": {"status_code": 200, "body": {"choices": labelled[row]["choices"]}},
        }
        for row in rng.permutation(300).tolist()
    ]
    (folder / "batch.jsonl").write_text("".join(json.dumps(line) + "\n" for line in batch))
    gold = [(f"q-{row}", line["answer"]) for row, line in enumerate(labelled)]
    if suffix == "csv":
        lines = ["custom_id,answer", *(",".join(pair) for pair in gold)]
    else:
        lines = [json.dumps({"custom_id": key, "answer": answer}) for key, answer in gold]
    (folder / f"gold.{suffix}").write_text("\n".join(lines))
    how = (*ANSWERS, "--options", "ABCDE", "--calibrator", "ts", "--json", "--force")
    fit = ("fit", "batch.jsonl", *how, "--labels", f"gold.{suffix}")
    code, joined, errors = call(*fit, "--join", "custom_id")
    assert code == 0, errors
    rewrite(folder / "cal.jsonl", without("options"))
    code, expected, errors = call("fit", "cal.jsonl", *how)
    assert code == 0, errors
    counts = [json.loads(text)["construction"]["n"] for text in (joined, expected)]
    assert counts == [300, 300]
    assert call(*fit)[0] == 0  # custom_id is found without --join

    code, _, errors = call("fit", "batch.jsonl", *how)
    assert code == 2
    assert "has no right answer" in errors
    (folder / f"gold.{suffix}").write_text("\n".join(lines[:-2]))
    code, _, errors = call(*fit)
    assert code == 2
    assert f"gold.{suffix} lacks custom_id " in errors
    assert "'q-298'" in errors
    assert "'q-299'" in errors
    assert call(*fit, "--on-error", "skip")[0] == 0
    (folder / f"gold.{suffix}").write_text("\n".join([*lines, lines[-1]]))
    code, _, errors = call(*fit)
    assert code == 2
    assert f"gold.{suffix}: row 300 has the custom_id 'q-299' of row 299 again" in errors


def test_groups_may_be_a_field_of_the_lines(call, folder: Path) -> None:
    rewrite(
        folder / "cal.jsonl",
        lambda lines: [
            {**line, "doc": {"subject": "law" if row % 3 else "art"}}
            for row, line in enumerate(lines)
        ],
    )
    spoil(folder / "cal.jsonl", *SPOILT)
    code, out, errors = call(
        *("compare", "cal.jsonl", *ANSWERS, "--calibrator", "ts", "--on-error", "skip"),
        *("--groups-column", "subject", "--json"),
    )
    assert code == 0, errors
    assert '"law"' in out
    assert '"art"' in out
    code, _, errors = call(
        "compare", "new.jsonl", *ANSWERS, "--calibrator", "ts", "--groups-column", "topic"
    )
    assert code == 2
    assert "new.jsonl has no field 'topic'" in errors


def test_the_explanation_of_a_repair_is_one_field(call, folder: Path) -> None:
    call("fit", "cal.jsonl", *ANSWERS, "--calibrator", "ts")
    code, out, errors = call("apply", "model.safetensors", "new.jsonl", *ANSWERS, "--explain")
    assert code == 0, errors
    for line in map(json.loads, out.splitlines()):
        explanation = line["explanation"]
        assert "row" not in line
        assert explanation["lower"] <= explanation["repaired_mass"] <= 1.0
        assert max(line["repaired"].values()) == pytest.approx(explanation["repaired_mass"])
