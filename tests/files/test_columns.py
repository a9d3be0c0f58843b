"""Which columns of a table are scores: named, by classes or labels, by their layout, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cordcal import InputError
from cordcal.files import open_scores, read_scores
from cordcal.files.columns import ColumnSpec, choose_columns
from errors import refused

pa = pytest.importorskip("pyarrow")
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


def choose(names: str, spec: ColumnSpec | None = None, **options: Any) -> Any:
    """Choose among columns: ``x:t`` is text, ``x:i`` integers, ``x:l`` lists, others floats."""
    kinds = {"t": "text", "i": "integer", "l": "list", "": "float"}
    pairs = (name.partition(":") for name in names.split(","))
    types: Any = {name: kinds[kind] for name, _, kind in pairs}
    return choose_columns(types, spec or ColumnSpec(), "s.csv", **options)


@pytest.mark.parametrize(
    ("names", "columns", "classes"),
    [
        ("id:t,p_cat,p_dog,label:t", "p_cat,p_dog", ("cat", "dog")),
        ("p0,p1,p2,label:i,y_pred", "p0,p1,p2", None),
        ("p10,p11,p12,confidence,score", "p10,p11,p12", ("10", "11", "12")),
        ("logit_ant,logit_ape,user_id", "logit_ant,logit_ape", ("ant", "ape")),
        ("0,1,2,age:t", "0,1,2", None),
        ("index,0,1,2", "0,1,2", None),
        ("id:t,emb:l,label:i", "emb", None),
        ("tokens:l,logits:l", "logits", None),
        ("p_cat,p_dog,age:i", "p_cat,p_dog", ("cat", "dog")),  # integers next to floats
    ],
)
def test_columns_that_show_what_they_are(names: str, columns: str, classes: Any) -> None:
    chosen = choose(names)
    assert ",".join(chosen.columns) == columns
    assert chosen.class_names == classes


@pytest.mark.parametrize(
    ("names", "proposal"),
    [
        ("p0,p1,p2,label,age", "p*"),
        ("logit_a,logit_b,price", "logit_*"),
        ("ant,bee,cat", "ant,bee,cat"),
        ("a:l,b:l", "a"),
        ("age:i,label:i", "a,b,…"),
    ],
)
def test_anything_else_is_refused_with_what_would_fit(names: str, proposal: str) -> None:
    error = choose(names)
    assert isinstance(error, InputError)
    assert error.option is not None
    assert error.option[1] == proposal


def test_the_labels_name_the_columns() -> None:
    chosen = choose("ant,bee,cat,label:t", label_values=lambda: {"cat", "ant", "bee"})
    assert chosen.class_names == ("ant", "bee", "cat")
    error = choose("ant,bee,cat,age,label:t", label_values=lambda: {"cat", "ant", "bee"})
    assert error.option == ("columns", "ant,bee,cat")  # a class without rows, or an age


def test_the_classes_of_a_model_name_the_columns() -> None:
    spec = ColumnSpec(classes=("cat", "dog"))
    assert choose("dog,age,cat", spec).columns == ("dog", "cat")
    assert choose("l_dog,age,l_cat", spec).class_names == ("dog", "cat")
    assert isinstance(choose("l_dog,l_cat,p_dog,p_cat", spec), InputError)
    assert isinstance(choose("dog,age", spec), InputError)
    assert choose("z_dog,z_cat,cat,dog", ColumnSpec(pattern=("z_*",))).columns == ("z_dog", "z_cat")


def test_longer_numbers_are_not_classes_with_a_prefix() -> None:
    spec = ColumnSpec(classes=("0", "1", "2"))
    assert isinstance(choose("11,note,12,10", spec), InputError)
    assert choose("p1,p2,p0", spec).class_names == ("1", "2", "0")


def test_columns_that_apply_wrote() -> None:
    names = "l_a,l_b,age,prediction:i,prediction_name:t,confidence,p_a,p_b,direct_a,direct_b,row:i"
    assert choose(names, role="repaired").columns == ("p_a", "p_b")
    assert choose(names, role="repaired").key == "repaired"
    assert choose(names, role="direct").columns == ("direct_a", "direct_b")
    spec = ColumnSpec(classes=("a", "b"))
    assert choose(names, spec, role="original").columns == ("l_a", "l_b")


@pytest.mark.parametrize("columns", ["score_*", "score_cat,score_dog", ["score_cat", "score_d*"]])
def test_named_columns(table: Path, columns: Any) -> None:
    result = read_scores(table, columns=columns, weights_column="weight")
    np.testing.assert_array_equal(result.values, [[0.2, 0.8], [0.9, 0.1]])
    np.testing.assert_array_equal(result.weights, [1, 2])
    assert result.columns == ("score_cat", "score_dog")
    if columns == "score_*":  # the star stands for the class
        labelled = read_scores(table, columns=columns, labels_column="truth")
        assert labelled.class_names == ("cat", "dog")
        assert labelled.labels.tolist() == [1, 0]


def test_weights_in_a_file(table: Path) -> None:
    np.save(table.with_name("w.npy"), np.array([3.0, 4.0]))
    where = {"columns": "score_*", "weights": str(table.with_name("w.npy"))}
    (batch,) = open_scores(table, **where)
    for block in (read_scores(table, **where), batch):
        np.testing.assert_array_equal(block.weights, [3, 4])
    np.save(table.with_name("w.npy"), np.ones(3))
    with refused(naming=["w.npy", "3 weights", "2 rows"]):
        read_scores(table, **where)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({}, ["score_*"]),
        ({"columns": "scores_*"}, ["s.csv", "'scores_*'", "id, score_cat"]),
        ({"columns": "score_cat,when"}, ["'when'"]),
        ({"columns": "score_*", "labels_column": "y"}, ["'y'", "labels"]),
        ({"columns": "score_*", "weights_column": "w"}, ["'w'", "weights"]),
        ({"columns": "score_*", "class_names": ["dog", "ant"]}, ["'cat'", "'ant'", "class_names"]),
    ],
)
def test_what_is_not_there(table: Path, options: dict[str, Any], facts: list[str]) -> None:
    for read in (read_scores, open_scores):
        with refused(naming=facts):
            read(table, **options)


def test_columns_of_a_model_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("dog,age,cat\n0.8,30,0.2\n")
    result = open_scores(path, classes=("cat", "dog"))
    assert result.class_names == ("cat", "dog")
    np.testing.assert_array_equal(next(iter(result)).values, [[0.2, 0.8]])


def test_votes_are_scores_if_there_are_no_floats(tmp_path: Path) -> None:
    votes = pa.table({"n_cat": [3, 0], "n_dog": [1, 5]})
    parquet.write_table(votes, tmp_path / "v.parquet")
    assert read_scores(tmp_path / "v.parquet").class_names == ("cat", "dog")


def test_words_further_down_harm_only_scores(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("zip,cat,dog\n12345,0.8,0.2\nK1A,0.1,0.9\n")
    result = read_scores(path, columns="cat,dog")
    np.testing.assert_array_equal(result.values, [[0.8, 0.2], [0.1, 0.9]])
