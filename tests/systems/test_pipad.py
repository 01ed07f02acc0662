"""PiPAD: every switch keeps the mathematics, counters follow the formulas, reuse removes work."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.slices import slice_csr
from dgbench.lab.printed import same_printed
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base.race import relative
from dgbench.systems.pipad import PipadSystem
from dgbench.systems.pipad.engine import merging_pays
from dgbench.systems.pipad.ladders import PUBLISHED, stage
from dgbench.systems.pipad.partitions import Partitions, split
from dgbench.systems.reference import ReferenceSystem

NAMES = [t.name for t in PipadSystem.techniques]
DEFAULTS = {t.name: t.default for t in PipadSystem.techniques}
SETTINGS = [
    {},
    dict.fromkeys(NAMES, False),
    *({name: not DEFAULTS[name]} for name in NAMES),
    *({**dict.fromkeys(NAMES, False), name: True} for name in NAMES),
    {"slice_coalescing": True, "reuse": False, "cache_rule": False},
]
MODELS = ("tgcn_model", "evolvegcn", "mpnn_lstm")


def _id(switches: dict[str, bool]) -> str:
    return ",".join(f"{k}={int(v)}" for k, v in switches.items()) or "defaults"


@pytest.mark.parametrize("switches", SETTINGS, ids=_id)
@pytest.mark.parametrize("model", MODELS)
def test_every_switch_is_exact(monkeypatch, model, switches) -> None:
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=8))
    task = tiny_workload(model=model, loss_on="every", lr=1e-2)
    mine = PipadSystem(s_per=3).open(task, switches=switches)
    mine.prepare()
    truth = ReferenceSystem(torch.float64).open(task)
    for frame in (0, truth.num_frames - 1):
        assert relative(mine.evaluate(frame), truth.evaluate(frame)) < 1e-5
        got, want = mine.gradients(frame), truth.gradients(frame)
        whole = float(torch.cat([g.flatten() for g in want.values()]).norm())
        for name, gradient in want.items():
            assert float((got[name].double() - gradient).norm()) < 1e-5 * whole, name
    losses = [(mine.step(i), truth.step(i)) for i in range(truth.num_frames)]
    assert all(a == pytest.approx(b, rel=1e-5) for a, b in losses)


@pytest.mark.parametrize(
    "switches",
    [{}, {"compiled_step": False}, {"arena": True}, {"slice_coalescing": True, "reuse": False}],
    ids=_id,
)
def test_without_a_budget_training_is_the_same(monkeypatch, switches) -> None:
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=8))
    task, found = tiny_workload(model="mpnn_lstm", loss_on="every", lr=1e-2), []
    for budget in (0, 2**30):
        monkeypatch.setattr(Partitions, "keep_bytes", budget)
        trainer = PipadSystem(s_per=3).open(task, switches=switches)
        trainer.prepare()
        losses = [trainer.step(i) for _ in range(2) for i in range(trainer.num_frames)]
        trainer.meter.counters.pop("rebuilt_groups", None)
        found.append((losses, trainer.meter.counters))
        trainer.close()
    assert found[0] == found[1]


def _counted(monkeypatch, model: str, **switches: bool) -> dict[str, int]:
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=8))
    trainer = PipadSystem(s_per=2).open(tiny_workload(model=model), switches=switches)
    trainer.prepare()
    trainer.step(0)
    trainer.meter.reset()
    trainer.step(1)
    return dict(trainer.meter.counters)


def test_reuse_leaves_no_aggregation_in_the_tgcn_model(monkeypatch) -> None:
    counters = _counted(monkeypatch, "tgcn_model")
    assert "aggregations" not in counters
    assert "adjacency_bytes_counted" not in counters
    # one new snapshot of 15 vertices and 3 floats enters the frame
    assert counters["bytes_h2d_counted"] == 4 * 15 * 3
    assert counters["reused_aggregations"] == 4


def test_two_layer_models_aggregate_once_a_layer(monkeypatch) -> None:
    merged = _counted(monkeypatch, "evolvegcn", cache_rule=False)
    single = _counted(monkeypatch, "evolvegcn", parallel_aggregation=False)
    assert merged["aggregations"] == 2  # two partitions of two snapshots
    assert single["aggregations"] == 4
    assert _counted(monkeypatch, "evolvegcn", reuse=False)["aggregations"] == 4


def test_bytes_follow_the_word_formula(monkeypatch) -> None:
    data = tiny_sequence(nodes=15, edges=50, snapshots=8)
    groups = [range(1, 3), range(3, 5)]

    def words(csrs) -> int:
        parts = PartTopology.build(csrs)
        total = 0
        for part in (parts.over, *parts.exclusive):
            sliced = slice_csr(part)
            total += part.nnz + 2 * sliced.num_slices + 1
        return total

    expected = sum(4 * words([data.topology[t] for t in group]) for group in groups)
    counters = _counted(monkeypatch, "evolvegcn")
    assert counters["adjacency_bytes_counted"] == expected


@pytest.mark.parametrize("granularity", ["edge", "slice"])
def test_partitions_are_disjoint_and_complete(granularity) -> None:
    data = tiny_sequence(nodes=40, edges=400, snapshots=6)
    partitions = Partitions(data, norm="sym", granularity=granularity)
    for times in split(range(6), 4):
        part = partitions.partition(times)

        def edges(csr) -> set[tuple[int, int]]:
            rows = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())
            return set(zip(rows.tolist(), csr.indices.tolist(), strict=True))

        over = edges(part.parts.over)
        for i, t in enumerate(times):
            rest = edges(part.parts.exclusive[i])
            assert not over & rest
            assert over | rest == edges(data.topology[t])
        assert part.row_scale.shape == (40, len(times))


def test_partitions_are_extracted_once() -> None:
    data = tiny_sequence(snapshots=6)
    partitions = Partitions(data, norm="sym")
    assert partitions.partition(range(0, 4)) is partitions.partition(range(0, 4))


def test_split_covers_a_frame() -> None:
    assert split(range(3, 10), 4) == [range(3, 7), range(7, 10)]
    assert split(range(0), 4) == []


def test_merging_rule() -> None:
    assert merging_pays(8, 10**6, 8)
    assert merging_pays(8, 129, 32)
    assert not merging_pays(8, 20_000, 32)


WIDE, MANY = 32, 20_000
"""Floats and vertices for which a CPU's caches speak against merging eight snapshots."""


