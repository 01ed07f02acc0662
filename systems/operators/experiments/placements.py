"""GNNFlow's graph and feature cache on a device, by where the graph and the table lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.row_cache import open_row_cache
from dgbench.kernels_cuda.tcsr import build_tcsr, sample_tcsr_hops
from dgbench.kernels_cuda.temporal_sample import Sample, sample_hops
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.kernels_cuda.temporal_store.device import PLACEMENTS, DeviceStore
from dgbench.kernels_cuda.temporal_store.resident import ResidentStore
from dgbench.lab.experiment import Preset
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.runtime.errors import DgbenchError, UnsupportedError
from dgbench.systems.operators.race import OURS, Call, OperatorCase, OperatorRace

ARRAYS = ("nodes", "times", "offsets", "neighbours", "eids", "edge_times")
"""Of a sample, what a model reads."""
FED, TGL, TWO = "CPU, fed", "T-CSR, fed", "CPU, 2 threads"
GATHER = "gather and copy"
SKEW = 4
"""Power that makes a few vertices meet most events."""
STREAMS = {"smoke": (500, 5000), "quick": (50_000, 1_000_000), None: (500_000, 10_000_000)}
BATCHES = {"smoke": (20,), "quick": (600, 4000), None: (600, 4000, 40_000)}
INSERTED = {"smoke": (50,), "quick": (100, 10_000), None: (100, 10_000, 100_000)}
TABLES = {"smoke": (400, 8, 100), "quick": (100_000, 186, 20_000), None: (1_000_000, 186, 198_000)}
"""Rows of the feature table, floats of a row, rows of a fetch."""
Hops = list[list[Sample]]


def stream(edges: int, vertices: int, begin: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Events with a few vertices that most of them meet."""
    draw = torch.Generator().manual_seed(edges)
    src = (vertices * torch.rand(edges, generator=draw, dtype=torch.float64) ** SKEW).long()
    dst = torch.randint(vertices, (edges,), generator=draw)
    return src, dst, begin + torch.arange(edges).double()


def roots(store: TemporalStore, batch: int, seed: int) -> tuple[Tensor, Tensor]:
    """Three roots for each of `batch` edges, in the newest tenth of the stream."""
    draw = torch.Generator().manual_seed(seed)
    count = store.num_vertices
    hubs = (count * torch.rand(batch, generator=draw, dtype=torch.float64) ** SKEW).long()
    nodes = torch.cat([hubs, torch.randint(count, (2 * batch,), generator=draw)])
    times = store.last_time * (1 - 0.1 * torch.rand(batch, generator=draw, dtype=torch.float64))
    return nodes, times.repeat(3)


def arrays_of(found: Hops) -> dict[str, Tensor]:
    """All arrays of samples, by name, number of the fan-out and hop."""
    return {
        f"{name} {k}.{hop}": getattr(one, name)
        for k, hops in enumerate(found)
        for hop, one in enumerate(hops)
        for name in ARRAYS
    }


class HostFeeder:
    """Brings samples to a device: all their arrays in one copy through page-locked memory."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.staging = torch.empty(0, dtype=torch.int64)

    def __call__(self, found: Hops) -> Hops:
        """The same samples on the device; every array of them has eight bytes an element."""
        arrays = list(arrays_of(found).values())
        words = sum(array.numel() for array in arrays)
        if self.staging.numel() < words:
            pinned = self.device == "cuda"
            self.staging = torch.empty(2 * words, dtype=torch.int64, pin_memory=pinned)
        torch.cat([array.view(torch.int64) for array in arrays], out=self.staging[:words])
        # Not asynchronous: the staging memory is written again by the next call.
        there = self.staging[:words].to(self.device, copy=True)
        pieces = zip(arrays, there.split([a.numel() for a in arrays]), strict=True)
        moved = iter([piece.view(array.dtype) for array, piece in pieces])
        return [
            [replace(one, **{n: next(moved) for n in ARRAYS}) for one in hops] for hops in found
        ]


class HostGraph:
    """The host's store in place of a device's, where there is none: the same calls."""

    def __init__(self, store: TemporalStore) -> None:
        self.sample_hops = partial(sample_hops, store)

    def update(self) -> None:
        """Nothing: it is the store."""

    def close(self) -> None:
        """Nothing."""


class ResidentInserts:
    """Inserts into a graph that lives on a device; the host's store gets the same, to compare with.

    Args:
        policy: of blocks. vertices, edges: of the graph before. batch: edges of an insert.
        sent: whether batches come from page-locked memory of the host instead of the device's.
    """

    def __init__(
        self, policy: BlockPolicy, vertices: int, edges: int, batch: int, device: str, *, sent: bool
    ) -> None:
        self.batch, self.sent, self.on_device = batch, sent, device == "cuda"
        how: dict[str, Any] = {"policy": policy, "undirected": True}
        self.store = TemporalStore(vertices, **how)
        self.graph: Any = (ResidentStore if self.on_device else TemporalStore)(vertices, **how)
        first = stream(edges, vertices)
        self.store.insert(*first)
        self.graph.insert(*first)
        self._given: list[Any] = []

    def ready(self) -> None:
        """Draw the next batch, bring it where it comes from, and make room for it."""
        events = stream(self.batch, self.store.num_vertices, self.store.last_time + 1)
        self.store.insert(*events)
        if self.on_device:
            self.graph.reserve(self.batch)
            events = tuple(a.pin_memory() if self.sent else a.cuda() for a in events)
        self._given.append(events)

    def __call__(self, *_: Any) -> ResidentInserts:
        """Insert the next batch."""
        if not self._given:
            self.ready()
        self.graph.insert(*self._given.pop())
        return self

    def sample_hops(self, *asked: Any, **how: Any) -> Hops:
        """Samples of the graph."""
        if self.on_device:
            return self.graph.sample_hops(*asked, **how)
        return sample_hops(self.graph, *asked, **how)


def graphs_on(store: TemporalStore, device: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The graph by placement, and placements that do not fit here with the reasons."""
    if device != "cuda":
        return {"cuda": HostGraph(store)}, {}
    found: dict[str, Any] = {}
    left_out = {}
    for name in PLACEMENTS:
        try:
            found[name] = DeviceStore(store, name)
        except (DgbenchError, MemoryError, RuntimeError) as error:
            left_out[name] = str(error)
    if "cuda" not in found:
        raise UnsupportedError(f"the graph does not lie on the device: {left_out['cuda']}")
    return found, left_out


