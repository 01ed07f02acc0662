"""Rows through a cache of slots, against gathers without one and a list behind a lock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.build_info import extension
from dgbench.kernels_cuda.row_cache import RowCache
from dgbench.kernels_cuda.workspace import scratch
from dgbench.lab.experiment import Preset
from dgbench.lab.result_checks import equal
from dgbench.systems.operators.race import OURS, Call, OperatorCase, OperatorRace

LIST, GATHER, NOTHING = "list and lock", "torch index_select", "lookup of nothing and gather"
ADMISSION, BATCHES = 0.2, 24


def table(
    rows: int, width: int, slots: int, batch: int, ids: str, threads: int = 1
) -> dict[str, Any]:
    """Params of a table. Ids follow a `power` law, as nodes do, or a `window`, as edges do."""
    return {
        "ids": ids, "rows": rows, "width": width, "slots": slots, "batch": batch,
        "threads": threads,
    }  # fmt: skip


class Cache(OperatorRace):
    name = "cache"
    title = "Rows through a feature cache"
    question = "What do looking up, scoring and admitting cost on top of a gather?"
    reading = (
        "The cache lies in the same memory as the table, so that a plain gather is what this "
        "machine allows at most; what a cache saves is bytes that do not cross to a device. The "
        "list is an LRU behind a lock, one id at a time, compiled. Each fetches the same batches."
    )
    claims = ("operators-cache-list",)
    shortest_turn_s = 0.0
    limits = (GATHER, NOTHING)
    workloads = {
        "smoke": (table(2000, 8, 200, 300, "window"), table(2000, 8, 200, 300, "power")),
        "quick": (
            table(50_000, 172, 5000, 10_000, "window"),
            table(50_000, 128, 5000, 10_000, "power"),
        ),
        None: tuple(
            table(*size, threads=threads)
            for threads in (1, 2)
            for size in (
                (400_000, 172, 40_000, 100_000, "window"),
                (200_000, 128, 20_000, 100_000, "power"),
                (60_000, 768, 6_000, 20_000, "power"),
                (200_000, 172, 4_000, 5_000, "window"),
            )
        ),
    }
    label = "{batch:,} ids by {ids}, {width} floats, {threads} threads"

    def case(self, params: Mapping[str, Any], preset: Preset, device: str) -> OperatorCase:
        torch.set_num_threads(params["threads"])  # set back by the race
        generator = torch.Generator().manual_seed(4)
        rows = torch.rand(params["rows"], params["width"], generator=generator)
        drawn = batches(params["rows"], params["batch"], params["ids"])
        slots = params["slots"]
        variants = {
            OURS: SlotRows(rows, slots),
            f"{OURS}, hash index": SlotRows(rows, slots, index="hash"),
            f"{OURS}, lfu": SlotRows(rows, slots, policy="lfu"),
            f"{OURS}, fifo": SlotRows(rows, slots, policy="fifo"),
            NOTHING: SlotRows(rows, 0),
        }
        listed = extension(rows.device).ListCache(params["rows"], slots, params["width"])

        def fetch_list(turn: int) -> Tensor:
            out = scratch.empty((len(drawn[turn]), params["width"]), rows)
            listed.fetch(drawn[turn], rows, out, params["threads"])
            return out

        def select(turn: int) -> Tensor:
            out = scratch.empty((len(drawn[turn]), params["width"]), rows)
            return torch.index_select(rows, 0, drawn[turn], out=out)

        calls: dict[str, Call] = {
            name: lambda turn, one=one: one.fetch(drawn[turn]) for name, one in variants.items()
        }
        return OperatorCase(
            calls={**calls, LIST: fetch_list, GATHER: select},
            check=lambda name, turn, found: equal(
                "rows", found, rows[drawn[turn]], against="rows of the table"
            ),
            baselines=((OURS, (LIST, GATHER, NOTHING)),),
            work=(
                ("throughput", {"of": "rows"}, params["batch"]),
                ("bandwidth", {}, 8 * params["width"] * params["batch"]),
            ),
            observe=tuple(
                ("hit_rate", SlotRows.hit_rate(rows, slots, drawn, policy), {"method": name})
                for name, policy in ((OURS, "lru"), (f"{OURS}, lfu", "lfu"))
            ),
        )


class SlotRows:
    """Rows of a table through a cache: found ones from slots, others from the table, then kept."""

    def __init__(self, rows: Tensor, slots: int, **settings: Any) -> None:
        limit = min(slots, max(1, int(ADMISSION * slots)))
        self.rows = rows
        self.slots = RowCache(*rows.shape, slots, limit=limit, **settings)
        self.hits = self.requests = 0

    def fetch(self, ids: Tensor) -> Tensor:
        """float32[n, width], the rows of ids int64[n]."""
        found = self.slots.lookup(ids)
        out = scratch.empty((ids.numel(), self.rows.shape[1]), self.rows)
        self.slots.gather(found, self.rows, out, by_id=True)
        self.hits += found.request_hits
        self.requests += ids.numel()
        if self.slots.capacity:
            self.slots.update(found, out)
        return out

    @classmethod
    def hit_rate(cls, rows: Tensor, slots: int, drawn: list[Tensor], policy: Any) -> float:
        """Share of requests that hit over all batches, from an empty cache on."""
        cache = cls(rows, slots, policy=policy)
        for ids in drawn:
            cache.fetch(ids)
        return cache.hits / cache.requests


def batches(rows: int, size: int, kind: str) -> list[Tensor]:
    """int64[size] ids of each batch."""
    generator = torch.Generator().manual_seed(5)
    made = []
    for number in range(BATCHES):
        spread = torch.rand(size, generator=generator)
        if kind == "power":
            made.append((spread**4 * rows).long().clamp(max=rows - 1))
        else:
            newest = rows // 2 + number * rows // (4 * BATCHES)
            made.append((newest - spread**3 * rows / 8).long())
    return made
