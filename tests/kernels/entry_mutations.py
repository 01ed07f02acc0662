"""Wrong arguments, and memory in which any step too far is a fault.

An array lies against a page that may not be touched: with `after` its last byte is the last one
before that page, otherwise its first one the first behind such a page. An operator that reads or
writes a single element outside is killed by it.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from entry_calls import LEFT_OUT, Argument

LIBC: Final = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
LIBC.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
PAGE: Final = mmap.PAGESIZE
PROT_NONE: Final = 0


def guarded(array: np.ndarray, *, after: bool) -> np.ndarray:
    """A dense copy of an array with a forbidden page behind it (`after`) and one before it.

    It begins at a multiple of its element's size, as every array of NumPy and torch does.
    """
    pages = -(-max(1, array.nbytes) // PAGE)
    size = (pages + 2) * PAGE
    base = LIBC.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | 0x20, -1, 0)
    assert base not in (None, ctypes.c_void_p(-1).value)
    for page in (base, base + size - PAGE):
        assert LIBC.mprotect(page, PAGE, PROT_NONE) == 0
    start = base + size - PAGE - array.nbytes if after else base + PAGE
    memory = (ctypes.c_char * array.nbytes).from_address(start)
    out = np.frombuffer(memory, dtype=array.dtype).reshape(array.shape)
    out[...] = array
    return out


def all_guarded(value: Any, *, after: bool) -> Any:
    """The same for arrays in a list; anything else as it is."""
    if isinstance(value, list):
        return [all_guarded(one, after=after) for one in value]
    return guarded(value, after=after) if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class Wrong:
    """One wrong value of one argument.

    Attributes:
        kind: what is wrong with it.
        value: what is given instead.
        refused: it has to be; otherwise it may be taken if nothing is touched that is not given.
        after: on which side of the arrays the forbidden page lies.
    """

    kind: str
    value: Any
    refused: bool = True
    after: bool = True


def wrong_values(argument: Argument, value: Any) -> Iterator[Wrong]:
    """Wrong values of an argument whose right value is `value`."""
    if value is None or value is LEFT_OUT:
        return
    if isinstance(value, np.ndarray):
        yield from _wrong_arrays(argument, value)
    elif argument.kind == "arrays":
        yield Wrong("none", None)
        yield Wrong("nothing", [], refused=False)
        if value:
            yield Wrong("fewer", value[:-1])
            yield Wrong("more", [*value, value[0]])
            for one in _wrong_arrays(argument, value[0]):
                yield Wrong(one.kind, [one.value, *value[1:]], one.refused, one.after)
    else:
        yield from _wrong_scalars(value)


def _wrong_arrays(argument: Argument, array: np.ndarray) -> Iterator[Wrong]:
    others = [d for d in ("int64", "float64", "int32", "float32") if d not in argument.dtypes]
    other = next(d for d in others if argument.dtypes or d.startswith("float"))
    yield Wrong("dtype", np.ones(array.shape, other))
    yield Wrong("small dtype", np.ones(array.shape, np.float16))
    yield Wrong("none", None, refused=not argument.optional)
    yield Wrong("a number", 3)
    yield Wrong("dimensions", array[None], refused=argument.dims is not None)
    if array.size > 1:
        apart = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)[..., ::2]
        apart[...] = array
        yield Wrong("stride", apart, refused=argument.dense)
        yield Wrong("backwards", array[::-1], refused=argument.dense and array.shape[0] > 1)
    if array.ndim > 1 and min(array.shape) > 1:
        yield Wrong("columns first", np.asfortranarray(array), refused=argument.dense)
    if argument.writable:
        fixed = array.copy()
        fixed.setflags(write=False)
        yield Wrong("read-only", fixed)
    yield Wrong("meta", torch.from_numpy(array).to("meta"))
    yield Wrong("cuda", OnCuda(array))
    for axis in range(array.ndim):
        # Offsets lose their last entry and columns their largest: what is left is wrong, too.
        less = np.take(array, range(array.shape[axis] - 1), axis) if array.shape[axis] else array
        if array.shape[axis]:
            yield Wrong(f"shorter {axis}", less)
        zeros = np.zeros([1 if a == axis else n for a, n in enumerate(array.shape)], array.dtype)
        yield Wrong(f"longer {axis}", np.concatenate([array, zeros], axis))
    if array.size:
        yield Wrong("empty", array[:0])
    if array.dtype.kind in "iu" and array.dtype.itemsize > 1 and array.size:
        yield from _wrong_ids(array, refused=not argument.writable)


def _wrong_ids(array: np.ndarray, *, refused: bool) -> Iterator[Wrong]:
    most = min(2**40, int(np.iinfo(array.dtype).max))
    lower = -1 if array.dtype.kind == "i" else most
    # An array for results may hold anything, the largest number of its type too.
    beyond = min(int(array.max()) + 1, int(np.iinfo(array.dtype).max))
    for name, number in (("-1", lower), ("n", beyond), ("2^40", most)):
        for place in {array.size // 2, array.size - 1 if number >= 0 else 0}:
            changed = array.copy()
            changed.reshape(-1)[place] = number
            yield Wrong(f"{name} at {place}", changed, refused, after=number >= 0)


def _wrong_scalars(value: Any) -> Iterator[Wrong]:
    if isinstance(value, (bool, np.bool_)):
        return
    if isinstance(value, (int, np.integer)):
        for number in (-1, 0, 2**40):
            yield Wrong(str(number), number, refused=False)
        yield Wrong("2^64", 2**64)
        yield Wrong("text", "1")
    elif isinstance(value, (float, np.floating)):
        for number in (float("nan"), float("inf"), -1.0, -1e300):
            yield Wrong(str(number), number, refused=False)
        yield Wrong("text", "1")
    elif isinstance(value, str):
        yield Wrong("unknown", "nonsense")
        yield Wrong("number", 3)
    elif isinstance(value, (list, tuple)):
        for name, number in (("none", None), ("text", "1"), ("of text", ["1"])):
            yield Wrong(name, number)
        for name, numbers in (("nothing", []), ("-1", [-1]), ("2^40", [2**40] * len(value))):
            yield Wrong(name, numbers, refused=False)
    else:
        yield Wrong("none", None)
        yield Wrong("another object", object())


class OnCuda:
    """Says through DLPack that its memory is a CUDA device's: an address nobody here may touch."""

    def __init__(self, array: np.ndarray) -> None:
        code = {"i": 0, "u": 1, "f": 2, "b": 6}[array.dtype.kind]
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self._tensor = _Managed(
            _Tensor(0x10, 2, 0, array.ndim, code, array.itemsize * 8, 1, self._shape, None, 0),
            None,
            None,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_: Any) -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self._tensor), b"dltensor", None)


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip

    def __init__(self, *given: Any) -> None:
        *first, shape, strides, offset = given
        super().__init__(*first, ctypes.cast(shape, ctypes.c_void_p), strides, offset)


class _Managed(ctypes.Structure):
    _fields_ = [
        ("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    ]  # fmt: skip
