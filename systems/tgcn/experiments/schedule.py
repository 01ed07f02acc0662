"""Section 4.2: the ring of swaps on links of several machines, and what it replaces, by count."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import torch

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import observed
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.lab.study import FormExperiment
from dgbench.models.streaming import Dygnn
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.stream_data import check_parts, part_ends
from dgbench.systems.tgcn.grids import Grids
from dgbench.systems.tgcn.links import MACHINES, SOURCES, hop_matrix, machine
from dgbench.systems.tgcn.plan import ModelSize, state_bytes
from dgbench.systems.tgcn.recounts import VECTORS, check_round, intervals_of, moved_bytes
from dgbench.systems.tgcn.ring import LITERAL as PAPERS
from dgbench.systems.tgcn.ring import RELABELLED, best_ring, pairs, quality
from dgbench.systems.tgcn.schedule import (
    bytes_by_hops,
    check_schedule,
    exchange_seconds,
    host_placement,
    make_schedule,
    traffic,
)
from dgbench.systems.tgcn.settings import FORMS, HIDDEN, PIECES, open_graph, synthetic_data

SHOWN: Final = 2_302_925
"""Vertices of Flickr, whose interval is projected."""
LITERAL, BEST, OTHERS = "algorithm 6", "best ring", ("shift", "gather", "direct")
LEAN, RENAMED = f"{LITERAL}, lean", f"{LITERAL}, relabelled"
ON, OFF = "on", "off"
COPIED: Final = (1 << 20, 1 << 28)
"""Bytes of copies that are timed between devices."""


def measure_ring(name: str) -> Measurement:
    """Hops, doubled links and projected seconds of every schedule on one machine."""
    links = machine(name)
    hops = hop_matrix(links)
    found = Measurement(
        data=synthetic_data(f"links of {name}, published"),
        notes=[SOURCES],
        checks=_checked_links(links, hops),
    )
    best = best_ring(links)
    found.checks.append(_checked_ring(links, best))
    made = {
        LITERAL: make_schedule(8, ring=PAPERS, lean=False),
        LEAN: make_schedule(8, ring=PAPERS),
        BEST: make_schedule(8, ring=best),
        **{kind: make_schedule(8, kind, ring=best) for kind in OTHERS},
    }
    vector = 4 * HIDDEN
    rows = [SHOWN * (i + 1) // 8 - SHOWN * i // 8 for i in range(8)]
    for title, schedule in made.items():
        check_schedule(schedule)
        sent = traffic(schedule, rows, read=vector, add=2 * vector)
        for count, nbytes in bytes_by_hops(sent, links).items():
            found.observe("swapped", int(nbytes), hops=int(count), setting=title)
        found.checks += [
            check_round(schedule, title),
            equal(
                "bytes",
                int(sent.sum()),
                moved_bytes(schedule, rows, vector),
                against="a round followed move by move",
            ),
        ]
        for p2p in (ON, OFF):
            seconds = exchange_seconds(schedule, sent, links.topology(p2p=p2p == ON))
            found.observe("part_time", seconds, phase="exchange", setting=title, p2p=p2p)
    for title, ring in ((LITERAL, PAPERS), (BEST, best)):
        wide = [links.bricks(a, b) for side in pairs(ring) for a, b in side]
        found.observe("links", sum(count > 1 for count in wide), of="doubled", setting=title)
    renamed = 8 - quality(links.relabelled(RELABELLED), PAPERS).not_doubled
    found.observe("links", renamed, of="doubled", setting=RENAMED)
    found.observe("parts", len(made[LITERAL].phases), of="phases")
    far = [hops[i, j] for i in range(4) for j in range(4, 8)]
    inside = [hops[i, j] for i in range(4) for j in range(4) if i != j]
    found.observe("links", len(far), of="between groups")
    found.observe("links", sum(int(n == 2) for n in far), of="between groups", hops=2)
    found.observe("links", sum(int(n == 1) for n in inside), of="inside groups", hops=1)
    wide = [links.bricks(0, j) for j in range(8) if links.bricks(0, j)]
    found.observe("links", max(wide, default=0), of="pair")
    rates = [links.bandwidth(0, j) for j in range(1, 8) if links.bricks(0, j)]
    narrowest = min(rates, default=0.0)
    found.observe("bandwidth", narrowest, link="nvlink", of="narrowest")
    found.observe("bandwidth", links.pcie, link="pcie")
    return found


def _checked_links(links: Any, hops: Any) -> list[ResultCheck]:
    """Checks of hops by powers of the matrix of links, and of doubled links one by one."""
    size = links.size
    linked = np.array([[entry.startswith("NV") for entry in row] for row in links.matrix])
    steps = np.full((size, size), -1)
    reached = np.eye(size, dtype=np.int64)
    for count in range(size):
        steps[(steps < 0) & (reached > 0)] = count
        reached = reached @ linked
    bricks = [[links.bricks(i, j) for j in range(size)] for i in range(size)]
    widths = [[int(e[2:]) if e.startswith("NV") else 0 for e in row] for row in links.matrix]
    return [
        equal("counters", hops, steps, against="powers of the matrix of links"),
        equal("counters", bricks, widths, against="entries of the matrix of links"),
    ]


def _checked_ring(links: Any, best: Sequence[int]) -> ResultCheck:
    """Check that no ring of all is better: fewer single links, then wider slowest pairs."""

    def cost(ring: Sequence[int]) -> tuple[int, float]:
        every = [(ring[k], ring[(k + 1) % len(ring)]) for k in range(len(ring))]
        slow = sum(max(1 / rates[i][j] for i, j in every[k::2]) for k in range(2))
        return sum(not links.bricks(i, j) for i, j in every), round(slow * 1e12, 3)

    size = links.size
    rates = [[links.bandwidth(i, j) if i != j else 0.0 for j in range(size)] for i in range(size)]
    rings = [(0, *rest) for rest in itertools.permutations(range(1, size)) if rest[0] < rest[-1]]
    better = sum(one < cost(best) for one in map(cost, rings))
    return at_most("order", float(better), 0.0, against="all rings", compared=len(rings))


def measure_volume(name: str, context: RunContext) -> Measurement:
    """Bytes of an epoch on 8 devices with rows that intervals name."""
    events = open_graph(name, context.preset)
    check_parts(*part_ends(events), len(events))
    train = events.select(0, part_ends(events)[0])
    devices, vector = 8, 4 * HIDDEN
    grids = Grids.build(
        train.src, train.dst, train.t, events.num_nodes, intervals=PIECES, parts=devices,
        vertex_cut="dealt",
    )  # fmt: skip
    state = state_bytes(ModelSize(events.num_nodes, len(train), HIDDEN))
    schedule = make_schedule(devices)
    ring = whole = asked = h2d = d2h = 0
    sizes = grids.parts.sizes
    for k in range(PIECES):
        visiting, named = [], []
        for j in range(devices):
            cells = [grids.grid(k, i, j).dst for i in range(devices)]
            away = [torch.unique(one).numel() for i, one in enumerate(cells) if i != j]
            asked += sum(away) * 3 * vector
            visiting.append(torch.unique(torch.cat(cells)).numel())
            ends = cells + [grids.grid(k, j, i).src for i in range(devices)]
            named.append(torch.unique(torch.cat(ends)).numel())
        ring += int(traffic(schedule, visiting, read=vector, add=2 * vector).sum())
        whole += int(traffic(schedule, sizes, read=vector, add=2 * vector).sum())
        held = host_placement(visiting, state=0, read=vector, add=2 * vector, devices=devices)
        h2d += held["h2d"] + sum(named) * state
        d2h += held["d2h"] + sum(named) * state
    pairs = 2 * 8 * len(train)
    moves = (devices - 1) * VECTORS * vector
    counted = _named_rows(train, devices)
    wanted = {
        "ring": moves * counted["visiting"],
        "whole": moves * PIECES * events.num_nodes,
        "asked": VECTORS * vector * counted["asked"],
        "host": VECTORS * vector * devices * counted["visiting"] + 2 * state * counted["named"],
    }
    own = {"ring": ring, "whole": whole, "asked": asked, "host": h2d + d2h}
    found = Measurement(
        checks=[
            equal("bytes", own, wanted, against="distinct rows of all edges"),
            _checked_state(state, events.num_nodes),
        ],
        data=describe(events),
        notes=["edges of the training range without negatives, vertices dealt out in turns"],
    )
    for method in ("ring", "whole", "asked"):
        found.observe("swapped", own[method], method=method)
    found.observe("swapped", pairs, method="device", link="pcie")
    found.observe("swapped", own["host"] + pairs, method="host", link="pcie")
    return found


def _named_rows(train: Any, devices: int) -> dict[str, int]:
    """Distinct rows over all intervals: destinations, ends, and destinations by asking device."""
    src, dst, at = train.src.numpy(), train.dst.numpy(), intervals_of(train.t, PIECES)

    def distinct(*columns: Any) -> int:
        return len(np.unique(np.stack(columns), axis=1).T)

    far = src % devices != dst % devices
    return {
        "visiting": distinct(at, dst),
        "named": distinct(np.tile(at, 2), np.concatenate([src, dst])),
        "asked": distinct(at[far], src[far] % devices, dst[far]),
    }


def _checked_state(state: int, vertices: int) -> ResultCheck:
    """Check of the bytes of a vertex's state against tensors of a few vertices."""
    rows = min(100, vertices)
    tables = Dygnn(HIDDEN).new_state(rows)
    held = sum(x.nbytes for one in tables for x in one.columns().values() if x is not None)
    return equal("bytes", state * rows, held, against="bytes of the tensors themselves")


