"""PiPAD's merging of snapshots: what is aggregated, by which kernel, and what reuse removes."""

from __future__ import annotations

from contextlib import closing

import pytest
from tiny_data import serve, tiny_sequence, tiny_workload

from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.pipad import PipadSystem, kernels, paper_kernel
from dgbench.systems.pipad.engine import merging_pays
from dgbench.systems.pipad.ladders import BARE, PUBLISHED, REUSED, stage
from dgbench.systems.pipad.partitions import split


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


def test_split_covers_a_frame_and_merging_pays_within_a_cache() -> None:
    assert split(range(3, 10), 4) == [range(3, 7), range(7, 10)]
    assert split(range(0), 4) == []
    assert [merging_pays(8, *of) for of in ((10**6, 8), (129, 32), (20_000, 32))] == [1, 1, 0]


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
    ours = {t.name for t in PipadSystem.techniques if t.source.startswith("ours")}
    assert not any(on[name] for name in ours)
    assert not any(stage(BARE).values())
    assert {name for name, is_on in stage(REUSED).items() if is_on} == {"reuse", "pipeline"}


def test_bad_settings_are_named() -> None:
    for name, value in (("s_per", 0), ("slice_cap", 7), ("buffer_bytes", -1)):
        with pytest.raises(InvalidInputError, match=name):
            PipadSystem(**{name: value})
    with pytest.raises(UnknownKeyError, match="reus"):
        PipadSystem().switches({"reus": True})


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("s_per", [1, 2])
@pytest.mark.parametrize("arena", [False, True])
def test_algorithm_1_alone_aggregates(monkeypatch, arena, s_per, reuse) -> None:
    """In preparation and in training, forward and backward, whatever a partition holds."""

    def ours(*_, **__):
        raise AssertionError("a product of ours")

    for node in (kernels.PartitionAggregation, kernels.SnapshotAggregation,
                 kernels.ReceivedAggregation):  # fmt: skip
        monkeypatch.setattr(node, "apply", ours)
    monkeypatch.setattr(kernels, "aggregate_parts_scatter", ours)
    widths: dict[str, list[tuple[int, ...]]] = {}
    for name in ("aggregate_parts_sliced", "scatter_parts_sliced"):
        run, taken = getattr(paper_kernel, name), widths.setdefault(name, [])

        def counted(parts, x, run=run, taken=taken, **named):
            taken.append(tuple(x.shape))
            return run(parts, x, **named)

        monkeypatch.setattr(paper_kernel, name, counted)
    serve(monkeypatch, tiny_sequence(nodes=15, edges=50, snapshots=8))
    switches = stage(PUBLISHED) | {"arena": arena, "reuse": reuse}
    task = tiny_workload(model="evolvegcn", frame=4)
    with closing(PipadSystem(s_per=s_per).open(task, switches=switches)) as trainer:
        trainer.prepare()
        trainer.step(0)
        for taken in widths.values():
            taken.clear()
        trainer.step(1)
    forward, backward = widths.values()
    hidden = [shape for shape in forward if shape == (15, s_per, task.hidden_dim)]
    assert len(hidden) == (4 // s_per) * (1 if arena else 2)  # the transpose is gathered from, too
    assert len(backward) == (4 // s_per if arena else 0)
    assert (len(forward) > len(hidden)) == (not reuse)
