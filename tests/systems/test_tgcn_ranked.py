"""T-GCN on ranks: the losses, scores and parameters of one device, whatever travels how."""

from __future__ import annotations

import pytest
import torch
from dgc_ranks import as_ranks
from tgcn_tiny import SYSTEM, events, losses, opened, task
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dgbench.datasets import EventStream
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.systems.base.interactions import interaction_data
from dgbench.systems.tgcn import trainer as tgcn_trainer
from dgbench.systems.tgcn.feeding import StagedInterval
from dgbench.systems.tgcn.intervals import Planner
from dgbench.systems.tgcn.ranked import GridRankTrainer, train_ranked

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
        (4, {"aggregate": "last"}, ("overlap", "affected"), {}),
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


class LargestTensor(TorchDispatchMode):
    """Size in bytes of the largest tensor that an operator returned."""

    nbytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        sizes = [x.untyped_storage().nbytes() for x in tree_leaves(found) if torch.is_tensor(x)]
        self.nbytes = max(self.nbytes, *sizes, 0)
        return found


@pytest.mark.parametrize("cut", ["equal", "dealt"])
def test_a_rank_makes_the_state_of_its_own_vertices_alone(cut):
    work, vertices = task(hidden_dim=16), 2**18
    ends = events()
    data = interaction_data(EventStream.build(ends.src, ends.dst, ends.t, num_nodes=vertices), work)

    def largest(comm) -> int:
        with LargestTensor() as seen:
            trainer = GridRankTrainer(comm, work, data, SYSTEM.switches(), vertex_cut=cut)
            trainer.reset_state()
        trainer.close()
        return seen.nbytes

    assert max(as_ranks(4, largest)) < vertices * work.hidden_dim * 4


def test_ranks_keep_the_rows_and_grids_of_their_own_parts_alone():
    one = opened(devices=4)
    with open_link("cpu", Meter()) as link:
        for interval in one.program.partition(one.edges_of(torch.arange(one.data.train_end))):
            whole = StagedInterval.of(interval, link, 1)
            own = [StagedInterval.of(interval, link, 1, rank) for rank in range(4)]
            kept = sum(load.nbytes - load.events.nbytes for load in own)
            assert kept == whole.nbytes - whole.events.nbytes
            assert all(load.travelling == whole.travelling for load in own)
            held = {
                x.untyped_storage().nbytes() for p, _ in own[0].grids.values() for x in p.tensors()
            }
            assert sum(held) <= interval.src.nbytes


def test_a_rank_has_the_labels_and_regions_of_its_own_part_alone(monkeypatch):
    work = task(task="classify")
    data = interaction_data(events(), work)
    opened_regions: list[object] = []
    make = tgcn_trainer.Regions

    def noted(*args, **named):
        opened_regions.append(args)
        return make(*args, **named)

    monkeypatch.setattr(tgcn_trainer, "Regions", noted)

    def labelled(comm) -> tuple[int, int]:
        trainer = GridRankTrainer(comm, work, data, SYSTEM.switches(), vertex_cut="dealt")
        labels = trainer.rounds.device.labels
        held = sum(x.untyped_storage().nbytes() for x in (labels.taught, labels.classes))
        assert len(trainer.accounts) == len(trainer.regions) == 1
        trainer.close()
        return held, 2 * 8 * trainer.parts.sizes[comm.rank]

    assert all(held == own for held, own in as_ranks(4, labelled))
    assert len(opened_regions) == 4


def test_an_interval_is_staged_before_the_next_one_is_planned(monkeypatch):
    """So that of what belongs to other ranks no more than one interval is ever there."""
    order: list[str] = []
    plan, stage = Planner._interval, StagedInterval.of

    def planned(self, *args):
        order.append("plan")
        return plan(self, *args)

    def staged(interval, link, key, own=None):
        order.append("stage")
        assert own is not None
        found = stage(interval, link, key, own)
        assert found.edge_order is found.negative_order is None
        return found

    monkeypatch.setattr(Planner, "_interval", planned)
    monkeypatch.setattr(StagedInterval, "of", staged)
    work = task()
    data = interaction_data(events(), work)

    def prepare(comm) -> None:
        trainer = GridRankTrainer(comm, work, data, SYSTEM.switches())
        trainer.prepare()
        assert trainer.partition_s > 0
        trainer.close()

    as_ranks(1, prepare)
    assert len(order) > 4
    assert order == ["plan", "stage"] * (len(order) // 2)
