"""PiPAD's memory: what is kept of groups, buffers on a device, frames on their way."""

from __future__ import annotations

import gc
from contextlib import closing

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.kernels_cuda.aggregate import prepared
from dgbench.runtime.meter import Meter
from dgbench.runtime.transfer import open_link
from dgbench.systems.pipad import PipadSystem
from dgbench.systems.pipad.buffers import DeviceBuffer
from dgbench.systems.pipad.delivery import FramePrefetcher, Unit
from dgbench.systems.pipad.kept import KeptGroups, Schedule
from dgbench.systems.pipad.ladders import PUBLISHED, stage
from dgbench.systems.pipad.partitions import Partitions

SIZE = 10


def walk(kept: KeptGroups, order: list[int], schedule: Schedule | None) -> int:
    """Things that are made when these groups are needed one after another."""
    made = 0
    for now, group in enumerate(order):
        if schedule is not None:
            schedule.now = now
        if kept.get((group,), "thing") is None:
            made += 1
            kept.put((group,), "thing", group, SIZE)
        assert kept.nbytes <= kept._limit()
    return made


def fewest(order: list[int], room: int) -> int:
    """Belady's rule written out: what is needed last goes, or is not let in."""
    held: set[int] = set()
    made = 0
    for now, group in enumerate(order):
        if group in held:
            continue
        made += 1
        after = {one: order.index(one, now + 1) if one in order[now + 1 :] else 10**6
                 for one in held | {group}}  # fmt: skip
        held.add(group)
        if len(held) > room:
            held.remove(max(after, key=lambda one: (after[one], one)))
    return made


@given(order=st.lists(st.integers(0, 7), min_size=1, max_size=40), room=st.integers(0, 8))
def test_no_rule_makes_fewer_things(order, room):
    uses = {(group,): [i for i, one in enumerate(order) if one == group] for group in order}

    class Once(Schedule):
        def wait(self, identity):
            later = [i for i in uses[identity] if i > self.now]
            return later[0] - self.now if later else float("inf")

    kept = KeptGroups(lambda: room * SIZE)
    kept.schedule = Once(uses, len(order))
    rebuilt = []
    kept.on_rebuilt = lambda: rebuilt.append(1)
    made = walk(kept, order, kept.schedule)
    assert made == fewest(order, room)
    assert len(rebuilt) == made - len(set(order))


def test_a_schedule_goes_round():
    frames = [range(t, t + 4) for t in range(0, 6, 2)]
    schedule = Schedule.of(
        frames, 2, lambda times: [times[:2], times[2:]], lambda g: (g.start, len(g))
    )
    schedule.now = 2
    assert schedule.wait((2, 2)) == 0
    assert schedule.wait((4, 2)) == 0  # both halves of a frame
    assert schedule.wait((6, 2)) == 2
    assert schedule.wait((0, 2)) == 4  # in the next epoch, six snapshots after it was last
    assert schedule.wait((3, 1)) == 0
    assert schedule.wait((9, 2)) == float("inf")
    schedule.fixed = frozenset({(0, 2)})
    assert schedule.wait((0, 2)) < 0


def test_a_group_goes_as_a_whole_and_never_for_one_that_is_needed_later():
    kept, gone = KeptGroups(lambda: 100), []
    kept.on_evict = gone.append
    kept.schedule = Schedule({(1,): [1], (2,): [2], (3,): [3], (9,): [9]}, 10)
    assert kept.put((3,), "a", "x", 30)
    assert kept.put((3,), "b", "y", 30)
    assert kept.put((2,), "a", "z", 40)
    assert not kept.put((9,), "a", "w", 10)  # all others are needed before
    assert not kept.put((1,), "a", "w", 101)
    assert kept.put((3,), "a", "bigger", 30)  # in the place of itself
    assert not gone
    assert kept.put((1,), "a", "v", 50)
    assert gone == [(3,)]
    assert (kept.nbytes, kept.identities()) == (90, {(1,), (2,)})


LONG = 40
"""Snapshots: more than those of the last groups, which stay whatever the budget is."""

SETTINGS = {
    "defaults": {},
    "operators": {"compiled_step": False},
    "single": {"compiled_step": False, "parallel_aggregation": False},
    "compiled, single": {"parallel_aggregation": False},
    "arena": {"arena": True},
    "whole snapshots": {"arena": True, "overlap": False},
    "resident": {"arena": True, "resident": True},
    "published": stage(PUBLISHED),
    "published, arena": {**stage(PUBLISHED), "arena": True},
}


