"""ESDG on one process against the plain trainer: blocks, transfers and switches change nothing."""

from __future__ import annotations

import itertools

import pytest
import torch
from esdg_tiny import MODELS
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tiny_data import entries_of, tiny_sequence

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.origin import Origin
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base import Workload, timeline
from dgbench.systems.base.timeline import (
    TASKS,
    PlainTimeline,
    TimelineTask,
    TimelineWorkload,
    class_labels,
)
from dgbench.systems.esdg import EsdgSystem, EsdgTrainer
from dgbench.systems.esdg.techniques import ADDITIONS

SYSTEM = EsdgSystem()


def workload(**fields) -> TimelineWorkload:
    base = {"dataset": "tiny", "model": "cd_gcn", "task": "link", "window": 3, "lr": 0.01}
    return TimelineWorkload(**(base | fields))


def open_esdg(work, data, switches=None, **settings) -> EsdgTrainer:
    """A trainer with dgbench's additions on but for these switches."""
    return EsdgTrainer(work, data, SYSTEM.switches(ADDITIONS | (switches or {})), **settings)


def same_gradients(got, want, tolerance: float = 1e-5) -> None:
    """Gradients that cancel to less than a tenth of the largest have no digits of their own."""
    assert set(got) == set(want)
    largest = max(float(grad.abs().max()) for grad in want.values())
    for name, grad in want.items():
        scale = max(float(grad.abs().max()), 0.1 * largest, 1e-6)
        assert float((got[name] - grad).abs().max()) <= tolerance * scale, name


def same_training(work, data, switches=None, steps: int = 2, dtype=torch.float32, **settings):
    """ESDG's trainer after it trained as the plain one."""
    trainer = open_esdg(work, data, switches, dtype=dtype, **settings)
    want = PlainTimeline(work, data, dtype=dtype)
    same_gradients(trainer.gradients(), want.gradients())
    losses = [want.train_epoch() for _ in range(steps)]
    assert [trainer.train_epoch() for _ in range(steps)] == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(trainer.evaluate(), want.evaluate(), rtol=1e-4, atol=1e-6)
    return trainer


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_switch_and_any_blocks_train_alike(draw):
    """On graphs with and without weights, isolated vertices, and snapshots without edges."""

    def one_of(*choices):
        return draw.draw(st.sampled_from(choices))

    task, weighted = one_of(*TASKS), one_of(True, False)
    nodes, steps = draw.draw(st.integers(1, 9)), draw.draw(st.integers(1 + (task != "class"), 8))
    data = tiny_sequence(
        nodes, steps, one_of(0, 5, 20), 2, weighted=weighted, kept=one_of(0.0, 0.8),
        seed=draw.draw(st.integers(0, 99)),
    )  # fmt: skip
    work = workload(
        model=one_of(*MODELS), task=task, window=one_of(1, 2, 3, 9), norm=one_of("sym", "mean")
    )
    switches = {technique.name: one_of(True, False) for technique in SYSTEM.techniques}
    most = steps - (task != "class") if switches["checkpoint"] else 1
    count = draw.draw(st.integers(1, most))
    # On a few vertices gradients may cancel to rounding; doubles leave them digits to compare.
    trainer = same_training(work, data, switches, steps=1, dtype=torch.float64, nb=count)
    assert len(trainer.blocks) == count
    trainer.close()


def keys(csr: Csr, loops: bool = False) -> set[tuple[int, int]]:
    found = set(entries_of(csr))
    return found | {(v, v) for v in range(csr.num_rows)} if loops else found


@pytest.mark.parametrize(
    ("difference", "loops", "values", "index"),
    list(itertools.product(*[(True, False)] * 3, (8, 4))),
)
def test_bytes_follow_the_formula(difference, loops, values, index):
    keep_last, prefetch = loops == values, difference == (index == 8)
    data = tiny_sequence(features=2, snapshots=8, kept=0.9)
    switches = {
        "arena": True, "difference": difference, "ship_loops": loops, "lean": False,
        "recompute_values": not values, "int32": index == 4, "keep_last": keep_last,
        "prefetch": prefetch,
    }  # fmt: skip
    trainer = open_esdg(workload(), data, switches, nb=3)
    once, plains = [], 0
    for block in trainer.blocks:
        once.append(0)
        for t in block:
            now = keys(data.topology[t], loops)
            changes = len(now ^ keys(data.topology[t - 1], loops)) if t else 0
            if t == block.start or not difference or changes > len(now):
                changes = len(now)
                plains += 1
            once[-1] += 2 * index * changes + 4 * len(now) * values + 4 * data.num_nodes * 2
    expected = 2 * sum(once) - keep_last * once[-1]
    trainer.train_epoch()
    counters = trainer.meter.counters
    assert counters["bytes_h2d_counted"] == counters["bytes_h2d_moved"] == expected
    assert counters["bytes_topology"] + counters["bytes_features"] == expected
    assert counters["bytes_recorded"] == sum(once)
    assert trainer.epoch_bytes() == expected
    assert trainer.report()["plain_snapshots"] == plains
    runs = [*trainer.blocks, *trainer.blocks[: -1 if keep_last else None]]
    brought = counters["snapshots_plain"] + counters["snapshots_difference"]
    assert brought == sum(map(len, runs))
    trainer.close()


