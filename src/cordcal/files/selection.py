"""Find the scores, the labels and the weights in the contents of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cordcal._errors import InputError, raise_first, row_error
from cordcal._numeric.types import Flags, Kind, NumPyArray
from cordcal._validation.names import class_order
from cordcal._validation.scores import sum_tolerance, sum_warning_level
from cordcal.files.columns import FEATURE_NAMES, LABEL_NAMES, ColumnSpec, list_names
from cordcal.files.formats import FORMATS, open_contents
from cordcal.files.sources import Contents

# With fewer rows, all may be sorted by chance.
MIN_ROWS_TO_JUDGE = 8


def looks_like(scores: NumPyArray) -> Kind:
    """Return what kind of scores these rows are, judging by their values.

    Rows of numbers in [0, 1] that sum to one are probabilities; everything else,
    log-probabilities included, is logits.

    Examples
    --------
    >>> import numpy as np
    >>> looks_like(np.array([[0.2, 0.8]]))
    'probabilities'
    >>> looks_like(np.array([[0.2, 1.8]]))
    'logits'
    """
    if scores.min() < 0.0 or scores.max() > 1.0 + sum_tolerance(scores.dtype):
        return "logits"
    return "probabilities" if sum_deviation(scores) <= sum_tolerance(scores.dtype) else "logits"


def sum_deviation(scores: NumPyArray) -> float:
    """Return how far from one the rows of non-negative scores sum, at most.

    Small deviations may include the rounding of this sum itself.
    """
    if scores.dtype.kind == "f" and scores.dtype.itemsize >= 4:
        # In any order of additions a sum near one is wrong by less than K units in the last place.
        quick = float(np.abs(scores @ np.ones(scores.shape[1], scores.dtype) - 1.0).max())
        if quick <= 0.5 * sum_warning_level(scores.dtype, scores.shape[1]):
            return quick
    return float(np.abs(scores.sum(axis=1, dtype=np.float64) - 1.0).max())


def _are_sorted(scores: NumPyArray) -> bool:
    """Whether every row is in descending order; the first rows settle most files."""
    first_rows = (np.diff(scores[:MIN_ROWS_TO_JUDGE], axis=1) <= 0).all()
    return bool(first_rows and (np.diff(scores, axis=1) <= 0).all())


def check_whole_vectors(scores: NumPyArray, name: str) -> None:
    """Refuse top-k lists: rows in descending order that sum to less than one.

    Language-model APIs return the k best log-probabilities in order.  Their columns are
    ranks, not classes, so they cannot be calibrated.
    """
    rows, width = scores.shape
    if rows < MIN_ROWS_TO_JUDGE or not _are_sorted(scores):
        return
    if scores.max() <= 0.0:
        mass, what = np.exp(scores.astype(np.float64)).sum(axis=1), "log-probabilities"
    elif scores.min() >= 0.0 and scores.max() <= 1.0:
        mass, what = scores.sum(axis=1, dtype=np.float64), "probabilities"
    else:
        return
    if (mass < 1.0 - sum_tolerance(scores.dtype)).any() and mass.max() < 1.01:
        raise InputError(
            name,
            f"looks like top-{width} {what}: every row is sorted and some sum to "
            f"{mass.min():.3g}, so the columns are ranks, not classes",
            "pass whole vectors with one column for each class",
        )


_LOGIT_NAMES = ("logits", "logit")
_PROBABILITY_NAMES = ("probabilities", "probs", "probas", "proba", "prob", "y_prob")
# Fields of lines that are a language model's answers.
_ANSWERS = frozenset(("choices", "logprobs", "option_logprobs", "resps", "response"))
_SCORE_NAMES = ("scores", *_LOGIT_NAMES, *_PROBABILITY_NAMES, "array")


def wide_columns(contents: Contents, key: str) -> tuple[str, ...]:
    """Return the table columns of a matrix; empty if it is one array."""
    columns = contents.columns.get(key, ())
    return () if columns == (key,) else columns


def names_of(
    contents: Contents, key: str, classes: int, spec: ColumnSpec
) -> tuple[str, ...] | None:
    """Return one name per column, in the order that is used: a model's, the caller's, the file's.

    Columns are matched by name, so other classes than the required ones are refused.
    """
    own, passed, required = contents.names_of(key), spec.class_names, spec.required
    names = own if passed is None else passed
    if names is not None and len(names) != classes:
        where = contents.path if passed is None else "class_names"
        raise InputError(
            where,
            f"has {len(names)} class names but {key} has {classes} columns",
            "give each column one name",
        )
    if passed is not None and own is not None:
        class_order(own, passed, contents.path, "class_names")  # refuses other classes
    if names is not None and required is not None:
        class_order(names, required, contents.path, spec.classes_in)
        return required
    numbers = spec.classes
    if names is not None and numbers is not None and set(names) == set(numbers):
        return numbers
    return names


def in_order(
    values: NumPyArray,
    contents: Contents,
    key: str,
    names: tuple[str, ...] | None,
    spec: ColumnSpec,
) -> NumPyArray:
    """Return scores with their columns in the order of the classes, matched by name."""
    own = contents.names_of(key) or spec.class_names
    if own is None or names is None:
        return values
    order = class_order(own, names, contents.path, spec.classes_in)
    # Not values[:, order], whose rows are not contiguous: sums would round differently.
    return values if order is None else values.take(order, axis=1)


def check_label_numbers(
    labels: NumPyArray,
    own: tuple[str, ...] | None,
    names: tuple[str, ...] | None,
    where: str,
) -> None:
    """Refuse numeric labels if the columns that they count have been reordered.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Class names, or numbers.
    own, names : tuple of str or None
        The columns in the order of the file, and in the order that is used.
    where : str
        The file.
    """
    if own is None or names is None or own == names or labels.dtype.kind not in "iufb":
        return
    if all(name.lstrip("-").isdigit() for name in names):
        return  # the labels are the columns' names themselves
    raise InputError(
        where,
        f"has numbers for labels, but its columns come in another order ({list_names(own)}) than "
        f"the classes ({list_names(names)})",
        "write class names as labels, or bring the columns into this order",
    )


def weight_key(contents: Contents, spec: ColumnSpec) -> str | None:
    """Return the key of the weights, which are used only if the caller names them."""
    if spec.weights is not None or spec.weights_column is None:
        return None
    return check_vector(contents, spec.weights_column, "weights")


def vector_of(
    contents: Contents, key: str | None, spec: ColumnSpec, what: str
) -> NumPyArray | None:
    """Return the labels or the weights of this file, or of a separate file."""
    separate = read_separate_vector(spec, what)
    if separate is not None:
        return separate
    return None if key is None else contents.vectors[key]


def read_separate_vector(spec: ColumnSpec, what: str) -> NumPyArray | None:
    """Return the labels or the weights of a separate file, if there is one."""
    file, column = getattr(spec, what), getattr(spec, f"{what}_column")
    if file is None:
        return None
    names = LABEL_NAMES if what == "labels" else ()
    return read_vector(file, column, names, header=spec.header)


def check_length(length: int, where: str, what: str, rows: int) -> None:
    """Refuse a separate file that does not have one entry per row."""
    if length != rows:
        error = InputError(
            where,
            f"has {length} {what} but there are {rows} rows of scores",
            f"pass as many {what} as rows",
        )
        is_text = Path(where).suffix.lower() in (".csv", ".tsv", ".txt")
        # The first line may be a header, such as the 0 that pandas writes.
        raise error.with_option_hint("header", str(length > rows)) if is_text else error


def choose_matrix(contents: Contents, key: str | None, role: str, input: Kind | None) -> str:
    """Return the name of the matrix that holds the scores."""
    matrices = contents.matrices
    if key is not None:
        if key in matrices:
            return key
        raise InputError(
            contents.path, f"has no matrix called {key!r}", f"it has {list_arrays(contents)}"
        )
    if not matrices:
        hint = f"it has {list_arrays(contents)}"
        if contents.format == "jsonl" and not _ANSWERS.isdisjoint(contents.vectors):
            # Without shapes: these are the first rows only.
            hint = (
                f"it has {', '.join(contents.vectors)}; a language model's answers are read with "
                "cordcal.llm.read_answers, or --answers"
            )
        raise InputError(contents.path, "holds no matrix of scores (rows × classes)", hint)
    first: tuple[str, ...] = _PROBABILITY_NAMES if input == "probabilities" else _LOGIT_NAMES
    for name in (role, *first, *_SCORE_NAMES):
        if name in matrices:
            return name
    candidates = [name for name in matrices if name not in FEATURE_NAMES]
    if len(candidates) == 1:
        return candidates[0]
    # `key` selects scores only, not original or direct probabilities.
    hint = "choose one, as in {option}" if role == "scores" else f"call the one to read {role!r}"
    raise InputError(
        contents.path,
        f"holds several matrices ({', '.join(candidates)})",
        hint,
        option=("key", candidates[0]),
    )


def list_arrays(contents: Contents) -> str:
    """Return the names and shapes of a file's arrays, for messages."""
    parts = [f"{name} {shape}" for name, shape in contents.shapes.items()]
    return list_names(parts) if parts else "nothing that can be read as an array of numbers"


