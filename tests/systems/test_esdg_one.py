"""ESDG on one process against the plain trainer: blocks, transfers and switches change nothing."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
import torch
from esdg_tiny import PlainResult
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tiny_data import TinySequence, csr_of, tiny_sequence

from dgbench.datasets import SnapshotSequence
from dgbench.datasets.origin import Origin
from dgbench.kernels_cuda.csr import Csr
from dgbench.models import TIMELINE_MODELS
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base import Workload, timeline
from dgbench.systems.base.timeline import (
    TASKS,
    PlainTimeline,
    TimelineTask,
    TimelineWorkload,
    class_labels,
    smooth,
)
from dgbench.systems.esdg import EsdgSystem, EsdgTrainer
from dgbench.systems.esdg.techniques import ADDITIONS

SYSTEM = EsdgSystem()
CHOICES = {
    "default": {},
    "arena": {"arena": True},
    "arena, copied at once": {"arena": True, "asynchronous": False},
    "plain": {"difference": False},
    "loops": {"ship_loops": True, "arena": True},
    "degrees": {"recompute_values": True},
    "loops, degrees": {"ship_loops": True, "recompute_values": True},
    "int32": {"int32": True, "arena": True},
    "no precomputation": {"precompute": False},
    "keep last": {"keep_last": True, "arena": True},
    "always difference": {"fallback": False},
    "torch's LSTM": {"fused_scan": False},
    "whole first pass": {"lean": False, "arena": True},
    "nothing ahead": {"prefetch": False, "arena": True},
    "scored while made": {"interleave": True, "arena": True},
    "coordinates": {"paper_layout": True, "arena": True},
    "coordinates, loops": {"paper_layout": True, "ship_loops": True, "precompute": False},
    "the paper's": {"lean": False, "prefetch": False, "interleave": False, "fallback": False,
                    "fused_scan": False, "paper_layout": True, "arena": True},
}  # fmt: skip


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


@cache
def small_graph(snapshots: int = 7, weighted: bool = False) -> TinySequence:
    """Tiny sequence of two features that no test changes."""
    return tiny_sequence(features=2, snapshots=snapshots, weighted=weighted)


def train_plain(work, data, steps: int, dtype) -> PlainResult:
    trainer = PlainTimeline(work, data, dtype=dtype)
    gradients = trainer.gradients()
    return PlainResult(gradients, [trainer.train_epoch() for _ in range(steps)], trainer.evaluate())


@cache
def plain_on_small_graph(work, snapshots: int, weighted: bool, steps: int, dtype) -> PlainResult:
    return train_plain(work, small_graph(snapshots, weighted), steps, dtype)


def same_training(
    work, data, switches=None, steps: int = 2, dtype=torch.float32, **settings
) -> EsdgTrainer:
    """ESDG's trainer after it trained as the plain one.

    The plain trainer runs once for each workload on a graph that is given as arguments of
    `small_graph`, and each time on any other.
    """
    if isinstance(data, tuple):
        plain, data = plain_on_small_graph(work, *data, steps, dtype), small_graph(*data)
    else:
        plain = train_plain(work, data, steps, dtype)
    blocks = open_esdg(work, data, switches, dtype=dtype, **settings)
    same_gradients(blocks.gradients(), plain.gradients)
    got = [blocks.train_epoch() for _ in range(steps)]
    assert got == pytest.approx(plain.losses, rel=1e-5)
    torch.testing.assert_close(blocks.evaluate(), plain.outputs, rtol=1e-4, atol=1e-6)
    return blocks


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", TIMELINE_MODELS)
@pytest.mark.parametrize("nb", [1, 2, 4, "T"])
def test_any_number_of_blocks_trains_alike(model, task, nb):
    snapshots = 8  # seven steps or eight: 2 and 4 leave a rest
    work = workload(model=model, task=task)
    count = snapshots - (task != "class") if nb == "T" else nb
    trainer = same_training(work, (snapshots, False), nb=count)
    assert len(trainer.blocks) == count
    trainer.close()


@pytest.mark.parametrize("switches", CHOICES.values(), ids=CHOICES.keys())
@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_any_switch_trains_alike(model, switches):
    for nb, weighted in ((1, True), (4, False), (4, True)):
        same_training(workload(model=model), (7, weighted), switches, nb=nb).close()


@pytest.mark.parametrize("norm", ["sym", "mean"])
def test_either_normalisation_shipped_or_made_on_the_device(norm):
    data = tiny_sequence(features=2, weighted=True)
    for loops in (False, True):
        same_training(workload(norm=norm), data, {"ship_loops": loops}, nb=3).close()


@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_one_snapshot(model):
    data = tiny_sequence(features=2, snapshots=1)
    same_training(workload(model=model, task="class"), data, {"arena": True}, nb=1).close()
    with pytest.raises(InvalidInputError, match="snapshots"):
        open_esdg(workload(model=model), data)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_random_graphs_cuts_and_switches(draw):
    nodes, steps = draw.draw(st.integers(1, 9)), draw.draw(st.integers(2, 6))
    pair = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    topology = [csr_of(draw.draw(st.sets(pair, max_size=20)), nodes) for _ in range(steps)]
    noise = torch.Generator().manual_seed(draw.draw(st.integers(0, 99)))
    x = torch.randn(steps, nodes, 2, generator=noise)
    data = TinySequence(topology, x, torch.randn(steps, nodes, generator=noise), nodes)
    work = workload(
        model=draw.draw(st.sampled_from(TIMELINE_MODELS)),
        task=draw.draw(st.sampled_from(["class", "node"])),
        window=draw.draw(st.integers(1, 4)),
    )
    names = [t.name for t in SYSTEM.techniques if t.name != "checkpoint"]
    switches = {name: draw.draw(st.booleans()) for name in names}
    most = steps - (work.task != "class")
    blocks = draw.draw(st.integers(1, most))
    # On a few vertices gradients may cancel to rounding; doubles leave them digits to compare.
    same_training(work, data, switches, steps=1, dtype=torch.float64, nb=blocks).close()


def keys(csr: Csr, loops: bool) -> set[tuple[int, int]]:
    rows = torch.arange(csr.num_rows).repeat_interleave(csr.indptr.diff())
    found = set(zip(rows.tolist(), csr.indices.tolist(), strict=True))
    return found | {(v, v) for v in range(csr.num_rows)} if loops else found


@pytest.mark.parametrize("keep_last", [True, False])
@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize(
    ("difference", "loops", "values", "index"),
    list(itertools.product(*[(True, False)] * 3, (8, 4))),
)
def test_bytes_follow_the_formula(difference, loops, values, index, keep_last, prefetch):
    data, work = tiny_sequence(features=2, snapshots=8, kept=0.9), workload()
    switches = {
        "arena": True,
        "difference": difference,
        "ship_loops": loops,
        "recompute_values": not values,
        "int32": index == 4,
        "keep_last": keep_last,
        "prefetch": prefetch,
        "lean": False,
    }
    trainer = open_esdg(work, data, switches, nb=3)
    once, plain = [], 0
    for block in trainer.blocks:
        total = 0
        for t in block:
            now = keys(data.topology[t], loops)
            before = keys(data.topology[t - 1], loops) if t else set()
            changes = len(now ^ before)
            if t == block.start or not difference or changes > len(now):
                changes = len(now)
                plain += 1
            total += 2 * index * changes + 4 * len(now) * values + 4 * data.num_nodes * 2
        once.append(total)
    expected = 2 * sum(once) - keep_last * once[-1]
    trainer.train_epoch()
    counters = trainer.meter.counters
    assert counters["bytes_h2d_counted"] == counters["bytes_h2d_moved"] == expected
    assert counters["bytes_topology"] + counters["bytes_features"] == expected
    assert counters["bytes_recorded"] == sum(once)
    assert trainer.epoch_bytes() == expected
    assert trainer.report()["plain_snapshots"] == plain
    assert counters["snapshots_plain"] + counters["snapshots_difference"] == sum(
        len(b) for b in [*trainer.blocks, *trainer.blocks[: -1 if keep_last else None]]
    )
    trainer.close()


def test_without_checkpoint_inputs_travel_once():
    switches = {"checkpoint": False, "arena": True}
    off = same_training(workload(), small_graph(), switches, steps=1)
    assert len(off.blocks) == 1
    on = open_esdg(workload(), small_graph(), {"lean": False}, nb=1)
    assert 2 * off.epoch_bytes() == on.epoch_bytes()
    off.close()


@pytest.mark.parametrize("precompute", [True, False])
@pytest.mark.parametrize("window", [1, 9])
@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_a_lean_first_pass_brings_what_borders_need(model, window, precompute):
    data = small_graph(9)
    work = workload(model=model, window=window)
    switches = {"arena": True, "precompute": precompute}
    lean = same_training(work, (9, False), switches, nb=3)
    whole = open_esdg(work, data, switches | {"lean": False}, nb=3)
    once = whole.epoch_bytes() // 2
    again = lean.epoch_bytes() - once
    features = 4 * data.num_nodes * 2
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
    assert lean.meter.counters["bytes_h2d_moved"] == lean.epoch_bytes()
    assert lean.meter.counters["blocks_forward"] == 3
    assert lean.meter.counters["blocks_rerun"] == 2
    lean.close()
    whole.close()


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
    assert way._coming is None
    # What was begun and is not wanted is given up.
    way.expect(blocks[0])
    with load(blocks[1]) as inputs:
        assert sorted(inputs.matrices) == list(blocks[1])
    trainer.close()
    one = open_esdg(work, data, {"arena": True}, nb=1)
    assert not one.prefetching


def test_wrong_settings_are_named():
    for nb in (0, -1, 7, 2.0, True):
        with pytest.raises(InvalidInputError, match="nb"):
            open_esdg(workload(), tiny_sequence(features=2), nb=nb)
    for error, name, call in (
        (UnknownKeyError, "cd_gnc", lambda: workload(model="cd_gnc").check()),
        (InvalidInputError, "theta", lambda: workload(theta=0.0).check()),
        (InvalidInputError, "feature_dim", lambda: open_esdg(workload(), tiny_sequence())),
        (InvalidInputError, "frame", lambda: PlainTimeline(workload(), small_graph()).step(1)),
        (UnknownKeyError, "diference", lambda: SYSTEM.switches({"diference": True})),
        (InvalidInputError, "checkpoint",
         lambda: open_esdg(workload(), small_graph(), {"checkpoint": False}, nb=2)),
    ):  # fmt: skip
        with pytest.raises(error, match=name):
            call()
    frames = Workload(dataset="tiny", model="evolvegcn")
    assert SYSTEM.unsupported(frames, "cpu")
    assert not SYSTEM.unsupported(workload(), "cpu")


def test_pairs_and_labels_of_a_timeline():
    task = TimelineTask(small_graph(), workload(theta=0.5))
    for t in range(task.steps):
        pairs, label = task.pairs(t)
        positive = pairs[:, label == 1].tolist()
        edges = keys(small_graph().topology[t + 1], False)
        assert all((d, s) in edges for s, d in zip(*positive, strict=True))
        assert int(label.sum()) == -(-small_graph().topology[t + 1].nnz // 2)
    labels = class_labels(torch.arange(12.0).view(3, 4), 3)
    assert labels.flatten().tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_smoothing_adds_or_unites_repeated_edges(monkeypatch):
    tiny = tiny_sequence(features=2, snapshots=5)
    data = SnapshotSequence(
        tiny.topology, tiny.features, tiny.targets, tiny.num_nodes, Origin("tiny", "twin")
    )
    monkeypatch.setattr("dgbench.datasets.open_snapshots", lambda spec: data)
    same = timeline.load_timeline(workload(snapshots=4))
    assert len(same) == 4
    assert smooth(data, workload()) is data
    life = workload(smoothing="edge_life", edge_life=3)
    added = timeline.load_timeline(life)
    once = timeline.load_timeline(structs.replace(life, repeats="once"))
    for t in range(5):
        near = [keys(c, False) for c in data.topology[max(0, t - 2) : t + 1]]
        assert keys(added.topology[t], False) == keys(once.topology[t], False) == set().union(*near)
        assert float(added.topology[t].values.sum()) == sum(map(len, near))
        assert once.topology[t].values is None
    mean = timeline.load_timeline(workload(smoothing="m_transform", window=3))
    torch.testing.assert_close(mean.features[4], data.features[2:5].mean(0))
    same_training(life, added, nb=2).close()
