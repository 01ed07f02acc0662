"""No tensor of the CPU takes part in a step of GNNFlow on a device, where there is no device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pretended_cuda import DEVICE, Pretended, pretended_cuda
from test_gnnflow_ranked import FIRST, MODELS, E, data, workload
from torch import Tensor

from dgbench.kernels_cuda.row_cache import CacheLookup, open_row_cache
from dgbench.kernels_cuda.temporal_sample import Sample, sample_hops
from dgbench.systems.base.stream import StreamTrainer
from dgbench.systems.gnnflow import cache, device_access
from dgbench.systems.gnnflow.system import GnnflowSystem

pytestmark = pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")


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
    patch.setattr(device_access, "DeviceStore", PretendedStore)
    patch.setattr(cache, "open_row_cache", PretendedCache)


def trained(trainer: StreamTrainer) -> list[float]:
    """Losses of two epochs of some batches after one that warms up."""
    trainer.insert(E)
    first = trainer.train(FIRST, FIRST + 42)
    trainer.reset_memory()
    return [first, *(trainer.train(FIRST, E, epoch=epoch) for epoch in range(2))]


def count_fetches(trainer: StreamTrainer) -> list[int]:
    """Notes 1 for each request for features by ids of the device."""
    noted: list[int] = []
    fetch = trainer.access._fetch

    def counted(kind: str, ids: Tensor) -> Tensor:
        noted.extend([1] * isinstance(ids, Pretended))
        return fetch(kind, ids)

    trainer.access._fetch = counted
    return noted


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("model", MODELS)
def test_steps_stay_on_the_device(monkeypatch, model, cached):
    task, switches = workload(model), {"node_cache": cached, "edge_cache": cached}
    wanted = trained(GnnflowSystem().open(task, data=data(task), switches=switches))
    with pretended_cuda(monkeypatch) as seen:
        pretend(monkeypatch)
        trainer = GnnflowSystem().open(task, device="cuda", data=data(task), switches=switches)
        trainer.insert(E)
        losses = [trainer.train(FIRST, FIRST + 42)]
        trainer.reset_memory()
        fetched = count_fetches(trainer)
        seen.noted.clear()
        losses += [trainer.train(FIRST, E, epoch=epoch) for epoch in range(2)]
        # The loss of an epoch is read. Without caches the host gathers rows, by ids it has to know.
        assert seen.noted["to_host"] == 2 + (0 if cached else len(fetched))
        assert fetched
        assert all(isinstance(p, Pretended) for p in trainer.model.parameters())
        if trainer.memory is not None:
            assert trainer.memory.state().memory.device == DEVICE
            assert trainer.memory.state().mail_time.device == DEVICE
        assert 0 <= trainer.evaluate_range(FIRST, E).ap <= 1
    assert losses == pytest.approx(wanted, rel=1e-4)


def test_samples_come_home_only_where_the_model_is_on_the_host(monkeypatch):
    task = workload("tgat")
    with pretended_cuda(monkeypatch) as seen:
        pretend(monkeypatch)
        trainer = GnnflowSystem().open(task, device="cuda", data=data(task))
        trainer.insert(E)
        roots = torch.arange(4), torch.full((4,), float(E), dtype=torch.float64)
        kept = trainer.access.sample(*roots, draw=0)
        assert seen.noted["to_host"] == 0
        assert kept[0][0].eids.device == DEVICE
        trainer.access.device = torch.device("cpu")
        home = trainer.access.sample(*roots, draw=0)
        assert seen.noted["to_host"] == 7 * len(home[0])
        assert torch.equal(home[0][1].eids, kept[0][1].eids.inner)
