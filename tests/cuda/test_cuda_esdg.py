"""ESDG on one process where inputs really travel: on a CUDA device, and over a CPU's arena.

The arena shows on any machine that these tests can pass; what is CUDA's own is marked.
"""

from __future__ import annotations

import pytest
import torch
from tiny_data import TinySequence, tiny_sequence

from dgbench.kernels_cuda.csr import Csr
from dgbench.models import TIMELINE_MODELS
from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload
from dgbench.systems.esdg import EsdgSystem, EsdgTrainer

DEFAULTS = {t.name: t.default for t in EsdgSystem.techniques}
OTHERS = [
    {name: False for name in DEFAULTS if name != "checkpoint"},
    *({name: not default} for name, default in DEFAULTS.items()
      if name not in ("checkpoint", "arena")),
    {"paper_layout": True, "ship_loops": True, "precompute": False},
    {"recompute_values": True, "int32": True, "ship_loops": True},
]  # fmt: skip
STEPS = 3


def opened(place: str, work: TimelineWorkload, data, switches=None, **settings) -> EsdgTrainer:
    on = EsdgSystem().switches((switches or {}) | {"arena": place == "arena"})
    trainer = EsdgTrainer(work, data, on, device="cpu" if place == "arena" else "cuda", **settings)
    trainer.prepare()
    return trainer


def workload(model: str, **fields) -> TimelineWorkload:
    base = {"dataset": "tiny", "model": model, "window": 3, "lr": 0.01, "theta": 0.5}
    return TimelineWorkload(**(base | fields))


CASES = [(model, {}, "link") for model in TIMELINE_MODELS]
CASES += [("cd_gcn", {}, task) for task in ("class", "node")]
# Every switch with every model on a CPU: tests/systems.
CASES += [(TIMELINE_MODELS[i % len(TIMELINE_MODELS)], on, "link") for i, on in enumerate(OTHERS)]


@pytest.mark.parametrize(("model", "switches", "task"), CASES, ids=str)
def test_training_equals_the_plain_trainer(place, model, switches, task):
    data = tiny_sequence(features=2, snapshots=7, weighted=True)
    work = workload(model, task=task)
    plain, trainer = PlainTimeline(work, data), opened(place, work, data, switches, nb=3)
    want, got = plain.gradients(), trainer.gradients()
    for name, grad in want.items():
        scale = float(grad.abs().max().clamp(min=1e-6))
        assert float((got[name] - grad).abs().max()) <= 2e-5 * scale, name
    losses = [plain.train_epoch() for _ in range(STEPS)]
    assert [trainer.train_epoch() for _ in range(STEPS)] == pytest.approx(losses, rel=2e-5)
    torch.testing.assert_close(trainer.evaluate(), plain.evaluate(), rtol=1e-3, atol=1e-5)
    trainer.close()


@pytest.mark.parametrize("switches", [{}, {"prefetch": False}, {"lean": False}], ids=str)
def test_transfers_are_those_that_are_counted(place, switches):
    data = tiny_sequence(features=2, snapshots=9)
    trainer = opened(place, workload("cd_gcn"), data, switches, nb=4)
    trainer.train_epoch()
    found = trainer.meter.counters
    assert found["bytes_h2d_moved"] == found["bytes_h2d_counted"] == trainer.epoch_bytes()
    assert found["bytes_topology"] + found["bytes_features"] == trainer.epoch_bytes()
    brought = found["snapshots_plain"] + found["snapshots_difference"]
    assert brought == 2 * trainer.task.steps or switches != {"lean": False}
    trainer.close()


# --- CUDA's own: how much of its memory is used; a CPU: systems/test_esdg_memory.py ---------------


def large(nodes: int = 100_000, edges: int = 500_000, steps: int = 13) -> TinySequence:
    """Snapshots that share nine entries in ten; large enough for arrays to outweigh their rest."""
    draw, topology = torch.Generator().manual_seed(0), []
    keys = torch.randint(0, nodes * nodes, (edges,), generator=draw)
    for _ in range(steps):
        fresh = torch.randint(0, nodes * nodes, (edges,), generator=draw)
        keys = torch.where(torch.rand(edges, generator=draw) < 0.1, fresh, keys)
        held = keys.unique()
        indptr = torch.zeros(nodes + 1, dtype=torch.int64)
        indptr[1:] = torch.bincount(held // nodes, minlength=nodes).cumsum(0)
        topology.append(Csr(indptr, (held % nodes).int(), nodes))
    x = torch.randn(steps, nodes, 2, generator=draw)
    return TinySequence(topology, x, x[..., 0].clone(), nodes)


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
@pytest.mark.parametrize("layout", [False, True])
@pytest.mark.parametrize("nb", [1, 4])
@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_peak_is_within_a_tenth_of_the_plan(model, nb, layout):
    """The allocator's number; the first trainer leaves what libraries keep."""
    data, work = large(), workload(model, task="node")
    warm = opened("cuda", work, data, {"paper_layout": layout}, nb=nb)
    warm.train_epoch()
    warm.close()
    del warm
    trainer = opened("cuda", work, data, {"paper_layout": layout}, nb=nb)
    assert trainer.measure_peak() == pytest.approx(trainer.planned_bytes(), rel=0.1)
    trainer.close()


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
def test_what_does_not_fit_at_once_trains_in_blocks():
    data, work = large(), workload("cd_gcn", task="node")
    whole = opened("cuda", work, data, {"checkpoint": False})
    budget = int(0.6 * whole.planned_bytes())
    whole.close()
    trainer = opened("cuda", work, data, memory_bytes=budget)
    assert len(trainer.blocks) > 1
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    held = torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction(min(1.0, (held + 1.3 * budget) / total))
    try:
        first = trainer.train_epoch()
        assert first == pytest.approx(PlainTimeline(work, data).train_epoch(), rel=2e-5)
        trainer.close()
        again = opened("cuda", work, data, {"checkpoint": False})
        with pytest.raises(torch.OutOfMemoryError):
            again.train_epoch()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
