"""Dask: fit, repair and evaluate collections of rows.

This package is not called directly: `CORD.fit`, `Lift.fit`, `transform`, `audit`, the metrics and
`PreservingCalibrator.predict_proba` use it for dask arrays and data frames.
"""

from cordcal._validation import layouts
from cordcal.dask import _rows

layouts.register_lazy("dask", _rows)
