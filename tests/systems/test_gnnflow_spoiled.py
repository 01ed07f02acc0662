"""GNNFlow and TGL spoiled in turn: every experiment that runs a spoiled part fails a check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from paper_rows import row_of
from stream_faults import FAULTS
from stream_tiny import tiny_events

from dgbench import datasets
from dgbench.datasets import EventStream
from dgbench.harness.store.row import VOID
from dgbench.harness.store.standing import judged
from dgbench.systems.base import RunContext
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.gnnflow import cache, owners, partitioners, ranked
from dgbench.systems.gnnflow.access import StoreAccess
from dgbench.systems.gnnflow.block_counts import BlockCounts
from dgbench.systems.gnnflow.contenders import ours
from dgbench.systems.gnnflow.experiments import (
    EXPERIMENTS,
    accesses,
    cache_play,
    fig5,
    fig10,
    fig12,
    fig15,
    large,
    partition,
    table3,
    table4,
)
from dgbench.systems.gnnflow.experiments.round_checks import plain_average_precision
from dgbench.systems.gnnflow.experiments.sample_checks import NearbyStream
from dgbench.systems.gnnflow.system import GnnflowTrainer
from dgbench.systems.tgl.access import RebuiltAccess

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}
DAYS = 12
Spoil = Callable[[pytest.MonkeyPatch], None]


def few_events(*given: Any, **named: Any) -> EventStream:
    """Events of twelve days, whatever is asked for."""
    events = tiny_events(1000, 24, bipartite=True)
    days = (events.t - events.t[0]) / (events.t[-1] - events.t[0]) * DAYS
    return replace(events, t=(days * 86400).floor())


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    monkeypatch.setattr(datasets, "open_events", few_events)
    monkeypatch.setattr(partition, "first_events", few_events)
    monkeypatch.setattr(fig15, "first_events", few_events)
    monkeypatch.setattr(fig10, "EPOCHS", (1, 2))


def run(name: str, **params: Any) -> Any:
    """The first smoke cell of an experiment that has these parameters, and what it measured."""
    for cell in BY_NAME[name].cells("smoke", "cpu"):
        if not cell.unavailable and params.items() <= cell.params.items():
            return cell, BY_NAME[name].run(cell, RunContext("cpu", "smoke", threads=1))
    raise AssertionError(f"{name} has no cell {params}")


def failed(name: str, **params: Any) -> set[str]:
    """Subjects of a cell's failed checks."""
    return {check.of for check in run(name, **params)[1].checks if not check.passed}


# --- ways to be wrong -----------------------------------------------------------------------------


def scaled(owner: Any, method: str, factor: float, least: int = 0) -> Spoil:
    """Results of a method of a trainer are times so much, from a frame on."""

    def spoil(patch: pytest.MonkeyPatch) -> None:
        right = getattr(owner, method)
        patch.setattr(
            owner, method,
            lambda self, frame: right(self, frame) * (factor if frame >= least else 1),
        )  # fmt: skip

    return spoil


def gradients(change: Callable[[str, torch.Tensor], torch.Tensor]) -> Spoil:
    """Gradients of a trainer are others."""

    def spoil(patch: pytest.MonkeyPatch) -> None:
        right = GnnflowTrainer.gradients
        patch.setattr(
            GnnflowTrainer, "gradients",
            lambda self, frame: {n: change(n, g) for n, g in right(self, frame).items()},
        )  # fmt: skip

    return spoil


def five_percent(name: str, gradient: torch.Tensor) -> torch.Tensor:
    return gradient * 1.05 if name == "layers.0.value.weight" else gradient


def future(hop: Any) -> Any:
    """A hop whose every third neighbour is event 199, which most roots have not seen."""
    events = few_events()
    if not hop.eids.numel():
        return hop
    eids, times, neighbours = hop.eids.clone(), hop.edge_times.clone(), hop.neighbours.clone()
    eids[::3], times[::3], neighbours[::3] = 199, events.t[199], events.dst[199]
    return replace(hop, eids=eids, edge_times=times, neighbours=neighbours)


def missing(hop: Any) -> Any:
    """A hop in which every target that has neighbours lacks its newest."""
    counts = hop.offsets.diff()
    keep = torch.ones(hop.eids.numel(), dtype=torch.bool)
    keep[hop.offsets[1:][counts > 0] - 1] = False
    offsets = torch.cat([hop.offsets[:1], (counts - 1).clamp(min=0).cumsum(0)])
    columns = ("neighbours", "eids", "edge_times")
    return replace(hop, offsets=offsets, **{key: getattr(hop, key)[keep] for key in columns})


def sampled(owner: Any, method: str, change: Callable[[Any], Any]) -> Spoil:
    """The outermost hop of what a sampler returns is changed."""

    def spoil(patch: pytest.MonkeyPatch) -> None:
        right = getattr(owner, method)

        def wrong(*given: Any, **named: Any) -> Any:
            found = right(*given, **named)
            if not isinstance(found, list):
                return change(found)
            return [[*hops[:-1], change(hops[-1])] for hops in found]

        patch.setattr(owner, method, wrong)

    return spoil


