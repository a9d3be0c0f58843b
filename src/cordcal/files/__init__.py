"""Files in and out: score files, reports and models."""

from cordcal.files.scores import Scores, read_labels, read_scores
from cordcal.files.stream import Batch, ScoreFile, open_scores
from cordcal.files.writing import replacing, write_reports

__all__ = [
    "Batch",
    "ScoreFile",
    "Scores",
    "open_scores",
    "read_labels",
    "read_scores",
    "replacing",
    "write_reports",
]
