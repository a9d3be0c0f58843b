"""Answers as a table: every layout, options that are not listed, labels and groups by id."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal.llm import read_answers
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
    path = written(tmp_path, {"probabilities": [0.3, 0.3, 0.2]}, {"probabilities": [1.0, 0.0, 0.0]})
    record = read_answers(path).summary
    assert (record.n_rescaled, record.n_tied) == (1, 1)
    assert np.isfinite(read_answers(path).scores).all()  # a stated zero is not impossible


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
    lines = ({"No": -0.1, "Yes": -3.0}, {"Yes": -0.3, "No": -1.5})
    words = written(tmp_path, *({"logprobs": line, "answer": "Yes"} for line in lines))
    answers = read_answers(words)
    assert answers.class_names == ("No", "Yes")
    assert answers.scores == pytest.approx(np.array([[-0.1, -3.0], [-1.5, -0.3]]))
    assert answers.labels.tolist() == [1, 1]
    numbered = written(tmp_path, *({"logprobs": line, "answer": 1} for line in lines))
    with refused(rows=[0], naming="text"):
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
        ({"logprobs": {"A": 1000.0, "B": 0.0}}, "has the log-probability 1000; log-prob"),
        ({"logprobs": {"A": 0.01, "B": -5.0}}, "has the log-probability 0.01"),
        ({"logprobs": [float("nan"), -5.0]}, "has the log-probability nan"),
        ({"filtered_resps": [["0.5", "True"], ["-1", "False"]]}, "has the log-probability 0.5"),
        ({"logprobs": {"A": -0.1, "B": -0.1}}, "has probabilities that sum to 1.81; write log"),
        (chat({"A": -0.1, "Hmm": -1.0, "B": -3.0}), "has probabilities that sum to 1.323"),
        ({"probabilities": [0.5, 0.5, 0.2]}, "has probabilities that sum to 1.2; write prob"),
        ({"probabilities": {"A": 70, "B": 30}}, "has probabilities that sum to 100"),
        ({"logprobs": [10**400, -1]}, "has no log-probabilities"),
        ({"logprobs": [-1.0, -2.0], "answer": "9" * 5000}, "which is not one of its 2 options"),
        ({"choices": [{"logprobs": {"content": "A"}}]}, "has no log-probabilities"),
        ({"choices": [{"logprobs": {"content": ["A"]}}]}, "has no log-probabilities"),
        ({"response": {"body": "too many requests"}}, "has no log-probabilities"),
        (chat({"A": -0.2, "B": -2.0}) | {"options": None}, r"as in options=\"ABCD\""),
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


def test_invalid_lines_are_skipped_with_their_reasons(tmp_path: Path) -> None:
    good = {"logprobs": FULL, "answer": "B"}
    path = written(tmp_path, good, {"text": "hello"}, {**good, "answer": "Z"}, {"logprobs": FULL})
    path.write_text("no JSON\n\n" + path.read_text())
    answers = read_answers(path, on_error="skip")
    assert answers.ids == ("answers/1", "answers/4")
    assert answers.skipped == {
        "is not valid JSON": 1,
        "has no log-probabilities": 1,
        "has an answer that is not one of its options": 1,
    }
    assert answers.labels.tolist() == [1, -1]
    assert answers.to_columns()["label"] == ["B", None]
    assert "1 without the right option" in str(answers.summary)
    with refused(rows=[0]):
        read_answers(path)
    path.write_text("no JSON\n")
    with refused(rows=[]):
        read_answers(path, on_error="skip")
    with refused("on_error", naming=["'ignore'", "stop", "skip"]):
        read_answers(path, on_error="ignore")  # type: ignore[arg-type]


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
    # Names that are exactly those of the options need no rule.
    stated = {"options": ["a", "A"], "probabilities": {"A": 0.75, "a": 0.25}}
    answers = read_answers(written(tmp_path, stated))
    np.testing.assert_allclose(np.exp(answers.scores), [[0.25, 0.75]])
    same = {"options": ["no", "no"], "probabilities": {"A": 0.75, "B": 0.25}}
    answers = read_answers(written(tmp_path, same))
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
    with refused(str(path), rows=[1], naming="'q5'", option="on_error"):
        read_answers(path, labels=labels)
    answers = read_answers(path, labels=labels, on_error="skip")
    assert answers.labels.tolist() == [0, 1]
    assert sum(answers.skipped.values()) == 2
    path = written(tmp_path, *batch("q0", "q1", "q0"))
    for on_error in ("stop", "skip"):  # skipping the second would depend on the order of lines
        with refused(str(path), rows=[2], naming="'q0'"):
            read_answers(path, labels=labels, on_error=on_error)
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


def failed(key: str) -> dict:
    return {"custom_id": key, "response": {"status_code": 429, "body": {"error": "slow down"}}}


def test_requests_that_failed_are_omitted_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path, failed("q1"), {**chat(FULL), "custom_id": "q1"}, failed("q2"))
    answers = read_answers(path, options=LETTERS)
    assert answers.ids == ("q1",)  # sent again
    assert answers.summary.n_failed == 2
    with refused(str(path), rows=[], naming="all 2 requests failed"):
        read_answers(written(tmp_path, failed("q1"), failed("q2")), options="AB")


def test_a_json_document_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([chat(FULL)], indent=1))
    with refused(str(path), rows=[], naming="jq"):
        read_answers(path, options=LETTERS)


# The table


def subjects(folder: Path, rng: np.random.Generator) -> tuple[list[dict], list[dict]]:
    """Return answers that are right in one subject and wrong in the other, and their gold."""
    replies, gold_lines = [], []
    for at in range(40):
        right = "AB"[int(rng.integers(2))]
        given = right if at % 2 else "AB"[right == "A"]
        replies.append({"id": f"q{at}", "logprobs": {given: -0.1, "AB"[given == "A"]: -2.5}})
        gold_lines.append({"id": f"q{at}", "answer": right, "subject": ("law", "physics")[at % 2]})
    return replies, gold_lines


def test_the_order_of_lines_matters_in_no_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    replies, gold_lines = subjects(tmp_path, rng)
    paths = [tmp_path / name for name in ("a.jsonl", "labels.jsonl", "groups.jsonl")]
    tables = []
    for _ in range(4):
        for path, lines in zip(paths, (replies, gold_lines, gold_lines), strict=True):
            rng.shuffle(lines)
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        answers = read_answers(
            paths[0], labels=paths[1], groups=paths[2], groups_column="subject", join="id"
        )
        is_right = answers.scores.argmax(axis=1) == answers.labels
        for subject, accuracy in (("law", 0.0), ("physics", 1.0)):
            assert is_right[[group == subject for group in answers.groups]].mean() == accuracy
        columns = answers.to_columns()
        tables.append((list(columns), sorted(zip(*columns.values(), strict=True))))
    assert all(table == tables[0] for table in tables)


def test_the_order_of_lines_does_not_name_columns(tmp_path: Path) -> None:
    lines = [{"logprobs": {"Yes": -0.3, "no": -2.0}}, {"logprobs": {" no": -0.3, "yes": -2.0}}]
    for order in (lines, lines[::-1]):
        answers = read_answers(written(tmp_path, *order))
        assert answers.class_names == ("no", "Yes")


def test_groups_are_subjects_tasks_or_a_field(tmp_path: Path) -> None:
    lines = [
        {"id": at, "logprobs": [-0.5, -1.0], "area": f"a{at}", "subject": "law"} for at in range(2)
    ]
    path = written(tmp_path, *lines)
    assert read_answers(path).groups == ("law", "law")
    assert read_answers(path, groups_column="area").groups == ("a0", "a1")
    with refused(str(path), rows=[0], naming="other"):
        read_answers(path, groups_column="other")
    labels = gold(tmp_path, *({"id": at, "answer": 0, "level": at + 5} for at in range(2)))
    assert read_answers(path, labels=labels, groups_column="level").groups == ("5", "6")
    table = tmp_path / "groups.csv"
    table.write_text("id,group\n1,x\n")
    with refused(str(path), rows=[0], naming=["groups.csv", "'0'"], option="on_error"):
        read_answers(path, groups=table)
    assert read_answers(path, groups=table, on_error="skip").groups == ("x",)


def test_folders_and_patterns_of_tasks(tmp_path: Path) -> None:
    for task in ("law", "art_history"):
        lines = [
            {"doc_id": at, "target": "1", "filtered_resps": [["-1.0", "False"], ["-2.0", "False"]]}
            for at in range(3)
        ]
        file = tmp_path / "out" / f"samples_mmlu_{task}_2026-01-31T10-20-30.123456.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "out" / "results_2026-01-31T10-20-30.123456.json").write_text("{}")
    for source in (tmp_path / "out", tmp_path / "out" / "samples_mmlu_*.jsonl"):
        answers = read_answers(source)
        assert answers.ids[0] == "mmlu_art_history/0"
        assert answers.groups == ("mmlu_art_history",) * 3 + ("mmlu_law",) * 3
    # Numbers that two tasks share are joined with the task.
    right = {key: at % 2 for at, key in enumerate(answers.ids)}
    assert read_answers(source, labels=right).labels.tolist() == [0, 1, 0, 1, 0, 1]
    (tmp_path / "empty").mkdir()
    with refused(str(tmp_path / "empty"), naming="*.jsonl"):
        read_answers(tmp_path / "empty")


def test_what_the_model_gave_is_compared_with_the_prediction(tmp_path: Path) -> None:
    sampled = [
        chat(FULL, sampled="A"),
        chat(FULL, sampled="C"),
        chat({**FULL, "A": math.log(0.5), "The": math.log(0.1)}, sampled="The"),
        # Two spellings of B are together likelier than A, which was given.
        chat(logs(A=0.4, B=0.35, b=0.2), sampled="A"),
    ]
    answers = read_answers(written(tmp_path, *sampled), options=LETTERS)
    assert answers.emitted == ("A", "C", "The", "A")
    assert answers.scores.argmax(axis=1).tolist() == [0, 0, 0, 1]
    assert (answers.summary.n_emitted_other, answers.summary.n_emitted_none) == (2, 1)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["yes", "no"], ("yes", "no")),
        (["not good", "not bad"], ("A", "B")),  # would be taken for a prefix "not "
        (["10", "11"], ("10", "11")),
        (["0", "1"], ("0", "1")),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "feather", "csv", "jsonl"])
def test_the_readers_of_scores_find_the_columns(
    tmp_path: Path, options: list[str], names: tuple[str, ...], suffix: str
) -> None:
    lines = [
        {"id": at, "options": options, "logprobs": [-0.5, -1.5 - at], "answer": at % 2}
        for at in range(5)
    ]
    answers = read_answers(written(tmp_path, *lines))
    assert answers.class_names == names
    table = tmp_path / f"scores.{suffix}"
    answers.write(table)
    scores = cordcal.files.read_scores(table)
    assert scores.kind == "logits"
    np.testing.assert_array_equal(scores.values, answers.scores)
    assert scores.labels.tolist() == answers.labels.tolist()
    assert scores.class_names == (None if names == ("0", "1") else names)


def test_the_table_is_a_frame(tmp_path: Path) -> None:
    import pyarrow as pa

    answers = read_answers(written(tmp_path, {"id": "q", "logprobs": FULL, "answer": "B"}))
    table = pa.table(answers)
    assert table.column_names == ["id", "logprob_A", "logprob_B", "logprob_C", "label"]
    assert table["label"].to_pylist() == ["B"]


def test_questions_with_fewer_options_in_every_format(tmp_path: Path) -> None:
    lines = [
        {"options": LETTERS[:count], "logprobs": [-1.0] * count, "answer": 0} for count in (2, 3)
    ]
    answers = read_answers(written(tmp_path, *lines))
    for suffix in ("parquet", "feather", "csv"):
        answers.write(tmp_path / f"scores.{suffix}")
        read = cordcal.files.read_scores(tmp_path / f"scores.{suffix}").values
        np.testing.assert_array_equal(read, answers.scores)
        assert read[0, 2] == -math.inf
    with refused(naming=["logprob_C", "Parquet"]):
        answers.write(tmp_path / "scores.jsonl")
    with refused(naming=[".npz", ".parquet"]):
        answers.write(tmp_path / "scores.npz")