@pytest.mark.parametrize("precompute", [True, False])
@pytest.mark.parametrize("window", [1, 9])
@pytest.mark.parametrize("model", MODELS)
def test_a_lean_first_pass_brings_what_borders_need(model, window, precompute):
    data = tiny_sequence(features=2, snapshots=9)
    work = workload(model=model, window=window)
    switches = {"arena": True, "precompute": precompute}
    lean = same_training(work, data, switches, nb=3)
    whole = open_esdg(work, data, switches | {"lean": False}, nb=3)
    once = whole.epoch_bytes() // 2
    again, features = lean.epoch_bytes() - once, 4 * data.num_nodes * 2
    sizes = [len(block) for block in lean.blocks[:-1]]
    if model == "evolvegcn_o":
        assert again == 0
    elif model == "tm_gcn" and (precompute or window == 1):
        assert again == features * sum(min(window - 1, size) for size in sizes)
    else:  # all but the last block
        assert again == whole.delivery.topology_bytes(lean.blocks[:-1]) + features * sum(sizes)
        assert again < once
    lean.meter.counters.clear()
    lean.train_epoch()
    names = ("bytes_h2d_moved", "blocks_forward", "blocks_rerun")
    assert [lean.meter.counters[name] for name in names] == [lean.epoch_bytes(), 3, 2]
    lean.close()
    whole.close()


def test_wrong_settings_are_named():
    data = tiny_sequence(features=2)
    for nb in (0, -1, 7, 2.0, True):
        with pytest.raises(InvalidInputError, match="nb"):
            open_esdg(workload(), data, nb=nb)
    for error, name, call in (
        (UnknownKeyError, "cd_gnc", lambda: workload(model="cd_gnc").check()),
        (InvalidInputError, "theta", lambda: workload(theta=0.0).check()),
        (InvalidInputError, "feature_dim", lambda: open_esdg(workload(), tiny_sequence())),
        (InvalidInputError, "snapshots",
         lambda: open_esdg(workload(), tiny_sequence(features=2, snapshots=1))),
        (InvalidInputError, "frame", lambda: PlainTimeline(workload(), data).step(1)),
        (UnknownKeyError, "diference", lambda: SYSTEM.switches({"diference": True})),
        (InvalidInputError, "checkpoint",
         lambda: open_esdg(workload(), data, {"checkpoint": False}, nb=2)),
    ):  # fmt: skip
        with pytest.raises(error, match=name):
            call()
    assert SYSTEM.unsupported(Workload(dataset="tiny", model="evolvegcn"), "cpu")
    assert not SYSTEM.unsupported(workload(), "cpu")


def test_pairs_and_labels_of_a_timeline():
    data = tiny_sequence(features=2)
    task = TimelineTask(data, workload(theta=0.5))
    for t in range(task.steps):
        pairs, label = task.pairs(t)
        edges = keys(data.topology[t + 1])
        assert all((d, s) in edges for s, d in pairs[:, label == 1].t().tolist())
        assert int(label.sum()) == -(-len(edges) // 2)
    labels = class_labels(torch.arange(12.0).view(3, 4), 3)
    assert labels.flatten().tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_smoothing_adds_or_unites_repeated_edges(monkeypatch):
    tiny, origin = tiny_sequence(features=2, snapshots=5), Origin("tiny", "twin")
    whole = SnapshotSequence(tiny.topology, tiny.features, tiny.targets, tiny.num_nodes, origin)
    monkeypatch.setattr("dgbench.datasets.open_snapshots", lambda spec: whole)
    assert len(timeline.load_timeline(workload(snapshots=4))) == 4
    assert timeline.smooth(whole, workload()) is whole
    life = workload(smoothing="edge_life", edge_life=3)
    added = timeline.load_timeline(life)
    once = timeline.load_timeline(structs.replace(life, repeats="once"))
    for t in range(5):
        near = [keys(c) for c in whole.topology[max(0, t - 2) : t + 1]]
        assert keys(added.topology[t]) == keys(once.topology[t]) == set().union(*near)
        assert float(added.topology[t].values.sum()) == sum(map(len, near))
        assert once.topology[t].values is None
    mean = timeline.load_timeline(workload(smoothing="m_transform", window=3))
    torch.testing.assert_close(mean.features[4], whole.features[2:5].mean(0))
    same_training(life, added, nb=2).close()


def test_the_next_block_travels_while_one_computes():
    data, work = tiny_sequence(features=2, snapshots=9), workload()
    trainer = open_esdg(work, data, {"arena": True}, nb=4)
    trainer.prepare()
    seen, load = [], trainer.delivery.load
    way = trainer.delivery

    def watched(block, recorded):
        seen.append((block, way._coming is not None and way._coming.block == block))
        return load(block, recorded)

    trainer.runner._load = watched
    trainer.train_epoch()
    blocks = trainer.blocks
    assert [b for b, _ in seen] == [*blocks[:-1], *reversed(blocks)]
    assert [ahead for _, ahead in seen] == [False] + [True] * 6
    trainer.close()