@pytest.mark.parametrize(
    ("name", "reuse"), [("defaults", True), ("defaults", False), ("operators", True),
                        ("arena", False), ("whole snapshots", True), ("resident", True),
                        ("published", True), ("published, arena", True)]
)  # fmt: skip
def test_training_is_the_same_whatever_may_be_kept(monkeypatch, name, reuse) -> None:
    switches = SETTINGS[name]
    serve(monkeypatch, tiny_sequence(nodes=9, edges=30, snapshots=LONG))
    task = tiny_workload(model="mpnn_lstm", lr=1e-2, frame=4)
    found, rebuilt, used = [], [], 0
    # All that steady frames need may be 0.4 of what preparation leaves: then nothing is rebuilt.
    for share in (1, 0.2, 0):
        monkeypatch.setattr(Partitions, "keep_bytes", int(share * used) if used else 2**30)
        chosen = {**switches, "reuse": reuse}
        with closing(PipadSystem(s_per=2).open(task, switches=chosen)) as trainer:
            trainer.prepare()
            trainer.meter.reset()
            losses = [trainer.step(i) for _ in range(2) for i in range(trainer.num_frames)]
            counters = dict(trainer.meter.counters)
            partitions = trainer.engine.partitions
            assert partitions.kept_bytes <= partitions.keep_bytes
            used = used or partitions.kept_bytes
        rebuilt.append(counters.pop("rebuilt_groups", 0))
        found.append((losses, counters))
    assert found[0] == found[1] == found[2]
    if switches.get("resident"):  # there it is on the device, and not made again
        assert not rebuilt[0]
    else:
        assert 0 == rebuilt[0] < rebuilt[1] < rebuilt[2]


@pytest.mark.parametrize("name", ["operators", "defaults", "compiled, single"])
def test_what_products_made_of_a_group_goes_with_it(monkeypatch, name) -> None:
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=LONG))
    monkeypatch.setattr(Partitions, "keep_bytes", 0)
    task = tiny_workload(model="evolvegcn", frame=4)
    gc.collect()
    before = transposes()
    with closing(PipadSystem(s_per=2).open(task, switches=SETTINGS[name])) as trainer:
        trainer.prepare()
        trainer.train_epoch()
        gc.collect()
        # Of the last 32 snapshots in groups of two, or of a frame and its product.
        assert transposes() - before <= (8 if "single" in name else 16)


def transposes() -> int:
    """Topologies whose transposes live."""
    return sum(
        one._transposed is not None for entries in prepared._known.values() for one in entries
    )


CPU = torch.device("cpu")


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 8)), max_size=12),
    st.booleans(),
)
def test_the_buffer_gives_every_frame_back(frames, holds) -> None:
    """Frames in any order, of any length, with any memory: values right, bytes within bounds."""
    truth = torch.arange(20.0)[:, None, None].expand(20, 2, 3) + torch.rand(20, 2, 3)
    buffer = DeviceBuffer(2, 3, device=CPU, capacity=0, holds=holds)
    resident: set[int] = set()
    times = [range(start, start + length) for start, length, _ in frames]
    for i, (now, (_, _, rows)) in enumerate(zip(times, frames, strict=True)):
        buffer.capacity = 24 * rows + 5
        following = times[i + 1] if i + 1 < len(times) else None
        runs = buffer.fresh(now)
        assert [t for run in runs for t in run] == sorted(set(now) - resident)
        if holds:
            arrived = [truth[run.start : run.stop].clone() for run in runs]
            frame = buffer.frame(now, arrived)
            assert torch.equal(frame, truth[now.start : now.stop])
            for rows_sent in arrived:
                if rows_sent.data_ptr() != frame.data_ptr():
                    rows_sent.fill_(-1)  # the link's memory is used for something else
            buffer.keep(now, following, frame)
        else:
            buffer.keep(now, following)
        shared = sorted(set(now) & set(following or ()))
        resident = set(shared[: min(rows, len(shared))])
        assert set(buffer.resident) == resident
        assert buffer.nbytes <= 24 * max((r for _, _, r in frames[: i + 1]), default=0)
    buffer.close()
    assert buffer.nbytes == 0
    assert not buffer.resident


@pytest.mark.parametrize("asynchronous", [True, False])
def test_memory_is_lent_until_the_step_is_over(asynchronous) -> None:
    """Frames over a real arena: contents stay while later ones arrive, bytes are those sent."""
    meter = Meter()
    rows = torch.arange(40.0).view(20, 2)
    with open_link("cpu", meter, asynchronous=asynchronous, arena=True, slots=4) as link:

        def plan(times: range) -> list[Unit]:
            return [Unit([rows[t].clone()], lambda tensors: tensors[0]) for t in times]

        mail = FramePrefetcher(link, plan, ahead=asynchronous, on_send=lambda unit: None)
        for start in range(0, 18, 3):
            now = range(start, start + 3)
            mail.begin(now)
            held = []
            for k in range(3):
                held.append(mail.take(k))
                mail.look_ahead(range(start + 3, start + 6) if start < 12 else None)
            for t, got in zip(now, held, strict=True):
                assert torch.equal(got, rows[t])
        mail.forget()
    assert meter.counters["bytes_h2d_moved"] == 8 * 18