def swapped(owner: Any, method: str) -> Spoil:
    """Rows come back in another order."""

    def spoil(patch: pytest.MonkeyPatch) -> None:
        right = getattr(owner, method)
        patch.setattr(
            owner, method, lambda self, ids, *a, **k: right(self, ids, *a, **k).roll(1, 0)
        )  # fmt: skip

    return spoil


def replaced(owner: Any, method: str, change: Callable[[Any], Any]) -> Spoil:
    """Change the return value of a function."""

    def spoil(patch: pytest.MonkeyPatch) -> None:
        right = getattr(owner, method)
        patch.setattr(owner, method, lambda *a, **k: change(right(*a, **k)))

    return spoil


def hit_more(found: Any) -> Any:
    found.hits += 1
    return found


def one_more(name: str) -> Callable[[Any], Any]:
    return lambda found: replace(found, **{name: getattr(found, name) + 1})


def blocks_more(patch: pytest.MonkeyPatch) -> None:
    right = BlockCounts.add

    def wrong(self: BlockCounts, vertices: Any, counts: Any) -> None:
        right(self, vertices, counts)
        self.slots += 1

    patch.setattr(BlockCounts, "add", wrong)


def never_trains(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GnnflowTrainer, "train_on", lambda self, events, epoch=0: 0.7)


def forgets(patch: pytest.MonkeyPatch) -> None:
    """A round goes on from the memories that the epoch before left."""
    patch.setattr(GnnflowTrainer, "restore_memory", lambda self, state: None)


def unsummed(patch: pytest.MonkeyPatch) -> None:
    """Ranks do not step by the gradients of all."""
    right = ranked.StreamRankTrainer.gradients
    patch.setattr(
        ranked.StreamRankTrainer, "gradients",
        lambda self, frame: {n: 0.5 * g for n, g in right(self, frame).items()},
    )  # fmt: skip


def flipped(found: Any) -> Any:
    root, eid = found
    return root, eid.flip(0)


def misplaced(found: Any) -> Any:
    chosen, seconds = found
    part = getattr(chosen, "part", None)
    if part is not None:
        part[0] = (part[0] + 1) % chosen.machines
    return chosen, seconds


