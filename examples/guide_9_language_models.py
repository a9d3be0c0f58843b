"""
Answers of language models
==========================
A model answers a multiple-choice question, and the log-probability of its first token says how
sure it is. That number is rarely honest. This guide makes it so **without changing an answer**.
"""

# %%
# What an interface returns
# -------------------------
# One question a line: the likeliest tokens with their log-probabilities, and the right answer
# where it is known. Tokens come in variants (``"A"``, ``" A"``, ``"a"``), some are no option at
# all, and the list is short, so an unlikely option may be missing. Here is such a file, made up
# of 1,500 questions that a model answers too surely.
import json
import tempfile
from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)
folder = Path(tempfile.mkdtemp())


def reply(truth: int) -> dict:
    """Return what an interface says of one question."""
    evidence = rng.normal(size=4) + 1.2 * np.eye(4)[truth] + [0.5, 0.2, 0.0, -0.2]
    masses = np.exp(2.5 * evidence) / np.exp(2.5 * evidence).sum()
    tokens = {f" {letter}": 0.9 * mass for letter, mass in zip("ABCD", masses, strict=True)}
    tokens["A"] = 0.04 * masses[0]
    tokens["The"] = 0.02
    top = sorted(tokens.items(), key=lambda item: -item[1])[:4]
    listed = [{"token": token, "logprob": float(np.log(mass))} for token, mass in top]
    first = {**listed[0], "top_logprobs": listed}
    return {"choices": [{"logprobs": {"content": [first]}}], "answer": "ABCD"[truth]}


lines = [reply(truth) for truth in rng.integers(4, size=1500)]
path = folder / "answers.jsonl"
path.write_text("".join(json.dumps(line) + "\n" for line in lines))
print(lines[0]["choices"][0]["logprobs"]["content"][0]["top_logprobs"])

# %%
# Reading it
# ----------
# Variants of a token are added up. What the list leaves unseen is bounded: a token that is not
# listed is no likelier than the least likely one that is. By default the missing options share
# it evenly; ``missing="other"`` gives it a column of its own, and ``missing="refuse"`` stops.
# What had to be decided is on record.
import cordcal

answers = cordcal.llm.read_answers(path, options=["A", "B", "C", "D"])
print(answers.summary)

# %%
# The scores are log-probabilities, so a calibrator takes them as ``input="logits"``. Questions
# with fewer options have −inf in the columns that they lack.
#
# Before and after
# ----------------
# Half of the questions to learn from, the other half to see what it is worth.
half = len(answers) // 2
scores, labels = answers.scores, answers.labels
model = cordcal.PreservingCalibrator("svs").fit(scores[:half], labels[:half])
before = np.exp(scores[half:]) / np.exp(scores[half:]).sum(axis=1, keepdims=True)
after = model.predict_proba(scores[half:])
for name, report in (("as reported", before), ("repaired", after)):
    found = cordcal.metrics.measure_all(report, labels[half:])
    print(f"{name:12} ECE {100 * found.ece:5.2f} %   NLL {found.nll:.4f}")
print("answers changed:", cordcal.metrics.tpcr(before, after))

# %%
# The lines come back as they were, each with the repaired vector beside:
cordcal.llm.write_answers(
    folder / "repaired.jsonl", answers, {"repaired": model.predict_proba(scores)}
)
first = (folder / "repaired.jsonl").read_text().splitlines()[0]
print(json.loads(first)["repaired"])

# %%
# The same from the command line, on files of such lines. ``--answers`` says where the probability
# of unlisted tokens goes; ``--variants`` (``loose``, ``spaces``, ``exact``) which tokens are one;
# ``--options`` names options where the lines do not, as here. Questions that list their own may
# have different numbers of them: those that one lacks are masked.
#
# A line that is no question stops the command with its number. With ``--on-error skip`` such lines
# are left out and counted by reason, and ``apply`` gives those that it keeps their number in the
# file as ``row``. ``--explain`` adds each repair's story in a field ``explanation``; its masses
# are those before what lies on masked options is shared among a question's own. Answers are read
# and written at once: there is nothing for ``--resume`` to continue.
#
# .. code-block:: console
#
#    $ cordcal fit answers.jsonl --answers --options ABCD --output model.safetensors
#    $ cordcal apply model.safetensors new.jsonl --answers --options ABCD \
#        --output repaired.jsonl
#    $ cordcal check repaired.jsonl --answers --options ABCD --original new.jsonl \
#        --max tpcr=0
#
# What it can and cannot do
# -------------------------
# The repaired confidence is honest on average over questions like those it was fitted on. It
# cannot say that the kept answer is probably wrong: a vector whose largest entry is that answer
# gives it more than ``1/K``, whatever the calibrator has learnt. Where many answers are wrong,
# expect lower NLL and Brier, and look at ECE before you rely on it. Questions of another kind,
# another prompt or another model need a calibration set of their own.

import shutil

shutil.rmtree(folder)
