"""PyTorch: a fitted model as a module."""

from cordcal.export.torch import PreservingModule

__all__ = ["PreservingModule"]