def measure_copies() -> Measurement:
    """Bytes per second from GPU 0 to GPU 1, and from host memory to GPU 0."""
    found = Measurement(data=synthetic_data("copies of bytes"), checks=[])
    for nbytes in COPIED:
        on = [torch.zeros(nbytes, dtype=torch.uint8, device=f"cuda:{i}") for i in range(2)]
        host = torch.randint(256, (nbytes,), dtype=torch.uint8).pin_memory()
        on[0].random_(256)
        for title, target, source in (("gpu to gpu", on[1], on[0]), ("host to gpu", on[0], host)):
            best = float("inf")
            for _ in range(6):
                for device in range(2):
                    torch.cuda.synchronize(device)
                start = time.perf_counter()
                target.copy_(source, non_blocking=True)
                for device in range(2):
                    torch.cuda.synchronize(device)
                best = min(best, time.perf_counter() - start)
            found.observe("bandwidth", nbytes / best, link=title, size=nbytes)
            found.checks.append(equal("copies", target, source.cpu(), against="source of the copy"))
    found.observe("links", int(torch.cuda.can_device_access_peer(0, 1)), of="peers")
    return found


RING, VOLUME, COPIES = "ring", "volume", "copies"
GRAPHS = {
    "smoke": ("college-msg",),
    "quick": ("wikipedia", "enron", "flickr"),
    None: ("lastfm", "reddit", "flickr", "wikipedia", "enron", "sx-mathoverflow"),
}
CHANNELS = 128
"""Floats of the embedding that is split over two channels (section 4.2)."""
PAPERS_MACHINE = "dgx1-v100"
PAIRS = 12
"""Ordered pairs of different GPUs of a group of four."""
TABLE = "published table of links of a DGX-1"
"""Model of the paper's machine, whose own table is not printed."""
OF_DGX1 = {"kind": RING, "machine": PAPERS_MACHINE}

