"""Ranks on CUDA devices against the plain timeline on the CPU."""

from __future__ import annotations

import pytest
import torch
from esdg_tiny import MODELS, data, plain, workload

from dgbench.kernels_cuda import build_info
from dgbench.systems.esdg.partition_trainer import PARTITIONS
from dgbench.systems.esdg.ranked import SnapshotRankSettings, train_ranked

EPOCHS = 5
LIMIT_S = 150.0  # two processes that load torch and take turns on one device
TOLERANCE = 2e-5  # sums run in another order on a device
USABLE = torch.cuda.is_available() and build_info.build_info()["cuda"]["usable"]

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not USABLE, reason="needs a CUDA device and operators built for it"),
]


@pytest.fixture(autouse=True)
def full_precision(monkeypatch):
    """Products in full single precision, as the reference's."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def trained(model: str, task: str, size: int, **options):
    """A run on devices, whose losses are those of the CPU."""
    run = train_ranked(
        workload(model, task), size, SnapshotRankSettings(blocks=2, **options), epochs=EPOCHS,
        device="cuda", data=data(), accuracy=task != "node", timeout_s=LIMIT_S,
    )  # fmt: skip
    want = plain(model, task, (8, 11), torch.float32, EPOCHS).losses
    assert run.losses == pytest.approx(want, rel=TOLERANCE)
    assert all(0 <= accuracy <= 1 for accuracy in run.accuracy)
    return run


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
        *({"partition": p, "task": t} for p in PARTITIONS for t in ("class", "node")),
        {"partition": "vertex", "pieces": 2, "precompute": False},
        {"partition": "hybrid", "pieces": 2, "fused": False},
    ],
    ids=str,
)
def test_one_rank_on_the_device(model, options):
    run = trained(model, **{"task": "link", "size": 1, **options})
    assert (run.counters.get("bytes_topology", 0) > 0) == ("difference" in options)
    assert run.phases[0]["compute"] > 0


@pytest.mark.parametrize("model", MODELS)
def test_two_ranks_share_a_device(model):
    """Over Gloo through the host; where there are two devices each has its own, over NCCL."""
    trained(model, "link", 2, pieces=2, reuse=True)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
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
    run = trained(model, "link", 2, **options)
    if model != "evolvegcn_o" or options.get("partition"):
        assert run.traffic.total("floats", operation="all_to_all") > 0
