"""Model files: one safetensors file, JSON metadata, a format version; nothing is executed on load.

Any object with ``_state()`` (arrays and JSON-able metadata) and ``_from_state`` can be
stored; the file says which kind it holds.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FORMAT = "cordcal model"
VERSION = 1


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to one file.

    Parameters
    ----------
    model : CORD, Preserved or a calibrator of cordcal
        What to store; it must be fitted.
    path : path
        Where to; conventionally ending in ``.safetensors``.  An existing file is replaced
        when the new one is whole.

    Examples
    --------
    >>> import tempfile, numpy as np, cordcal
    >>> rng = np.random.default_rng(0)
    >>> original, direct = rng.dirichlet(np.ones(3), 50), rng.dirichlet(np.ones(3), 50)
    >>> cord = cordcal.CORD().fit(original, direct)
    >>> path = tempfile.mkdtemp() + "/cord.safetensors"
    >>> save(cord, path)
    >>> load(path).eta_ == cord.eta_
    True
    """
    from safetensors.numpy import save_file

    from cordcal.files._writing import replacing

    kind = _kind_of(model)
    arrays, body = model._state()
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "kind": kind,
        "body": json.dumps(body, allow_nan=False),
    }
    with replacing(path) as temporary:
        save_file(arrays, temporary, metadata=metadata)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that `save` wrote.

    Parameters
    ----------
    path : path
        The model file.

    Returns
    -------
    model : CORD, Preserved or Calibrator
        The fitted model, its shared scalar the same to the bit.
    """
    from safetensors import SafetensorError, safe_open

    name = Path(path).name
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder; name the model file in it")
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: there is no such model file")
    if not is_model(path):
        raise ValueError(
            f"{name} is no model file; pass one that cordcal.save or `cordcal fit` wrote"
        )
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - no mapping
    except SafetensorError as error:
        raise ValueError(
            f"{name} is not a whole safetensors file ({error}); write it anew with cordcal.save"
        ) from None
    if metadata.get("format") != FORMAT:
        raise ValueError(
            f"{name} is a safetensors file but not a cordcal model; pass a file that "
            f"cordcal.save or `cordcal fit` wrote"
        )
    if metadata.get("version") != str(VERSION):
        raise ValueError(
            f"{name} has format version {metadata.get('version')}, this cordcal reads version "
            f"{VERSION}; upgrade cordcal, or save the model again with this one"
        )
    return _class_of(metadata["kind"], name)._from_state(arrays, json.loads(metadata["body"]))


def is_model(path: str | os.PathLike[str]) -> bool:
    """Tell by its beginning whether a file is meant to be a model, whole or damaged."""
    with Path(path).open("rb") as file:
        head = file.read(9)
    # The length of a JSON object in eight bytes, then the object.
    return head[7:] == b"\0{"


def _kind_of(model: Any) -> str:
    from cordcal.repair import CORD

    if isinstance(model, CORD):
        return "cord"
    from cordcal.calibrators import Calibrator
    from cordcal.preserved import Preserved

    if isinstance(model, Preserved):
        return "preserved"
    if isinstance(model, Calibrator):
        return f"calibrator {model.key}"
    raise TypeError(
        f"a {type(model).__name__} cannot be saved; pass a CORD, a Preserved or a calibrator "
        f"of cordcal"
    )


def _class_of(kind: str, name: str) -> Any:
    if kind == "cord":
        from cordcal.repair import CORD

        return CORD
    if kind == "preserved":
        from cordcal.preserved import Preserved

        return Preserved
    if kind.startswith("calibrator "):
        from cordcal.calibrators import calibrator_class

        return calibrator_class(kind.removeprefix("calibrator "))
    raise ValueError(f"{name} holds a {kind!r}, which this cordcal does not know; upgrade cordcal")
