"""scikit-learn's estimator checks on `PreservingCalibrator` and one calibrator of each family."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

import cordcal
from cordcal import calibrators

from .conftest import one_of_each_family

# The checks' X are feature matrices, and their labels name more classes than X has columns:
# these would test our refusal of such labels and nothing else. `test_forms` asks the same
# questions of score matrices.
ASKED_ELSEWHERE = {
    "check_complex_data",
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimators_empty_data_messages",
    "check_estimators_fit_returns_self",
    "check_estimators_overwrite_params",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit2d_predict1d",
    "check_readonly_memmap_input",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
}
# The arguments are called scores and labels; the columns are classes, counted by n_classes_.
NOT_OURS = {
    "check_fit_score_takes_y",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
}


def checks() -> Iterator[object]:
    families = one_of_each_family()
    estimators = {"preserved": cordcal.PreservingCalibrator("ts")}
    estimators |= {key: calibrators.make(key) for key in families}
    for place, (key, estimator) in enumerate(estimators.items()):
        for at, (instance, check) in enumerate(estimator_checks_generator(estimator)):
            name = check.func.__name__
            if name not in ASKED_ELSEWHERE | NOT_OURS:
                # Maps share the estimator's code: two have every check, the others some of them.
                default = key in ("preserved", "ts") or (at + place) % 5 == 0
                marks = () if default else pytest.mark.exhaustive
                yield pytest.param(instance, check, marks=marks, id=f"{key}-{name}")


with warnings.catch_warnings():
    # An estimator need not inherit from scikit-learn's base, only behave like it.
    warnings.simplefilter("ignore")
    CHECKS = list(checks())


@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learns_check(estimator: object, check: Callable[[object], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks' random data separate, and maps say so
        check(estimator)
