"""T-GCN on ranks: the losses, scores and parameters of one device, whatever travels how."""

from __future__ import annotations

import pytest
import torch
from tgcn_tiny import events, losses, opened, task

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.tgcn.ranked import train_ranked

DOUBLE = {"dtype": torch.float64, "timeout_s": 60.0}


def ranked(work, ranks, off=(), **options):
    data = interaction_data(events(), work)
    return train_ranked(
        work,
        ranks,
        data=data,
        switches=dict.fromkeys(off, False),
        score=(data.train_end, len(data.events)),
        **DOUBLE,
        **options,
    )


@pytest.mark.parametrize(
    ("ranks", "work", "off", "options"),
    [
        (1, {}, (), {}),
        (2, {}, (), {"vertex_cut": "dealt"}),
        (4, {}, (), {}),
        (4, {"aggregate": "last"}, ("overlap", "touched"), {}),
        (3, {}, (), {}),
        (4, {}, ("schedule",), {}),
        (2, {"task": "classify"}, (), {}),
    ],
    ids=str,
)
def test_ranks_train_as_one_device_does(ranks, work, off, options):
    work = task(**work)
    one = opened(work)
    wanted = losses(one)
    found = ranked(work, ranks, off, **options)
    scored = [*found.losses, found.scores.loss, found.scores.accuracy]
    assert scored == pytest.approx(wanted, abs=1e-9, rel=0, nan_ok=True)
    for name, value in one.state().items():
        assert torch.allclose(found.state[name], value, atol=1e-9, rtol=0), name
    assert found.edges == one.kept[0].numel()
    assert len(found.work_s) == ranks


def test_what_ranks_send_is_what_virtual_devices_do():
    work = task()
    virtual = opened(work, devices=4)
    virtual.train_epoch()
    found = ranked(work, 4)
    sent = sum(one["bytes_swapped"] for one in found.counters)
    assert sent == virtual.meter.counters["bytes_swapped"]
    assert all(one["bytes_swapped"] < sent for one in found.counters)
    # Only partners hear of it: nothing goes between devices that are not next to each other.
    ring = virtual.rounds.schedule.ring
    neighbours = {(ring[k], ring[(k + d) % 4]) for k in range(4) for d in (1, 3)}
    matrix = found.traffic.matrix(operation="all_to_all")
    pairs = {(i, j) for i in range(4) for j in range(4) if matrix[i, j]}
    assert pairs
    assert pairs <= neighbours
    assert int(matrix.sum()) == sent


def test_ranks_need_a_partition():
    with pytest.raises(InvalidInputError, match="'partition' is off"):
        ranked(task(), 1, ("partition",))
    with pytest.raises(InvalidInputError, match="0 ranks"):
        ranked(task(), 0)
