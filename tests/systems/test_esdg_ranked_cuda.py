"""Ranks on CUDA devices against the plain timeline on the CPU."""

from __future__ import annotations

import pytest
import torch
from test_esdg_spread import MODELS, data, workload

from dgbench.kernels_cuda import build_info
from dgbench.systems.base.timeline import PlainTimeline
from dgbench.systems.esdg.ranked import SnapshotRankSettings, train_ranked

EPOCHS = 5
LIMIT_S = 150.0  # two processes that load torch and take turns on one device
TOLERANCE = 2e-5  # sums run in another order on a device
USABLE = torch.cuda.is_available() and build_info.build_info()["cuda"]["usable"]

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not USABLE, reason="needs a CUDA device and operators built for it"),
]
two_devices = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


@pytest.fixture(autouse=True)
def full_precision(monkeypatch):
    """Products in full single precision, as the reference's."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def plain_losses(model: str, task: str) -> list[float]:
    trainer = PlainTimeline(workload(model, task), data())
    return [trainer.train_epoch() for _ in range(EPOCHS)]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"checkpoint": False},
        {"difference": True},
        {"difference": True, "prefetch": True},
        {"difference": False},
        {"fused": False, "precompute": False},
        {"pieces": 2, "late": True, "reuse": True},
        {"partition": "vertex"},
        {"partition": "vertex", "pieces": 2, "precompute": False},
        {"partition": "hybrid"},
        {"partition": "hybrid", "pieces": 2, "fused": False},
    ],
    ids=str,
)
def test_one_rank_on_the_device(model, options):
    run = train_ranked(
        workload(model, "link"),
        1,
        SnapshotRankSettings(blocks=2, **options),
        epochs=EPOCHS,
        device="cuda",
        data=data(),
        accuracy=True,
    )
    assert run.losses == pytest.approx(plain_losses(model, "link"), rel=TOLERANCE)
    assert (run.counters.get("bytes_topology", 0) > 0) == ("difference" in options)
    assert all(0 <= accuracy <= 1 for accuracy in run.accuracy)
    assert run.phases[0]["compute"] > 0


@pytest.mark.parametrize("task", ["class", "node"])
@pytest.mark.parametrize("partition", ["snapshot", "vertex", "hybrid"])
def test_other_tasks_on_the_device(partition, task):
    run = train_ranked(
        workload("tm_gcn", task),
        1,
        SnapshotRankSettings(blocks=2, partition=partition),
        epochs=EPOCHS,
        device="cuda",
        data=data(),
    )
    assert run.losses == pytest.approx(plain_losses("tm_gcn", task), rel=TOLERANCE)


@pytest.mark.parametrize("model", MODELS)
def test_two_ranks_share_a_device(model):
    """Over Gloo through the host; where there are two devices each has its own, over NCCL."""
    run = train_ranked(
        workload(model, "link"),
        2,
        SnapshotRankSettings(blocks=2, pieces=2, reuse=True),
        epochs=EPOCHS,
        device="cuda",
        data=data(),
        accuracy=True,
        timeout_s=LIMIT_S,
    )
    assert run.losses == pytest.approx(plain_losses(model, "link"), rel=TOLERANCE)


@two_devices
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "options",
    [
        {"pieces": 2},
        {"late": True, "reuse": True},
        {"difference": True},
        {"partition": "vertex"},
        {"partition": "vertex", "pieces": 2, "precompute": False},
        {"partition": "hybrid", "group": 2},
        {"partition": "hybrid", "group": 1, "pieces": 2},
    ],
    ids=str,
)
def test_two_ranks_over_nccl(model, options):
    assert torch.distributed.is_nccl_available(), "two devices and a torch without NCCL"
    run = train_ranked(
        workload(model, "link"),
        2,
        SnapshotRankSettings(blocks=2, **options),
        epochs=EPOCHS,
        device="cuda",
        data=data(),
        timeout_s=LIMIT_S,
    )
    assert run.losses == pytest.approx(plain_losses(model, "link"), rel=TOLERANCE)
    if model != "evolvegcn_o" or options.get("partition"):
        assert run.traffic.total("floats", operation="all_to_all") > 0
