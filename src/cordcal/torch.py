"""PyTorch: a fitted model as a module."""

from cordcal.export.torch import PreservedModule

__all__ = ["PreservedModule"]
