"""scikit-learn's own tests of `CalibratedClassifierCV`, run against our class.

They are read from the installed scikit-learn.  The array API tests need ``SCIPY_ARRAY_API=1``
before SciPy is imported, so another process runs them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from types import FunctionType

import pytest
from sklearn.tests import test_calibration as upstream
from sklearn.utils.estimator_checks import parametrize_with_checks

from cordcal.sklearn import PreservingCalibratedClassifierCV

# scikit-learn's tests let warnings pass, such as those of liblinear.
pytestmark = pytest.mark.filterwarnings("default")

EXPECTED_FAILURES = {
    "test_calibration_ensemble_false[isotonic-calibrator1]": (
        "compares predict_proba with isotonic regression's own probabilities, which change "
        "predictions; ours are repaired, and direct_proba returns those"
    ),
}
# Checks that pass or not with the last digits: the reason, and how far off they were.
NEAR_TOLERANCE = {
    "test_check_estimator[PreservingCalibratedClassifierCV()-"
    f"check_sample_weight_equivalence_on_{kind}_data]": (
        "weights equal repeated rows to 5e-7 of a probability of 0.04, the check asks for 1e-7; "
        "tests/test_honest_confidence.py asks for 1e-9 without an estimator in front"
    )
    for kind in ("dense", "sparse")
}
# The second seed of a test, workers for every method, and checks again with other containers.
SLOW = {
    *(
        f"test_calibration_multiclass[1-{ensemble}-{method}]"
        for ensemble in ("True", "False")
        for method in ("sigmoid", "isotonic")
    ),
    *(
        f"test_parallel_execution[{ensemble}-{method}]"
        for ensemble in ("True", "False")
        for method in ("sigmoid", "isotonic", "temperature")
        if (ensemble, method) != ("False", "sigmoid")
    ),
    *(
        f"test_check_estimator[PreservingCalibratedClassifierCV()-{check}]"
        for check in (
            "check_estimator_sparse_matrix",
            "check_classifiers_train(readonly_memmap=True)",
            "check_classifiers_train(readonly_memmap=True,X_dtype=float32)",
            "check_estimators_pickle(readonly_memmap=True)",
            "check_sample_weight_equivalence_on_sparse_data",
        )
    ),
}

DISPATCHES = os.environ.get("SCIPY_ARRAY_API") == "1"


def uses_the_class(test: FunctionType) -> bool:
    """Return whether a test, or a function that it defines, uses `CalibratedClassifierCV`."""
    codes = [test.__code__, *(c for c in test.__code__.co_consts if hasattr(c, "co_names"))]
    return any("CalibratedClassifierCV" in code.co_names for code in codes)


def with_lists(test: FunctionType) -> FunctionType:
    """Return the test with lists of parameters: pytest refuses generators from version 10 on."""
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize" and not isinstance(mark.args[1], Collection):
            object.__setattr__(mark, "args", (mark.args[0], list(mark.args[1])))
    return test


TESTS = {
    name: with_lists(test)
    for name, test in vars(upstream).items()
    if name.startswith("test_") and uses_the_class(test) and ("array_api" in name) == DISPATCHES
}
FIXTURES = {
    name: value
    for name, value in vars(upstream).items()
    if type(value).__name__ == "FixtureFunctionDefinition"
}
globals().update(TESTS | FIXTURES)


@pytest.fixture(autouse=True)
def our_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace scikit-learn's class by ours, in its tests only."""
    monkeypatch.setattr(upstream, "CalibratedClassifierCV", PreservingCalibratedClassifierCV)


@pytest.fixture
def global_random_seed() -> int:
    """The seed that scikit-learn's tests use by default."""
    return 42


if not DISPATCHES:

    def test_all_of_scikit_learns_tests_are_run() -> None:
        assert len(TESTS) >= 25
        listed = {name.partition("[")[0] for name in (*EXPECTED_FAILURES, *SLOW)}
        assert listed <= {*TESTS, "test_check_estimator"}

    def test_the_array_api_tests() -> None:
        path = Path(__file__)
        ours = path.parents[1] / "sklearn" / "test_array_api.py"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
        run = subprocess.run(
            [*command, str(path), str(ours)],
            env=os.environ | {"SCIPY_ARRAY_API": "1"},
            cwd=path.parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout
        assert int(run.stdout.splitlines()[-1].partition(" passed")[0]) >= 40 + 8, run.stdout

    @parametrize_with_checks([PreservingCalibratedClassifierCV()])
    def test_check_estimator(estimator: object, check: object) -> None:
        check(estimator)
