"""Which first line of a CSV file is a header, and where its quotes end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cordcal
from cordcal.files import inspect, open_scores, read_scores
from errors import refused

LOGITS = np.random.default_rng(7).normal(size=(20, 3))
BELOW = "\n0.5,1.5,2.25\n-1.0,0.25,3.5\n"
CHANCES = "\n0.5,0.25,0.25\n0.2,0.3,0.5\n"
TWO = "\n0.5,0.5\n0.25,0.75\n"


def write(folder: Path, text: str, name: str = "s.csv") -> Path:
    path = folder / name
    path.write_text(text, newline="")
    return path


def shape_of(path: Path, **options: object) -> tuple[int, int]:
    """Return the shape that both ways of reading find."""
    whole = read_scores(path, **options).values.shape
    assert open_scores(path, **options).shape == whole
    return whole


@pytest.mark.parametrize(
    ("text", "rows", "names"),
    [
        ("ant,bee,cat" + BELOW, 2, ("ant", "bee", "cat")),
        ("0,1,2" + BELOW, 2, None),
        ("1,2,3" + BELOW, 2, ("1", "2", "3")),
        ("2,1,0" + BELOW, 2, ("2", "1", "0")),
        ("-1,0,1" + BELOW, 2, ("-1", "0", "1")),
        ('"0","1","2"' + BELOW, 2, None),
        ("0;1;2" + BELOW.replace(",", ";"), 2, None),
        ("0,1,2" + CHANCES, 2, None),  # it does not sum to one
        ("0,1,2\n1.0,2.0,3.0\n4.0,5.0,7.0\n", 2, None),  # floating numbers, written as such
        ("1_1,1_2,1_3" + BELOW, 2, ("1_1", "1_2", "1_3")),
        ("0.5,1,2" + BELOW, 3, None),
        ("1.0,2.0,3.0" + BELOW, 3, None),
        ("1,1,2" + BELOW, 3, None),  # headings differ
        ("1,2,3\n4,5,6\n7,8,10\n", 3, None),  # scores that are whole numbers
        (",0,1,2\n0,0.5,1.5,2.5\n1,3.5,0.5,1.5\n", 2, None),  # the index of pandas
        (",0,1\n0,0.5,0.5\n1,0.25,0.75\n", 2, None),
        ("text,0,1\nred,0.5,0.5\nblue,0.25,0.75\n", 2, None),
        ("prediction,0,1,2\nx,1,2,3\ny,4,5,6\n", 2, None),
        ("0.5,0.25,0.25,cat\n0.2,0.3,0.5,dog\n", 2, None),
        ("cat,1,0\ncat,0.5,0.5\ndog,0.25,0.75\n", 3, None),
        ("\r\n0,1,2" + BELOW, 2, None),
        ("0,1,2" + BELOW.replace("\n", "\r\n"), 2, None),
        ("0,1,2" + BELOW.replace("\n", "\r"), 2, None),
        ("ant,bee,cat" + BELOW.replace("\n", "\r"), 2, ("ant", "bee", "cat")),
        ('"an\nt",bee,cat' + BELOW, 2, ("an\nt", "bee", "cat")),
        ("label,0.5,1.0\n0,0.5,1.5\n1,2.5,0.5\n", 2, ("0.5", "1.0")),  # ratings
        ("nan,1,2" + BELOW, None, None),  # a row, which is refused as such
    ],
)
def test_a_first_line(tmp_path: Path, text: str, rows: int | None, names: object) -> None:
    path = write(tmp_path, text)
    if rows is None:
        with pytest.raises(cordcal.InputError) as error:
            read_scores(path)
        assert error.value.rows.tolist() == [0]
        return
    assert shape_of(path)[0] == rows
    assert read_scores(path).class_names == names


@pytest.mark.parametrize(
    "text",
    [
        "0,1" + TWO,
        "1,0" + TWO,
        "1,0,0" + CHANCES,
        "7,1,0\n8,0.5,0.5\n9,0.25,0.75\n",  # with an identifier
        "2,0,1\n0.5,1.5,2.5\n3,1,2\n",  # another row is as whole as it
        "2,0,1\n" + "0.5,1.5,2.5\n" * 1500 + "3,1,2\n",
        "0,1,2\n",  # an empty frame, or a row
        "img1,1,0\nimg2,0.5,0.5\n",
        "0,,2" + BELOW,
        "0.5,O.5" + TWO,  # a row with a letter for a zero
        '1,0"' + TWO,
        ",nan,1\n0,0.5,1.5\n1,2.5,0.5\n",
    ],
)
def test_a_first_line_in_doubt_is_settled_by_the_caller(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    for read in (read_scores, open_scores, inspect):
        with pytest.raises(cordcal.InputError) as error:
            read(path)
        assert error.value.argument == str(path)
        assert error.value.option == ("header", "True or False")


def test_the_caller_decides(tmp_path: Path) -> None:
    path = write(tmp_path, "0,1" + TWO)
    assert shape_of(path, header=True) == (2, 2)
    assert shape_of(path, header=False) == (3, 2)
    assert shape_of(write(tmp_path, "0.5,1.5" + TWO), header=True) == (2, 2)
    with refused(naming="header=False"):
        read_scores(write(tmp_path, "ant,bee" + TWO), header=False)
    with refused(naming="no rows"):
        read_scores(write(tmp_path, "0,1,2\n"), header=True)
    with refused(naming="no rows"):
        read_scores(write(tmp_path, ",0,1,2\n"))


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_pandas_writes(tmp_path: Path, index: bool, dtype: type) -> None:
    pandas = pytest.importorskip("pandas")
    labels = pandas.Series(LOGITS.argmax(axis=1))
    pandas.DataFrame(LOGITS.astype(dtype)).to_csv(tmp_path / "s.csv", index=index)
    labels.to_csv(tmp_path / "y.csv", index=index)
    pandas.Series(np.linspace(0.5, 2.0, 20)).to_csv(tmp_path / "w.csv", index=index)
    result = read_scores(tmp_path / "s.csv", weights=str(tmp_path / "w.csv"))
    np.testing.assert_allclose(result.values, LOGITS, rtol=1e-6)
    assert result.class_names is None
    assert len(result.weights) == 20
    apart = {"labels": str(tmp_path / "y.csv")}
    if not index:  # whole numbers under a 0: it may be a label
        for read in (read_scores, open_scores):
            with refused(naming="21 labels", option="header") as error:
                read(tmp_path / "s.csv", **apart)
            assert error.value.option == ("header", "True")
        apart["header"] = True
    np.testing.assert_array_equal(read_scores(tmp_path / "s.csv", **apart).labels, labels)


def test_words_as_pandas_writes_them(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    names = np.array(["ant", "bee", "cat"])
    words = pandas.Series(names[LOGITS.argmax(axis=1)])
    pandas.DataFrame(LOGITS, columns=names).to_csv(tmp_path / "s.csv", index=False)
    for index in (False, True):
        words.to_csv(tmp_path / "y.csv", index=index)
        result = read_scores(tmp_path / "s.csv", labels=str(tmp_path / "y.csv"))
        np.testing.assert_array_equal(result.labels, LOGITS.argmax(axis=1))


def test_a_weight_of_one_may_come_first(tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", LOGITS[:3])
    path = str(write(tmp_path, "1\n0.5\n1\n", "w.csv"))
    with pytest.raises(cordcal.InputError) as error:
        read_scores(tmp_path / "s.npy", weights=path)
    assert error.value.option == ("header", "True or False")
    result = read_scores(tmp_path / "s.npy", weights=path, header=False)
    np.testing.assert_array_equal(result.weights, [1.0, 0.5, 1.0])
    # A word above numbers heads a file of its own, whatever the scores begin with.
    path = str(write(tmp_path, "weight\n0.5\n1\n2\n", "w.csv"))
    scores = write(tmp_path, "1,0\n0.5,0.5\n0.25,0.75\n")
    result = read_scores(scores, weights=path, header=False)
    np.testing.assert_array_equal(result.weights, [0.5, 1.0, 2.0])


def test_parts_agree(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    for name in "abc":
        write(folder, "0,1,2" + BELOW, f"{name}.csv")
    assert shape_of(folder) == (6, 3)
    write(folder, "0,1,2\n", "b.csv")  # a frame without rows
    with refused(naming="b.csv"):
        read_scores(folder)
    assert shape_of(folder, header=True) == (4, 3)
    write(folder, BELOW.lstrip(), "b.csv")
    for read in (read_scores, open_scores):
        with refused(str(folder / "b.csv"), naming="header"):
            read(folder)


STRAY = [
    pytest.param("id,text,a,b", "{at},{quote}note {at},{score},2.5", id="middle"),
    pytest.param("text,a,b", "{quote}note {at},{score},2.5", id="first"),
    pytest.param("a,b,text", "{score},2.5,{quote}note {at}", id="last"),
    pytest.param("a,b,text,label", "{score},2.5,{quote},ant", id="alone"),
    pytest.param("text,a,b", "{quote},{score},2.5", id="alone and first"),
    pytest.param("a,b,text", "{score},2.5,{quote}", id="alone and last"),
]


@pytest.mark.parametrize("places", [(5, 30), (5, 6), (0, 39), (7,), (39,), (3, 9, 20, 21)])
@pytest.mark.parametrize(("head", "row"), STRAY)
def test_stray_quotes_swallow_nothing(
    tmp_path: Path, head: str, row: str, places: tuple[int, ...]
) -> None:
    lines = [
        row.format(at=at, score=at / 7 + 0.01, quote='"' if at in places else "")
        for at in range(40)
    ]
    path = write(tmp_path, "\n".join([head, *lines]) + "\n")
    for read in (read_scores, lambda path: list(open_scores(path, passthrough=True)), inspect):
        with pytest.raises(cordcal.InputError) as error:
            read(path)
        assert f"line {places[0] + 2} " in error.value.reason
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "cell",
    [
        "two, cells",
        'a ""word""',
        "two\nlines",
        "\n",
        "a\n\nb\n",
        "0.5\n0.5",
        "a, b\nc, d",
        "",
    ],
)
@pytest.mark.parametrize("head", ["text,a,b", "a,text,b", "a,b,text", "text,a,b,other"])
def test_quoted_cells(tmp_path: Path, cell: str, head: str) -> None:
    fields = {"text": f'"{cell}"', "other": '"x\ny"', "a": "0.5", "b": "2.5"}
    row = ",".join(fields[name] for name in head.split(","))
    path = write(tmp_path, "\n".join([head] + [row] * 4) + "\n")
    assert shape_of(path) == (4, 2)
    (batch,) = open_scores(path, passthrough=True)
    assert batch.passthrough.columns["text"].to_text() == [cell.replace('""', '"')] * 4


def test_a_quote_within_a_cell_is_a_character(tmp_path: Path) -> None:
    path = write(tmp_path, 'text,a,b\n5" pipe,0.5,2.5\nsays "no",1.5,2.5\n')
    assert shape_of(path) == (2, 2)
