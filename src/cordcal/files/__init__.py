"""Read score files, write probabilities, save and load models."""

from cordcal.files._inspect import inspect
from cordcal.files.disk import replacing
from cordcal.files.formats import write_probabilities
from cordcal.files.scores import Batch, ScoreFile, Scores, open_scores, read_labels, read_scores

__all__ = [
    "Batch",
    "ScoreFile",
    "Scores",
    "inspect",
    "open_scores",
    "read_labels",
    "read_scores",
    "replacing",
    "write_probabilities",
]
