"""No tensor of the CPU takes part in a rank's epoch on a device, where there is no device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from esdg_tiny import LIMIT_S, MODELS, data, plain, workload
from pretended_cuda import DEVICE, Pretended, pretended_cuda

from dgbench.runtime.collectives import Communicator, LocalCommunicator
from dgbench.runtime.ranks import launch
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


def train(comm: Communicator, todo: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """Be one of two ranks that share such a device: what they exchange goes through the host."""
    found = []
    with pytest.MonkeyPatch.context() as patch, pretended_cuda(patch):
        comm.device = DEVICE
        for model, options in todo:
            trainer = SnapshotRankTrainer(
                comm, workload(model, "link"), data(), blocks=BLOCKS, **options
            )
            losses = [trainer.train_epoch() for _ in range(EPOCHS)]
            assert all(isinstance(p, Pretended) for p in trainer.model.parameters())
            found.append((losses, trainer.evaluate(), trainer.accuracy()))
    return found


@pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")
def test_epochs_of_two_ranks_stay_on_their_devices():
    todo = [
        ("cd_gcn", {"partition": "snapshot", "pieces": 2}),
        ("tm_gcn", {"partition": "snapshot", "late": True, "reuse": True, "scored": True}),
        ("evolvegcn_o", {"partition": "vertex"}),
        ("cd_gcn", {"partition": "vertex", "pieces": 2, "precompute": False}),
        ("tm_gcn", {"partition": "hybrid", "group": 2}),
        ("cd_gcn", {"partition": "hybrid", "group": 1, "pieces": 2}),
    ]
    for found in launch(train, 2, (todo,), timeout_s=LIMIT_S, threads=1):
        for (model, _), (losses, output, accuracy) in zip(todo, found, strict=True):
            want = plain(model, "link", (8, 11), torch.float32, EPOCHS)
            assert losses == pytest.approx(want.losses, rel=1e-5)
            torch.testing.assert_close(output, want.outputs[-1], rtol=1e-4, atol=1e-5)
            assert 0 <= accuracy <= 1
