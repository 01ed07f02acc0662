"""ESDG on one process where inputs really travel: on a CUDA device, and over a CPU's arena.

The arena shows on any machine that these tests can pass; what is CUDA's own is marked.
"""

from __future__ import annotations

import pytest
import torch
from esdg_tiny import timeline
from tiny_data import tiny_sequence

from dgbench.models import TIMELINE_MODELS
from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload
from dgbench.systems.esdg import EsdgSystem, EsdgTrainer

DEFAULTS = {t.name: t.default for t in EsdgSystem.techniques}
SETTINGS = [
    {},
    {name: False for name in DEFAULTS if name != "checkpoint"},
    *({name: not default} for name, default in DEFAULTS.items()
      if name not in ("checkpoint", "arena")),
    {"paper_layout": True, "ship_loops": True, "precompute": False},
    {"recompute_values": True, "int32": True, "ship_loops": True},
]  # fmt: skip
STEPS = 5


def shown(switches: dict[str, bool]) -> str:
    return ",".join(f"{k}={int(v)}" for k, v in switches.items())[:60] or "defaults"


def opened(place: str, work: TimelineWorkload, data, switches=None, **settings) -> EsdgTrainer:
    on = EsdgSystem().switches((switches or {}) | {"arena": place == "arena"})
    trainer = EsdgTrainer(work, data, on, device="cpu" if place == "arena" else "cuda", **settings)
    trainer.prepare()
    return trainer


def workload(model: str, **fields) -> TimelineWorkload:
    base = {"dataset": "tiny", "model": model, "window": 3, "lr": 0.01, "theta": 0.5}
    return TimelineWorkload(**(base | fields))


@pytest.mark.parametrize("switches", SETTINGS, ids=shown)
@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_training_equals_the_plain_trainer(place, model, switches):
    data, work = tiny_sequence(features=2, snapshots=9, weighted=True), workload(model)
    plain = PlainTimeline(work, data)
    trainer = opened(place, work, data, switches, nb=3)
    want, got = plain.gradients(), trainer.gradients()
    for name, grad in want.items():
        scale = float(grad.abs().max().clamp(min=1e-6))
        assert float((got[name] - grad).abs().max()) <= 2e-5 * scale, name
    losses = [plain.train_epoch() for _ in range(STEPS)]
    assert [trainer.train_epoch() for _ in range(STEPS)] == pytest.approx(losses, rel=2e-5)
    torch.testing.assert_close(trainer.evaluate(), plain.evaluate(), rtol=1e-3, atol=1e-5)
    trainer.close()


@pytest.mark.parametrize("task", ["class", "node"])
def test_other_tasks_on_the_device(place, task):
    data, work = tiny_sequence(features=2, snapshots=7), workload("cd_gcn", task=task)
    plain, trainer = PlainTimeline(work, data), opened(place, work, data, nb=2)
    losses = [plain.train_epoch() for _ in range(STEPS)]
    assert [trainer.train_epoch() for _ in range(STEPS)] == pytest.approx(losses, rel=2e-5)
    trainer.close()


@pytest.mark.parametrize("lean", [True, False])
@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_transfers_are_those_that_are_counted(place, model, prefetch, lean):
    data = tiny_sequence(features=2, snapshots=9)
    trainer = opened(place, workload(model), data, {"prefetch": prefetch, "lean": lean}, nb=4)
    trainer.train_epoch()
    found = trainer.meter.counters
    assert found["bytes_h2d_moved"] == found["bytes_h2d_counted"] == trainer.epoch_bytes()
    assert found["bytes_topology"] + found["bytes_features"] == trainer.epoch_bytes()
    brought = found["snapshots_plain"] + found["snapshots_difference"]
    if not lean:
        assert brought == 2 * trainer.task.steps
    trainer.close()


@pytest.mark.parametrize("layout", [False, True])
@pytest.mark.parametrize("nb", [1, 4])
@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_peak_is_within_a_tenth_of_the_plan(place, model, nb, layout):
    """On CUDA the allocator's number; the first trainer leaves what libraries keep."""
    nodes = 3000 if place == "arena" else 100_000
    data = timeline(nodes, 5 * nodes)
    work = workload(model, task="node")
    switches = {"paper_layout": layout}
    if place == "cuda":
        warm = opened(place, work, data, switches, nb=nb)
        warm.train_epoch()
        warm.close()
        del warm
    trainer = opened(place, work, data, switches, nb=nb)
    assert trainer.measure_peak() == pytest.approx(trainer.planned_bytes(), rel=0.1)
    trainer.close()


def test_what_does_not_fit_at_once_trains_in_blocks(place):
    """A limit of the allocator on CUDA; on a CPU the plan's budget."""
    nodes = 3000 if place == "arena" else 100_000
    data, work = timeline(nodes, 5 * nodes), workload("cd_gcn", task="node")
    whole = opened(place, work, data, {"checkpoint": False})
    budget = int(0.6 * whole.planned_bytes())
    whole.close()
    trainer = opened(place, work, data, memory_bytes=budget)
    assert len(trainer.blocks) > 1
    if place == "arena":
        assert trainer.measure_peak() <= 1.1 * budget
        trainer.close()
        return
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    held = torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction(min(1.0, (held + 1.3 * budget) / total))
    try:
        first = trainer.train_epoch()
        assert first == pytest.approx(PlainTimeline(work, data).train_epoch(), rel=2e-5)
        trainer.close()
        again = opened(place, work, data, {"checkpoint": False})
        with pytest.raises(torch.OutOfMemoryError):
            again.train_epoch()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
