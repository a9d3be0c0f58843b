"""ONNX: a fitted model as one graph."""

from cordcal.export.onnx import Export, export

__all__ = ["Export", "export", "register_converter"]


def register_converter() -> None:
    """Let skl2onnx convert `cordcal.sklearn.PreservingCalibratedClassifierCV`.

    Call it once, before ``skl2onnx.to_onnx``.  The graph of a classifier, or of a pipeline that
    ends in one, then has the estimator and the calibration, and its outputs are those of any
    classifier: the label, and the repaired probabilities.  It keeps the argmax of the estimator's
    scores as the graph computes them, in float32.  The estimator's graph is compared with the
    estimator on random rows.

    skl2onnx must support the estimator, and if it has ``decision_function``, its ``raw_scores``.
    The opset must be 18 or later.

    Examples
    --------
    >>> import numpy as np, skl2onnx, sklearn.datasets, sklearn.linear_model
    >>> from cordcal.sklearn import PreservingCalibratedClassifierCV
    >>> X, y = sklearn.datasets.load_iris(return_X_y=True)
    >>> estimator = sklearn.linear_model.LogisticRegression(C=0.1)
    >>> model = PreservingCalibratedClassifierCV(estimator).fit(X, y)
    >>> register_converter()
    >>> proto = skl2onnx.to_onnx(model, X[:1].astype(np.float32), options={"zipmap": False})
    >>> [output.name for output in proto.graph.output]
    ['label', 'probabilities']
    """
    from cordcal.export.skl2onnx import register
    from cordcal.sklearn import PreservingCalibratedClassifierCV

    register(PreservingCalibratedClassifierCV)
