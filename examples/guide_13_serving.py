"""
Serve with MLflow, FastAPI or ONNX Runtime
==========================================

A fitted model goes into a registry, behind an HTTP endpoint, or into a runtime without Python. The
predictions stay your classifier's in each of them. Needs
``pip install 'cordcal[onnx]' mlflow-skinny skops pandas fastapi uvicorn httpx`` (the whole mlflow
will do, too).
"""

# %%
# A classifier, and its calibration
# ---------------------------------
# :class:`~cordcal.sklearn.PreservingCalibratedClassifierCV` holds the classifier too.
# ``to_calibrator`` is the calibration alone: it takes scores, and is what a model file holds.
import os

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # this guide keeps its runs in a folder

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

import cordcal
from cordcal.sklearn import PreservingCalibratedClassifierCV, trusted_types

X, y = load_wine(return_X_y=True, as_frame=True)
cultivars = np.array(["barolo", "grignolino", "barbera"])[y]
X_train, X_new, y_train, y_new = train_test_split(X, cultivars, random_state=0)
classifier = PreservingCalibratedClassifierCV(GaussianNB(var_smoothing=1e-3))
classifier.fit(X_train, y_train)

folder = tempfile.TemporaryDirectory()
here = Path(folder.name)
calibration = classifier.to_calibrator()
cordcal.save(calibration, here / "model.safetensors")
print(calibration.classes_)

# %%
# Reliability before and after, on rows that no fit has seen:
import matplotlib.pyplot as plt

calibration.plot(classifier.calibrated_classifiers_[0].scores(X_new), y_new)
plt.show()

# %%
# MLflow
# ------
# MLflow 3 stores scikit-learn models by skops, which loads no type that is not trusted.
# :func:`~cordcal.sklearn.trusted_types` names those of cordcal. The signature is that of
# ``predict_proba``, which the generic interface calls, too.
import mlflow
from mlflow.models import infer_signature

mlflow.set_tracking_uri(here.as_uri() + "/runs")
signature = infer_signature(X_new, classifier.predict_proba(X_new))
with mlflow.start_run():
    logged = mlflow.sklearn.log_model(
        classifier,
        name="wine",
        serialization_format="skops",
        skops_trusted_types=trusted_types(),
        signature=signature,
        pyfunc_predict_fn="predict_proba",
        pip_requirements=["cordcal", "scikit-learn", "skops"],
    )

again = mlflow.sklearn.load_model(logged.model_uri)
print(np.array_equal(again.predict(X_new), classifier.predict(X_new)))
generic = mlflow.pyfunc.load_model(logged.model_uri)
print(np.abs(generic.predict(X_new) - classifier.predict_proba(X_new)).max())

# %%
# A model that does not come from scikit-learn is logged as its model file. This is
# ``serve_mlflow.py``:
#
# .. literalinclude:: ../../examples/serve_mlflow.py
#
# MLflow stores this code and the file, and pickles nothing:
scripts = Path(__file__).parent if "__file__" in globals() else Path()
scores = classifier.calibrated_classifiers_[0].scores(X_new)
with mlflow.start_run():
    logged = mlflow.pyfunc.log_model(
        name="calibration",
        python_model=str(scripts / "serve_mlflow.py"),
        artifacts={"model": str(here / "model.safetensors")},
        signature=infer_signature(scores, calibration.predict_proba(scores)),
        pip_requirements=["cordcal"],
    )
served = mlflow.pyfunc.load_model(logged.model_uri)
print(np.array_equal(served.predict(scores), calibration.predict_proba(scores)))

# %%
# FastAPI
# -------
# One row by HTTP needs the model file and no scikit-learn model. This is ``serve_fastapi.py``:
#
# .. literalinclude:: ../../examples/serve_fastapi.py
#
# Next to a model file, a shell starts two workers, and another asks them:
#
# .. code-block:: console
#
#    $ CORDCAL_MODEL=model.safetensors uvicorn serve_fastapi:app --workers 2 --port 8000
#    $ curl localhost:8000/predict --json '{"scores": [0.2, 0.5, 0.3]}'
#
# The scores are what the model was fitted on, here probabilities. This guide does the same on a
# free port, and stops the workers.
import contextlib
import socket
import subprocess
import sys
import time

import httpx


@contextlib.contextmanager
def serving(workers):
    """Start a server on this machine, yield a client, and stop the server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "serve_fastapi:app", "--log-level", "warning"]
    command += ["--workers", str(workers), "--port", port, "--app-dir", str(scripts)]
    server = subprocess.Popen(
        command,
        env={**os.environ, "CORDCAL_MODEL": str(here / "model.safetensors")},
    )
    try:
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=10, trust_env=False) as client:
            for _ in range(600):
                try:
                    client.get("/openapi.json")
                    break
                except httpx.TransportError:  # it is starting
                    time.sleep(0.1)
            yield client
    finally:
        server.terminate()
        server.wait(timeout=30)


row = {"scores": scores[0].tolist()}
for workers in (1, 2):
    with serving(workers) as client:
        answer = client.post("/predict", json=row).json()
        milliseconds = []
        for _ in range(100):
            start = time.perf_counter()
            client.post("/predict", json=row).raise_for_status()
            milliseconds.append(1000 * (time.perf_counter() - start))
        # A row that is not valid gets the reason.
        bad = client.post("/predict", json={"scores": [0.5, 0.5]})
    print(f"{workers} worker(s): one row in {np.median(milliseconds):.1f} ms")
print(answer)
print(bad.status_code, bad.json()["detail"])

# %%
# With several workers, uvicorn leaves the socket's delay for small packets on, and an answer waits
# about 40 ms for the client to acknowledge its headers. Where one row must be fast, start one
# worker per container or port, and balance between these.
#
# ONNX Runtime
# ------------
# The same model without Python: the graph takes the scores, and returns the label's index and both
# probabilities. :doc:`guide_5_deploy` puts it behind a network.
import onnxruntime

from cordcal.onnx import export

export(calibration, here / "model.onnx", dtype="float64")
session = onnxruntime.InferenceSession(here / "model.onnx")
(name,) = (entry.name for entry in session.get_inputs())
label, repaired = session.run(["label", "repaired"], {name: scores})
print(np.array_equal(calibration.classes_[label], classifier.predict(X_new)))
print(np.abs(repaired - calibration.predict_proba(scores)).max() < 1e-12)

# %%
# What the model is, on one page for people and hubs:
#
# .. code-block:: console
#
#    $ cordcal info model.safetensors --report README.md
folder.cleanup()
