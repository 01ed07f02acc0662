"""Taking in a whole twin, batch by batch, and sampling what came out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from dgbench.datasets import twins
from dgbench.kernels_cuda.temporal_sample import sample_neighbours
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.lab.experiment import Cell, FigureSpec, Measurement, RunContext
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck, at_most
from dgbench.lab.table import Table, rows_of
from dgbench.systems.operators.race import torch_threads

BATCH, ROOTS, FANOUT = 100_000, 12_000, 10
COMPARED = 200
"""Roots whose samples are compared with a second run of the generator."""
POLICY = BlockPolicy("adaptive", 8192)


class Ingest(Grid):
    paper = "operators"
    name = "ingest"
    title = "Taking in a twin of 191 million events"
    question = "How fast is a large stream put into the store, and what does it take there?"
    reading = (
        "One thread. Events arrive in batches of 100,000, directed, with their ordinals as times, "
        "so that the newest before a time are known without any structure: samples are compared "
        "with what the generator gives when it runs a second time."
    )
    device = "cpu"
    own_data = "the stream is a twin that is generated batch by batch"
    axes: ClassVar[Mapping[str, Any]] = {
        "dataset": ("gdelt",),
        "scale": {"smoke": (0.0005,), "quick": (0.01,), None: (1.0,)},
    }
    fixed: ClassVar[Mapping[str, Any]] = {"operator": name}
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 90, None: 1800}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        name, scale = cell.params["dataset"], cell.params["scale"]
        with torch_threads(1):
            store = TemporalStore(twins.describe(name, scale)["vertices"], policy=POLICY)
            spent = fill(store, name, scale)
            return measure(store, spent, name, scale)

    def figures(self) -> list[FigureSpec]:
        return []

    def answer(self, rows: Sequence[Any]) -> str:
        for row in rows_of(rows, experiment=self.name):
            found = Table.of([row])
            (rate,), (events,) = (
                found.where("throughput", of="edges").values,
                found.where("events").values,
            )
            (size,) = found.where("memory", of="store").values
            return f"{events:,} events at {rate / 1e6:.3g} M/s, {size / events:.3g} bytes each."
        return ""


def fill(store: TemporalStore, name: str, scale: float) -> float:
    """Insert every batch; seconds of inserting alone."""
    spent, done = 0.0, 0
    for src, dst in twins.stream(name, scale, chunk=BATCH):
        now = torch.arange(done, done + len(src), dtype=torch.float64)
        start = time.perf_counter()
        store.insert(torch.from_numpy(src), torch.from_numpy(dst), now)
        spent += time.perf_counter() - start
        done += len(src)
    return spent


def measure(store: TemporalStore, spent: float, name: str, scale: float) -> Measurement:
    """Rates and sizes of a store, and its samples of random roots at random times."""
    found = Measurement(data={"dataset": name, "twin": True, "scale": scale, "note": ""})
    draw = np.random.default_rng(1)
    nodes = torch.from_numpy(draw.integers(0, store.num_vertices, ROOTS))
    times = torch.from_numpy(draw.uniform(0, store.last_time + 1, ROOTS))
    found.observe("events", store.num_events)
    found.observe("throughput", store.num_events / spent, of="edges", phase="insert")
    for policy in ("recent", "uniform"):
        start = time.perf_counter()
        sample = sample_neighbours(store, nodes, times, fanout=FANOUT, policy=policy)  # type: ignore[arg-type]
        rate = ROOTS / (time.perf_counter() - start)
        found.observe("throughput", rate, of="roots", policy=policy)
        owner = torch.repeat_interleave(torch.arange(ROOTS), sample.offsets.diff())
        late = int((sample.edge_times >= times[owner]).sum())
        found.checks.append(
            at_most("samples", float(late), 0.0, against="times of the roots", compared=len(owner))
        )
        if policy == "recent":
            found.checks.append(check_newest(name, scale, nodes, times, sample))
    found.observe("memory", store.memory().total, of="store")
    return found


def check_newest(
    name: str, scale: float, nodes: torch.Tensor, times: torch.Tensor, sample: Any
) -> ResultCheck:
    """Compare the newest edges of some roots with a second run of the generator."""
    asked = np.unique(nodes[:COMPARED].numpy())
    edges: dict[int, list[np.ndarray]] = {int(node): [] for node in asked}
    done = 0
    for src, _ in twins.stream(name, scale, chunk=BATCH):
        hit = np.flatnonzero(np.isin(src, asked))
        for node in np.unique(src[hit]):
            edges[int(node)].append(done + hit[src[hit] == node])
        done += len(src)
    upto, wrong = sample.offsets.tolist(), 0
    for at in range(COMPARED):
        mine = np.concatenate([np.zeros(0, np.int64), *edges[int(nodes[at])]])
        right = mine[mine < float(times[at])][-FANOUT:].tolist()
        wrong += right != sample.eids[upto[at] : upto[at + 1]].tolist()
    return at_most(
        "samples", wrong / COMPARED, 0.0, against="second run of the generator", compared=COMPARED
    )
