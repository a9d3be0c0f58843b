"""Fitted models for other runtimes: torch modules and ONNX graphs."""
