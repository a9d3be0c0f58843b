"""
Answers of language models
==========================

A model answers a multiple-choice question, and the log-probability of its answer is a confidence.
That confidence is rarely calibrated. This guide calibrates it **without changing an answer**.
"""

# %%
# What an API returns
# -------------------
# One reply per line: the likeliest tokens with their log-probabilities. Tokens have several
# spellings (``"A"``, ``" A"``, ``"a"``), some are not options, and the list is short, so an
# unlikely option may be missing. A Batch API returns the replies in any order and without the right
# answers, which are in a file of your own. Here are two such files, made up of 3,000 questions that
# a model answers too confidently, especially in law.
import json
import tempfile
from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)
folder = Path(tempfile.mkdtemp())


def reply(key: str, right: int, skill: float) -> dict:
    """Return a line of a Batch API."""
    evidence = rng.normal(size=4) + skill * np.eye(4)[right] + [0.5, 0.2, 0.0, -0.2]
    masses = np.exp(2.5 * evidence) / np.exp(2.5 * evidence).sum()
    tokens = {f" {letter}": 0.9 * mass for letter, mass in zip("ABCD", masses, strict=True)}
    tokens["A"] = 0.04 * masses[0]
    tokens["The"] = 0.02
    top = sorted(tokens.items(), key=lambda item: -item[1])[:4]
    listed = [{"token": token, "logprob": float(np.log(mass))} for token, mass in top]
    body = {"choices": [{"logprobs": {"content": [{**listed[0], "top_logprobs": listed}]}}]}
    return {"custom_id": key, "response": {"status_code": 200, "body": body}}


subjects = {"law": 0.6, "physics": 1.2, "history": 1.8}
gold, replies = [], []
for row in range(3000):
    subject, right = list(subjects)[row % 3], int(rng.integers(4))
    gold.append({"custom_id": f"q{row}", "answer": "ABCD"[right], "subject": subject})
    replies.append(reply(f"q{row}", right, subjects[subject]))
rng.shuffle(replies)
for name, lines in (("replies.jsonl", replies), ("gold.jsonl", gold)):
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
print((folder / "replies.jsonl").read_text().splitlines()[0][:300], "…")

# %%
# Make a table of it
# ------------------
# ``cordcal info replies.jsonl`` recognises such a file and prints the commands to run. The first
# one turns the answers into a table of scores, which every other command reads:
#
# .. code-block:: console
#
#    $ cordcal answers replies.jsonl --options ABCD --labels gold.jsonl \
#        --groups gold.jsonl:subject --id-column custom_id --output scores.parquet
#    $ cordcal compare scores.parquet
#
# A row is a question: its ``id``, ``logprob_A`` to ``logprob_D``, the ``label``, the ``group`` and
# what the model ``emitted``. ``--id-column`` matches labels and groups by identifier, so the order
# of lines matters in no file; identifiers that are missing or double are named. In Python:
import cordcal

answers = cordcal.llm.read_answers(
    folder / "replies.jsonl",
    options="ABCD",
    labels=folder / "gold.jsonl",
    groups=folder / "gold.jsonl",
    groups_column="subject",
    join="custom_id",
)
answers.write(folder / "scores.parquet")
for line in answers.summary.lines():
    print(line)

# %%
# Spellings of a token are added up, and **the prediction is the likeliest option after that**. The
# token that the model gave can be another one, if it was sampled; the summary counts such
# questions. An option that the list lacks is less likely than every token in it: by default such
# options share the unlisted probability evenly, ``missing="other"`` makes it a separate class, and
# ``missing="refuse"`` stops. Log-probabilities above 0, and probabilities that sum to more than
# one, are refused with their row.
#
# The table is a data frame for pandas, polars and Arrow:
import pyarrow as pa

print(pa.table(answers).slice(0, 3).to_pylist()[0])

# %%
# Before and after
# ----------------
# The scores are log-probabilities, so a calibrator takes them as logits. Questions with fewer
# options have −inf in the columns that they lack. We fit on one half and evaluate on the other.
# Some answers are kept although another option is more often right; ``fit`` warns about that, and
# ``confidence_`` has the figures.
import warnings

