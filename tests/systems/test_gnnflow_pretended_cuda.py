"""No tensor of the CPU takes part in a step of GNNFlow on a device, where there is no device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from pretended_cuda import DEVICE, Pretended, pretended_cuda
from pretended_gnnflow import PretendedCache, PretendedStore, pretend
from test_gnnflow_ranked import FIRST, MODELS, E, data, workload
from torch import Tensor

from dgbench.systems.base.registry import get_system
from dgbench.systems.base.stream import StreamTrainer
from dgbench.systems.gnnflow import cache, device_access
from dgbench.systems.gnnflow.experiments import round_race
from dgbench.systems.gnnflow.system import GnnflowSystem

pytestmark = pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")


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


class LockedMemory:
    """Notes which tensors were copied into page-locked memory, as this machine has none."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.copies: list[Tensor] = []
        patch.setattr(Tensor, "pin_memory", lambda tensor: self.lock(tensor))
        patch.setattr(Tensor, "is_pinned", lambda tensor: self.has(tensor))

    def lock(self, tensor: Tensor) -> Tensor:
        self.copies.append(tensor.clone())
        return self.copies[-1]

    def has(self, tensor: Tensor) -> bool:
        return any(tensor.data_ptr() == one.data_ptr() for one in self.copies)


def no_store(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(device_access, "DeviceStore", PretendedStore)
    patch.setattr(cache, "open_row_cache", PretendedCache)


def test_every_contender_fetches_from_the_same_page_locked_tables(monkeypatch):
    """A baseline that read pageable memory would lose by something that is no one's idea."""
    task = workload("tgat")
    graph = SimpleNamespace(node_cache=0.3, edge_cache=0.1, tau=64)
    names = (round_race.TGL, round_race.CACHED, round_race.BARE, round_race.PUBLISHED)
    with pretended_cuda(monkeypatch):
        no_store(monkeypatch)
        memory = LockedMemory(monkeypatch)
        given = round_race.with_locked_tables(data(task), "cuda")
        shared = list(memory.copies)
        assert len(shared) == 2  # of vertices and of edges
        for name in names:
            trainer = round_race.open_contender(name, task, given, graph, "cuda")
            assert len(memory.copies) == len(shared), name
            tables = dict(trainer.access._tables)
            if name == round_race.CACHED:
                tables = {
                    kind: getattr(trainer.access, f"_{kind}_cache").rows.table
                    for kind in ("node", "edge")
                }
            for kind, table in zip(("node", "edge"), shared, strict=True):
                assert tables[kind].data_ptr() == table.data_ptr(), name


@pytest.mark.parametrize("name", ["tgl", "gnnflow"])
def test_rows_of_no_cache_leave_from_page_locked_memory(monkeypatch, name):
    """The host gathers them into page-locked memory where no kernel reads the table itself."""
    task = workload("tgat")
    switches = {"switches": {"node_cache": False, "edge_cache": False}} if name == "gnnflow" else {}
    with pretended_cuda(monkeypatch):
        no_store(monkeypatch)
        memory = LockedMemory(monkeypatch)
        access = get_system(name).open(task, device="cuda", data=data(task), **switches).access
        before = len(memory.copies)
        ids = torch.tensor([3, 1, 3])
        given = data(task)
        for fetch, table in (
            (access.node_features, given.node_feat),
            (access.edge_features, given.edge_feat),
        ):
            rows = fetch(ids)
            assert rows.device == DEVICE
            assert torch.equal(rows.inner, memory.copies[-1])
            assert torch.equal(rows.inner, table[ids])
        assert len(memory.copies) == before + 2
