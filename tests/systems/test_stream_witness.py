"""Training on streams beside a second implementation that shares no code with it.

What trains and its oracles share `StreamTrainer`, its batches, negatives and memory, so a fault
there is no deviation from an oracle. `tests.witness.stream` shares nothing; every fault planted
here must make the two disagree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from nightly_cases import mostly_nightly
from stream_faults import DRAW_FAULTS, FAULTS, LAST
from stream_tiny import listed, tiny_task, witnessed_events
from torch import Tensor

from dgbench.datasets import EventStream
from dgbench.lab.result_checks import ResultCheck
from dgbench.models.ctdg import MemoryRows
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.stream import StreamTrainer, StreamWorkload, stream_data
from dgbench.systems.base.stream_recount import recount_batches, recount_training
from dgbench.systems.gnnflow.system import GnnflowSystem
from dgbench.systems.tgl.system import TglSystem
from tests.witness.compared import disagreements
from tests.witness.stream import Range, SampleCall, StreamWitness

DOUBLE = torch.float64


def task_of(model: str = "tgn", **fields: Any) -> StreamWorkload:
    """A workload of tiny widths that moves the borders of its batches by epoch."""
    shape: dict[str, Any] = {"sampling": "recent"}
    shape |= {"chunks": 2} if model == "tgn" else {}
    shape |= {"window": 8.0} if model == "dysat" else {}
    return tiny_task(model, **{**shape, **fields})


def watch(access: Any) -> list[SampleCall]:
    """Calls of a `GraphAccess`'s `sample` from now on, with what it is asked and answers."""
    calls, was = list[SampleCall](), access.sample

    def listed(hop: Any) -> Any:
        columns = hop.neighbours.tolist(), hop.eids.tolist(), hop.edge_times.tolist()
        edges = list(zip(*columns, strict=True))
        return [edges[a:b] for a, b in pairwise(hop.offsets.tolist())]

    def sample(nodes: Tensor, times: Tensor, **how: Any) -> Any:
        found = was(nodes, times, **how)
        hops = [[listed(hop) for hop in snapshot] for snapshot in found]
        calls.append(SampleCall(nodes.tolist(), times.tolist(), hops))
        return found

    access.sample = sample
    return calls


def plain(task: StreamWorkload, data: Any) -> StreamTrainer:
    """The oracle of streams."""
    return StreamTrainer(task, data, PlainStream(task, data), dtype=DOUBLE)


OPENED: dict[str, Callable[[StreamWorkload, Any], StreamTrainer]] = {
    "plain": plain,
    "gnnflow": lambda task, data: GnnflowSystem().open(
        task, data=data, dtype=DOUBLE, switches={"chunk_scheduling": True}
    ),
    "tgl": lambda task, data: TglSystem().open(task, data=data, dtype=DOUBLE),
}


class Observed:
    """A trainer with the verbs of the witness."""

    def __init__(self, system: str, task: StreamWorkload, events: EventStream) -> None:
        self.task, self.events, self.data = task, events, stream_data(events, task)
        self.trainer = one = OPENED[system](task, self.data)
        self.calls = watch(one.access)
        self.insert, self.reset_memory, self.parameters = one.insert, one.reset_memory, one.state
        self.begin = {k: v.clone() for k, v in one.model.state_dict().items()}

    def train(self, events: Sequence[int], epoch: int = 0) -> Range:
        chosen = torch.tensor(list(events))
        if chosen.numel() == int(chosen[-1]) - int(chosen[0]) + 1:
            return Range(self.trainer.train(int(chosen[0]), int(chosen[-1]) + 1, epoch=epoch))
        return Range(self.trainer.train_on(chosen, epoch=epoch))

    def evaluate(self, first: int, last: int, *, remember: bool = False) -> Range:
        found = self.trainer.evaluate_range(first, last, remember=remember)
        return Range(found.loss, found.ap)

    def remembered(self) -> dict[str, Tensor]:
        state = self.trainer.memory_state()
        if state is None:
            return {}
        return {name: getattr(state.rows, name) for name in MemoryRows.__slots__}


def witness_of(observed: Observed, drawn: Sequence[SampleCall] = ()) -> StreamWitness:
    """A witness that begins with the same parameters, on the same data."""
    data, events = observed.data, observed.events
    found = StreamWitness(
        observed.task, listed(events), events.num_nodes, events.num_src, data.node_feat,
        data.edge_feat, observed.begin,
    )  # fmt: skip
    found.given = list(drawn)
    return found


