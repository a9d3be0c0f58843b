"""Files in and out: score files, reports and models."""

from cordcal.io.scores import Scores, read_labels, read_scores
from cordcal.io.writing import replacing, write_reports

__all__ = ["Scores", "read_labels", "read_scores", "replacing", "write_reports"]
