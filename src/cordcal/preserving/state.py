"""What a model file holds of a model, and the digest of what its probabilities depend on."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import Arrays, Kind, Meta
from cordcal._validation.estimator import Estimator
from cordcal._validation.names import Name
from cordcal.calibrators import Calibrator, calibrator_class
from cordcal.certification import Certificate
from cordcal.preserving.fit_rows import FitRows
from cordcal.repair import CORD, ConfidenceGap, Lift

# A model file stores the calibrator's arrays under names that start with this.
_CALIBRATOR_PREFIX = "calibrator."


class StoredModel(Estimator, ABC):
    """The fitted attributes of a `PreservingCalibrator` that a model file holds."""

    calibrator_: Any
    repair_: CORD | Lift
    confidence_: ConfidenceGap | None = None
    certificate_: Certificate | None = None
    # What identifies the rows of the fit; None for models without it.
    _fit_rows: FitRows | None = None
    # Whether fit had predictions that need not be the argmax of the scores.
    needs_prediction_ = False
    # The estimator's method that gave the scores, such as "SVC.decision_function", if it is known.
    scores_from_: str | None = None

    @abstractmethod
    def output_names(self) -> Sequence[Name] | None:
        """Return the class names that `predict` returns, or None if it returns indices."""

    @abstractmethod
    def score_kind(self) -> Kind:
        """Return what the scores are."""

    @classmethod
    @abstractmethod
    def from_fitted(
        cls, calibrator: Any, repair: CORD | Lift, kind: Kind, names: Sequence[Any] | None
    ) -> Self:
        """Join a fitted calibrator and a fitted repair; ``names`` are the classes' names."""

    def digest(self) -> str:
        """Return a digest of everything that the probabilities depend on."""
        if not isinstance(self.calibrator_, Calibrator):
            return "foreign"
        arrays, meta = self._own_state()
        whole = hashlib.sha256(json.dumps(meta, sort_keys=True, default=str).encode())
        for name, array in sorted(arrays.items()):
            whole.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return whole.hexdigest()[:16]

    def to_state(self) -> tuple[Arrays, Meta]:
        """Return the arrays and the JSON metadata of a model file."""
        self._check_fitted("repair_")
        if not isinstance(self.calibrator_, Calibrator):
            raise ValueError(
                f"a model file cannot hold the foreign calibrator "
                f"{type(self.calibrator_).__name__}; save model.repair_, which is all the repair "
                f"needs, and keep the calibrator in its own format"
            )
        arrays, meta = self._own_state()
        if self.scores_from_ is not None:
            meta["scores_from"] = self.scores_from_
        if self._fit_rows is not None:
            arrays["fit_rows"] = self._fit_rows.digests
            meta["fit_ids"] = self._fit_rows.by_ids
        if self.confidence_ is not None:
            meta["confidence"] = self.confidence_.to_dict()
        if self.certificate_ is not None:
            meta["certificate"] = self.certificate_.to_state()
        return arrays, meta

    def _own_state(self) -> tuple[Arrays, Meta]:
        """Return what the probabilities depend on."""
        calibrator_arrays, calibrator_meta = self.calibrator_.to_state()
        repair_arrays, repair_meta = self.repair_.to_state()
        names = self.output_names()
        return {
            **repair_arrays,
            **{_CALIBRATOR_PREFIX + key: value for key, value in calibrator_arrays.items()},
        }, {
            "calibrator": calibrator_meta,
            "lift" if isinstance(self.repair_, Lift) else "cord": repair_meta,
            "input": self.score_kind(),
            "class_names": None if names is None else np.asarray(names).tolist(),
            **({"prediction_given": True} if self.needs_prediction_ else {}),
        }

    @classmethod
    def from_state(cls, arrays: Arrays, meta: Meta) -> Self:
        """Rebuild a fitted model from the result of `to_state`."""
        calibrator_arrays = {
            name.removeprefix(_CALIBRATOR_PREFIX): value
            for name, value in arrays.items()
            if name.startswith(_CALIBRATOR_PREFIX)
        }
        calibrator = calibrator_class(meta["calibrator"]["key"]).from_state(
            calibrator_arrays, meta["calibrator"]
        )
        repair: CORD | Lift
        if "lift" in meta:
            repair = Lift.from_state(arrays, meta["lift"])
        else:
            repair = CORD.from_state(arrays, meta["cord"])
        model = cls.from_fitted(calibrator, repair, meta["input"], meta["class_names"])
        model.needs_prediction_ = bool(meta.get("prediction_given", False))
        model.scores_from_ = meta.get("scores_from")
        if len(arrays.get("fit_rows", ())):
            model._fit_rows = FitRows(arrays["fit_rows"], bool(meta.get("fit_ids", False)))
        if "confidence" in meta:
            model.confidence_ = ConfidenceGap.from_dict(meta["confidence"])
        if "certificate" in meta:
            certificate = Certificate.from_dict(meta["certificate"])
            if certificate.model != model.digest():
                raise InputError("certificate", "is that of another model", "certify it again")
            model.certificate_ = certificate
        return model
