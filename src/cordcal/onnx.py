"""ONNX: a fitted model as one graph."""

from cordcal.export.onnx import Export, export

__all__ = ["Export", "export"]
