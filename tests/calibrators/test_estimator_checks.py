"""scikit-learn's estimator checks on calibrators and `Preserved`, whose columns are classes."""

from __future__ import annotations

import warnings

from sklearn.utils.estimator_checks import parametrize_with_checks

import cordcal
from cordcal import calibrators

KEYS = tuple(key for key in calibrators.available() if key != "adats")
# The checks' X are feature matrices; a calibrator's scores have one column a class.
_LABELS = "its labels name more classes than its X has columns"
_WORDS = "refused, in words about classes and scores instead of features and samples"
_NAMES = "the arguments are called scores and labels"
EXPECTED_FAILURES = {
    "check_complex_data": _WORDS,
    "check_dtype_object": "an array of Python objects is refused; scores are floats",
    "check_estimator_sparse_array": _WORDS,
    "check_estimator_sparse_matrix": _WORDS,
    "check_estimator_sparse_tag": _WORDS,
    "check_estimators_empty_data_messages": _WORDS,
    "check_estimators_fit_returns_self": _LABELS,
    "check_estimators_overwrite_params": _LABELS,
    "check_fit2d_1feature": _WORDS,
    "check_fit2d_1sample": _WORDS,
    "check_fit2d_predict1d": _WORDS,
    "check_fit_score_takes_y": _NAMES,
    "check_n_features_in": "the columns are classes, counted by n_classes_",
    "check_n_features_in_after_fitting": "the columns are classes, counted by n_classes_",
    "check_readonly_memmap_input": _LABELS,
    "check_sample_weight_equivalence_on_dense_data": _NAMES,
    "check_sample_weights_not_an_array": _LABELS,
    "check_sample_weights_not_overwritten": _LABELS,
    "check_sample_weights_pandas_series": _LABELS,
    "check_sample_weights_shape": _LABELS,
}


def expected(estimator: object) -> dict[str, str]:
    return EXPECTED_FAILURES


with warnings.catch_warnings():
    # An estimator need not inherit from scikit-learn's base, only behave like it.
    warnings.filterwarnings("ignore", message=".*does not inherit from `sklearn.base")
    # adats is left out: it cannot be fitted on scores alone.
    each_check = parametrize_with_checks(
        [*(calibrators.make(key) for key in KEYS), cordcal.Preserved("ts")],
        expected_failed_checks=expected,
    )


@each_check
def test_contract(estimator: object, check: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks' random data separate, and maps say so
        check(estimator)
