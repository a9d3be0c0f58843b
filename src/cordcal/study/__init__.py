"""Study: the paper's experiments on any folder of outputs; cells computed once, then told."""

from cordcal.study.run import StudyResult, run_study
from cordcal.study.schema import read_study
from cordcal.study.specs import Study

__all__ = ["Study", "StudyResult", "read_study", "run_study"]
