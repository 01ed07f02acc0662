"""A cache of feature rows that is looked up, gathered from and renewed in whole batches."""

from dgbench.kernels_cuda.row_cache.host_rows import page_locked, take_rows
from dgbench.kernels_cuda.row_cache.op import (
    CacheLookup,
    CacheState,
    Index,
    Policy,
    RowCache,
    SlotCache,
    check_rows,
    open_row_cache,
)

__all__ = [
    "CacheLookup",
    "CacheState",
    "Index",
    "Policy",
    "RowCache",
    "SlotCache",
    "check_rows",
    "open_row_cache",
    "page_locked",
    "take_rows",
]