warnings.filterwarnings("ignore", message=".*are kept against the evidence")
half = len(answers) // 2
scores, labels, groups = answers.scores, answers.labels, np.array(answers.groups)
model = cordcal.PreservingCalibrator(class_names=answers.class_names)
model.fit(scores[:half], labels[:half])
before = np.exp(scores[half:]) / np.exp(scores[half:]).sum(axis=1, keepdims=True)
after = model.predict_proba(scores[half:])
print(str(model.confidence_).splitlines()[0])
print("answers changed:", np.count_nonzero(before.argmax(axis=1) != after.argmax(axis=1)))


def describe(name: str, rows: np.ndarray) -> None:
    """Print the accuracy of the answers, and what both sets of probabilities are worth."""
    truth = labels[half:][rows]
    accuracy = np.mean(before[rows].argmax(axis=1) == truth)
    figures = [
        f"{label} {measure(before[rows], truth):.3f} → {measure(after[rows], truth):.3f}"
        for label, measure in (("NLL", cordcal.metrics.nll), ("ECE", cordcal.metrics.ece))
    ]
    print(f"{name:8} accuracy {accuracy:.3f}   {'   '.join(figures)}")


describe("all", np.full(half, True))
for subject in subjects:
    describe(subject, groups[half:] == subject)

# %%
# One calibrator for all subjects is calibrated on average over them: too confident in the hard
# ones, not confident enough in the easy ones. Pass the subject as context, and it learns that, too,
# from as many questions as there are; :doc:`guide_15_context` does it, also with the answers of a
# second model:
aware = cordcal.PreservingCalibrator(class_names=answers.class_names)
aware.fit(scores[:half], labels[:half], context={"subject": groups[:half]})
after = aware.predict_proba(scores[half:], context={"subject": groups[half:]})
for subject in subjects:
    describe(subject, groups[half:] == subject)
#
# Abstaining
# ----------
# If you answer only when the confidence is high enough, a calibrated confidence is a threshold
# that means what it says:
for threshold in (0.5, 0.7, 0.9):
    for name, probabilities in (("before", before), ("after", after)):
        sure = probabilities.max(axis=1) >= threshold
        right = probabilities.argmax(axis=1) == labels[half:]
        print(
            f"confidence ≥ {threshold} {name:6}: {sure.mean():6.1%} answered, "
            f"{right[sure].mean():.1%} of them right"
        )

# %%
# Write it back
# -------------
# ``apply`` adds calibrated probabilities to the table, and ``cordcal answers --with`` brings them
# back to the lines of the replies, matched by identifier:
#
# .. code-block:: console
#
#    $ cordcal fit scores.parquet --output model.safetensors
#    $ cordcal apply model.safetensors scores.parquet --output repaired.parquet
#    $ cordcal answers replies.jsonl --with repaired.parquet --output calibrated.jsonl
#
# The last two commands, run from Python:
from cordcal.cli import main

cordcal.save(model, folder / "model.safetensors")
files = {name: str(folder / name) for name in ("scores.parquet", "repaired.parquet")}
model_file = str(folder / "model.safetensors")
main(["apply", model_file, files["scores.parquet"], "--output", files["repaired.parquet"]])
written = cordcal.llm.write_answers(
    folder / "calibrated.jsonl",
    folder / "replies.jsonl",
    calibrated=files["repaired.parquet"],
)
print(written.n, "lines written")
first = json.loads((folder / "calibrated.jsonl").read_text().splitlines()[0])
print({name: first[name] for name in ("custom_id", "calibrated", "prediction", "confidence")})