def method_of(placement: str) -> str:
    """Name of a contender: ours where all of the graph lies on the device."""
    return OURS if placement == "cuda" else f"{OURS}, {placement}"


class PlacedSampling(OperatorRace):
    name = "placed_sampling"
    title = "Sampling from a graph on a device, by placement"
    question = "How fast are neighbours sampled where a model on the device needs them?"
    reading = (
        "The graph lies in the device's, the host's or managed memory. A model on the device needs "
        "its samples there, so that what samples on the CPU also brings them: our store, and "
        "sorted rows as TGL keeps them. Every sample is compared with the CPU's."
    )
    devices = ("cuda",)
    limits = ("CPU", TWO)
    workloads = {
        preset: tuple(
            {
                "policy": policy, "hops": hops, "batch": batch, "vertices": STREAMS[preset][0],
                "edges": STREAMS[preset][1],
            }
            for (policy, hops), batch in product(
                (("recent", 1), ("uniform", 1), ("uniform", 2)), BATCHES[preset]
            )
        )
        for preset in STREAMS
    }  # fmt: skip
    label = "{policy}, {hops} hops, {batch} x 3 roots"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        store = TemporalStore(
            params["vertices"], policy=BlockPolicy("adaptive", 64), undirected=True
        )
        events = stream(params["edges"], params["vertices"])
        store.insert(*events)
        rows = build_tcsr(params["vertices"], *events, undirected=True)
        there, left_out = graphs_on(store, device)
        policy, fanouts, batch = params["policy"], [10] * params["hops"], params["batch"]
        how = {"policy": policy, "seed": 3}
        feed = HostFeeder(device)
        asked: dict[int, tuple[Tensor, Tensor]] = {}

        def given(turn: int) -> tuple[Tensor, Tensor]:
            return asked.setdefault(turn, roots(store, batch, turn))

        def by(sample: Callable[..., Hops], **more: Any) -> Call:
            return lambda turn: sample(*given(turn), fanouts, draw=turn, **how, **more)

        on_host = by(partial(sample_hops, store))
        by_rows = by(partial(sample_tcsr_hops, rows))
        calls: dict[str, Call] = {
            **{method_of(name): by(one.sample_hops) for name, one in there.items()},
            f"{OURS}, search of the list": by(there["cuda"].sample_hops, search="linear"),
            "CPU": on_host,
            TWO: by(partial(sample_hops, store), threads=2),
            FED: lambda turn: feed(on_host(turn)),
            TGL: lambda turn: feed(by_rows(turn)),
        }

        def check(_: str, turn: int, found: Hops) -> ResultCheck:
            wanted = arrays_of(on_host(turn))
            return equal("samples", arrays_of(found), wanted, against="samples of the CPU")

        targets = sum(hop.nodes.numel() for hop in on_host(0)[0])
        return OperatorCase(
            calls=calls,
            check=check,
            baselines=((OURS, ("CPU", TWO, FED, TGL)),),
            left_out={method_of(name): why for name, why in left_out.items()},
            work=(("throughput", {"of": "targets"}, targets),),
        )


