"""T-GCN and its baselines spoiled in turn: the checks of the cells that run a spoiled part fail.

Cells of sound parts pass in `reproduce --preset smoke`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from nightly_cases import mostly_nightly
from stream_faults import Plant, around, changed, instead
from torch import Tensor

import dgbench.systems.tgcn.experiments as tgcn_experiments
from dgbench.runtime.meter import Meter
from dgbench.systems.base import RunContext
from dgbench.systems.base.interaction_baseline import BaselineTrainer
from dgbench.systems.tgcn import program, races, recounts
from dgbench.systems.tgcn.experiments import depth, fig7, fig10, schedule
from dgbench.systems.tgcn.experiments.fig8 import SegmentTree
from dgbench.systems.tgcn.grids import Grids
from dgbench.systems.tgcn.trainer import TgcnTrainer

BY_NAME = {one.name: one for one in tgcn_experiments.EXPERIMENTS}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Sizes at which a cell takes less than a second."""
    monkeypatch.setitem(races.EVENTS, "smoke", 200)
    monkeypatch.setattr(races, "CHECKED", 24)
    monkeypatch.setitem(fig10.EVENTS, "smoke", 3000)
    monkeypatch.setattr(fig10, "CHECKED", (120, 3))
    monkeypatch.setattr(fig10, "PROJECTED", (1, 4))


def failed(experiment: str, number: int = 1, **params) -> set[str]:
    """Subjects of a smoke cell's failed checks, run in this process as its round `number`."""
    one = BY_NAME[experiment]
    cell = msgspec.structs.replace(one.cells("smoke", "cpu")[0], params=params)
    context = RunContext("cpu", "smoke", 1, meter=Meter(timing=False), budget_s=0.02)
    context.round = number
    checks = one.run(cell, context).checks
    assert checks
    return {check.of for check in checks if not check.passed}


