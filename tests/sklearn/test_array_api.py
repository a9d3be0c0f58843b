"""Arrays of other libraries in, the same library out; run with ``SCIPY_ARRAY_API=1``.

SciPy reads that variable when it is imported, so `tests/external` runs this file in a process of
its own.
"""

from __future__ import annotations

import os
from types import ModuleType

import numpy as np
import pytest
import sklearn
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator

from cordcal.sklearn import PreservingCalibratedClassifierCV

if os.environ.get("SCIPY_ARRAY_API") != "1":
    pytest.skip("SCIPY_ARRAY_API is not set", allow_module_level=True)

X, Y = make_classification(
    300, 8, n_informative=6, n_classes=4, n_clusters_per_class=1, random_state=0
)
NAMES = np.array(["ant", "bee", "cow", "dog"])
LIBRARIES = ("torch", "array_api_strict")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("settings", [{}, {"method": "sigmoid", "ensemble": True}], ids=str)
def test_same_library_out(settings: dict[str, object], library: str, dtype: str) -> None:
    xp: ModuleType = pytest.importorskip(library)
    rows = X.astype(dtype)
    model = PreservingCalibratedClassifierCV(LinearDiscriminantAnalysis(), cv=3, **settings)
    expected = model.fit(rows, Y).predict_proba(rows)
    predictions = model.predict(rows)
    with sklearn.config_context(array_api_dispatch=True):
        new, labels = xp.asarray(rows), xp.asarray(Y)
        model.fit(new, labels)
        for proba in (model.predict_proba(new), model.direct_proba(new)):
            assert type(proba) is type(new)
        repaired = model.predict_proba(new)
        assert repaired.dtype == new.dtype
        assert type(model.predict(new)) is type(labels)
        assert type(model.classes_) is type(labels)
        np.testing.assert_array_equal(np.asarray(model.predict(new)), predictions)
        np.testing.assert_array_equal(np.asarray(repaired).argmax(axis=1), predictions)
        if not settings:
            # Scores differ in the last bit, and with them the folds of a blend.
            (member,) = model.calibrated_classifiers_
            expected = model.to_calibrator().predict_proba(np.asarray(member.scores(new)))
        tolerance = 2e-3 if dtype == "float32" else 1e-9
        np.testing.assert_allclose(np.asarray(repaired), expected, atol=tolerance)
        # Labels that the library cannot hold are encoded for the estimator and named in the end.
        model.fit(new, NAMES[Y])
        np.testing.assert_array_equal(model.predict(new), NAMES[predictions])
        np.testing.assert_array_equal(model.classes_, NAMES)


def test_prefit_on_another_device() -> None:
    xp = pytest.importorskip("array_api_strict")
    device = xp.Device("device1")
    with sklearn.config_context(array_api_dispatch=True):
        rows, labels = (xp.asarray(part, device=device) for part in (X, Y))
        estimator = LinearDiscriminantAnalysis().fit(rows, labels)
        model = PreservingCalibratedClassifierCV(FrozenEstimator(estimator), method="ts")
        proba = model.fit(rows, labels).predict_proba(rows)
        assert proba.device == device
        assert bool(xp.all(xp.argmax(proba, axis=1) == model.predict(rows)))
        assert bool(xp.all(model.predict(rows) == estimator.predict(rows)))
