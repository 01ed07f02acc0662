"""GNNFlow and TGL spoiled in turn: every experiment that runs a spoiled part fails a check.

Cells of sound parts pass in `reproduce --preset smoke`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from nightly_cases import mostly_nightly
from stream_faults import FAULTS, Plant, around, changed, instead
from stream_tiny import tiny_events
from torch import Tensor

from dgbench import datasets
from dgbench.datasets import EventStream
from dgbench.systems.base import RunContext
from dgbench.systems.gnnflow import cache, owners, ranked
from dgbench.systems.gnnflow import experiments as ex
from dgbench.systems.gnnflow.access import StoreAccess
from dgbench.systems.gnnflow.block_counts import BlockCounts
from dgbench.systems.gnnflow.contenders import ours
from dgbench.systems.gnnflow.experiments import EXPERIMENTS
from dgbench.systems.gnnflow.system import GnnflowTrainer
from dgbench.systems.tgl.access import RebuiltAccess

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}
DAYS = 12


def few_events(*given: Any, count: int = 500, **named: Any) -> EventStream:
    """Events of twelve days, whatever is asked for."""
    events = tiny_events(count, 24, bipartite=True)
    days = (events.t - events.t[0]) / (events.t[-1] - events.t[0]) * DAYS
    return replace(events, t=(days * 86400).floor())


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    monkeypatch.setattr(datasets, "open_events", few_events)
    monkeypatch.setattr(ex.partition, "first_events", few_events)
    monkeypatch.setattr(ex.fig15, "first_events", partial(few_events, count=700))
    monkeypatch.setattr(ex.fig10, "EPOCHS", (1, 2))


def run(name: str, which: str = "") -> Any:
    """Measurement of the first smoke cell of an experiment with a parameter."""
    for cell in BY_NAME[name].cells("smoke", "cpu"):
        params = [f"{key}={value}" for key, value in cell.params.items()]
        if not cell.unavailable and (not which or which in params):
            return BY_NAME[name].run(cell, RunContext("cpu", "smoke", threads=1, budget_s=0.02))
    raise AssertionError(f"{name} has no cell {which}")


def both(*plants: Plant) -> Plant:
    """Faults of several subjects at once."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for one in plants:
            one(patch)

    return plant


def scaled(owner: Any, method: str, factor: float, least: int = 0) -> Plant:
    """Results of a method of a trainer are times so much, from a frame on."""
    return around(
        owner, method,
        lambda was, self, frame: was(self, frame) * (factor if frame >= least else 1),
    )  # fmt: skip


def gradients(change: Callable[[str, Tensor], Tensor], owner: Any = GnnflowTrainer) -> Plant:
    """Gradients of a trainer are others."""
    return around(
        owner, "gradients",
        lambda was, self, frame: {n: change(n, g) for n, g in was(self, frame).items()},
    )  # fmt: skip


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


def sampled(owner: Any, method: str, change: Callable[[Any], Any]) -> Plant:
    """The outermost hop of what a sampler returns is changed."""
    return changed(
        owner, method,
        lambda found: [[*hops[:-1], change(hops[-1])] for hops in found]
        if isinstance(found, list) else change(found),
    )  # fmt: skip


def more(name: str) -> Callable[[Any], Any]:
    return lambda found: replace(found, **{name: getattr(found, name) + 1})


def request_more(found: Any) -> Any:
    found.requests += 1
    return found


def slot_more(was: Any, self: BlockCounts, *given: Any) -> None:
    was(self, *given)
    self.slots += 1


def misplaced(found: Any) -> Any:
    chosen, seconds = found
    part = getattr(chosen, "part", None)
    if part is not None:
        part[0] = (part[0] + 1) % chosen.machines
    return chosen, seconds


