"""ESDG's ranks on devices, pretended and real ones: the losses of the plain timeline on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from esdg_tiny import MODELS, data, losses_of, workload
from pretended_cuda import DEVICE, Pretended, pretended_cuda

from dgbench.kernels_cuda import build_info
from dgbench.runtime.collectives import LocalCommunicator
from dgbench.systems.esdg.partition_trainer import SnapshotRankTrainer
from dgbench.systems.esdg.ranked import SnapshotRankSettings, train_ranked

LIMIT_S = 150.0  # two processes that load torch and take turns on one device
TOLERANCE = 2e-5  # sums run in another order on a device
USABLE = torch.cuda.is_available() and build_info.build_info()["cuda"]["usable"]
WITHOUT = pytest.mark.skipif(not USABLE, reason="needs a CUDA device and operators built for it")
JOBS = (*((model, "link") for model in MODELS), ("cd_gcn", "class"), ("tm_gcn", "node"))
OPTIONS: list[dict[str, Any]] = [
    {},
    {"pieces": 2, "late": True, "reuse": True},
    {"scored": True},
    {"pieces": 2, "late": True, "reuse": True, "scored": True},
    {"checkpoint": False, "precompute": False, "fused": False},
    {"partition": "vertex"},
    {"partition": "vertex", "pieces": 2, "checkpoint": False, "precompute": False},
    {"partition": "hybrid"},
    {"partition": "hybrid", "pieces": 2, "lean": True, "fused": False},
]
BROUGHT = [{"difference": True}, {"difference": True, "prefetch": True}, {"difference": False}]


def by_turns(options: list[dict[str, Any]]) -> list[tuple[str, str, dict[str, Any]]]:
    """Each of the options with two of the jobs."""
    return [(*JOBS[(i + k) % len(JOBS)], o) for i, o in enumerate(options) for k in (0, 2)]


@pytest.fixture
def full_precision(monkeypatch):
    """Products in full single precision, as the reference's."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")
@pytest.mark.parametrize(
    ("model", "task", "options"),
    by_turns([*OPTIONS, {"partition": "vertex", "dtype": torch.float64}])[::2],
    ids=str,
)
def test_an_epoch_of_one_rank_stays_on_the_device(monkeypatch, model, task, options):
    """No tensor of the CPU takes part, where there is no device."""
    wanted = losses_of(model, task, 2)
    with pretended_cuda(monkeypatch) as seen:
        comm = LocalCommunicator(device="cuda")
        trainer = SnapshotRankTrainer(comm, workload(model, task), data(), blocks=2, **options)
        losses = [trainer.train_epoch()]
        seen.noted.clear()
        losses.append(trainer.train_epoch())
        # The loss of each block is read, their sum goes to the ranks and is read again.
        # An epoch waits for the device once, at its end; the sum comes from pageable memory.
        assert seen.noted == {"to_device": 1, "blocking": 1, "to_host": 3, "waits": 1}
        assert all(isinstance(p, Pretended) for p in trainer.model.parameters())
        assert trainer.evaluate().device.type == "cpu"
        assert {x.device for x in trainer.outputs()} == {DEVICE}
        if task != "node":
            assert 0 <= trainer.accuracy() <= 1
    assert losses == pytest.approx(wanted, rel=1e-5)


def trained(model: str, task: str, size: int, **options: Any) -> Any:
    """A run on devices, whose losses are those of the CPU."""
    run = train_ranked(
        workload(model, task), size, SnapshotRankSettings(blocks=2, **options), epochs=5,
        device="cuda", data=data(), accuracy=task != "node", timeout_s=LIMIT_S,
    )  # fmt: skip
    assert run.losses == pytest.approx(losses_of(model, task, 5), rel=TOLERANCE)
    assert all(0 <= accuracy <= 1 for accuracy in run.accuracy)
    return run


@pytest.mark.cuda
@WITHOUT
@pytest.mark.parametrize(("model", "task", "options"), by_turns([*OPTIONS, *BROUGHT]), ids=str)
def test_one_rank_on_the_device(full_precision, model, task, options):
    run = trained(model, task, 1, **options)
    assert (run.counters.get("bytes_topology", 0) > 0) == ("difference" in options)
    assert run.phases[0]["compute"] > 0


SHARED = {"pieces": 2, "reuse": True}
OVER_NCCL = [
    OPTIONS[1], BROUGHT[0], *OPTIONS[5:7], {"partition": "hybrid", "group": 2},
    {"partition": "hybrid", "group": 1, "pieces": 2},
]  # fmt: skip


@pytest.mark.cuda
@WITHOUT
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("options", [SHARED, *OVER_NCCL], ids=str)
def test_two_ranks(full_precision, model, options):
    """Over Gloo through the host on one device, over NCCL where each has its own."""
    if options is not SHARED and torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    run = trained(model, "link", 2, **options)
    if model != "evolvegcn_o" or options.get("partition"):
        assert run.traffic.total("floats", operation="all_to_all") > 0
