"""Keeping freed memory inside the process, so that results do not land on fresh pages.

glibc gives a block above its threshold back to the system when it is freed and asks for a new one
at the next allocation. Every page of it then faults and is cleared again on first touch, which for
a product of a few milliseconds is a large part of its time, whoever computed it.
"""

from __future__ import annotations

import ctypes
from typing import Final

# From <malloc.h>; a C library that does not know them answers 0 or has no mallopt.
_TRIM_THRESHOLD: Final = -1
_MMAP_MAX: Final = -4

TRIM_ABOVE: Final = 2**31 - 1
"""Bytes free at the top of the heap from which glibc returns memory: as late as it can be told."""


def keep_freed_memory() -> bool:
    """Make the C library reuse freed blocks of every size instead of returning them.

    Mapping is switched off rather than its threshold raised: glibc allows no threshold above
    32 MiB, and a frame of 16 snapshots of 20 000 rows of 32 floats has 41 MB.

    It changes the whole process, all libraries in it alike, until it ends, and the process keeps
    its peak. So it is for a program's start, never for an import, and a comparison calls it for
    every contender or for none.

    Returns:
        Whether the C library took both settings: False where it is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    kept = mallopt(_MMAP_MAX, 0)
    late = mallopt(_TRIM_THRESHOLD, TRIM_ABOVE)
    return bool(kept and late)