LINKS = observed("links", **OF_DGX1)
BETWEEN, INSIDE = LINKS.where(of="between groups"), LINKS.where(of="inside groups", hops=1)
DOUBLED = LINKS.where(of="doubled")
PHASES = observed("parts", of="phases", **OF_DGX1)
TWO_HOPS = observed("swapped", setting=LITERAL, hops=2, **OF_DGX1)
RATE = observed("bandwidth", **OF_DGX1)
NARROWEST, PCIE = RATE.where(link="nvlink", of="narrowest"), RATE.where(link="pcie")
COPIED_RATE = 1e-9 * observed("bandwidth", kind=COPIES, size=COPIED[-1])
GPU_COPIES, HOST_COPIES = (COPIED_RATE.where(link=f"{end} to gpu") for end in ("gpu", "host"))
SWAPPED = observed("swapped", kind=VOLUME, per="dataset")
IN_HOST, ON_DEVICES = (SWAPPED.where(method=m, link="pcie") for m in ("host", "device"))
EXCHANGE = observed(
    "part_time", kind=RING, phase="exchange", per="machine", setting=(LITERAL, BEST, *OTHERS)
)


def most_doubled(numbering: str) -> outcomes.Rule:
    """As many of the eight pairs of Algorithm 6 have a doubled link as on the best ring."""
    used, most = DOUBLED.where(setting=numbering), DOUBLED.where(setting=BEST)
    rule = combine.as_proxy(rules.all_equal(used.over(most), 1), f"the {TABLE}")
    return combine.shown_beside(rule, {"used": used, "possible": most}, "pairs")


