"""Section 4.2: the ring of swaps on links of several machines, and what it replaces, by count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import observed
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.study import FormExperiment
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.tgcn.exchange_runs import (
    BEST,
    COPIED,
    LITERAL,
    OFF,
    ON,
    OTHERS,
    RENAMED,
    measure_copies,
    measure_ring,
    measure_volume,
)
from dgbench.systems.tgcn.links import MACHINES
from dgbench.systems.tgcn.settings import FORMS

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
