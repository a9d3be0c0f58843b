"""torch files: tensors written by `torch.save`; no code is executed."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from cordcal._errors import InputError
from cordcal._numeric.types import NumPyArray
from cordcal.files.columns import ColumnSpec
from cordcal.files.disk import InputFile, check_size, first_line
from cordcal.files.sources import CLASS_NAMES, Contents, InMemorySource

if TYPE_CHECKING:
    from torch import Tensor

# What torch raises for damaged and foreign archives.
_DAMAGE = (
    pickle.UnpicklingError,
    RuntimeError,
    ValueError,
    OSError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    ImportError,
    OverflowError,
    zipfile.BadZipFile,
)


def is_torch(opened: Callable[[], BinaryIO]) -> bool:
    """Whether a zip archive was written by torch: it contains data.pkl."""
    try:
        with opened() as file, zipfile.ZipFile(file) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def open_tensors(file: InputFile, spec: ColumnSpec) -> InMemorySource:
    """Read the tensors of a file, and its lists of strings."""
    arrays, words = read_tensors(file.name, file.open)
    if not arrays:
        raise InputError(file.name, "holds no tensors", "save tensors, or a dictionary of them")
    matrices, vectors = (
        {key: array for key, array in arrays.items() if array.ndim == size} for size in (2, 1)
    )
    vectors |= {key: np.array(text) for key, text in words.items() if key not in CLASS_NAMES}
    names = next((words[key] for key in CLASS_NAMES if key in words), None)
    return InMemorySource(Contents.of(file.name, "torch", matrices, vectors, names))


def read_tensors(
    name: str, opened: Callable[[], BinaryIO]
) -> tuple[dict[str, NumPyArray], dict[str, tuple[str, ...]]]:
    """Return the arrays of a file by name, and its lists of strings.

    Names are the keys of a dictionary, joined by slashes if nested; entries of a list are
    numbered.  Only zip archives are read: the older format cannot be read without running it.
    """
    torch = _import_torch()
    try:
        with opened() as file, zipfile.ZipFile(file) as archive:
            check_size(name, sum(member.file_size for member in archive.infolist()))
        with opened() as file:
            stored = torch.load(file, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except _DAMAGE as error:
        raise InputError(
            name,
            f"cannot be read as tensors alone ({_short_reason(error)})",
            "save plain tensors, or a dictionary of them, with torch.save",
        ) from error
    arrays: dict[str, NumPyArray] = {}
    words: dict[str, tuple[str, ...]] = {}
    size = 0
    for key, value in _entries(stored, "array"):
        if isinstance(value, torch.Tensor):
            where = f"{name} ({key})"
            # An expanded or sparse tensor takes far more memory as an array than in the file.
            size += _size(torch, value, where)
            check_size(where, size)
            arrays[key] = _array(torch, value, where)
        elif _are_words(value):
            words[key] = tuple(value)
        elif isinstance(value, list | tuple) and value and _are_numbers(value):
            arrays[key] = np.asarray(value)
    return arrays, words


def _entries(stored: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(stored, Mapping):
        for key, value in stored.items():
            inner = str(key)
            nested = isinstance(value, Mapping)
            yield from (
                (f"{inner}/{key}" if nested else key, entry)
                for key, entry in _entries(value, inner)
            )
    elif isinstance(stored, list | tuple) and not _are_words(stored) and not _are_numbers(stored):
        yield from ((str(at), value) for at, value in enumerate(stored))
    else:
        yield name, stored


def _are_words(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(entry, str) for entry in value)
    )


def _are_numbers(value: Any) -> bool:
    return all(isinstance(entry, int | float) for entry in value)


def _size(torch: ModuleType, tensor: Tensor, where: str) -> int:
    """Return the bytes of a tensor as an array; refuse a tensor without plain values."""
    for what, is_unsupported in (
        ("a meta tensor, which has no values", tensor.is_meta),
        ("a quantized tensor", tensor.is_quantized),
        ("a nested tensor", tensor.is_nested),
    ):
        if is_unsupported:
            raise _not_plain_error(where, f"is {what}")
    # NumPy has no floats of one byte; they are read as float32.
    itemsize = max(4, tensor.element_size()) if _numpy_lacks_dtype(torch, tensor) else None
    return int(tensor.numel()) * int(itemsize or tensor.element_size())


def _numpy_lacks_dtype(torch: ModuleType, tensor: Tensor) -> bool:
    """Whether NumPy lacks a float dtype: bfloat16 and float8 are converted to float32."""
    known = (torch.float16, torch.float32, torch.float64)
    return bool(tensor.is_floating_point()) and tensor.dtype not in known


def _array(torch: ModuleType, tensor: Tensor, where: str) -> NumPyArray:
    try:
        plain = tensor.detach().to_dense().resolve_conj().resolve_neg()
        return np.asarray((plain.float() if _numpy_lacks_dtype(torch, plain) else plain).numpy())
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        raise _not_plain_error(
            where, f"cannot be read as an array ({_short_reason(error)})"
        ) from error


def _not_plain_error(where: str, reason: str) -> InputError:
    return InputError(where, reason, "save a plain tensor of numbers, as tensor.float() returns")


def _short_reason(error: BaseException) -> str:
    """Return the reason of an error without torch's long advice."""
    text = str(error)
    mark = "WeightsUnpickler error:"
    reason = text.partition(mark)[2].strip() if mark in text else text
    return first_line(Exception(reason)).split(". Please")[0][:200]


def _import_torch() -> ModuleType:
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "torch files need torch; install it with: pip install 'cordcal[torch]'"
        ) from error
    return torch
