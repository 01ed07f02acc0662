"""pylibwholegraph's row cache, an optional contender of ours that needs a CUDA device."""

from __future__ import annotations

import importlib.util
from typing import ClassVar

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError


class WholeGraphCache:
    """Rows in host memory behind WholeGraph's cache on the device, which one process owns.

    Args:
        table: float32[N, D] on the CPU.
        capacity: rows kept on the device at most; WholeGraph takes it as a share of N.

    Raises:
        InvalidInputError: a capacity out of range.
    """

    device: ClassVar[str] = "cuda"
    """Where ids are expected and rows handed out."""

    @classmethod
    def absent(cls) -> str:
        """Why it is known not to run here without importing anything, or ""."""
        if importlib.util.find_spec("pylibwholegraph") is None:
            return "pylibwholegraph-cu13 is not installed; pip install 'dgbench[rapids]'"
        return ""

    def __init__(self, table: Tensor, capacity: int) -> None:
        rows = table.shape[0]
        if not 1 <= capacity <= rows:
            raise InvalidInputError(f"capacity is {capacity}, allowed are values from 1 to {rows}")
        import pylibwholegraph.torch as library

        threads = torch.get_num_threads()
        comm, _ = library.init_torch_env_and_create_wm_comm(0, 1, 0, 1, wm_log_level="error")
        torch.set_num_threads(threads)  # it sets one
        policy = library.create_builtin_cache_policy(
            "local_device", "continuous", "cpu", "readonly", capacity / rows
        )
        self._embedding = library.create_embedding(
            comm, "continuous", "cpu", table.dtype, list(table.shape), cache_policy=policy
        )
        local, _ = self._embedding.get_embedding_tensor().get_local_tensor(host_view=True)
        local.copy_(table)
        comm.barrier()

    def fetch(self, ids: Tensor) -> Tensor:
        """float32[n, D] on the device, the rows of ids int64[n]; ids may repeat."""
        return self._embedding.gather(ids.to(self.device))
