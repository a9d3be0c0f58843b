"""The array engine: the row rule on NumPy arrays, in blocks.  It needs nothing but NumPy."""

from cordcal.repair._ranked_rows import repair as repair_ranked
from cordcal.repair._rows import describe, probes, repair, seek

__all__ = ["describe", "probes", "repair", "repair_ranked", "seek"]
