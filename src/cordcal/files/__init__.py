"""Read score files, save and load models.

`read_scores` and `open_scores` read files of every format, `inspect` describes them, and
`replacing` writes a file completely or not at all.  Models are saved and loaded by `cordcal.save`
and `cordcal.load`.
"""

from cordcal.files._inspect import inspect
from cordcal.files.disk import replacing
from cordcal.files.scores import Batch, ScoreFile, Scores, open_scores, read_scores

__all__ = ["Batch", "ScoreFile", "Scores", "inspect", "open_scores", "read_scores", "replacing"]
