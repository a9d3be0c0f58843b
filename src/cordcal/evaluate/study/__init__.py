"""Study: the paper's experiments on any folder of outputs; cells computed once, then told."""

from cordcal.evaluate.study.run import StudyResult, run_study
from cordcal.evaluate.study.schema import Study, read_study

__all__ = ["Study", "StudyResult", "read_study", "run_study"]
