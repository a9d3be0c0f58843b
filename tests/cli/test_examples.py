"""Every example of ``--help`` runs as it is written."""

from __future__ import annotations

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import softmax

from cordcal.cli._app import registered_commands

COMMANDS = registered_commands()
EXAMPLES = [
    example
    for command in COMMANDS.values()
    for example in re.findall(r"Example: cordcal (.*)", command.epilog or "")
]


def test_every_command_has_an_example() -> None:
    assert all("Example: cordcal" in (command.epilog or "") for command in COMMANDS.values())


@pytest.fixture
def _files(tmp_path: Path, logits: np.ndarray, labels: np.ndarray) -> None:
    """The files that the examples speak of."""
    direct = softmax(0.5 * logits + [0.0, 0.4, -0.4], axis=1)
    np.savez(tmp_path / "scores.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "held-out.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "new.npz", logits=logits[:50])
    np.savez(tmp_path / "p.npz", probs=softmax(logits, axis=1))
    np.savez(tmp_path / "q.npz", direct=direct)
    np.save(tmp_path / "y.npy", labels)
    np.savez(tmp_path / "tonight.npz", probabilities=softmax(logits, axis=1))
    ids = np.arange(len(labels))
    subject = np.where(ids % 3, "law", "biology")
    scores = {f"logit_{at}": logits[:, at] for at in range(3)}
    table = pa.table({"id": ids, **scores, "label": labels, "subject": subject})
    pq.write_table(table, tmp_path / "rows.parquet")
    pq.write_table(table.drop_columns(["label", "subject"]), tmp_path / "larger.parquet")
    columns = {"tonight": (ids, *softmax(logits, axis=1).T), "labels": (ids, labels)}
    for name, heading in (("tonight", "id,p0,p1,p2"), ("labels", "id,label")):
        table = np.column_stack(columns[name])
        path = tmp_path / f"{name}.csv"
        np.savetxt(path, table, "%.17g", delimiter=",", header=heading, comments="")


@pytest.fixture
def _answers(tmp_path: Path) -> None:
    """Replies of a Batch API, their labels and results, and samples of a task."""
    top = [{"token": "A", "logprob": -0.5}, {"token": "B", "logprob": -1.5}]
    body = {"choices": [{"logprobs": {"content": [{**top[0], "top_logprobs": top}]}}]}
    sample = {"target": "0", "filtered_resps": [["-1.0", "True"], ["-2.0", "False"]]}
    files = {
        "replies.jsonl": {"custom_id": "q0", "response": {"status_code": 200, "body": body}},
        "gold.jsonl": {"custom_id": "q0", "answer": "A"},
        "out/samples_mmlu_law_2026-01-31T10-20-30.123456.jsonl": {"doc_id": 0, **sample},
        "out/samples_mmlu_art_2026-01-31T10-20-30.123456.jsonl": {"doc_id": 0, **sample},
    }
    (tmp_path / "out").mkdir()
    for name, line in files.items():
        (tmp_path / name).write_text(json.dumps(line) + "\n")
    row = {"id": "q0", "prediction": 0, "confidence": 0.75, "p_A": 0.75, "p_B": 0.25}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "repaired.parquet")


def outputs(arguments: list[str]) -> list[str]:
    return [
        following
        for option, following in pairwise(arguments)
        if option in ("--output", "--report") and following != "-"
    ]


@pytest.mark.usefixtures("_files", "_answers")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("example", [text for text in EXAMPLES if text != "demo"])
def test_example(call, tmp_path: Path, example: str) -> None:
    arguments = shlex.split(example)
    if arguments[0] == "export":
        pytest.importorskip("onnxruntime")
    if arguments[0] in ("apply", "certify", "export") or arguments[:2] == [
        "info",
        "model.safetensors",
    ]:
        repair = arguments[1].startswith("cord")
        fits = [text for text in EXAMPLES if text.startswith("fit")]
        made = next(text for text in fits if ("--original" in text) == repair)
        assert call(*shlex.split(made))[0] == 0
    if arguments[0] == "monitor" and arguments[1] != "init":
        starts = [text for text in EXAMPLES if text.startswith("monitor init")]
        adds = [text for text in EXAMPLES if "--id-column" in text and "monitor add" in text]
        for text in starts + (adds if arguments[1] == "label" else []):
            assert call(*shlex.split(text))[0] == 0
    code, _, errors = call(*arguments)
    # A monitor that has seen nothing cannot tell.
    expected = {"show": 2}.get(arguments[1], 0) if arguments[0] == "monitor" else 0
    assert code == expected, errors
    assert all((tmp_path / output).stat().st_size > 0 for output in outputs(arguments))


@pytest.mark.usefixtures("_files")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_commands_of_the_first_page_run_in_order(call, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "start.md").read_text(encoding="utf-8")
    fences = "\n".join(re.findall(r"^```(?:console|sh|bash)\n(.*?)^```", text, re.M | re.S))
    commands = re.findall(r"^\$ cordcal (.*)$", fences.replace("\\\n", " "), re.M)
    assert commands
    for command in commands:
        arguments = shlex.split(command, comments=True)
        code, _, errors = call(*arguments)
        assert code == 0, f"{command}: {errors}"
        assert all((tmp_path / output).stat().st_size > 0 for output in outputs(arguments))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_compare_says_what_did_not_run_and_why(
    call, tmp_path: Path, logits: np.ndarray, labels: np.ndarray
) -> None:
    logits[5, (labels[5] + 1) % 3] = -np.inf  # a masked class, which some maps cannot take
    np.savez(tmp_path / "masked.npz", logits=logits, labels=labels)
    code, out, errors = call("compare", "masked.npz")
    assert code == 0, errors
    assert re.search(r"^not run: vs: .*−inf", out, re.M)
