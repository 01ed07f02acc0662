"""Every registered system trains on a device as it does on the CPU, from the same seed.

The papers' systems have tests of their own for every technique; here stands what all must pass, the
baselines too. A system without an entry fails, so that a new one cannot be forgotten. Where no
device is, what would be compared runs all the same, on the CPU alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny_data import trace_only

from dgbench.systems.base import Workload, get_system, system_names
from dgbench.systems.base.interactions import InteractionWorkload
from dgbench.systems.base.sequences import SequenceWorkload
from dgbench.systems.base.stream import StreamWorkload
from dgbench.systems.base.timeline import TimelineWorkload

EPOCHS = 2
TOLERANCE = 2e-3
"""Of a loss after two epochs: float32 in another order, and Adam, which turns a gradient's noise
around zero into steps of full length."""


def frames() -> Workload:
    return Workload(
        dataset="hepth", source="twin", scale=0.01, model="tgcn_model", frame=4, snapshots=8,
        hidden_dim=8,
    )  # fmt: skip


def timeline() -> TimelineWorkload:
    return TimelineWorkload(
        dataset="hepth", source="twin", scale=0.01, model="cd_gcn", window=3, snapshots=6,
    )  # fmt: skip


def sequences() -> SequenceWorkload:
    return SequenceWorkload(
        dataset="hepth", source="twin", scale=0.01, model="tgcn_2layer", snapshots=6, hidden_dim=8
    )


def stream() -> StreamWorkload:
    return StreamWorkload(
        dataset="college-msg", source="twin", scale=0.05, model="tgn", batch=300, hidden_dim=8,
        time_dim=8, memory_dim=8, fanouts=(4,),
    )  # fmt: skip


def interactions(model: str, **more: Any) -> InteractionWorkload:
    return InteractionWorkload(
        dataset="college-msg", source="twin", scale=0.05, events=100, batch=40, model=model,
        hidden_dim=8, **more,
    )  # fmt: skip


WORKLOADS: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(
        ("reference", "compiled", "pygt", "pygt-a", "pygt-r", "pygt-g", "pipad"), frames
    ),
    "esdg": timeline,
    "dgc": sequences,
    "tgl": stream,
    "gnnflow": stream,
    "dygnn": lambda: interactions("dygnn"),
    "jodie": lambda: interactions("jodie"),
    "tgcn": lambda: interactions("dygnn", intervals=5),
}


def losses(name: str, device: str) -> list[float]:
    torch.manual_seed(1)
    trainer = get_system(name).open(WORKLOADS[name](), device=device)
    try:
        trainer.prepare()
        return [float(trainer.train_epoch()) for _ in range(EPOCHS)]
    finally:
        trainer.close()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "every-system"))


def test_every_system_has_an_entry() -> None:
    assert set(WORKLOADS) == set(system_names())


@pytest.mark.machines_arithmetic
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_device_trains_as_the_cpu_does(name: str, device: str, monkeypatch) -> None:
    reasons = get_system(name).unsupported(WORKLOADS[name](), device)
    if reasons:
        pytest.skip("; ".join(reasons))
    if device == "cpu":  # nothing is compared; tests/systems/test_reference_compiled.py compiles
        trace_only(monkeypatch)
    wanted = losses(name, "cpu")
    assert all(map(math.isfinite, wanted))
    assert wanted[0] != wanted[-1]  # it learns, so that the second epoch says something
    if device != "cpu":
        assert losses(name, device) == pytest.approx(wanted, rel=TOLERANCE)
