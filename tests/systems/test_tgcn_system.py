"""T-GCN as a plugin: what it takes, what it reports, and that sampling half is all it loses."""

from __future__ import annotations

import pytest
import torch
from tgcn_tiny import SYSTEM, events, losses, opened, task

from dgbench.runtime.errors import UnknownKeyError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Workload, get_system
from dgbench.systems.base.system import Trainer
from dgbench.systems.tgcn.techniques import TECHNIQUES


def test_the_registry_knows_it():
    found = get_system("tgcn")
    assert (found.name, found.title, found.kind) == ("tgcn", "T-GCN", "paper")
    assert [t.name for t in found.techniques] == [t.name for t in TECHNIQUES]
    drawn = ["sampling", "sis", "union", "device_sampling"]
    assert [t.name for t in TECHNIQUES if not t.exact] == drawn


def test_it_says_what_it_cannot_train():
    assert SYSTEM.unsupported(task(), "cpu") == []
    other = Workload(dataset="covid19-england", model="tgcn_model")
    assert any("InteractionWorkload" in one for one in SYSTEM.unsupported(other, "cpu"))
    assert any("'jodie'" in one for one in SYSTEM.unsupported(task(model="jodie"), "cpu"))
    pushed = SYSTEM.unsupported(task(propagation=True), "cpu")
    assert any("propagation" in one for one in pushed)
    with pytest.raises(UnknownKeyError, match="ring"):
        SYSTEM.open(task(), switches={"ring": True})


def test_a_trainer_keeps_the_promises_of_all():
    one = opened()
    assert isinstance(one, Trainer)
    one.prepare()
    first = [one.step(frame) for frame in range(one.num_frames)]
    assert [one.step(frame) for frame in range(one.num_frames)] != first
    again = opened()
    assert [again.step(frame) for frame in range(again.num_frames)] == first
    assert set(one.state()) == {name for name, _ in one.model.named_parameters()}
    report = one.report()
    assert report["kept_edges"] == one.kept[0].numel()
    regions = one.region_bytes
    assert report["device_bytes"] >= regions["R1 state"] + regions["R1 parameters"]
    assert report["host_bytes"] > 0
    one.close()


def test_phases_are_timed_and_copies_counted():
    one = opened(devices=2, meter=Meter(timing=True))
    losses(one)
    phases = one.meter.phases()
    wanted = {"sample", "partition", "io", "refresh", "score", "backward", "interact", "swap"}
    assert wanted <= set(phases)
    assert one.meter.counters["bytes_h2d"] == one.meter.counters["bytes_h2d_counted"]
    assert one.meter.spent["copy_busy"] > 0


def test_training_lowers_the_loss():
    one = opened(task(intervals=8, lr=0.02, hidden_dim=12), stream=events(600, 30))
    found = [one.train_epoch() for _ in range(8)]
    assert found[-1] < found[0]


def test_samples_are_drawn_anew_when_asked():
    one = opened()
    one.prepare()
    before = one.kept[0]
    one.resample()
    assert torch.equal(one.kept[0], before)  # the seed decides
    assert one.sample_s > 0
    assert one.partition_s > 0