def steps(change: Callable[..., None], kind: Any = TgcnTrainer) -> Plant:
    """Fault of a trainer's steps: `change` gets the trainer, the events, the result, how many
    steps came before, and the scale."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        count = iter(range(10**9))

        def run_step(was: Any, self: Any, events: Tensor, *, scale: float | None) -> Any:
            result = was(self, events, scale=scale)
            change(self, events, result, next(count), scale)
            return result

        around(kind, "run_step", run_step)(patch)

    return plant


def scores_half_more(trainer, events, result, number, scale):
    result.positives *= 1.5


def scores_half_more_later(trainer, events, result, number, scale):
    result.positives *= 1.5 if number >= 2 else 1


def losses_off(trainer, events, result, number, scale):
    result.loss *= 1.01


def no_gradients(trainer, events, result, number, scale):
    for p in trainer.model.parameters():
        p.grad = None


def one_gradient_off(trainer, events, result, number, scale):
    p = next(trainer.model.parameters())
    if scale is not None and p.grad is not None:
        p.grad *= 1.05


def rows_swapped(trainer, events, result, number, scale):
    ends = trainer.data.events.src[events[-1:]], trainer.data.events.dst[events[-1:]]
    rows = trainer.rows_of(torch.cat(ends))
    table = trainer.vertices.hs if hasattr(trainer.vertices, "hs") else trainer.vertices.user
    table[rows] = table[rows.flip(0)] + 0.1


def reported(owner: Any, name: str, change: Callable[[Any], Any]) -> Plant:
    """Fault by which a property has another value."""
    right = getattr(owner, name).fget
    return instead(owner, name, property(lambda self: change(right(self))))


def another(was: Any, self: Any, edges: Tensor) -> Tensor:
    """A sample that holds an edge which was not drawn in place of its first."""
    kept = was(self, edges)
    free = sorted(set(range(len(edges))) - set(kept.tolist()))
    return torch.cat([kept[1:], torch.tensor(free[-1:])]).sort().values


def order_swapped(grids):
    grids.order[[0, -1]] = grids.order[[-1, 0]]
    return grids


def edges_rolled(sample):
    for layer in sample.layers:
        layer.eids.copy_(layer.eids.roll(1))
    return sample


def turns_rolled(was: Any, calls: Any, spent: Any, turn: int, results: Any) -> None:
    was(calls, spent, turn, results)
    for sample in (results or {}).values():
        if hasattr(sample, "layers"):
            edges_rolled(sample)


def row_more(load):
    load.rows[0, 0] += 1
    return load


def one_more(found):
    return found + 1


def trains(system: str, change: Callable[..., None], wrong: str) -> tuple[Any, ...]:
    kind = TgcnTrainer if "tgcn" in system else BaselineTrainer
    return steps(change, kind), ("table3", LASTFM | {"system": system}), wrong


LASTFM = {"dataset": "lastfm"}
GRIDS, SAMPLED = {"kind": "fill", **LASTFM}, ("table3", LASTFM | {"system": "tgcn"})
LINKS, LOADS = {"kind": "ring", "machine": "dgx1-v100"}, {"kind": "virtual", "dataset": "reddit"}
RANKS = {"kind": "ranks", "dataset": "reddit", "ranks": 1}
PLANNED = changed(BaselineTrainer, "report", lambda found: found | {"planned_bytes": 1.0})
CASES: list[tuple[Plant, tuple[str, dict[str, Any]], str]] = [
    trains("tgcn", scores_half_more, "outputs"), trains("tgcn", losses_off, "losses"),
    trains("tgcn", no_gradients, "gradients"), trains("tgcn", one_gradient_off, "gradients"),
    trains("tgcn", rows_swapped, "outputs"),
    trains("tgcn, streamed", scores_half_more_later, "outputs"),
    trains("dygnn", scores_half_more, "outputs"), trains("dygnn", one_gradient_off, "gradients"),
    trains("jodie", losses_off, "losses"), trains("jodie", rows_swapped, "outputs"),
    trains("jodie", no_gradients, "gradients"),
    (changed(program.Program, "sampling", lambda kept: kept[:-1]), SAMPLED, "samples"),
    (around(program.Program, "sampling", another), SAMPLED, "samples"),
    (reported(TgcnTrainer, "region_bytes", lambda sizes: sizes | {"R1 state": 1}), SAMPLED,
     "bytes"),
    *((PLANNED, ("table3", LASTFM | {"system": name}), "bytes") for name in ("dygnn", "jodie")),
    (changed(Grids, "build", order_swapped), ("partition", GRIDS), "order"),
    (reported(Grids, "counts", lambda found: found + (found > 0)), ("partition", GRIDS),
     "counters"),
    (changed(depth, "sample_nodewise", edges_rolled), ("depth", LASTFM), "samples"),
    *((changed(schedule, "traffic", one_more), ("schedule", cell), "bytes")
      for cell in (LINKS, {"kind": "volume", **LASTFM})),
    (changed(fig10, "load_of", row_more), ("fig10", LOADS), "counters"),
    (around(fig7, "timed", turns_rolled), ("fig7", LASTFM), "samples"),
    (around(SegmentTree, "modify", lambda was, self, at, w: (was(self, at, w), was(self, 0, w))),
     ("fig8", {"weights": "equal"}), "counters outputs"),  # a change that spreads
    (steps(one_gradient_off), ("fig10", RANKS), "gradients parameters"),
]  # fmt: skip
"""A fault, the cell that it is planted in, and subjects of checks that fail there."""


@pytest.mark.parametrize(("plant", "cell", "wrong"), mostly_nightly(CASES, 2), ids=[
    f"{number}-{name}-{wrong}" for number, (_, (name, _), wrong) in enumerate(CASES)
])  # fmt: skip
def test_a_spoiled_part_fails_its_cell(plant, cell, wrong, monkeypatch):
    plant(monkeypatch)
    assert set(wrong.split()) <= failed(cell[0], **cell[1])


@pytest.mark.parametrize(
    ("plant", "cell", "wrong"),
    [(steps(no_gradients), ("fig6", LASTFM | {"what": "race"}), "gradients"),
     (around(fig7, "timed", turns_rolled), ("fig7", LASTFM), "samples")],
)  # fmt: skip
def test_contenders_that_are_spoiled_in_a_later_process_fail(plant, cell, wrong, monkeypatch):
    monkeypatch.setitem(races.EVENTS, "smoke", 120)
    assert not failed(cell[0], 2, **cell[1])
    plant(monkeypatch)
    assert wrong in failed(cell[0], 2, **cell[1])


def test_draws_by_another_law_fail():
    weights = (1, 2, 3, 5, 8, 1)
    assert all(one.passed for one in fig7.checked_draws())
    biased = {"brs_literal": {"method": "brs_literal", "arity": 2}}  # as the paper prints it
    assert not all(one.passed for one in recounts.check_draws(biased, weights))