TRAINED, TGN, RANKS = ("fig10", "model=tgat"), ("fig10", "model=tgn"), ("fig15", "model=tgat")
ROLLED = changed(cache.FeatureCache, "fetch", lambda rows: rows.roll(1, 0))
OURS_FUTURE = sampled(StoreAccess, "sample", future)
REQUESTS = changed(ex.cache_play, "dynamic", request_more)
BLOCKS = around(BlockCounts, "add", slot_more)
CASES: list[tuple[Plant, tuple[str, str], str]] = [
    (both(scaled(GnnflowTrainer, "evaluate", 1.5, 2), scaled(GnnflowTrainer, "loss", 1.5)),
     TRAINED, "outputs losses"),
    (scaled(GnnflowTrainer, "evaluate", 1.5, 2), ("accuracy", ""), "outputs"),
    (gradients(lambda n, g: g * (1.05 if n == "layers.0.value.weight" else 1)), TRAINED,
     "gradients"),
    (both(scaled(ranked.StreamRankTrainer, "evaluate", 1.5),
          gradients(lambda n, g: 0.5 * g, ranked.StreamRankTrainer),
          changed(ex.fig15, "count_rows", more("records"))), RANKS, "outputs gradients counters"),
    (scaled(GnnflowTrainer, "step", 1.01), TRAINED, "losses"),
    (instead(GnnflowTrainer, "train_on", lambda self, events, epoch=0: 0.7), TRAINED, "losses"),
    (instead(GnnflowTrainer, "restore_memory", lambda self, state: None), TGN, "losses"),
    (OURS_FUTURE, TRAINED, "outputs"),
    (OURS_FUTURE, ("fig9", "model=tgat"), "samples"),
    (sampled(RebuiltAccess, "sample", future), ("fig11", "model=tgat"), "outputs"),
    (sampled(RebuiltAccess, "sample", missing), ("table2", "baseline=tgl"), "outputs"),
    (ROLLED, ("fig9", "model=tgn"), "features"),
    (ROLLED, ("fig14", "part=times"), "rows"),
    (REQUESTS, ("fig14", "part=hits"), "counters"),
    (REQUESTS, ("cache_ablation", "part=hits"), "counters"),
    (sampled(ex.accesses, "sample_hops", missing), ("table3", ""), "samples"),
    (sampled(ex.accesses, "sample_hops", future), ("table4", ""), "samples"),
    (sampled(ex.accesses, "sample_neighbours", missing), ("fig5", ""), "samples"),
    (changed(ex.table3, "different", lambda n: n + 1), ("table3", ""), "counters"),
    (changed(ex.table4, "jaccard", lambda x: x + 0.01), ("table4", ""), "shares"),
    (changed(ex.fig5, "gini", lambda x: x + 0.01), ("fig5", ""), "shares"),
    (BLOCKS, ("table6", "dataset=wikipedia"), "counters"),
    (BLOCKS, ("large", "kind=memory"), "counters"),
    (changed(owners, "shares", more("records")), ("partition", ""), "counters"),
    (changed(ex.partition, "partition", misplaced), ("partition", ""), "owners"),
    (sampled(ex.fig12, "sample_neighbours", missing), ("fig12", "dataset=gdelt"), "samples"),
    (changed(ex.large, "_printed_bytes", lambda found: {k: n + 1 for k, n in found.items()}),
     ("large", "kind=sizes"), "counters"),
    (changed(ours.BlockStoreContender, "first_hop", lambda found: (found[0], found[1].flip(0))),
     ("contenders", ""), "samples"),
]  # fmt: skip
"""Faults, the cell that they are planted in, and subjects of checks that fail there."""


@pytest.mark.parametrize(
    ("plant", "cell", "wrong"), mostly_nightly(CASES, 2),
    ids=[f"{number}-{name}-{wrong}" for number, (_, (name, _), wrong) in enumerate(CASES)],
)  # fmt: skip
def test_a_spoiled_part_fails_its_cell(plant, cell, wrong, monkeypatch) -> None:
    plant(monkeypatch)
    assert set(wrong.split()) <= {check.of for check in run(*cell).checks if not check.passed}


def test_what_oracles_share_fails_its_race(monkeypatch) -> None:
    """Contenders and oracles of Figure 8 train on half of each batch."""
    FAULTS["half of each batch is trained on"](monkeypatch)
    lost = [check for check in run("fig8").checks if not check.passed]
    assert {check.of for check in lost} >= {"events", "batches", "memories"}
    assert {check.system for check in lost} >= {"gnnflow", "tgl"}