def test_the_published_form_merges_every_partition(monkeypatch) -> None:
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=8))
    task = tiny_workload(model="evolvegcn", frame=4)
    for switches, merged in ((stage(PUBLISHED), True), ({}, False)):
        with closing(PipadSystem(s_per=2).open(task, switches=switches)) as trainer:
            trainer.prepare()
            engine = trainer.engine
            assert engine.merges(2, 15, 3)
            assert engine.merges(8, MANY, WIDE) == merged
            assert not engine.merges(1, 15, 3)


def test_a_device_merges_every_partition_whatever_a_cpu_does(monkeypatch) -> None:
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=8))
    task = tiny_workload(model="evolvegcn", frame=4)
    for switches, merged in (({}, True), ({"parallel_aggregation": False}, False),
                             ({"overlap": False}, False)):  # fmt: skip
        with closing(PipadSystem().open(task, switches={"arena": True, **switches})) as trainer:
            trainer.prepare()
            assert trainer.engine.merges(8, MANY, WIDE) == merged


def test_what_is_ours_is_off_in_the_published_form() -> None:
    on = PipadSystem().switches(stage(PUBLISHED))
    papers = {t.name for t in PipadSystem.techniques if not t.source.startswith("ours")}
    assert not {name for name, is_on in on.items() if is_on} - papers


def test_bad_settings_are_named() -> None:
    with pytest.raises(InvalidInputError, match="s_per"):
        PipadSystem(s_per=0)
    with pytest.raises(UnknownKeyError, match="reus"):
        PipadSystem().switches({"reus": True})


@pytest.mark.parametrize(
    ("counted", "printed", "same"),
    [
        (129, 130, True),
        (82_529, 82_000, True),
        (107_930, 108_000, True),
        (170, 170, True),
        (24_930, 7202, False),
        (141, 130, False),
        (7203, 7202, False),
    ],
)
def test_printed_digits(counted, printed, same) -> None:
    assert same_printed(counted, printed) is same