class Schedule(FormExperiment):
    forms, name = FORMS, "schedule"
    sources = {"part_time": "projected"}
    group = ""
    timeout_s = {"smoke": 60, "quick": 60, None: 900}
    headline = DOUBLED.where(setting=(LITERAL, BEST))
    figure_forms = (
        Sweep(
            "schedule_seconds",
            "Exchange of an interval of Flickr's size on 8 devices, by published links",
            {"peer to peer": EXCHANGE.where(p2p=ON), "through the host": EXCHANGE.where(p2p=OFF)},
            panel="machine", series="of", x="setting",
            gaps={"series": "peer to peer", "x": LITERAL}, more=lambda *_: {"projected": True},
            xlabel="schedule", ylabel="s", sort=False,
        ),
        Sweep(
            "schedule_bytes", "Bytes of an epoch on 8 devices, by way of bringing destinations",
            {
                "ring, whole parts": SWAPPED.where(method="whole"),
                "ring, named rows": SWAPPED.where(method="ring"),
                "asked one by one": SWAPPED.where(method="asked"),
                "PCIe, vectors in the host": IN_HOST,
                "PCIe, vectors on devices": ON_DEVICES,
            },
            series="of", x="{dataset}", gaps={"series": "ring, named rows"}, xlabel="graph",
            ylabel="bytes", sort=False,
        ),
    )  # fmt: skip
    claims = {
        "tgcn-s42-intergroup-cost": combine.by_model(
            rules.near_claim(
                (BETWEEN.where(hops=2) / BETWEEN.where(hops=None) + 1) / (2 - 1 / PAIRS * INSIDE),
                of=lambda double: 2.0,
            ), TABLE,
        ),
        "tgcn-s42-two-channel-split": rules.near_claim(
            LINKS.where(of="pair").map(lambda links: CHANNELS // links)
        ),
        "tgcn-s42-schedule-rounds": rules.all_equal(
            PHASES.map(lambda phases: phases // 2), lambda value, at: value
        ),
        "tgcn-s42-schedule-no-two-hop": combine.as_proxy(
            rules.all_equal(TWO_HOPS, 0), f"the {TABLE}"
        ),
        "tgcn-s42-schedule-uses-dual-links": combine.interpretations(
            "numbers of GPUs vary between machines and Figure 5 shows none",
            {
                "GPUs as published": most_doubled(LITERAL),
                "GPUs 1 and 3, 5 and 7 exchanged": most_doubled(RENAMED),
            },
        ),
        "tgcn-s41-hbm-embeddings-cut-traffic": rules.all_above(
            IN_HOST / ON_DEVICES, 1.0, unit="x"
        ),
        "tgcn-s1-nvlink-faster-than-pcie": combine.first_found(
            combine.shown_beside(
                rules.all_above(GPU_COPIES.over(HOST_COPIES), 1.0, unit="x"),
                {"from the host": HOST_COPIES}, "GB/s",
            ),
            combine.by_model(
                rules.entries_near_claim({}, rules.all_above(NARROWEST.over(PCIE), 1.0, unit="x")),
                TABLE,
            ),
        ),
    }  # fmt: skip

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield from ({"kind": RING, "machine": name} for name in MACHINES)
        yield from ({"kind": VOLUME, "dataset": n} for n in by_preset(GRAPHS, preset))
        yield {"kind": COPIES}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        links = {"unavailable": _unavailable(device)}
        return [
            self.cell(
                one,
                preset,
                group="/".join(one.values()),
                **(links if one["kind"] == COPIES else {"device": "cpu"}),
            )
            for one in self.points(preset, device)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        kind = cell.params["kind"]
        with one_thread():
            if kind == RING:
                return measure_ring(str(cell.params["machine"]))
            if kind == VOLUME:
                return measure_volume(str(cell.params["dataset"]), context)
            return measure_copies()


def _unavailable(device: str) -> str:
    if device != "cuda":
        return "needs 2 CUDA devices: links of GPUs are timed"
    return devices_lacking(2, device)