def played(one: Observed | StreamWitness, kept: int, *, alike: bool = False) -> dict[str, Any]:
    """Results of two epochs, rounds, a replay and two scorings of a trainer or a witness.

    Args:
        alike: whether scores are equal but for rounding, and a witness says a range of precision.
    """
    found: dict[str, Any] = {}

    def note(name: str, of: Range) -> None:
        found[f"{name}, loss"] = of.loss
        if of.ap == of.ap:
            found[f"{name}, ap"] = of.ap_range if alike and of.ap_range else of.ap
        found.update({f"{name}, {key}": value for key, value in one.remembered().items()})

    half = kept // 2
    one.insert(half)
    note("first epoch", one.train(range(half)))
    note("scored", one.evaluate(half - 7, half))
    one.reset_memory()
    note("second epoch", one.train(range(half), epoch=1))
    one.insert(kept)
    note("asked", one.evaluate(half, half + 12))
    note("passed", one.evaluate(half, half + 12, remember=True))
    note("replay", one.train([*range(3, half, 7), *range(half + 12, kept)], epoch=2))
    found |= {f"trained {name}": p for name, p in one.parameters().items()}
    found["batches"] = [(call.roots, call.times) for call in one.calls]
    found["neighbours"] = [call.hops for call in one.calls]
    return found


@lru_cache
def expected_of(task: StreamWorkload, kind: str) -> dict[str, Any]:
    """The witness's results of a task whose samples need no draw."""
    one = Observed("plain", task, witnessed_events(kind))
    # Two vertices of days with the same history score alike but for rounding.
    alike = task.model in ("gat", "tgat") and kind == "days"
    return played(witness_of(one), len(one.data.events), alike=alike)


def compared(task: StreamWorkload, kind: str, system: str = "plain") -> dict[str, float]:
    """Where a system and the witness disagree; "samples" where a draw is none."""
    one = Observed(system, task, witnessed_events(kind))
    kept = len(one.data.events)
    own = played(one, kept)
    if task.sampling == "recent":
        return disagreements(own, expected_of(task, kind))
    try:
        return disagreements(own, played(witness_of(one, one.calls), kept))
    except AssertionError:
        return {"samples": 1.0}


KINDS = ("ties", "days", "distinct", "bipartite", "gaps")


@pytest.mark.parametrize("kind", KINDS)
def test_a_memory_is_that_of_the_witness(kind) -> None:
    assert not compared(task_of(), kind)


@pytest.mark.parametrize(
    ("model", "kind"),
    [("tgat", "days"), ("graphsage", "days"), ("graphsage", "gaps"), ("dysat", "gaps"),
     ("gat", "days")],
)  # fmt: skip
def test_networks_without_memory_are_those_of_the_witness(model, kind) -> None:
    assert not compared(task_of(model), kind)


@pytest.mark.parametrize(
    ("model", "fields"),
    [("tgn", {"strict_time": False}), ("tgn", {"events": 45}), ("tgn", {"fanouts": (3, 2)}),
     ("tgn", {"node_dim": 0, "edge_dim": 0}), ("tgn", {"undirected": False}),
     ("tgn", {"chunks": 5, "seed": 9}), ("tgat", {"closed": True, "window": 9.0}),
     ("tgn", {"sampling": "uniform", "fanouts": (2,)}), ("tgat", {"prop_time": True}),
     ("dysat", {"sampling": "uniform", "window": 3.0, "prop_time": False}),
     ("dysat", {"window": 2.0, "snapshots": 3, "edge_dim": 0}),
     ("tgat", {"sampling": "uniform", "fanouts": (2, 2), "heads": 1})],
)  # fmt: skip
def test_settings_are_those_of_the_witness(model, fields) -> None:
    assert not compared(task_of(model, **fields), "ties")


@pytest.mark.parametrize("system", ["gnnflow", "tgl"])
@pytest.mark.parametrize("sampling", ["recent", "uniform"])
def test_systems_are_the_witness(system, sampling) -> None:
    for kind in ("ties", "days"):
        assert not compared(task_of(sampling=sampling), kind, system)


@pytest.mark.parametrize("name", mostly_nightly(FAULTS, 4))
def test_a_planted_fault_is_seen(name, monkeypatch) -> None:
    kinds = ("days", "ties")
    for kind in kinds:
        expected_of(task_of(), kind)  # before anything is planted
    FAULTS[name](monkeypatch)
    assert any(compared(task_of(), kind) for kind in kinds)


def uniform_task() -> StreamWorkload:
    """Two hops of draws within a window."""
    return task_of("tgat", sampling="uniform", fanouts=(2, 2), window=8.0)


@pytest.mark.parametrize("name", DRAW_FAULTS)
def test_a_planted_fault_of_a_draw_is_seen(name, monkeypatch) -> None:
    DRAW_FAULTS[name](monkeypatch)
    assert compared(uniform_task(), "ties")


