"""A temporal graph in blocks that grows in place (GNNFlow, PVLDB 17, section 4.1)."""

from dgbench.kernels_cuda.temporal_store.op import TemporalStore
from dgbench.kernels_cuda.temporal_store.types import (
    ADAPTIVE,
    GROWN,
    BlockPolicy,
    Inserted,
    Offloaded,
    StoreMemory,
)

__all__ = [
    "ADAPTIVE",
    "GROWN",
    "BlockPolicy",
    "Inserted",
    "Offloaded",
    "StoreMemory",
    "TemporalStore",
]
