"""What a user passes as a matrix: frames that hold more than scores, other libraries, matching."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from cordcal import PreservingCalibrator, certify, metrics
from cordcal._validation.table import Table, match
from errors import refused

RNG = np.random.default_rng(5)
LABELS = RNG.integers(0, 3, 60)
LOGITS = 2.0 * np.eye(3)[LABELS] + RNG.normal(size=(60, 3))
SCORES = pd.DataFrame(LOGITS, columns=["ant", "bee", "cat"])


def as_polars(frame: pd.DataFrame) -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame({str(name): frame[name].to_list() for name in frame})


def as_arrow(frame: pd.DataFrame) -> Any:
    arrow = pytest.importorskip("pyarrow")
    return arrow.Table.from_pydict({str(name): frame[name].to_list() for name in frame})


LIBRARIES = {
    "pandas": (lambda frame: frame, "scores.drop(columns=['{}'])"),
    "polars": (as_polars, "scores.drop(['{}'])"),
    "pyarrow": (as_arrow, "scores.drop_columns(['{}'])"),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("label", LABELS),
        ("y_pred", LABELS),
        ("confidence", np.full(60, 0.5)),
        ("target", np.zeros(60)),
        ("true class", LABELS),  # holds the labels themselves
        ("note", ["text"] * 60),
    ],
)
def test_a_frame_that_holds_more_than_scores(name: str, values: Any, library: str) -> None:
    convert, hint = LIBRARIES[library]
    table = convert(SCORES.assign(**{name: values}))
    with refused("scores", naming=[repr(name), hint.format(name)]):
        PreservingCalibrator("ts").fit(table, LABELS)


def test_columns_that_are_not_numbered_like_the_others() -> None:
    numbered = pd.DataFrame(LOGITS, columns=["p0", "p1", "p2"])
    with refused("scores", naming=["'age'", "drop(columns=['age'])", "class_names="]):
        PreservingCalibrator("ts").fit(numbered.assign(age=40.0), LABELS)
    PreservingCalibrator("ts").fit(numbered, LABELS)


def test_classes_may_be_called_like_labels() -> None:
    """Names that the caller passes, and those of a fitted model, are not doubted."""
    names = ["target", "label", "other"]
    frame = SCORES.set_axis(names, axis=1)
    model = PreservingCalibrator("ts", class_names=names).fit(frame, LABELS)
    np.testing.assert_array_equal(
        model.predict_proba(frame[names[::-1]]), model.predict_proba(LOGITS)
    )
    two = pd.DataFrame({"label": [0.2, 0.7], "other": [0.8, 0.3]})
    assert metrics.accuracy(two, ["other", "label"]) == 1.0


def test_sparse_tensors() -> None:
    torch = pytest.importorskip("torch")
    with refused("probabilities", naming="to_dense()"):
        metrics.accuracy(torch.eye(3).to_sparse(), [0, 1, 2])


def test_names_of_metrics() -> None:
    probabilities = np.eye(3)[[0, 1, 2]]
    assert metrics.accuracy(probabilities, ["a", "b", "a"], class_names=["a", "b", "c"]) == 2 / 3
    with refused("labels", naming="'d'", rows=[1]):
        metrics.accuracy(probabilities, ["a", "d", "a"], class_names=["a", "b", "c"])
    with refused("class_names", naming="2 names"):
        metrics.accuracy(probabilities, [0, 1, 2], class_names=["a", "b"])


def test_column_numbers_of_reordered_columns_are_ambiguous() -> None:
    stream = metrics.AccuracyStream().update(
        pd.DataFrame(1 / 3, SCORES.index, SCORES.columns), LABELS
    )
    other = SCORES[["cat", "ant", "bee"]].clip(0, 0) + 1 / 3
    with refused("labels", naming=["column numbers", "probabilities"]):
        stream.update(other, LABELS)
    stream.update(other, np.array(["ant", "bee", "cat"])[LABELS])


def test_ignored_labels_are_no_class_names() -> None:
    labels = np.array([10, -1, 30])
    rows = match({"scores": np.eye(3)}, class_names=[10, 20, 30], labels=labels, ignore_index=-1)
    assert rows.labels.tolist() == [0, -1, 2]
    # The ignored label may also be the number of a column.
    rows = match(
        {"scores": np.eye(3)}, class_names=[10, 20, 30], labels=[10, 0, 30], ignore_index=0
    )
    assert rows.labels.tolist() == [0, -1, 2]
    assert rows.ignore_index == -1


def test_default_columns_are_not_names() -> None:
    table = Table.read(pd.DataFrame(LOGITS), "scores")
    assert table.label_names is None
    assert table.in_order(["ant", "bee", "cat"], "fit") is table
    reversed_columns = Table.read(pd.DataFrame(LOGITS)[[2, 1, 0]], "scores")
    np.testing.assert_array_equal(reversed_columns.in_order([0, 1, 2], "fit").values, LOGITS)


def test_columns_of_one_name_are_refused() -> None:
    scores = pd.DataFrame(np.eye(3)[[0, 1, 2, 0]], columns=["a", "b", "a"])
    with refused("scores", naming="'a'"):
        PreservingCalibrator("ts").fit(scores, [0, 1, 2, 0])
    with refused("probabilities", naming="'a'"):
        certify(scores, [0, 1, 2, 0])
