"""
Law and biology: confidence that knows the subject
==================================================

A language model is surer than it should be in law and too modest in biology.  Its scores cannot
tell, and a calibrator that sees only scores is right on average and wrong in every subject.

This guide passes the subject next to the scores, then the answer of a second model.  **No answer
changes**, only how far each is trusted.
"""

# %%
# Questions in twelve subjects
# ----------------------------
# The log-probabilities of four options, as ``cordcal answers`` writes them.  They are made up here,
# so that this page needs no download: in each subject the model is right more or less often than
# its scores suggest.  A second, larger model answered most of the same questions.
import numpy as np
import pandas as pd

import cordcal

rng = np.random.default_rng(0)
names = ["law", "philosophy", "economics", "history", "physics", "algebra"]
names += ["biology", "medicine", "chemistry", "geography", "sociology", "astronomy"]
subject = rng.choice(names, size=6000)
labels = rng.integers(4, size=6000)
skill = dict(zip(names, np.linspace(0.9, 3.0, len(names)), strict=True))
evidence = np.array([skill[name] for name in subject])[:, None] * np.eye(4)[labels]
scores = 2.0 * (evidence + rng.normal(size=(6000, 4)))
larger = 2.0 * (1.3 * np.eye(4)[labels] + rng.normal(size=(6000, 4)))
larger[rng.random(6000) < 0.05] = np.nan  # questions that it was not asked
frame = pd.DataFrame({"subject": subject, "length": rng.poisson(40, size=6000)})
fit, new = np.arange(3000), np.arange(3000, 6000)

# %%
# Does it help?
# -------------
# `compare` fits the default on half of the rows, with and without these columns, and measures both
# on the other half.  This line is the answer, with an interval; ``length`` says nothing, so it is
# left out.
comparison = cordcal.compare(
    scores[fit], labels[fit], ["blend"], context=frame.iloc[fit].reset_index(drop=True)
)
print(comparison.recommendation.with_context)

# %%
# Confidence minus accuracy per subject, without the column and with it, next to what chance alone
# would show in so few questions:
for gap in comparison["blend"].context.gaps[:4]:
    before, after, chance = (f"{100 * x:+.1f}" for x in (gap.before, gap.after, gap.chance))
    print(f"{gap.value:10} {gap.n:4} questions   {before} → {after} points (chance {chance[1:]})")

# %%
# Fit, and read what was learnt
# -----------------------------
# A second opinion is a matrix of the other model's scores, with rows of NaN where there is none.
# That model must not have been fitted on these rows: if it has seen the answers, it looks better
# here than it will be later, and nothing in the scores can show that.
import warnings

warnings.filterwarnings("ignore", message=".*are kept against the evidence")
context = {"subject": frame["subject"], "larger": larger}
model = cordcal.PreservingCalibrator()
model.fit(scores[fit], labels[fit], context={k: v[fit] for k, v in context.items()})
for effect in model.context_effects():
    if effect.value in ("law", "astronomy", "log-odds of our prediction"):
        print(effect)

# %%
# The interval is that of the effect in log-odds; the arrow shows what a confidence of 0.8 becomes.
#
# New questions
# -------------
# `predict_proba` needs the columns too.  A subject that `fit` did not see has no effect.  A
# question without a second opinion gets a curve that was fitted without it, not an average opinion.
later = {k: v[new] for k, v in context.items()}
plain = cordcal.PreservingCalibrator().fit(scores[fit], labels[fit])
prediction = scores[new].argmax(axis=1)
right = prediction == labels[new]
for name, probabilities in (
    ("scores alone", plain.predict_proba(scores[new])),
    ("with context", model.predict_proba(scores[new], context=later)),
):
    assert (probabilities.argmax(axis=1) == prediction).all()
    confidence = probabilities.max(axis=1)
    gaps = [abs((confidence - right)[subject[new] == s].mean()) for s in names]
    sure = confidence >= 0.9
    print(
        f"{name}: mean gap per subject {100 * np.mean(gaps):.1f} points; "
        f"{sure.mean():.1%} at 0.9 or more, {right[sure].mean():.1%} of them right"
    )

# %%
# Reliability in law alone, where the scores alone are too sure:
import matplotlib.pyplot as plt

law = subject[new] == "law"
cordcal.plots.reliability_diagram(
    {
        "scores alone": plain.predict_proba(scores[new])[law],
        "with context": model.predict_proba(scores[new], context=later)[law],
    },
    labels[new][law],
)
plt.show()

# %%
# The same with files
# -------------------
# ``cordcal answers`` writes the subject as the column ``group`` and each question's ``id``, by
# which a second opinion is joined, whatever the order of its rows.  ``cordcal info`` prints the
# effects.
#
# .. code-block:: console
#
#    $ cordcal answers out/small --output small.parquet
#    $ cordcal answers out/large --output large.parquet
#    $ cordcal compare small.parquet --context-columns group --second-opinion large.parquet
#    $ cordcal fit small.parquet --context-columns group --second-opinion large.parquet \
#        --output model.safetensors
#    $ cordcal info model.safetensors
#    $ cordcal apply model.safetensors new.parquet --second-opinion new-large.parquet \
#        --output repaired.parquet
#
# ``apply`` takes the columns that the model needs by their names, and prints in how many rows
# one is unknown.
#
# On MMLU
# -------
# 14,042 questions in 57 subjects, answered by Llama 3.1; 5,000 to fit and 5,000 others to evaluate,
# means over two random splits (``benchmarks/context.py``).  These files were looked at when the
# method was chosen, so take them as an example rather than as evidence.  Area and gap are in %.
#
# ==================  ====================  ====================  ================  ===============
# model               context               log loss of "right"   area under        mean gap per
#                                                                 risk–coverage     subject
# ==================  ====================  ====================  ================  ===============
# 70B instruct        subject               0.354 → 0.342         6.05 → 5.45       5.19 → 3.22
# 70B instruct        answers of 70B base   0.354 → 0.338         6.05 → 5.45       5.19 → 3.82
# 8B instruct         subject               0.529 → 0.522         19.11 → 18.78     5.36 → 4.13
# 8B instruct         answers of 70B base   0.529 → 0.408         19.11 → 15.64     5.36 → 4.28
# ==================  ====================  ====================  ================  ===============
#
# With 500 questions to fit, the subject is not used yet in three of four models: 57 categories need
# more rows than that.  A second opinion helps from the start.
