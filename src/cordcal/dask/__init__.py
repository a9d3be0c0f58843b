"""Dask: constructions, repairs and measures on collections of rows.

Nothing here is called by name: `CORD.fit`, `Lift.fit`, `transform`, `audit`, the metrics and
`PreservingCalibrator.predict_proba` come here when they are passed dask arrays or data frames.
"""

from cordcal._validation import layouts
from cordcal.dask import _rows

layouts.register_lazy("dask", _rows)
