"""Ranks on CUDA devices against the plain timeline on the CPU."""

from __future__ import annotations

import pytest
import torch
from test_esdg_spread import LIMIT_S, MODELS, data, workload

from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base.timeline import PlainTimeline
from dgbench.systems.esdg.ranked import RankSettings, train_ranked

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "options",
    [{}, {"checkpoint": False}, {"difference": True}, {"difference": False}, {"fused": False}],
    ids=str,
)
def test_one_rank_on_the_device(model, options):
    job = workload(model, "link")
    run = train_ranked(
        job, 1, RankSettings(blocks=2, **options), epochs=5, device="cuda", data=data()
    )
    trainer = PlainTimeline(job, data())
    assert run.losses == pytest.approx([trainer.train_epoch() for _ in range(5)], rel=1e-5)
    assert (run.counters.get("bytes_topology", 0) > 0) == ("difference" in options)


@pytest.mark.parametrize("model", MODELS)
def test_ranks_on_devices(model):
    """NCCL where each rank has a device, Gloo through the host where they share one."""
    job = workload(model, "link")
    run = train_ranked(
        job,
        2,
        RankSettings(blocks=2, pieces=2, reuse=True),
        epochs=5,
        device="cuda",
        data=data(),
        accuracy=True,
        timeout_s=LIMIT_S,
    )
    trainer = PlainTimeline(job, data())
    assert run.losses == pytest.approx([trainer.train_epoch() for _ in range(5)], rel=1e-5)


def test_the_baseline_is_refused():
    with pytest.raises(UnsupportedError, match="vertex"):
        train_ranked(
            workload("tm_gcn", "link"), 1, RankSettings(partition="vertex"), device="cuda",
            data=data(),
        )  # fmt: skip
