"""A fitted `PreservingCalibrator` as a torch module, to apply to a network's logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from cordcal._errors import InputError
from cordcal._numeric.arrays import UNIT_ROUNDOFF, to_numpy
from cordcal._numeric.types import Kind, Vector
from cordcal._validation.scores import check_kind
from cordcal.export._recipe import (
    HasCalibrator,
    Recipe,
    calibration_of,
    reaches_threshold,
    recipe_of,
)
from cordcal.expressions import Parameters
from cordcal.preserving import PreservingCalibrator
from cordcal.repair.fitted import check_rule_dtype

try:
    import torch
    from torch import Tensor, nn

    from cordcal.export import _torch_functions as xp
except ImportError as error:
    raise ImportError("cordcal.torch needs torch; install it with: pip install torch") from error

_ONNX_CALL = "cordcal.onnx.export(model, path, behind=network_path)"
# A table, because torch.compile cannot trace the name of a dtype.
_FLOATS = {getattr(torch, name): name for name in UNIT_ROUNDOFF}


class PreservingModule(nn.Module):
    """A fitted `PreservingCalibrator` as a torch module: logits in, probabilities out.

    ``module(logits)`` returns the repaired probabilities and ``module.direct(logits)`` the direct
    ones, in the dtype and on the device of the logits.  The prediction is the argmax of the
    input logits (the smallest index on ties), and it is strictly the largest of the repaired
    probabilities in their own dtype; under a rule, strictly that of the largest weight times
    probability (`predict`).  All arithmetic is float64 (float32 if the device has
    nothing wider), also under autocast.  The fitted values are buffers, which keep that
    precision when a model is cast to half.

    The module supports ``torch.compile(fullgraph=True)``, ``torch.export`` and
    ``torch.jit.trace``, alone and within a network.  It refuses ``torch.onnx.export``, which drops
    small constants that keep predictions, and ``torch.jit.script``: `cordcal.onnx.export` with
    ``behind=`` joins the network's graph and the model, and checks the result.  The module never
    synchronises with the device, so it does not validate rows: NaN in, NaN out.

    Parameters
    ----------
    model : PreservingCalibrator or PreservingCalibratedClassifierCV
        The fitted model; its calibrator must be an expression of the scores alone.  Of a
        classifier only the calibration is taken, without the estimator.
    input : {"logits", "probabilities"}, optional
        The kind of the module's input; by default that of the model.  With logits, a softmax
        precedes a model that was fitted on probabilities.
    axis : int
        The axis of the classes: −1 for ``(..., K)``, 1 for ``(B, K, H, W)``.

    Examples
    --------
    >>> import numpy as np, torch, cordcal
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=300)
    >>> logits = 2.0 * np.eye(3)[labels] + rng.normal(size=(300, 3))
    >>> module = PreservingModule(cordcal.PreservingCalibrator("irova").fit(logits, labels))
    >>> new = torch.tensor([[0.3, 0.2, 0.1]], dtype=torch.bfloat16)
    >>> module.direct(new).argmax(dim=1), module(new).argmax(dim=1)
    (tensor([2]), tensor([0]))
    """

    scalars: Tensor
    rule_weights: Tensor
    act_thresholds: Tensor
    _host_weights: Vector

    def __init__(
        self,
        model: PreservingCalibrator | HasCalibrator,
        *,
        input: Kind | None = None,
        axis: int = -1,
    ) -> None:
        super().__init__()
        if input is not None:
            check_kind(input)
        self._recipe, parameters = recipe_of(calibration_of(model), input)
        self.axis = axis
        self._buffer_names = parameters.convert(self._register)
        certificate = calibration_of(model).certificate_
        thresholds = None if certificate is None else certificate.class_thresholds()
        if thresholds is not None:
            self.register_buffer("act_thresholds", torch.tensor(thresholds))
        self.register_buffer("scalars", torch.tensor(self._recipe.scalars, dtype=torch.float64))
        self.register_load_state_dict_post_hook(_read_scalars)  # type: ignore[no-untyped-call]
        _read_scalars(self)

    def forward(self, logits: Tensor) -> Tensor:
        """Return the repaired probabilities.

        Parameters
        ----------
        logits : Tensor
            The network's scores, of the kind ``input``, with classes along ``axis``.

        Returns
        -------
        repaired : Tensor
            Probabilities whose argmax is that of the logits, same shape, dtype and device.
            Under a rule, multiply them by ``rule_weights`` first.
        """
        rows = self._rows(logits)
        if self._recipe.heaviest is not None and logits.dtype == torch.float16:
            check_rule_dtype(self._host_weights, "float16")
        prediction = torch.argmax(rows, dim=1)
        # Autocast would reduce the precision of matrix products.
        with torch.autocast(rows.device.type, enabled=False):
            scores, parameters = self._widen(rows)
            _, repaired = self._recipe.both(
                scores, prediction, parameters, _FLOATS[logits.dtype], xp=xp
            )
        return self._restore_shape(repaired, logits)

    def direct(self, logits: Tensor) -> Tensor:
        """Return the direct probabilities: the calibrator's own output."""
        rows = self._rows(logits)
        with torch.autocast(rows.device.type, enabled=False):
            scores, parameters = self._widen(rows)
            _, direct = self._recipe.before_repair(scores, parameters, xp=xp)
        return self._restore_shape(direct, logits)

    def predict(self, logits: Tensor) -> Tensor:
        """Return the predictions, indices along the axis of the classes.

        They are what the repaired probabilities predict, by their argmax or the rule, and
        depend on the logits alone.
        """
        self._rows(logits)
        return torch.argmax(logits, dim=self.axis)

    def accepts(self, logits: Tensor) -> Tensor:
        """Return whether to act on each prediction, by the model's certificate."""
        if not hasattr(self, "act_thresholds"):
            raise InputError(
                "model",
                "has no certificate, or one by groups",
                "call model.certify(scores, labels) before the module is made",
            )
        # Half precision would round the confidence, but widening the scores is exact.
        wide = logits if logits.dtype == torch.float64 else logits.to(torch.float32)
        repaired = self._rows(self(wide)).to(torch.float32)
        prediction = torch.argmax(self._rows(logits), dim=1)
        act: Tensor = reaches_threshold(
            repaired, prediction, self.act_thresholds.to(torch.float32), xp=xp
        )
        return act.reshape(logits.movedim(self.axis, -1).shape[:-1])

    def __prepare_scriptable__(self) -> Self:
        """Refuse ``torch.jit.script``, which calls this first."""
        raise InputError(
            "PreservingModule",
            "cannot go through torch.jit.script, which cannot read its expressions",
            f"use torch.export.export, or {_ONNX_CALL} for a graph that needs no Python",
        )

    def extra_repr(self) -> str:
        """Return the calibrator, input and repair for the module's repr."""
        # The exporter shows a module before it captures it, where no handler rewords the error.
        _refuse_onnx_export()
        recipe = self._recipe
        return (
            f"{recipe.calibrator.key}, input={recipe.input}, classes={recipe.classes}, "
            f"{_describe_repair(recipe)}, axis={self.axis}"
        )

    def _rows(self, logits: Tensor) -> Tensor:
        """Check the logits and return them as a matrix with one row per class vector."""
        _refuse_onnx_export()
        axis, classes = self.axis, self._recipe.classes
        if not isinstance(logits, Tensor):
            raise InputError(
                "logits", f"is a {type(logits).__name__}", "pass a tensor, torch.as_tensor(logits)"
            )
        if logits.dtype not in _FLOATS:
            raise InputError(
                "logits", f"has dtype {logits.dtype}", "pass float64, float32, float16 or bfloat16"
            )
        if not -logits.ndim <= axis < logits.ndim:
            raise InputError(
                "axis",
                f"is {axis} but logits has {logits.ndim} dimension(s), shape {tuple(logits.shape)}",
                f"pass the axis that holds the {classes} classes",
            )
        if logits.shape[axis] != classes:
            raise InputError(
                "logits",
                f"has {logits.shape[axis]} entries along axis {axis}, shape {tuple(logits.shape)}",
                f"pass the {classes} classes that the model was fitted on",
            )
        return logits.movedim(axis, -1).reshape(-1, classes)

    def _register(self, name: str, array: Any) -> str:
        """Register an array as a buffer, and return the buffer's name."""
        name = name.rstrip("_")
        self.register_buffer(name, torch.tensor(array))
        return name

    def _widen(self, rows: Tensor) -> tuple[Tensor, Parameters]:
        # Not getattr, which takes a microsecond for each of a blend's hundred buffers.
        buffers: Any = self._buffers
        parameters = self._buffer_names.convert(lambda _, name: buffers[name])
        return rows.to(_widest(rows.device)), parameters

    def _restore_shape(self, probabilities: Tensor, logits: Tensor) -> Tensor:
        moved = logits.movedim(self.axis, -1)
        return probabilities.to(logits.dtype).reshape(moved.shape).movedim(-1, self.axis)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the buffers to a device but keep their dtype, also after ``half()``."""

        def move(buffer: Tensor) -> Tensor:
            if buffer.is_meta or not buffer.is_floating_point():
                return fn(buffer)
            device = fn(torch.empty(0, device=buffer.device)).device
            return buffer.to(device=device, dtype=_widest(device))

        super()._apply(move, recurse)  # type: ignore[no-untyped-call]
        return self


def _refuse_onnx_export() -> None:
    if torch.onnx.is_in_onnx_export():
        raise InputError(
            "PreservingModule",
            "cannot go through torch.onnx.export, whose optimiser drops what keeps predictions "
            "exact",
            f"export the network without it, then write both with {_ONNX_CALL}",
        )


def _widest(device: torch.device) -> torch.dtype:
    # Apple's MPS devices do not support float64.
    return torch.float32 if device.type == "mps" else torch.float64


def _describe_repair(recipe: Recipe) -> str:
    rule = "" if recipe.heaviest is None else ", with a prediction rule"
    if recipe.rule == "cord":
        return f"preserve={len(recipe.scalars)}{rule}"
    return f"repair=lift, prefer={recipe.rule}{rule}"


def _read_scalars(module: PreservingModule, incompatible: object = None) -> None:
    """Copy the repair's scalars to Python floats, because their values select the formula."""
    module._recipe = replace(module._recipe, scalars=tuple(module.scalars.tolist()))
    if module._recipe.heaviest is not None:
        module._host_weights = to_numpy(module.rule_weights)
        module._recipe = replace(module._recipe, heaviest=float(module._host_weights.max()))
