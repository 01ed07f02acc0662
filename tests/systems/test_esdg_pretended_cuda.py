"""No tensor of the CPU takes part in a rank's epoch on a device, where there is no device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from esdg_tiny import MODELS, data, plain, workload
from pretended_cuda import DEVICE, Pretended, pretended_cuda

from dgbench.runtime.collectives import LocalCommunicator
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer

EPOCHS, BLOCKS = 2, 2
OPTIONS: list[dict[str, Any]] = [
    {"partition": "snapshot"},
    {"partition": "snapshot", "pieces": 2, "late": True, "reuse": True},
    {"partition": "snapshot", "scored": True},
    {"partition": "snapshot", "pieces": 2, "late": True, "reuse": True, "scored": True},
    {"partition": "snapshot", "checkpoint": False, "precompute": False, "fused": False},
    {"partition": "vertex"},
    {"partition": "vertex", "pieces": 2, "checkpoint": False, "precompute": False},
    {"partition": "vertex", "dtype": torch.float64},
    {"partition": "hybrid"},
    {"partition": "hybrid", "pieces": 2, "lean": True},
]


def shown(options: dict[str, Any]) -> str:
    return ",".join(f"{k}={v}" for k, v in options.items())


def plain_losses(model: str, task: str) -> list[float]:
    return plain(model, task, (8, 11), torch.float32, EPOCHS).losses


@pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")
@pytest.mark.parametrize("options", OPTIONS, ids=shown)
@pytest.mark.parametrize(
    ("model", "task"), [*((m, "link") for m in MODELS), ("cd_gcn", "class"), ("tm_gcn", "node")]
)
def test_an_epoch_of_one_rank_stays_on_the_device(monkeypatch, model, task, options):
    wanted = plain_losses(model, task)
    with pretended_cuda(monkeypatch) as seen:
        comm = LocalCommunicator(device="cuda")
        trainer = SnapshotRankTrainer(comm, workload(model, task), data(), blocks=BLOCKS, **options)
        losses = [trainer.train_epoch()]
        seen.noted.clear()
        losses += [trainer.train_epoch() for _ in range(EPOCHS - 1)]
        # The loss of each block is read, their sum goes to the ranks and is read again.
        # Each epoch waits for the device once, at its end; the sum comes from pageable memory.
        parts, epochs = BLOCKS + 1, EPOCHS - 1
        assert seen.noted == {
            "to_device": epochs, "blocking": epochs, "to_host": parts * epochs, "waits": epochs,
        }  # fmt: skip
        assert all(isinstance(p, Pretended) for p in trainer.model.parameters())
        assert trainer.evaluate().device.type == "cpu"
        assert {x.device for x in trainer.outputs()} == {DEVICE}
        if task != "node":
            assert 0 <= trainer.accuracy() <= 1
    assert losses == pytest.approx(wanted, rel=1e-5)
