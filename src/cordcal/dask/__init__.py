"""Dask: constructions, repairs and measures on collections of rows.

Nothing here is called by name: `CORD.fit`, `Lift.fit`, `transform`, `Preserved.predict_proba`,
`audit` and the measures come here when they are given dask arrays or data frames.
"""

from cordcal._validation import layouts
from cordcal.dask import _rows

layouts.register("dask", _rows)
