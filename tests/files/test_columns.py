"""Which columns of a table are scores: named, by a model's classes, or by their contents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cordcal.files import open_scores, read_scores
from errors import refused

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

LINES = [
    "id,score_cat,score_dog,age,truth,when,weight",
    "007,0.2,0.8,31.5,dog,2024-01-02,1",
    "008,0.9,0.1,44,cat,2024-01-03,2",
]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "s.csv"
    path.write_text("\n".join(LINES) + "\n")
    return path


@pytest.mark.parametrize("columns", ["score_*", "score_cat,score_dog", ["score_cat", "score_d*"]])
def test_named_columns(table: Path, columns: object) -> None:
    result = read_scores(table, columns=columns, labels_column="truth" if "*" in columns else None)  # type: ignore[operator, arg-type]
    np.testing.assert_array_equal(result.values, [[0.2, 0.8], [0.9, 0.1]])
    assert result.columns == ("score_cat", "score_dog")
    if columns == "score_*":  # the star stands for the class
        assert result.class_names == ("cat", "dog")
        assert result.labels.tolist() == [1, 0]


def test_weights_in_a_column(table: Path) -> None:
    result = read_scores(table, columns="score_*", weights_column="weight")
    np.testing.assert_array_equal(result.weights, [1, 2])


def test_weights_in_a_file(table: Path) -> None:
    file = str(table.with_name("w.npy"))
    np.save(file, np.array([3.0, 4.0]))
    result = read_scores(table, columns="score_*", weights=file)
    (batch,) = open_scores(table, columns="score_*", weights=file)
    for block in (result, batch):
        np.testing.assert_array_equal(block.weights, [3, 4])
    np.save(file, np.ones(3))
    with refused(naming=["w.npy", "3 weights", "2 rows"]):
        read_scores(table, columns="score_*", weights=file)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"columns": "scores_*"}, ["s.csv", "'scores_*'", "id, score_cat"]),
        ({"columns": "score_cat,when"}, ["'when'"]),
        ({"columns": "score_*", "labels_column": "y"}, ["'y'", "labels"]),
        ({"columns": "score_*", "weights_column": "w"}, ["'w'", "weights"]),
        ({"columns": "score_*", "class_names": ["a"]}, ["1 class names", "2 columns"]),
        ({"columns": "score_*", "class_names": ["dog", "ant"]}, ["'cat'", "'ant'", "class_names"]),
    ],
)
def test_what_is_not_there(table: Path, options: dict, facts: list[str]) -> None:
    for read in (read_scores, open_scores):
        with refused(naming=facts):
            read(table, **options)


def test_the_classes_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("dog,age,cat\n0.8,30,0.2\n")
    result = open_scores(path, classes=("cat", "dog"))
    assert result.class_names == ("cat", "dog")
    np.testing.assert_array_equal(next(iter(result)).values, [[0.2, 0.8]])
    with refused(naming=["'ant'", "dog"]):
        open_scores(path, classes=("cat", "ant"))
    for read in (open_scores, read_scores):
        with refused(naming=["'dog'", "'x'"]):
            read(path, classes=("x", "y", "z"))
    assert open_scores(path, classes=("0", "1", "2")).classes == 3  # numbers are not binding names


def test_columns_of_numbers_that_are_not_headings(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("12,0.8,0.2\n13,0.1,0.9\n")
    assert open_scores(path, classes=("0", "1")).classes == 3  # the first may be an identifier
    path.write_text("id,0,1\n12,0.8,0.2\n13,0.1,0.9\n")
    assert open_scores(path, classes=("0", "1")).classes == 2


def test_integers_next_to_floating_numbers_are_not_scores(tmp_path: Path) -> None:
    table = arrow.table({"user": [12, 13], "cat": [0.2, 0.9], "dog": [0.8, 0.1]})
    parquet.write_table(table, tmp_path / "s.parquet")
    assert read_scores(tmp_path / "s.parquet").class_names == ("cat", "dog")
    votes = arrow.table({"cat": [3, 0], "dog": [1, 5]})
    parquet.write_table(votes, tmp_path / "v.parquet")
    assert read_scores(tmp_path / "v.parquet").class_names == ("cat", "dog")


def test_words_further_down_harm_only_scores(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("zip,cat,dog\n12345,0.8,0.2\nK1A,0.1,0.9\n")
    result = read_scores(path, columns="cat,dog")
    np.testing.assert_array_equal(result.values, [[0.8, 0.2], [0.1, 0.9]])
    path.write_text("zip,cat,dog\n12345,0.8,0.2\n12346,x,0.9\n")
    with refused(rows=[1], naming=["line 3", "'x'", "'cat'"]):
        read_scores(path, columns="cat,dog")


def test_lists_of_tokens_are_not_scores(tmp_path: Path) -> None:
    table = arrow.table({"tokens": [[1, 2, 3], [4]], "p": [[0.1, 0.9], [0.4, 0.6]]})
    parquet.write_table(table, tmp_path / "s.parquet")
    assert read_scores(tmp_path / "s.parquet").key == "p"
