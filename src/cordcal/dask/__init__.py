"""Dask: constructions, repairs and measures on collections of rows."""

from cordcal.dask._rows import apply, audited, construct, fed, transform

__all__ = ["apply", "audited", "construct", "fed", "transform"]
