"""CalArena's layout of HDF5 files: calibration and test rows per data set and model.

``{dataset}/{model}/`` holds ``probas_cal``, ``labels_cal``, ``probas_test`` and
``labels_test``; the path of the group names the experiment.  With two classes, a file may
hold the probability of the second only.
"""

from __future__ import annotations

import difflib
import os

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray
from cordcal._validation.labels import as_indices
from cordcal.files.arrays import ArrayFile, Hdf5File
from cordcal.files.disk import InputFile
from cordcal.files.kinds import check_values
from cordcal.files.scores import Scores

_PARTS = ("probas_cal", "labels_cal", "probas_test", "labels_test")


def experiments_in(file: ArrayFile) -> tuple[str, ...]:
    """Return the paths of all groups that hold the four data sets, in the file's order."""
    ends = f"/{_PARTS[0]}"
    groups = [name.removesuffix(ends) for name in file.shapes if name.endswith(ends)]
    return tuple(
        group for group in groups if all(f"{group}/{part}" in file.shapes for part in _PARTS)
    )


def read_experiment(path: str | os.PathLike[str], name: str | None = None) -> tuple[Scores, Scores]:
    """Read the calibration and the test part of one experiment.

    Parameters
    ----------
    path : path
        An HDF5 file.
    name : str, optional
        ``dataset/model``; optional if the file has one experiment.

    Returns
    -------
    parts : tuple of Scores
        The rows to fit on, and the rows to evaluate on.
    """
    file = Hdf5File(InputFile.from_path(path))
    known = experiments_in(file)
    if name is None and len(known) == 1:
        (name,) = known
    if name not in known:
        reason = f"holds {len(known)} experiments" + (f" but no {name!r}" if name else "")
        near = difflib.get_close_matches(name or "", known, n=1) or known[:1]
        hint = f"name one, such as {near[0]!r}" if near else "pass a file in CalArena's layout"
        raise InputError(file.path, reason, hint)
    assert name is not None
    return parts_of(file, name)


def parts_of(file: ArrayFile, name: str) -> tuple[Scores, Scores]:
    """Read the calibration and the test part of an experiment in a file."""
    return _part(file, name, "cal"), _part(file, name, "test")


def _part(file: ArrayFile, name: str, part: str) -> Scores:
    key = f"{name}/probas_{part}"
    probabilities: NumPyArray = file.read(key)
    if probabilities.ndim == 1 or probabilities.shape[1] == 1:  # the second class of two
        probabilities = probabilities.reshape(-1, 1)
        probabilities = np.concatenate([1 - probabilities, probabilities], axis=1)
    place = f"{file.path} ({key})"
    check_values(probabilities, place)
    labels = file.read(f"{name}/labels_{part}")
    return Scores(
        path=file.path,
        key=key,
        values=probabilities,
        numbers=np.arange(len(probabilities)),
        kind="probabilities",
        labels=as_indices(labels, probabilities.shape, None, place),
    )
