"""
Which predictions may go through?
=================================

A classifier reads digits.  Where it is sure enough, its answer is used; the others go to a person.
How sure is enough, if at most 5 % of the answers that go through may be wrong?

`certify` finds the threshold, on rows that were not used to fit, and its promise holds with 95 %
confidence.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

import cordcal
import cordcal.plots

X, y = load_digits(return_X_y=True)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=0.8, random_state=0)
bayes = GaussianNB(var_smoothing=1e-3).fit(X_train, y_train)
scores = bayes.predict_proba(X_rest)
fit, certify, new = np.split(np.arange(len(y_rest)), [500, 1000])

# %%
# Fit and certify
# ---------------

model = cordcal.PreservingCalibrator(input="probabilities")
model.fit(scores[fit], y_rest[fit], ids=fit)
certificate = model.certify(scores[certify], y_rest[certify], 0.05, ids=certify)
print(certificate)

# %%
# The line is the error rate of the most confident rows, the dashed one the promise.  The
# threshold, at the point, keeps a distance that the number of rows calls for.

axes = cordcal.plots.certificate(certificate)

# %%
# The ids let `certify` refuse rows of the fit.  The certificate is stored in the model, and
# ``cordcal.save`` writes it to the file.
#
# Act or ask
# ----------

act = model.accepts(scores[new])
wrong = model.predict(scores[new]) != y_rest[new]
print(f"acted on {act.mean():.1%}, of which {wrong[act].mean():.1%} are wrong")
print(f"asked about {(~act).mean():.1%}, of which {wrong[~act].mean():.1%} are wrong")

# %%
# One threshold per class
# -----------------------
# The promise above is about all answers together.  By class it holds for each, and all of them
# hold together; that needs more rows, so here it is made for 15 %.

print(model.certify(scores[certify], y_rest[certify], 0.15, by="class", ids=certify))

# %%
# Later
# -----
# New labelled rows can speak against the certificate, or certify it again.

certificate = model.certify(scores[certify], y_rest[certify], 0.05, ids=certify)
print(certificate.recheck(model.predict_proba(scores[new]), y_rest[new], "violated"))

# %%
# In a picture
# ------------
# The errors among the predictions that go through, for every threshold; the dotted line is the
# certified one.
import matplotlib.pyplot as plt

from cordcal import plots

ax = plots.risk_coverage(model.predict_proba(scores[new]), y_rest[new])
ax.axvline(100 * act.mean(), linestyle=":", color="0.5")
plt.show()
