"""T-GCN on a device: the losses of the CPU, copies beside training, and memory as accounted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dgbench.datasets import EventStream
from dgbench.runtime.meter import Meter
from dgbench.systems.base.interactions import InteractionWorkload, interaction_data
from dgbench.systems.tgcn.system import TgcnSystem

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("usable_device")]


def opened(device: str, *, count=4000, vertices=700, off=(), hidden=32, dtype=torch.float64, **how):
    rng = np.random.default_rng(3)
    ends = rng.integers(0, vertices, size=(2, count))
    stream = EventStream.build(*ends, np.arange(count) // 3, num_nodes=vertices)
    fields = {"hidden_dim": hidden, "intervals": 6, **how.pop("fields", {})}
    work = InteractionWorkload(dataset="tiny", **fields)
    switches = dict.fromkeys(("device_sampling", *off), False)  # the sample of the CPU
    how |= {"device": device, "dtype": dtype, "meter": Meter(device=device), "switches": switches}
    return TgcnSystem().open(work, data=interaction_data(stream, work), **how)


def losses(trainer) -> list[float]:
    found = [trainer.train_epoch() for _ in range(2)]
    scores = trainer.evaluate_range(trainer.data.train_end, len(trainer.data.events))
    return [*found, scores.loss]


@pytest.mark.parametrize("fields", [{}, {"task": "classify"}, {"aggregate": "last"}], ids=str)
@pytest.mark.parametrize(
    "how",
    [{}, {"devices": 4}, {"devices": 4, "off": ("overlap", "p2p")},
     {"devices": 4, "off": ("schedule",)}, {"resident": False, "parts": 3},
     {"resident": False, "off": ("overlap",)}, {"off": ("partition",), "devices": 2}],
    ids=str,
)  # fmt: skip
def test_a_device_trains_as_the_cpu_does(how, fields):
    wanted = losses(opened("cpu", fields=fields))
    assert losses(opened("cuda", fields=fields, **how)) == pytest.approx(wanted, abs=1e-8, rel=0)


def test_the_state_of_a_streaming_device_stays_at_home():
    torch.cuda.empty_cache()
    held = []
    for how in ({}, {"resident": False, "parts": 4}):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        trainer = opened(
            "cuda", count=20_000, vertices=200_000, hidden=64, dtype=torch.float32, **how
        )
        trainer.train_epoch()
        held.append(torch.cuda.max_memory_allocated() - before)
        trainer.close()
        del trainer
        torch.cuda.empty_cache()
    assert held[1] < held[0] / 2


def test_a_device_draws_what_it_trains_on():
    one = opened("cuda")
    other = TgcnSystem().open(one.workload, data=one.data, device="cuda", dtype=torch.float64)
    again = TgcnSystem().open(one.workload, data=one.data, device="cuda", dtype=torch.float64)
    for trainer in (one, other, again):
        trainer.prepare()
    assert torch.equal(other.kept[0], again.kept[0])
    assert not torch.equal(other.kept[0], one.kept[0])
    src = one.data.events.src
    assert torch.equal(
        torch.bincount(src[other.kept[0]], minlength=700),
        torch.bincount(src[one.kept[0]], minlength=700),
    )
    assert other.train_epoch() == again.train_epoch()
