"""Distinct vertices of a batch, and their rows of features and memory, found without a wait."""

from dgbench.kernels_cuda.batch_rows.device import (
    BatchMemory,
    DistinctIds,
    MemoryTables,
    gather_by_count,
)

__all__ = ["BatchMemory", "DistinctIds", "MemoryTables", "gather_by_count"]