def check_values(values: NumPyArray, name: str) -> None:
    """Refuse rows that are not whole vectors of finite numbers."""
    bad: Flags = np.isnan(values).any(axis=1) | (values == np.inf).any(axis=1)
    raise_first(
        row_error(
            bad,
            name,
            "contains NaN or an infinite value",
            "drop such rows, or, if these are top-k scores, pass whole vectors with one column "
            "per class",
        )
    )
    check_whole_vectors(values, name)


def kind_of(key: str, values: NumPyArray) -> Kind:
    """Return the kind of scores, from their name or else from their values."""
    if any(name in key.lower() for name in _LOGIT_NAMES):
        return "logits"
    return looks_like(values)


def label_key(contents: Contents, key: str, spec: ColumnSpec) -> str | None:
    """Return the key of the labels: the one that the caller names, or that which matches ``key``.

    cal_labels matches cal_logits, labels_cal matches probas_cal, labels matches scores.
    """
    if spec.labels is not None:
        return None
    if spec.labels_column is not None:
        return check_vector(contents, spec.labels_column, "labels")
    group, slash, own = key.rpartition("/")
    around = [own.split(name, 1) for name in _SCORE_NAMES if name in own]
    # In a file with groups, labels in another group belong to another classifier.
    for before, behind in (*around, ("", "")):
        for name in LABEL_NAMES:
            candidate = f"{group}{slash}{before}{name}{behind}"
            if candidate in contents.vectors:
                return candidate
    return None