def test_draws_are_uniform_over_what_a_window_holds() -> None:
    """Each of n neighbours is drawn in its share of 2,000 draws, up to five deviations."""
    task, events, calls = uniform_task(), witnessed_events("ties"), 2000
    data = stream_data(events, task)
    access = PlainStream(task, data)
    access.insert(0, LAST)
    witness = StreamWitness(task, listed(events), 9, None, None, None, {})
    witness.insert(LAST)
    time = float(events.t[-1])
    several = 0
    for vertex in range(9):
        seen = [k for _, k, _ in witness.before(vertex, time)]
        nodes = torch.full((calls,), vertex)
        hop = access.sample(nodes, torch.full((calls,), time).double(), draw=1)[0][0]
        drawn = Counter(hop.eids.tolist())
        assert drawn.keys() == set(seen)
        share = calls * min(1.0, 2 / max(1, len(seen)))
        assert len(seen) != len(set(seen)) or all(
            abs(often - share) < 5 * share**0.5 for often in drawn.values()
        )
        several += len(seen) > 3
    assert several > 1


def test_the_witness_imports_nothing_of_what_it_judges() -> None:
    paths = list((Path(__file__).parents[1] / "witness").glob("*.py"))
    texts = [path.read_text() for path in paths]
    assert any("from tests.witness.draws import" in text for text in texts)
    assert not [text for text in texts if re.search(r"^\s*(from|import) dgbench", text, re.M)]


def recounted(task: StreamWorkload, kind: str, system: str = "plain") -> dict[str, ResultCheck]:
    """Checks of a trainer after two rounds of two epochs, those that failed in place of others."""
    data = stream_data(witnessed_events(kind), task)
    trainer, rounds = OPENED[system](task, data), [(12, 30), (30, len(data.events))]
    trainer.insert(12)
    for first, last in rounds:
        trainer.insert(last)
        memory = trainer.mark_memory()
        for epoch in range(2):
            trainer.restore_memory(memory)
            trainer.train(first, last, epoch=epoch)
    found = recount_training("this one", trainer, task, rounds, 2)
    found += recount_batches("this one", trainer, task)
    return {check.of: check for check in sorted(found, key=lambda check: -check.passed)}


@pytest.mark.parametrize(
    ("system", "kind"),
    [*(("plain", kind) for kind in KINDS), ("gnnflow", "days"), ("gnnflow", "bipartite"),
     ("tgl", "ties"), ("tgl", "gaps")],
)  # fmt: skip
def test_sound_trainers_pass_their_recount(system, kind) -> None:
    checks = recounted(task_of(), kind, system)
    assert all(check.passed for check in checks.values())
    names = {"steps", "memories", "events", "batches", "negatives", "neighbours"}
    assert set(checks) == names


@pytest.mark.parametrize(
    "task",
    [uniform_task(), task_of("dysat"), task_of("graphsage"), task_of("tgn", strict_time=False),
     task_of("tgn", events=45, chunks=5), task_of("tgat", closed=True, window=9.0),
     task_of("tgn", fanouts=(3, 2), undirected=False)],
    ids=lambda task: task.model,
)  # fmt: skip
def test_other_workloads_pass_their_recount(task) -> None:
    assert all(check.passed for check in recounted(task, "ties").values())


SEEN = {
    "steps events batches negatives": (
        "every second event is trained on", "every second batch is left out",
        "the last batch is left out"),
    "events batches negatives": (
        "half of each batch is trained on", "events of a batch come backwards"),
    "batches": ("batches part events of a time",),
    "memories": (
        "memories are never written", "memories of sources alone are written",
        "memories are written a batch late", "memories are written before a time is over",
        "times of update are a batch late", "times of update are a batch early"),
    "negatives": (
        "negatives are one vertex", "negatives are the destinations",
        "negatives are the next destinations", "negatives of a batch are alike",
        "one negative in ten is the destination"),
    "neighbours": (
        "neighbours are from a little later", "neighbours are from a little earlier",
        "neighbours are from the end of the batch", "neighbours are the oldest",
        "neighbours of one time come backwards", "a graph takes in all but one event"),
}  # fmt: skip
"""Checks that name each fault; others of `stream_faults` are the witness's and the oracle's."""


@pytest.mark.parametrize(("wrong", "name"), [(of, name) for of in SEEN for name in SEEN[of]])
def test_a_recount_names_a_planted_fault(wrong, name, monkeypatch) -> None:
    FAULTS[name](monkeypatch)
    failed: set[str] = set()
    for kind in ("days", "ties"):
        if not set(wrong.split()) <= failed:
            checks = recounted(task_of(), kind)
            failed |= {of for of, check in checks.items() if not check.passed}
    assert set(wrong.split()) <= failed


@pytest.mark.parametrize("name", DRAW_FAULTS)
def test_a_recount_names_a_planted_fault_of_a_draw(name, monkeypatch) -> None:
    DRAW_FAULTS[name](monkeypatch)
    assert not recounted(uniform_task(), "ties")["neighbours"].passed
