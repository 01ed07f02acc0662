"""No tensor of the CPU takes part in a step of GNNFlow on a device, where there is no device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pretended_cuda import DEVICE, Pretended, pretended_cuda
from pretended_gnnflow import pretend
from test_gnnflow_ranked import FIRST, MODELS, E, data, workload
from torch import Tensor

from dgbench.systems.base.stream import StreamTrainer
from dgbench.systems.gnnflow.experiments import round_race
from dgbench.systems.gnnflow.system import GnnflowSystem

pytestmark = pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")


def warmed(trainer: StreamTrainer) -> float:
    """Loss of a batch that warms up."""
    trainer.insert(E)
    loss = trainer.train(FIRST, FIRST + 42)
    trainer.reset_memory()
    return loss


def epochs(trainer: StreamTrainer) -> list[float]:
    return [trainer.train(FIRST, E, epoch=epoch) for epoch in range(2)]


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
    plain = GnnflowSystem().open(task, data=data(task), switches=switches)
    wanted = [warmed(plain), *epochs(plain)]
    with pretended_cuda(monkeypatch) as seen:
        pretend(monkeypatch)
        trainer = GnnflowSystem().open(task, device="cuda", data=data(task), switches=switches)
        losses = [warmed(trainer)]
        fetched = count_fetches(trainer)
        seen.noted.clear()
        losses += epochs(trainer)
        # The loss of an epoch is read. Without caches the host gathers rows, by ids it has to know.
        assert seen.noted["to_host"] == 2 + (0 if cached else len(fetched))
        assert fetched
        assert all(isinstance(p, Pretended) for p in trainer.model.parameters())
        if trainer.memory is not None:
            assert trainer.memory.state().memory.device == DEVICE
            assert trainer.memory.state().mail_time.device == DEVICE
        assert 0 <= trainer.evaluate_range(FIRST, E).ap <= 1
    assert losses == pytest.approx(wanted, rel=1e-4)


def test_every_contender_fetches_from_the_same_page_locked_tables(monkeypatch):
    """A baseline that read pageable memory would lose by something that is no one's idea."""
    task = workload("tgat")
    graph = SimpleNamespace(node_cache=0.3, edge_cache=0.1, tau=64)
    names = (round_race.TGL, round_race.CACHED, round_race.BARE, round_race.PUBLISHED)
    copies: list[Tensor] = []  # into page-locked memory, as this machine has none

    def pinned(tensor: Tensor) -> bool:
        return any(tensor.data_ptr() == one.data_ptr() for one in copies)

    with pretended_cuda(monkeypatch):
        pretend(monkeypatch)
        monkeypatch.setattr(Tensor, "pin_memory", lambda x: copies.append(x.clone()) or copies[-1])
        monkeypatch.setattr(Tensor, "is_pinned", pinned)
        given = round_race.with_locked_tables(data(task), "cuda")
        shared = list(copies)
        assert len(shared) == 2  # of vertices and of edges
        for name in names:
            trainer = round_race.open_contender(name, task, given, graph, "cuda")
            assert len(copies) == len(shared), name
            tables = dict(trainer.access._tables)
            if name == round_race.CACHED:
                tables = {
                    kind: getattr(trainer.access, f"_{kind}_cache").rows.table
                    for kind in ("node", "edge")
                }
            for kind, table in zip(("node", "edge"), shared, strict=True):
                assert tables[kind].data_ptr() == table.data_ptr(), name
