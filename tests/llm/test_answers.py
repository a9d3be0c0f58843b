"""Answers of language models: every layout, options that are not listed, and labels by id."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from cordcal import PreservingCalibrator
from cordcal.llm import read_answers, write_answers
from cordcal.llm.answers import parse_options
from errors import refused

LETTERS = ["A", "B", "C"]


def written(folder: Path, *lines: object) -> Path:
    path = folder / "answers.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def chat(*tokens: dict[str, float], sampled: str = "A") -> dict:
    content = [
        {
            "token": sampled if at == len(tokens) - 1 else next(iter(listed)),
            "logprob": max(listed.values()),
            "top_logprobs": [{"token": t, "logprob": p} for t, p in listed.items()],
        }
        for at, listed in enumerate(tokens)
    ]
    return {"choices": [{"message": {"content": sampled}, "logprobs": {"content": content}}]}


def logs(**masses: float) -> dict[str, float]:
    return {token: math.log(mass) for token, mass in masses.items()}


FULL = {"A": math.log(0.6), "B": math.log(0.3), "C": math.log(0.1)}
LAYOUTS = {
    "chat": chat(FULL),
    "batch": {"response": {"body": chat(FULL)}},
    "responses": {
        "output": [
            {"type": "reasoning", "summary": []},
            {
                "type": "message",
                "content": [
                    {"text": "A", "logprobs": chat(FULL)["choices"][0]["logprobs"]["content"]}
                ],
            },
        ]
    },
    "completion": {"choices": [{"logprobs": {"tokens": ["A"], "top_logprobs": [FULL]}}]},
    "plain": {"logprobs": FULL},
    "list": {"logprobs": list(FULL.values())},
    "stated": {"probabilities": {"A": 0.6, "B": 0.3, "C": 0.1}},
    "stated list": {"probs": [0.6, 0.3, 0.1]},
    "harness": {
        "resps": [[[value, False]] for value in FULL.values()],
        "doc": {"choices": LETTERS},
    },
    "filtered": {"filtered_resps": [[value, True] for value in FULL.values()]},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_row(tmp_path: Path, layout: str) -> None:
    line = {**LAYOUTS[layout], "answer": "B"}
    answers = read_answers(written(tmp_path, line), options=LETTERS)
    np.testing.assert_allclose(np.exp(answers.scores), [[0.6, 0.3, 0.1]], rtol=1e-12)
    assert answers.labels.tolist() == [1]
    assert answers.class_names == ("A", "B", "C")
    assert answers.summary.n_incomplete == 0


@pytest.mark.parametrize("answer", [1, "1", "B", "b", "(B)", "green"])
def test_the_right_answer_by_index_letter_or_text(tmp_path: Path, answer: object) -> None:
    line = {"logprobs": [-1.0, -2.0, -3.0], "options": ["red", "green", "blue"], "label": answer}
    assert read_answers(written(tmp_path, line)).labels.tolist() == [1]


def test_variants_of_a_token_are_one_option(tmp_path: Path) -> None:
    listed = {" A": math.log(0.4), "A": math.log(0.2), "a": math.log(0.1), "B": math.log(0.3)}
    answers = read_answers(written(tmp_path, chat(listed)), options=["A", "B"])
    np.testing.assert_allclose(np.exp(answers.scores), [[0.7, 0.3]], rtol=1e-12)
    assert answers.summary.n_merged == 1
    strict = read_answers(written(tmp_path, chat(listed)), options=["A", "B"], variants=str)
    np.testing.assert_allclose(np.exp(strict.scores), [[0.2, 0.3]], rtol=1e-12)


def test_the_answer_may_come_after_other_tokens(tmp_path: Path) -> None:
    line = chat({"The": -0.1, "A": -3.0}, {"B": math.log(0.8), "A": math.log(0.2)}, sampled="B")
    answers = read_answers(written(tmp_path, line), options=["A", "B"])
    np.testing.assert_allclose(np.exp(answers.scores), [[0.2, 0.8]], rtol=1e-12)


TOP = {"A": math.log(0.7), "B": math.log(0.15), "Hmm": math.log(0.05)}


def test_unlisted_probability_is_split_among_missing_options(tmp_path: Path) -> None:
    answers = read_answers(written(tmp_path, chat(TOP)), options=["A", "B", "C", "D"])
    # 0.1 is unseen; C and D share it, and neither can be likelier than the least listed token.
    np.testing.assert_allclose(np.exp(answers.scores), [[0.7, 0.15, 0.05, 0.05]], rtol=1e-12)
    one = read_answers(written(tmp_path, chat(TOP)), options=["A", "B", "C"])
    assert np.exp(one.scores[0, 2]) == pytest.approx(0.05)
    record = answers.summary
    assert record.n_incomplete == 1
    assert record.max_unlisted == pytest.approx(0.1)
    assert record.mean_other_tokens == pytest.approx(0.05)


def test_unlisted_probability_may_be_a_column(tmp_path: Path) -> None:
    answers = read_answers(written(tmp_path, chat(TOP)), options=["A", "B"], missing="other")
    np.testing.assert_allclose(np.exp(answers.scores), [[0.7, 0.15, 0.15]], rtol=1e-9)
    assert answers.class_names == ("A", "B", "other")


def test_a_missing_option_may_be_refused(tmp_path: Path) -> None:
    path = written(tmp_path, chat(FULL), chat(TOP))
    with refused(rows=[1], naming="'C'"):
        read_answers(path, options=LETTERS, missing="refuse")


def test_questions_of_different_length_are_masked(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"options": ["yes", "no"], "logprobs": {"yes": -0.5, "no": -1.0}, "answer": "no"},
        {"options": ["a cat", "a dog", "both"], "logprobs": [-1.0, -0.2, -3.0], "answer": 2},
    )
    answers = read_answers(path)
    assert answers.class_names == ("A", "B", "C")
    assert answers.scores[0, 2] == -math.inf
    assert answers.labels.tolist() == [1, 2]


def test_sums_and_ties_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path, {"probabilities": [0.5, 0.5, 0.2]}, {"probabilities": [1.0, 0.0, 0.0]})
    record = read_answers(path).summary
    assert (record.n_rescaled, record.n_tied) == (1, 1)
    assert np.isfinite(read_answers(path).scores).all()  # a stated zero is not impossible


def test_an_answer_is_never_changed_and_the_lines_are_written_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = []
    for at in range(200):
        logprobs = dict(zip("ABCD", rng.normal(-2, 2, 4).tolist(), strict=True))
        answer = max(logprobs, key=logprobs.__getitem__) if at % 3 else "ABCD"[at % 4]
        lines.append({"id": at, "logprobs": logprobs, "answer": answer})
    answers = read_answers(written(tmp_path, *lines))
    model = PreservingCalibrator("vs").fit(answers.scores, answers.labels)
    repaired = model.predict_proba(answers.scores)
    out = tmp_path / "out.jsonl"
    write_answers(out, answers, {"repaired": repaired})
    again = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(again) == 200
    for at, line in enumerate(again):
        assert line["id"] == at
        assert line["logprobs"] == lines[at]["logprobs"]
        vector = line["repaired"]
        assert max(vector, key=vector.get) == max(line["logprobs"], key=line["logprobs"].get)
        assert sum(vector.values()) == pytest.approx(1.0)


def test_the_order_in_a_mapping_does_not_move_options(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"logprobs": {" B": -0.1, "A": -3.0, "b": -4.0}, "answer": 1},
        {"logprobs": {"A": -0.2, "B": -2.0}, "answer": "B"},
    )
    answers = read_answers(path)
    assert answers.class_names == ("A", "B")
    assert answers.labels.tolist() == [1, 1]
    assert answers.scores.argmax(axis=1).tolist() == [1, 0]
    lines = ({"No": -0.1, "Yes": -3.0}, {"Yes": -0.3, "No": -1.0})
    words = written(tmp_path, *({"logprobs": line, "answer": "Yes"} for line in lines))
    answers = read_answers(words)
    assert answers.class_names == ("No", "Yes")
    assert answers.scores == pytest.approx(np.array([[-0.1, -3.0], [-1.0, -0.3]]))
    assert answers.labels.tolist() == [1, 1]
    numbered = written(tmp_path, *({"logprobs": line, "answer": 1} for line in lines))
    with refused(rows=[1]):
        read_answers(numbered)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"text": "hello"}, "row 0 has no log-probabilities; request them"),
        ({"logprobs": [-1.0, -2.0], "options": ["a", "b", "c"]}, "has 2 numbers for 3 options"),
        (
            {"logprobs": [-1.0, -2.0], "answer": "Z"},
            "has the answer 'Z', which is not one of its 2",
        ),
        ({"probabilities": [0.5, -0.5]}, "has a number that is not a probability"),
        (chat({"Hmm": -0.1}, sampled="Hmm"), "lists none of its options"),
        ({"logprobs": [-1.0]}, "has one option; drop it"),
        (
            {"logprobs": {"C": -1.0, "A": -2.0}},
            "names A, C but not B; name the options of all questions",
        ),
        ({"logprobs": [-math.inf, -math.inf]}, "gives every option probability zero"),
        ({"logprobs": {"A": 1000.0, "B": 0.0}}, "has a number that is not a probability"),
        ({"logprobs": [10**400, -1]}, "has no log-probabilities"),
        ({"logprobs": [-1.0, -2.0], "answer": "9" * 5000}, "which is not one of its 2 options"),
        ({"choices": [{"logprobs": {"content": "A"}}]}, "has no log-probabilities"),
        ({"choices": [{"logprobs": {"content": ["A"]}}]}, "has no log-probabilities"),
        ({"response": {"body": "too many requests"}}, "has no log-probabilities"),
        (chat({"A": -0.1, "B": -2.0}) | {"options": None}, r"as in options=\"ABCD\""),
        ({"choices": [{"logprobs": {"content": [{"tok": "A"}]}}]}, "has no log-probabilities"),
        ({"choices": [{"logprobs": {"top_logprobs": [{"A": None}]}}]}, "lists none of its options"),
    ],
)
def test_mistakes_name_the_line_and_the_remedy(tmp_path: Path, line: dict, words: str) -> None:
    options = None if "options" in line or "logprobs" in line else "A,B"
    with pytest.raises(ValueError, match=words):
        read_answers(written(tmp_path, line), options=options)


def test_a_file_that_is_not_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"logprobs": [-1, -2]}\n\n[1, 2]\n')
    with refused(rows=[1], naming="x.jsonl"):
        read_answers(path)
    path.write_text("\n")
    with refused(naming="no lines"):
        read_answers(path)
    with refused("missing", naming="'all'"):
        read_answers(path, missing="all")  # type: ignore[arg-type]


def test_more_options_than_letters(tmp_path: Path) -> None:
    answers = read_answers(written(tmp_path, {"logprobs": [-float(at) for at in range(1, 31)]}))
    assert answers.class_names[25:] == ("Z", "26", "27", "28", "29")
    write_answers(tmp_path / "out.jsonl", answers, {"repaired": np.exp(answers.scores)})


def test_probability_of_other_columns_is_shared_among_a_questions_options(tmp_path: Path) -> None:
    lines = [{"options": LETTERS[:count], "logprobs": [-1.0] * count} for count in (2, 3)]
    answers = read_answers(written(tmp_path, *lines))
    third = np.nextafter(0.3, 1.0)
    probabilities = np.array([[0.3, third, 1.0 - 0.3 - third], [0.2, 0.3, 0.5]])
    write_answers(tmp_path / "out.jsonl", answers, {"repaired": probabilities})
    lines_written = [
        json.loads(line)["repaired"] for line in (tmp_path / "out.jsonl").read_text().splitlines()
    ]
    assert sum(lines_written[0].values()) == pytest.approx(1.0, abs=1e-12)
    assert lines_written[0]["B"] > lines_written[0]["A"]  # the prediction, by one rounding
    assert lines_written[1] == {"A": 0.2, "B": 0.3, "C": 0.5}


def test_invalid_lines_are_skipped_with_their_reasons(tmp_path: Path) -> None:
    good = {"logprobs": FULL, "answer": "B"}
    path = written(tmp_path, good, {"text": "hello"}, {**good, "answer": "Z"}, {"logprobs": FULL})
    path.write_text("no JSON\n\n" + path.read_text())
    answers = read_answers(path, on_error="skip")
    assert answers.rows.tolist() == [1, 4]
    assert answers.skipped == {
        0: "is not valid JSON",
        2: "has no log-probabilities",
        3: "has an answer that is not one of its options",
    }
    assert answers.labels is None
    assert "1 without the right option" in str(answers.summary)
    labelled = read_answers(path, on_error="skip", label_use="required")
    assert labelled.rows.tolist() == [1]
    assert labelled.labels.tolist() == [1]
    assert labelled.skipped[4] == "has no right answer"
    with refused(rows=[0]):
        read_answers(path)
    path.write_text("no JSON\n")
    with refused(rows=[]):
        read_answers(path, on_error="skip")
    with refused("on_error", naming=["'ignore'", "stop", "skip"]):
        read_answers(path, on_error="ignore")  # type: ignore[arg-type]


def test_questions_are_selected_with_their_columns(tmp_path: Path) -> None:
    lines = [
        {"options": LETTERS[:count], "logprobs": dict.fromkeys(LETTERS[:count], -1.5)}
        for count in (2, 3, 2)
    ]
    answers = read_answers(written(tmp_path, *lines), missing="other")
    two = answers.select(np.array([0, 2]))
    assert two.class_names == ("A", "B", "other")
    np.testing.assert_array_equal(two.scores, answers.scores[[0, 2]][:, [0, 1, 3]])
    assert two.rows.tolist() == [0, 2]


def test_line_ends_within_texts_and_a_byte_order_mark(tmp_path: Path) -> None:
    answers = read_answers(written(tmp_path, {"q": "a\u2028b\x85c", "logprobs": FULL}))
    out = tmp_path / "out.jsonl"
    write_answers(out, answers, {"repaired": np.exp(answers.scores)}, extra={"row": answers.rows})
    out.write_bytes(b"\xef\xbb\xbf" + out.read_bytes())
    again = read_answers(out)
    assert again.lines[0]["q"] == "a\u2028b\x85c"
    assert again.lines[0]["row"] == 0
    with refused(rows=[0], naming="'row'"):
        write_answers(out, again, {}, extra={"row": again.rows})


def test_log_likelihoods_of_long_options_are_not_floored(tmp_path: Path) -> None:
    """exp(-45) is far below the probability at which the NLL is clipped."""
    likelihoods = {"a long option": -60.0, "a longer option": -45.0}
    for field in ("logprobs", "option_logprobs"):
        answers = read_answers(written(tmp_path, {field: likelihoods}))
        assert answers.scores.tolist() == [[-60.0, -45.0]]
        assert answers.summary.n_tied == 0


@pytest.mark.parametrize("listed", [{"B": -1.2}, {"B": -45.0}, {"B": -1e-9, "Hmm": -30.0}])
def test_an_option_that_is_not_listed_is_never_the_prediction(
    tmp_path: Path, listed: dict[str, float]
) -> None:
    answers = read_answers(written(tmp_path, chat(listed, sampled="B")), options="ABC")
    assert answers.scores.argmax(axis=1).tolist() == [1]
    assert answers.summary.n_tied == 0
    assert answers.scores[0, 0] < min(listed.values())


def test_tokens_are_texts_or_letters_but_not_both(tmp_path: Path) -> None:
    pets = {"options": ["cat", "dog"]}
    by_letter = chat({"A": math.log(0.6), "B": math.log(0.3), "dog": math.log(0.05)}) | pets
    by_text = chat({"dog": math.log(0.6), "cat": math.log(0.3), "A": math.log(0.05)}) | pets
    answers = read_answers(written(tmp_path, by_letter, by_text))
    np.testing.assert_allclose(np.exp(answers.scores), [[0.6, 0.3], [0.3, 0.6]], rtol=1e-12)
    assert answers.summary.mean_other_tokens == pytest.approx(0.05)
    words = chat({"Y": math.log(0.6), "A": math.log(0.2), "N": math.log(0.1)}, sampled="Y")
    answers = read_answers(written(tmp_path, words), options="YN")
    np.testing.assert_allclose(np.exp(answers.scores), [[0.6, 0.1]], rtol=1e-12)
    with refused(rows=[0]):
        read_answers(written(tmp_path, chat(FULL)), options="WXYZ")


def test_options_that_count_as_one_token_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, chat({"a": -0.5, "A": -1.5, " A": -3.0}))
    with refused(rows=[0], naming=["'a'", "'A'"], option="variants"):
        read_answers(path, options=["a", "A"])
    answers = read_answers(path, options=["a", "A"], variants="exact")
    assert answers.scores.tolist() == [[-0.5, -1.5]]
    # Names that are exactly those of the options need no rule: write_answers writes them so.
    stated = {"options": ["a", "A"], "repaired": {"A": 0.75, "a": 0.25}}
    answers = read_answers(written(tmp_path, stated), key="repaired")
    np.testing.assert_allclose(np.exp(answers.scores), [[0.25, 0.75]])
    same = {"options": ["no", "no"], "repaired": {"A": 0.75, "B": 0.25}}
    answers = read_answers(written(tmp_path, same), key="repaired")
    np.testing.assert_allclose(np.exp(answers.scores), [[0.75, 0.25]])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("ABCD", "A B C D"),
        ("A,B,C,D", "A B C D"),
        ("A, B", "A B"),
        ("abc", "a b c"),
        ("1234", "1 2 3 4"),
        ("yes,no", "yes no"),
        (("yes", "no"), "yes no"),
    ],
)
def test_options_as_people_write_them(options: object, expected: str) -> None:
    assert parse_options(options) == tuple(expected.split())


@pytest.mark.parametrize("options", ["", "yes", "A", "A,A", "A,,B", "AAB", ["A"], []])
def test_options_that_name_fewer_than_two(options: object) -> None:
    with refused("options", naming=repr(options)):
        parse_options(options)


def test_lengths_in_tokens_come_from_the_line(tmp_path: Path) -> None:
    token_by_token = {"logprobs": [[-1.0, -2.0], [-4.0]], "options": ["ab c", "d"]}
    counted = {"logprobs": [-3.0, -4.0], "num_tokens": [2, 1], "options": ["ab c", "d"]}
    harness = {"filtered_resps": [["-3.0", "False"], ["-4.0", "True"]], "num_tokens": [2, 1]}
    for line in (token_by_token, counted, harness):
        path = written(tmp_path, line)
        assert read_answers(path).scores.tolist() == [[-3.0, -4.0]]
        assert read_answers(path, normalize="tokens").scores.tolist() == [[-1.5, -4.0]]
    characters = read_answers(written(tmp_path, counted), normalize="characters")
    assert characters.scores.tolist() == [[-0.75, -4.0]]
    with refused(rows=[0], naming="num_tokens"):
        read_answers(written(tmp_path, {"logprobs": [-3.0, -4.0]}), normalize="tokens")
    with refused(rows=[0], naming="empty"):
        read_answers(
            written(tmp_path, {"logprobs": [-3.0, -4.0], "options": ["", "d"]}), normalize="bytes"
        )
    for line, argument in ((chat(FULL), "normalize"), ({"probs": [0.2, 0.8]}, "normalize")):
        with refused(argument, naming="characters"):
            read_answers(written(tmp_path, line), options=LETTERS, normalize="characters")
    with refused("missing"):
        read_answers(written(tmp_path, counted), missing="other")


# Labels by identifier


def batch(*keys: object, field: str = "custom_id") -> list[dict]:
    return [{field: key, "logprobs": {"A": -0.5 - row, "B": -1.0}} for row, key in enumerate(keys)]


def gold(folder: Path, *lines: object) -> Path:
    path = folder / "gold.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_labels_are_joined_by_identifier(tmp_path: Path) -> None:
    path = written(tmp_path, *batch("q2", "q0", "q1"))
    right = {"q0": "A", "q1": "B", "q2": 1, "q9": "A"}
    labels = gold(tmp_path, *({"custom_id": key, "answer": a} for key, a in right.items()))
    for source in (labels, right):
        answers = read_answers(path, labels=source, join="custom_id")
        assert answers.labels.tolist() == [1, 0, 1]
        assert answers.summary.unanswered == ("q9",)
        assert "'q9'" in str(answers.summary)
    # The options may be in the file of labels too, which a Batch API does not repeat.
    numbered = written(tmp_path, *({**chat(FULL), "doc_id": key} for key in (7, 8)))
    both = [{"doc_id": str(key), "choices": ["B", "A", "C"], "gold": "A"} for key in (8, 7)]
    answers = read_answers(numbered, labels=gold(tmp_path, *both))
    assert answers.class_names == ("B", "A", "C")
    assert answers.labels.tolist() == [1, 1]


def test_identifiers_that_are_missing_or_double_are_named(tmp_path: Path) -> None:
    label = {"custom_id": "q0", "answer": "A"}
    labels = gold(tmp_path, label, {"custom_id": "q1", "answer": "B"})
    path = written(tmp_path, *batch("q0", "q5", "q1", "q6"))
    with refused(str(path), rows=[1, 3], naming=["'q5'", "'q6'"], option="on_error"):
        read_answers(path, labels=labels)
    answers = read_answers(path, labels=labels, on_error="skip")
    assert answers.labels.tolist() == [0, 1]
    assert list(answers.skipped) == [1, 3]
    path = written(tmp_path, *batch("q0", "q1", "q0"))
    with refused(str(path), rows=[2], naming="'q0'"):
        read_answers(path, labels=labels)
    assert read_answers(path, labels=labels, on_error="skip").rows.tolist() == [0, 1]
    path = written(tmp_path, *batch("q0"), {"logprobs": {"A": -0.5, "B": -1.0}})
    with refused(str(path), rows=[1], naming="custom_id"):
        read_answers(path, labels=labels)
    path = written(tmp_path, *batch("q0"))
    for lines, row in (([label, label], 1), ([label, {"answer": "B"}], 1)):
        with refused(str(gold(tmp_path, *lines)), rows=[row], naming="custom_id"):
            read_answers(path, labels=gold(tmp_path, *lines))
    with refused("join", naming="question_id"):
        read_answers(path, labels=gold(tmp_path, {"key": "q0", "answer": "A"}))
    with refused(rows=[0], naming="gold.jsonl"):
        read_answers(path, labels=gold(tmp_path, {"custom_id": "q0"}))
    with refused(rows=[0], naming=["gold.jsonl", "'Z'"]):
        read_answers(path, labels=gold(tmp_path, {"custom_id": "q0", "answer": "Z"}))


def test_labels_that_nobody_needs_are_not_read(tmp_path: Path) -> None:
    path = written(tmp_path, {"logprobs": FULL, "answer": "Z"})
    assert read_answers(path, label_use="ignored").labels is None


def test_a_request_that_failed_is_named_as_such(tmp_path: Path) -> None:
    failed = {"custom_id": "q", "response": {"status_code": 429, "body": {"error": "slow down"}}}
    with refused(rows=[0], naming="request failed"):
        read_answers(written(tmp_path, failed), options="AB")


def test_a_json_document_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([chat(FULL)], indent=1))
    with refused(str(path), rows=[], naming="jq"):
        read_answers(path, options=LETTERS)