def check_vector(contents: Contents, name: str, what: str) -> str:
    """Return the name of a vector, or refuse one that the file does not have."""
    if name in contents.vectors:
        return name
    raise InputError(
        contents.path,
        f"has no key or column called {name!r} for the {what}",
        f"it has {list_arrays(contents)}",
    )


def read_vector(
    path: str,
    column: str | None = None,
    names: Sequence[str] = LABEL_NAMES,
    *,
    header: bool | None = None,
) -> NumPyArray:
    """Return the labels, or another vector, of a separate file."""
    if not is_file(path):
        what = "labels_column" if names else "weights_column"
        hint = "a key or column of the scores' own file is named with {option}"
        raise InputError(path, "is not a file", hint, option=(what, path))
    contents = open_contents(path, ColumnSpec(labels_column=column, words=True, header=header))
    for name in names if column is None else (column,):
        if name in contents.vectors:
            return contents.vectors[name]
    # pandas writes its index below an empty heading.
    headed = [name for name in contents.vectors if name] or list(contents.vectors)
    if column is None and len(headed) == 1:
        return contents.vectors[headed[0]]
    what = "vector of labels" if column is None else f"key or column called {column!r}"
    raise InputError(contents.path, f"holds no {what}", f"it has {list_arrays(contents)}")


def is_file(text: str) -> bool:
    """Whether a name of labels is that of a file rather than a key or column."""
    suffixes = {".txt", *(suffix for format in FORMATS for suffix in format.suffixes)}
    return text == "-" or Path(text).exists() or Path(text).suffix.lower() in suffixes