# %%
# lm-evaluation-harness
# ---------------------
# Pass the samples that the harness writes with ``--log_samples``, as files, a pattern or their
# folder; the ``results_*.json`` next to them has no questions. MMLU is 57 files, one per subject:
# each question's ``id`` is its task and number, and its ``group`` the subject.
#
# .. code-block:: console
#
#    $ lm_eval --model hf --model_args pretrained=NAME --tasks mmlu \
#        --log_samples --output_path out
#    $ cordcal answers out/NAME --output scores.parquet
#    $ cordcal compare scores.parquet --groups group --report mmlu.html
#
# The harness reports two accuracies. ``acc`` takes the option with the largest log-likelihood,
# ``acc_norm`` that with the largest log-likelihood per character. ``--normalize`` decides which
# scores are calibrated and which of the two predictions is kept:
#
# ===================  ===================================================================
# ``--normalize``      keeps the prediction of
# ===================  ===================================================================
# none (the default)   ``acc``
# characters           ``acc_norm``
# bytes                ``acc_bytes``
# tokens               lines that have ``num_tokens``, or log-probabilities token by token
# ===================  ===================================================================
#
# Inspect
# -------
# Logs of Inspect (``.eval`` or JSON) are read without Inspect, if the evaluation was run with
# ``--logprobs --top-logprobs 20``. The ``id`` is the task and the sample; samples that failed are
# counted.
#
# .. code-block:: console
#
#    $ cordcal answers logs/*.eval --output scores.parquet
#
# vLLM
# ----
# Replies of its server are those of the chat API and are read as they are, and so are replies of
# ``/classify``, one per line. Offline, write one line per question:
#
# .. code-block:: python
#
#    import json
#    from vllm import LLM, SamplingParams
#
#    parameters = SamplingParams(max_tokens=1, temperature=0.0, logprobs=20)
#    outputs = LLM("Qwen/Qwen2.5-7B-Instruct").generate(prompts, parameters)
#    with open("answers.jsonl", "w") as file:
#        for question, output in zip(questions, outputs):
#            top = output.outputs[0].logprobs[0].values()
#            line = {"logprobs": {token.decoded_token: token.logprob for token in top}}
#            line |= {"options": ["A", "B", "C", "D"], "answer": question["answer"]}
#            file.write(json.dumps(line) + "\n")
#
# Hugging Face transformers
# -------------------------
# The logits of the options' letters are scores already; no file is needed:
#
# .. code-block:: python
#
#    import torch
#    from transformers import AutoModelForCausalLM, AutoTokenizer
#
#    tokenizer = AutoTokenizer.from_pretrained(name, padding_side="left")
#    model = AutoModelForCausalLM.from_pretrained(name)
#    letters = [tokenizer.encode(f" {x}", add_special_tokens=False)[-1] for x in "ABCD"]
#    with torch.inference_mode():
#        inputs = (tokenizer(batch, return_tensors="pt", padding=True) for batch in batches)
#        scores = torch.cat([model(**batch).logits[:, -1, letters].float() for batch in inputs])
#    calibrator = cordcal.PreservingCalibrator(class_names=list("ABCD")).fit(scores, labels)
#    probabilities = calibrator.predict_proba(scores)
#
# On real models
# --------------
# MMLU by subject, answered by Llama 3.1 70B instruct: 5,000 questions to fit, 5,000 others to
# evaluate, means over two random splits (``benchmarks/context.py``, which names what was looked at
# before). The mean distance of confidence and accuracy per subject is 5.2 points by the scores
# alone and 3.2 with the subject as context; the log loss of "the answer is right" goes from 0.354
# to 0.342.
#
# Five models answer 10,000 questions with six options about the emotion of a text; two options
# ("I don't know", "none of the above") are never right. Half of the questions are used to fit, the
# other half to evaluate, as means over five random splits; every answer is kept
# (``benchmarks/answers.py``). Accuracies and ECE are in %.
#
# =======================  ========  ===============  =============  ======================
# model, prompt            accuracy  NLL              ECE            accuracy, surest half
# =======================  ========  ===============  =============  ======================
# Llama-2-7B, base         35.92     1.5660 → 1.1569  12.13 → 10.10  42.17 → 47.60
# Mistral-7B, task         65.30     1.0402 → 0.8688  6.25 → 2.63    82.15 → 83.67
# Qwen-14B, task           65.16     1.0885 → 0.8526  2.42 → 3.70    83.42 → 83.97
# Qwen-1.8B, base          55.96     1.0766 → 0.9674  5.23 → 5.01    74.83 → 79.40
# DeepSeek-7B, task        57.04     1.2408 → 0.9550  16.95 → 4.59   75.89 → 79.54
# =======================  ========  ===============  =============  ======================
#
# The NLL falls for every model, and abstaining on the less confident half leaves more right
# answers. The ECE falls for four of five and rises for one, which was well calibrated before.
#
# What it can and cannot do
# -------------------------
# The repaired confidence is calibrated on average over questions like those it was fitted on. It
# cannot express that the kept answer is probably wrong: if that answer has the largest probability,
# it has more than ``1/K``, whatever the calibrator has learnt. Where many answers are wrong, expect
# lower NLL and Brier scores, and look at the ECE before you rely on it. Questions of another kind,
# another prompt or another model need their own calibration set.

import shutil

shutil.rmtree(folder)

# %%
# In a picture
# ------------
# Before and after, on the answers that were not used to fit.
import matplotlib.pyplot as plt

from cordcal import plots

plots.reliability_diagram({"original": before, "repaired": after}, labels[half:])
plt.show()
