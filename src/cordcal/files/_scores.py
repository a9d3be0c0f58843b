"""Find the scores, the labels and the class names in a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cordcal._door.errors import Refusal, about_rows, refuse
from cordcal._door.labels import as_indices
from cordcal._door.reports import as_matrix
from cordcal._door.types import Kind
from cordcal.files._contents import FEATURE_NAMES, LABEL_NAMES, Contents, open_contents
from cordcal.files._kinds import check_whole_vectors, looks_like

_LOGIT_NAMES = ("logits", "logit")
_PROBABILITY_NAMES = ("probabilities", "probs", "probas", "proba", "prob", "y_prob")
_SCORE_NAMES = ("scores", *_LOGIT_NAMES, *_PROBABILITY_NAMES, "array")
_LABEL_SUFFIXES = (".npy", ".npz", ".csv", ".parquet", ".txt")


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of a file, with what the file says about them.

    Attributes
    ----------
    path : str
        Where they came from.
    key : str
        The key or column they were stored under.
    values : ndarray of shape (n, K)
        The scores as stored, in their dtype.
    kind : str
        ``"logits"`` or ``"probabilities"``: what the name says, else what the values say.
    labels : ndarray of int or None
        The labels as column indices.
    class_names : tuple of str or None
        One name a column.
    features : ndarray or None
        Penultimate features, for the calibrators that need them.
    """

    path: str
    key: str
    values: npt.NDArray[Any]
    kind: Kind
    labels: npt.NDArray[np.int64] | None = None
    class_names: tuple[str, ...] | None = None
    features: npt.NDArray[Any] | None = None


def read_scores(
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    role: str = "scores",
    labels: str | None = None,
    input: Kind | None = None,
) -> Scores:
    """Read scores from a npz, npy, CSV or Parquet file.

    Parameters
    ----------
    path : path or "-"
        The file; ``-`` reads stdin.
    key : str, optional
        The key (npz) or column (Parquet) of the scores; found by name where left out.
    role : str
        A name to prefer: ``"original"`` or ``"direct"``.
    labels : str, optional
        A file of labels, or the key or column of this file that holds them.
    input : {"logits", "probabilities"}, optional
        The kind, where the file does not make it plain.

    Returns
    -------
    scores : Scores
        Checked to be whole vectors of finite numbers.
    """
    column = None if labels is None or is_file(labels) else labels
    contents = open_contents(path, beside=column)
    chosen = choose(contents, key, role, input)
    values = as_matrix(contents.matrices[chosen], f"{contents.path} ({chosen})")
    _check_values(values, f"{contents.path} ({chosen})")
    names = contents.class_names
    if names is not None and len(names) != values.shape[1]:
        raise wrong_names(contents, chosen, values.shape[1])
    if labels is not None and column is None:
        found: npt.NDArray[Any] | None = read_vector(labels)
    else:
        found = labels_in(contents, chosen, column)
    return Scores(
        path=contents.path,
        key=chosen,
        values=values,
        kind=input or kind_of(chosen, values),
        labels=None if found is None else as_indices(found, values.shape, names, contents.path),
        class_names=names,
        features=features_in(contents),
    )


def read_labels(path: str, scores: Scores) -> npt.NDArray[np.int64]:
    """Read labels from a file of their own, as column indices of ``scores``."""
    found = read_vector(path)
    return as_indices(found, scores.values.shape, scores.class_names, path)


def features_in(contents: Contents) -> npt.NDArray[Any] | None:
    """Return the penultimate features, where a file has them."""
    names = (name for name in FEATURE_NAMES if name in contents.matrices)
    return next((contents.matrices[name] for name in names), None)


def choose(contents: Contents, key: str | None, role: str, input: Kind | None) -> str:
    """Return the name of the matrix that holds the scores."""
    matrices = contents.matrices
    if key is not None:
        if key in matrices:
            return key
        raise Refusal(contents.path, f"has no matrix called {key!r}", f"it has {_listed(contents)}")
    if not matrices:
        raise Refusal(
            contents.path,
            "holds no matrix of scores (rows × classes)",
            f"it has {_listed(contents)}",
        )
    first: tuple[str, ...] = _PROBABILITY_NAMES if input == "probabilities" else _LOGIT_NAMES
    for name in (role, *first, *_SCORE_NAMES):
        if name in matrices:
            return name
    candidates = [name for name in matrices if name not in FEATURE_NAMES]
    if len(candidates) == 1:
        return candidates[0]
    # The original and the direct reports have no key of their own to be chosen by.
    remedy = "choose one, as in {setting}" if role == "scores" else f"call the one to read {role!r}"
    raise Refusal(
        contents.path,
        f"holds several matrices ({', '.join(candidates)})",
        remedy,
        setting=("key", candidates[0]),
    )


def wrong_names(contents: Contents, key: str, classes: int) -> Refusal:
    """Say that there is not one class name for each column."""
    names = len(contents.class_names or ())
    return Refusal(
        contents.path,
        f"has {names} class names but {key} has {classes} columns",
        "give each column one name",
    )


def _listed(contents: Contents) -> str:
    parts = [f"{name} {shape}" for name, shape in contents.shapes.items()]
    return ", ".join(parts) or "nothing that can be read as an array of numbers"


def _check_values(values: npt.NDArray[Any], name: str) -> None:
    bad = np.isnan(values).any(axis=1) | np.isposinf(values).any(axis=1)
    refuse(
        about_rows(
            bad,
            name,
            "contains NaN or an infinite value",
            "drop such rows, or, if these are top-k scores, pass whole vectors with one column "
            "a class",
        )
    )
    check_whole_vectors(values, name)


def kind_of(key: str, values: npt.NDArray[Any]) -> Kind:
    """Return what the scores are: what their name says, else what they look like."""
    if any(name in key.lower() for name in _LOGIT_NAMES):
        return "logits"
    return looks_like(values)


def labels_in(contents: Contents, key: str, column: str | None) -> npt.NDArray[Any] | None:
    """Return the labels of a named column, or those that go with ``key``.

    These are cal_labels with cal_logits, labels_cal with probas_cal, labels with scores.
    """
    if column is not None:
        return _vector(contents, column)
    group, slash, own = key.rpartition("/")
    around = [own.split(name, 1) for name in _SCORE_NAMES if name in own]
    # In a file of folders, labels that lie elsewhere are another classifier's.
    for before, behind in (*around, ("", "")):
        for name in LABEL_NAMES:
            found = f"{group}{slash}{before}{name}{behind}"
            if found in contents.vectors:
                return contents.vectors[found]
    return None


def _vector(contents: Contents, name: str) -> npt.NDArray[Any]:
    if name in contents.vectors:
        return contents.vectors[name]
    raise Refusal(
        contents.path,
        f"has no key or column called {name!r}, nor is there a file of that name, for the labels",
        f"it has {_listed(contents)}",
    )


def read_vector(path: str) -> npt.NDArray[Any]:
    """Return the labels of a file that holds nothing else."""
    contents = open_contents(path)
    for name in LABEL_NAMES:
        if name in contents.vectors:
            return contents.vectors[name]
    if len(contents.vectors) == 1:
        return next(iter(contents.vectors.values()))
    raise Refusal(contents.path, "holds no vector of labels", f"it has {_listed(contents)}")


def is_file(text: str) -> bool:
    """Whether what names labels is a file rather than a key or column."""
    return text == "-" or Path(text).exists() or Path(text).suffix.lower() in _LABEL_SUFFIXES
