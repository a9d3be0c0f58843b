"""One row by HTTP from a model file: ``uvicorn serve_fastapi:app --workers 2``.

``CORDCAL_MODEL`` names the file, by default ``model.safetensors``.  Each worker loads it once.
"""

import os

import numpy as np
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import cordcal

model = cordcal.load(os.environ.get("CORDCAL_MODEL", "model.safetensors"))
app = FastAPI(title="Calibrated probabilities")


class Row(BaseModel):
    """The scores of one row, in the order of the model's classes."""

    scores: list[float]


class Answer(BaseModel):
    """The prediction, and the probability of each class by its name."""

    prediction: str
    confidence: float
    probabilities: dict[str, float]


@app.post("/predict")
async def predict(row: Row) -> Answer:
    """Return calibrated probabilities; a row that is not valid gets 422 with the reason."""
    # Less than a millisecond, so the event loop may wait for it.
    scores = np.array([row.scores])
    try:
        (probabilities,) = model.predict_proba(scores)
        (prediction,) = model.predict(scores)
    except cordcal.InputError as error:
        raise HTTPException(422, str(error)) from error
    by_name = dict(zip(map(str, model.classes_), probabilities.tolist(), strict=True))
    name = str(prediction)
    return Answer(prediction=name, confidence=by_name[name], probabilities=by_name)
