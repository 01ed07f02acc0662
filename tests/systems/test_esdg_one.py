"""ESDG on one process against the plain trainer: blocks, transfers and switches change nothing."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import TinySequence, csr_of, tiny_sequence

from dgbench.kernels_cuda.csr import Csr
from dgbench.models import TIMELINE_MODELS, build_model
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base import timeline
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


class PlainResult(NamedTuple):
    """Gradients of the plain trainer before its first step, losses of its epochs, its outputs."""

    gradients: dict[str, torch.Tensor]
    losses: list[float]
    outputs: torch.Tensor


def train_plain(work, data, steps: int, dtype) -> PlainResult:
    plain = PlainTimeline(work, data, dtype=dtype)
    gradients = plain.gradients()
    losses = [plain.train_epoch() for _ in range(steps)]
    return PlainResult(gradients, losses, plain.evaluate())


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
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_any_switch_trains_alike(model, weighted, switches):
    for nb in (1, 4):
        same_training(workload(model=model), (7, weighted), switches, nb=nb).close()


@pytest.mark.parametrize("norm", ["sym", "mean"])
def test_either_normalisation_shipped_or_made_on_the_device(norm):
    data = tiny_sequence(features=2, weighted=True)
    for loops in (False, True):
        same_training(workload(norm=norm), data, {"ship_loops": loops}, nb=3).close()


@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_many_steps_in_double_precision(model):
    data, work = tiny_sequence(features=2), workload(model=model)
    plain = PlainTimeline(work, data, dtype=torch.float64)
    blocks = open_esdg(work, data, {"arena": True}, nb=4, dtype=torch.float64)
    want = [plain.train_epoch() for _ in range(20)]
    assert [blocks.train_epoch() for _ in range(20)] == pytest.approx(want, rel=1e-5)
    same_gradients(blocks.gradients(), plain.gradients())
    blocks.close()


def test_gradient_of_evolving_weights_runs_through_all_blocks():
    data, work = tiny_sequence(features=2, snapshots=9), workload(model="evolvegcn_o")
    whole, cut = open_esdg(work, data, nb=1), open_esdg(work, data, nb=8)
    same_gradients(cut.gradients(), whole.gradients())
    # A chain cut at the last border would leave the first weights without most of its gradient.
    last = PlainTimeline(work, tiny_sequence(features=2, snapshots=9))
    assert float(last.gradients()["layer_1.initial"].abs().max()) > 0


@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_one_snapshot(model):
    data = tiny_sequence(features=2, snapshots=1)
    same_training(workload(model=model, task="class"), data, {"arena": True}, nb=1).close()
    with pytest.raises(InvalidInputError, match="needs 2 snapshots"):
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


@pytest.mark.parametrize("difference", [True, False])
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("index", [8, 4])
@pytest.mark.parametrize("keep_last", [True, False])
@pytest.mark.parametrize("prefetch", [True, False])
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


def test_fallback_never_sends_more_than_plain():
    data = tiny_sequence(features=2, kept=0.0, snapshots=6)
    sizes = {}
    for name, switches in (
        ("plain", {"difference": False}),
        ("fallback", {}),
        ("always", {"fallback": False}),
    ):
        trainer = open_esdg(workload(), data, switches, nb=1)
        sizes[name] = trainer.epoch_bytes()
        trainer.close()
    assert sizes["fallback"] <= sizes["plain"] < sizes["always"]


def test_without_checkpoint_inputs_travel_once():
    data = tiny_sequence(features=2)
    off = same_training(workload(), data, {"checkpoint": False, "arena": True}, steps=1)
    assert len(off.blocks) == 1
    on = open_esdg(workload(), data, {"lean": False}, nb=1)
    assert 2 * off.epoch_bytes() == on.epoch_bytes()
    # One block has no border, so nothing is run twice.
    assert off.epoch_bytes() == open_esdg(workload(), data, nb=1).epoch_bytes()
    off.close()
    with pytest.raises(InvalidInputError, match="checkpoint"):
        open_esdg(workload(), data, {"checkpoint": False}, nb=2)


@pytest.mark.parametrize("precompute", [True, False])
@pytest.mark.parametrize("window", [1, 3, 9])
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


@pytest.mark.parametrize("nb", [0, -1, 7, 2.0, True])
def test_a_number_of_blocks_that_is_none(nb):
    with pytest.raises(InvalidInputError, match=r"nb is .* 1 \.\. 6"):
        open_esdg(workload(), tiny_sequence(features=2), nb=nb)


def test_wrong_settings_are_named():
    with pytest.raises(UnknownKeyError, match="cd_gnc"):
        workload(model="cd_gnc").check()
    with pytest.raises(InvalidInputError, match="theta"):
        workload(theta=0.0).check()
    with pytest.raises(InvalidInputError, match="feature_dim is 2"):
        open_esdg(workload(), tiny_sequence(features=3))
    with pytest.raises(InvalidInputError, match="frame is 1"):
        PlainTimeline(workload(), tiny_sequence(features=2)).step(1)
    with pytest.raises(UnknownKeyError, match="diference"):
        SYSTEM.switches({"diference": True})


def test_pairs_and_labels_of_a_timeline():
    data = tiny_sequence(features=2)
    task = TimelineTask(data, workload(theta=0.5))
    assert task.steps == len(data) - 1
    for t in range(task.steps):
        pairs, label = task.pairs(t)
        positive = pairs[:, label == 1].tolist()
        edges = keys(data.topology[t + 1], False)
        assert all((d, s) in edges for s, d in zip(*positive, strict=True))
        assert int(label.sum()) == -(-data.topology[t + 1].nnz // 2)
    labels = class_labels(torch.arange(12.0).view(3, 4), 3)
    assert labels.flatten().tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert class_labels(torch.zeros(2, 3), 1).sum() == 0
    head = build_model("cd_gcn", feature_dim=2, hidden_dim=6, task="class").head
    assert TimelineTask(data, workload(task="class")).hits(head, 0, torch.randn(12, 6))[1] == 12


def test_smoothing_adds_or_unites_repeated_edges(monkeypatch):
    from dgbench.datasets import SnapshotSequence
    from dgbench.datasets.origin import Origin

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
    once = timeline.load_timeline(TimelineWorkload(**{**_fields(life), "repeats": "once"}))
    for t in range(5):
        near = [keys(c, False) for c in data.topology[max(0, t - 2) : t + 1]]
        assert keys(added.topology[t], False) == keys(once.topology[t], False) == set().union(*near)
        assert float(added.topology[t].values.sum()) == sum(map(len, near))
        assert once.topology[t].values is None
    mean = timeline.load_timeline(workload(smoothing="m_transform", window=3))
    torch.testing.assert_close(mean.features[4], data.features[2:5].mean(0))
    same_training(life, added, nb=2).close()


def _fields(work: TimelineWorkload) -> dict:
    return {name: getattr(work, name) for name in work.__struct_fields__}
