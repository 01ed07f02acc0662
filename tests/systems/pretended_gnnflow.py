"""GNNFlow's store and cache on a device that this machine does not have, also for its ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pretended_cuda import Pretended
from pretended_nccl import launch_on_nccl
from torch import Tensor

from dgbench.kernels_cuda.row_cache import CacheLookup, open_row_cache
from dgbench.kernels_cuda.temporal_sample import Sample, sample_hops, sample_neighbours
from dgbench.runtime.collectives import Communicator
from dgbench.systems.gnnflow import cache, device_access, local_graph


def here(x: Any) -> Any:
    return x.inner if isinstance(x, Pretended) else x


class PretendedStore:
    """A `DeviceStore` whose samples lie on the device."""

    def __init__(self, store: Any, *_: Any, device: torch.device) -> None:
        assert torch.device(device).type == "cuda"
        self.store, self.sent = store, SimpleNamespace(bytes=0)

    def update(self) -> SimpleNamespace:
        return self.sent

    def close(self) -> None:
        pass

    def sample_hops(self, nodes: Tensor, times: Tensor, *args: Any, **how: Any) -> Any:
        found = sample_hops(self.store, here(nodes), here(times), *args, **how)
        return [[self._there(hop) for hop in hops] for hops in found]

    def sample_hop(self, nodes: Tensor, times: Tensor, *, positions: Tensor, **how: Any) -> Sample:
        inside = here(nodes), here(times)
        return self._there(sample_neighbours(self.store, *inside, positions=here(positions), **how))

    def _there(self, hop: Sample) -> Sample:
        arrays = (hop.nodes, hop.times, hop.positions, hop.offsets, hop.neighbours, hop.eids,
                  hop.edge_times)  # fmt: skip
        return Sample(*(Pretended(x.clone()) for x in arrays), hop.fanout)


class PretendedCache:
    """A `DeviceRowCache`: rows and misses are handed out on the device."""

    def __init__(self, *args: Any, device: str, **how: Any) -> None:
        assert torch.device(device).type == "cuda"
        self._cache = open_row_cache(*args, **how, device="cpu")

    def lookup(self, ids: Tensor) -> Any:
        self._found = found = self._cache.lookup(here(ids).contiguous())
        misses = Pretended(found.misses.clone())
        return CacheLookup(found.place, misses, found.hits, found.request_hits)

    def gather(self, found: Any, source: Tensor, out: Tensor, *, by_id: bool) -> None:
        self._cache.gather(self._found, here(source), out.inner, by_id=by_id)

    def update(self, found: Any, out: Tensor) -> Any:
        return self._cache.update(self._found, out.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


def pretend(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tensor, "pin_memory", lambda self: self)
    driver = SimpleNamespace(cudaHostRegister=lambda *_: 0, cudaHostUnregister=lambda *_: 0)
    patch.setattr(torch.cuda, "cudart", lambda: driver)
    for module in (device_access, local_graph):
        patch.setattr(module, "DeviceStore", PretendedStore)
    patch.setattr(cache, "open_row_cache", PretendedCache)


def launch_pretended(
    function: Callable[..., Any], ranks: int, args: Sequence[Any] = (), **how: Any
) -> Any:
    """`launch_on_nccl` of ranks of GNNFlow."""
    return launch_on_nccl(_be_rank, ranks, (function, tuple(args)), **how)


def _be_rank(comm: Communicator, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch)
        return function(comm, *args)