TRAINED = ("fig10", {"model": "tgat"})
CASES: dict[str, tuple[Spoil, tuple[str, dict[str, Any]], str]] = {
    "outputs": (scaled(GnnflowTrainer, "evaluate", 1.5), TRAINED, "outputs"),
    "outputs late": (scaled(GnnflowTrainer, "evaluate", 1.5, 2), TRAINED, "outputs"),
    "outputs in accuracy": (
        scaled(GnnflowTrainer, "evaluate", 1.5, 2), ("accuracy", {}), "outputs"
    ),
    "outputs of ranks": (
        scaled(ranked.StreamRankTrainer, "evaluate", 1.5), ("fig15", {"model": "tgat"}), "outputs"
    ),
    "no gradients": (gradients(lambda n, g: torch.zeros_like(g)), TRAINED, "gradients"),
    "one gradient": (gradients(five_percent), TRAINED, "gradients"),
    "gradients of ranks": (unsummed, ("fig15", {"model": "tgat"}), "gradients"),
    "losses": (scaled(GnnflowTrainer, "loss", 1.5), TRAINED, "losses"),
    "losses of steps": (scaled(GnnflowTrainer, "step", 1.01), TRAINED, "losses"),
    "losses of rounds": (never_trains, TRAINED, "losses"),
    "memories": (forgets, ("fig10", {"model": "tgn"}), "losses"),
    "future": (sampled(StoreAccess, "sample", future), TRAINED, "outputs"),
    "missing": (sampled(StoreAccess, "sample", missing), TRAINED, "outputs"),
    "future, fig9": (sampled(StoreAccess, "sample", future), ("fig9", {"model": "tgat"}),
                     "samples"),
    "future of TGL": (sampled(RebuiltAccess, "sample", future), ("fig11", {"model": "tgat"}),
                      "outputs"),
    "missing of TGL, fig2": (sampled(RebuiltAccess, "sample", missing),
                             ("fig2", {"baseline": "tgl"}), "outputs"),
    "missing of TGL, table2": (sampled(RebuiltAccess, "sample", missing),
                               ("table2", {"baseline": "tgl"}), "outputs"),
    "rows swapped": (swapped(cache.FeatureCache, "fetch"), TRAINED, "outputs"),
    "rows swapped, fig9": (swapped(cache.FeatureCache, "fetch"), ("fig9", {"model": "tgn"}),
                           "features"),
    "rows swapped, fig14": (swapped(cache.FeatureCache, "fetch"), ("fig14", {"part": "times"}),
                            "rows"),
    "rows swapped, speed": (swapped(cache.FeatureCache, "fetch"),
                            ("cache_ablation", {"part": "speed"}), "rows"),
    "hits": (replaced(cache_play, "dynamic", hit_more), ("fig14", {"part": "hits"}), "counters"),
    "hits of settings": (replaced(cache_play, "dynamic", hit_more),
                         ("cache_ablation", {"part": "hits"}), "counters"),
    "accesses missing": (sampled(accesses, "sample_hops", missing), ("table3", {}), "samples"),
    "accesses of the future": (sampled(accesses, "sample_hops", future), ("table4", {}),
                               "samples"),
    "static accesses missing": (sampled(accesses, "sample_neighbours", missing), ("fig5", {}),
                                "samples"),
    "projected rows": (replaced(fig15, "count_rows", one_more("records")),
                       ("fig15", {"model": "tgat"}), "counters"),
    "rows of a batch": (replaced(table3, "different", lambda n: n + 1), ("table3", {}),
                        "counters"),
    "common members": (replaced(table4, "jaccard", lambda x: x + 0.01), ("table4", {}), "shares"),
    "evenness": (replaced(fig5, "gini", lambda x: x + 0.01), ("fig5", {}), "shares"),
    "blocks": (blocks_more, ("table6", {"dataset": "wikipedia"}), "counters"),
    "blocks of LDBC": (blocks_more, ("large", {"kind": "memory"}), "counters"),
    "records": (replaced(owners, "shares", one_more("records")), ("partition", {}), "counters"),
    "partition": (replaced(partitioners, "partition", misplaced), ("partition", {}), "owners"),
    "samples of layouts": (sampled(fig12, "sample_neighbours", missing),
                           ("fig12", {"dataset": "gdelt"}), "samples"),
    "bytes": (replaced(large, "_printed_bytes", lambda found: {k: n + 1 for k, n in found.items()}),
              ("large", {"kind": "sizes"}), "counters"),
    "swapped roots": (replaced(ours.BlockStoreContender, "first_hop", flipped),
                      ("contenders", {}), "samples"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_spoiled_part_fails_its_cell(case, monkeypatch) -> None:
    spoil, (name, params), wrong = CASES[case]
    spoil(monkeypatch)
    assert wrong in failed(name, **params)


def little_later(patch: pytest.MonkeyPatch) -> None:
    """All samplers look a little into the future, those of oracles, too."""
    for kind in (StoreAccess, RebuiltAccess, PlainStream, NearbyStream):
        right = kind.sample
        patch.setattr(
            kind, "sample",
            lambda self, nodes, times, right=right, **how: right(self, nodes, times + 0.05, **how),
        )  # fmt: skip


SHARED: dict[str, tuple[Spoil, set[str]]] = {
    "half of each batch is trained on": (FAULTS["half of each batch is trained on"],
                                         {"events", "batches", "memories"}),
    "memories are never written": (FAULTS["memories are never written"], {"memories"}),
    "negatives are one vertex": (FAULTS["negatives are one vertex"], {"negatives"}),
    "neighbours are from a little later": (little_later, {"neighbours"}),
}  # fmt: skip
"""Faults that contenders and oracles of Figure 8 have in common."""


@pytest.mark.parametrize("case", SHARED)
def test_what_oracles_share_fails_its_race(case, monkeypatch) -> None:
    spoil, wrong = SHARED[case]
    spoil(monkeypatch)
    _, found = run("fig8")
    lost = [check for check in found.checks if not check.passed]
    assert wrong <= {check.of for check in lost}
    assert {check.system for check in lost} >= {"gnnflow", "tgl"}


CELLS = (
    *dict.fromkeys((name, tuple(params.items())) for _, (name, params), _ in CASES.values()),
    ("update", ()), ("sampling_ablation", (("dataset", "college-msg"),)), ("fig13", ()),
    ("table7", (("kind", "build"),)), ("table5", ()), ("fig8", ()),
)  # fmt: skip


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: "-".join([cell[0], *map(str, cell[1])]))
def test_a_right_cell_passes_and_nothing_stands_without_its_checks(cell) -> None:
    name, params = cell
    planned, found = run(name, **dict(params))
    assert [check.words for check in found.checks if not check.passed] == []
    fields = msgspec.structs.asdict(found)
    fields["observed"] = fields.pop("observations")
    row = row_of(planned, **fields)
    assert judged([row])[0].status == "ok"
    assert judged([row_of(planned, **{**fields, "checks": []})])[0].status == VOID
    other = row_of(planned, 1, status="check", reason="wrong")
    assert judged([row, other])[0].status == VOID


def test_average_precision_by_counting() -> None:
    positive, negative = torch.tensor([0.9, 0.5, 0.5]), torch.tensor([0.6, 0.5, 0.1])
    # The first of one at 0.9; three of five at 0.5, twice.
    assert plain_average_precision(positive, negative) == pytest.approx((1 + 0.6 + 0.6) / 3)