class PlacedUpdates(OperatorRace):
    name = "placed_updates"
    title = "Bringing a device's graph up to date"
    question = "What does an update of the device's graph take beside the host's insert?"
    reading = (
        "Before every call a batch is inserted into the host's store; the call brings what changed "
        "to the device, by placement. A resident graph has no part on the host: its call is the "
        "whole insert, of events on the device or sent from page-locked memory. Samples after it "
        "are compared with those of the host's store. Making the device's graph anew is the rival."
    )
    devices = ("cuda",)
    shortest_turn_s = 0.0
    rivals = "making it anew"
    workloads = {
        preset: tuple(
            {"batch": batch, "vertices": vertices, "edges": edges} for batch in INSERTED[preset]
        )
        for preset, (vertices, edges) in STREAMS.items()
    }
    label = "{batch:,} edges"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        vertices, batch = params["vertices"], params["batch"]

        def made() -> TemporalStore:
            store = TemporalStore(vertices, policy=BlockPolicy("adaptive", 64), undirected=True)
            store.insert(*stream(params["edges"], vertices))
            return store

        def insert(store: TemporalStore) -> None:
            store.insert(*stream(batch, vertices, store.last_time + 1))

        alone = made()
        calls: dict[str, Call] = {"insert on the host": lambda _: (insert(alone), alone, None)}
        before: dict[str, Callable[[], object]] = {}
        left_out: dict[str, str] = {}
        placements = PLACEMENTS if device == "cuda" else ("cuda",)
        for name in placements:
            store = made()
            try:
                there = DeviceStore(store, name) if device == "cuda" else HostGraph(store)
            except (DgbenchError, MemoryError, RuntimeError) as error:
                left_out[method_of(name)] = str(error)
                continue

            def update(_: int, store: TemporalStore = store, there: Any = there) -> Any:
                return there.update(), store, there

            calls[method_of(name)] = update
            before[method_of(name)] = partial(insert, store)
        for name, sent in ((f"{OURS}, resident", False), (f"{OURS}, resident, sent", True)):
            policy = BlockPolicy("adaptive", 64)
            ingest = ResidentInserts(policy, vertices, params["edges"], batch, device, sent=sent)

            def inserted(_: int, ingest: ResidentInserts = ingest) -> Any:
                return ingest(), ingest.store, ingest

            calls[name], before[name] = inserted, ingest.ready
        anew = made()

        def rebuilt(_: int) -> Any:
            there = DeviceStore(anew, "cuda") if device == "cuda" else HostGraph(anew)
            return None, anew, there

        calls["made anew"], before["made anew"] = rebuilt, partial(insert, anew)

        def check(_: str, __: int, found: Any) -> ResultCheck | None:
            _, store, there = found
            if there is None:
                return None
            given = roots(store, 20, 2)
            own = arrays_of(there.sample_hops(*given, [10], seed=1))
            wanted = arrays_of(sample_hops(store, *given, [10], seed=1))
            return equal("samples", own, wanted, against="samples of the host's store")

        return OperatorCase(
            calls=calls,
            check=check,
            baselines=((OURS, ("made anew",)),),
            before=before,
            left_out=left_out,
            work=(("throughput", {"of": "edges"}, batch),),
        )


class PlacedRows(OperatorRace):
    name = "placed_rows"
    title = "Rows through a device's cache"
    question = "What does the cache save over a gather on the host and a copy, by share of hits?"
    reading = "Nothing is admitted while it is timed. The table is pageable, or page-locked."
    devices = ("cuda",)
    rivals = "a gather and a copy"
    workloads = {
        preset: tuple(
            {"capacity": hits, "place": place, "rows": rows, "width": width, "size": asked}
            for hits, place in product((0.0, 0.7, 1.0), ("pageable", "page-locked"))
        )
        for preset, (rows, width, asked) in TABLES.items()
    }
    label = "{capacity:.0%} hits, {place}"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        count, width, asked = params["rows"], params["width"], params["size"]
        rows = torch.rand(count, width, generator=torch.Generator().manual_seed(1))
        locked = params["place"] == "page-locked" and device == "cuda"
        table = rows.pin_memory() if locked else rows
        held = count // 4
        cache = open_row_cache(count, width, held, limit=held // 5, device=device)
        draw = torch.Generator().manual_seed(2)
        fetch(cache, torch.randint(held, (held,), generator=draw).unique(), table, device)
        hits = round(params["capacity"] * asked)
        inside = cache.ids()[torch.randint(len(cache.ids()), (hits,), generator=draw)]
        outside = torch.randint(held, count, (asked - hits,), generator=draw)
        ids = torch.cat([inside, outside])
        return OperatorCase(
            calls={
                OURS: lambda _: fetch(cache, ids, table, device, update=False),
                GATHER: lambda _: table[ids].to(device),
            },
            check=lambda _, __, found: equal(
                "rows", found, rows[ids], against="rows of the table"
            ),
            work=(
                ("throughput", {"of": "rows"}, asked),
                ("bandwidth", {}, 8 * width * asked),
            ),
        )  # fmt: skip


def fetch(cache: Any, ids: Tensor, table: Tensor, device: str, *, update: bool = True) -> Tensor:
    """float32[n, width] on the device: the rows of ids int64[n], from slots or from the table."""
    found = cache.lookup(ids)
    out = torch.empty(ids.numel(), table.shape[1], device=device)
    cache.gather(found, table, out, by_id=True)
    if update:
        cache.update(found, out)
    return out
