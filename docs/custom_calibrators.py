"""Entries for CalArena: put this file in place of its ``custom_calibrators.py``."""

import numpy as np

import cordcal


class Preserving:
    """cordcal's default, or another calibrator with a repair, as CalArena calls calibrators."""

    def __init__(self, *names, **options):
        self.model = cordcal.PreservingCalibrator(*names, input="probabilities", **options)

    def fit(self, p, y):
        self.model.fit(both_columns(p), y)

    def predict_proba(self, p):
        return self.model.predict_proba(both_columns(p), dtype=np.float64)


def both_columns(p):
    """Return two columns for CalArena's binary sets, which have one."""
    p = np.asarray(p, dtype=np.float64).reshape(len(p), -1)
    p = np.hstack([1.0 - p, p]) if p.shape[1] == 1 else p
    return p / p.sum(axis=1, keepdims=True)


CUSTOM_CALIBRATORS = {
    "Blend+lift": Preserving,
    "SMS+CORD": lambda: Preserving("sms", repair="cord"),
    "SMS+lift": lambda: Preserving("sms", repair="lift"),
}
