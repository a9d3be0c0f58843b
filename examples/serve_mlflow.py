"""A model file as an MLflow model: scores in, calibrated probabilities out."""

import mlflow
import numpy as np

import cordcal


class Calibration(mlflow.pyfunc.PythonModel):
    """Load the artifact ``model`` and apply it to a matrix of scores."""

    def load_context(self, context):
        """Load the model file once."""
        self.model = cordcal.load(context.artifacts["model"])

    def predict(self, context, model_input: np.ndarray, params=None) -> np.ndarray:
        """Return one row of probabilities per row of scores."""
        return self.model.predict_proba(np.asarray(model_input))


mlflow.models.set_model(Calibration())
