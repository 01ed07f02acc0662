"""Every registered system trains on a device as it does on the CPU, from the same seed.

The papers' systems have tests of their own for every technique; here stands what all must pass, the
baselines too. A system without an entry fails, so that a new one cannot be forgotten.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from dgbench.systems.base import Workload, get_system, system_names
from dgbench.systems.base.interactions import InteractionWorkload
from dgbench.systems.base.sequences import SequenceWorkload
from dgbench.systems.base.stream import StreamWorkload
from dgbench.systems.base.timeline import TimelineWorkload

EPOCHS = 2
TOLERANCE = 2e-3
"""Of a loss after two epochs: float32 in another order, and Adam, which turns a gradient's noise
around zero into steps of full length."""
HEPTH = {"dataset": "hepth", "source": "twin", "scale": 0.01}
MESSAGES = {"dataset": "college-msg", "source": "twin", "scale": 0.05}
FRAMES = (Workload, {**HEPTH, "model": "tgcn_model", "frame": 4, "snapshots": 8, "hidden_dim": 8})
STREAM = (StreamWorkload, {**MESSAGES, "model": "tgn", "batch": 300, "hidden_dim": 8,
                           "time_dim": 8, "memory_dim": 8, "fanouts": (4,)})  # fmt: skip
INTERACTIONS = {**MESSAGES, "events": 100, "batch": 40, "hidden_dim": 8}
WORKLOADS: dict[str, tuple[type, dict[str, Any]]] = {
    **dict.fromkeys(
        ["reference", "compiled", "pygt", "pygt-a", "pygt-r", "pygt-g", "pipad"], FRAMES
    ),
    "esdg": (TimelineWorkload, {**HEPTH, "model": "cd_gcn", "window": 3, "snapshots": 6}),
    "dgc": (SequenceWorkload, {**HEPTH, "model": "tgcn_2layer", "snapshots": 6, "hidden_dim": 8}),
    **dict.fromkeys(("tgl", "gnnflow"), STREAM),
    "dygnn": (InteractionWorkload, {**INTERACTIONS, "model": "dygnn"}),
    "jodie": (InteractionWorkload, {**INTERACTIONS, "model": "jodie"}),
    "tgcn": (InteractionWorkload, {**INTERACTIONS, "model": "dygnn", "intervals": 5}),
}


def losses(name: str, workload: Any, device: str) -> list[float]:
    torch.manual_seed(1)
    trainer = get_system(name).open(workload, device=device)
    try:
        trainer.prepare()
        return [float(trainer.train_epoch()) for _ in range(EPOCHS)]
    finally:
        trainer.close()


def test_every_system_has_an_entry() -> None:
    assert set(WORKLOADS) == set(system_names())
    for kind, fields in WORKLOADS.values():
        kind(**fields)


@pytest.mark.cuda
@pytest.mark.machines_arithmetic
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_device_trains_as_the_cpu_does(name, usable_device, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("DGBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "every-system"))
    kind, fields = WORKLOADS[name]
    workload = kind(**fields)
    if reasons := get_system(name).unsupported(workload, "cuda"):
        pytest.skip("; ".join(reasons))
    wanted = losses(name, workload, "cpu")
    assert all(map(math.isfinite, wanted))
    assert wanted[0] != wanted[-1]  # it learns, so that the second epoch says something
    assert losses(name, workload, "cuda") == pytest.approx(wanted, rel=TOLERANCE)
