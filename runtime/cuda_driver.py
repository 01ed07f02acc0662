"""Detect an initialised CUDA driver: a fork of a process that has one cannot use a device.

torch knows only of contexts that it made itself. A library that merely asked the driver how many
devices there are leaves no trace there, and its children fail with "initialization error".
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Final

_LIBRARY: Final = "libcuda.so.1"
_NOT_INITIALISED: Final = 3  # CUDA_ERROR_NOT_INITIALIZED


def driver_awake(library: str = _LIBRARY) -> bool:
    """Return True if `cuInit` was called in this process. The check itself does not call it.

    Args:
        library: the driver's, as the loader knows it.
    """
    mode = getattr(os, "RTLD_NOLOAD", None)
    if mode is None:
        return False  # no such question elsewhere, and no CUDA that forks either
    try:
        driver = ctypes.CDLL(library, mode=mode | os.RTLD_LAZY)
    except OSError:
        return False  # not even loaded
    count = ctypes.c_int(0)
    return driver.cuDeviceGetCount(ctypes.byref(count)) != _NOT_INITIALISED


def has_driver(library: str = _LIBRARY) -> bool:
    """Return True if there is a driver to be woken; loads it, and does not wake it."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def import_patching() -> None:
    """Import what changes `torch` itself, as far as it is here: who compares functions before and
    after must not take it for a change that a plugin made."""
    with contextlib.suppress(Exception), left_asleep():
        import torch_geometric  # noqa: F401
    with contextlib.suppress(Exception):
        import torch._dynamo  # noqa: F401
    # What the first call of a compiled function replaces: methods of optimisers and of modules.
    with contextlib.suppress(ImportError, AttributeError):  # torch's own, and not public
        from torch._dynamo.eval_frame import TorchPatcher

        TorchPatcher.patch()
    with contextlib.suppress(ImportError, AttributeError):
        from torch._dynamo.mutation_guard import install_generation_tagging_init

        install_generation_tagging_init()


@contextlib.contextmanager
def left_asleep() -> Iterator[None]:
    """While torch-geometric is imported: it asks torch's build for MKL, and the whole description
    of the build names the driver's version, which wakes the driver."""
    import torch

    show = torch.__config__.show
    found = "ON" if torch.backends.mkl.is_available() else "OFF"
    torch.__config__.show = lambda: f"USE_MKL={found}"
    try:
        yield
    finally:
        torch.__config__.show = show
