"""Section 4.2: the ring of swaps on links of several machines, and what it replaces, by count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import failed, failures, mark, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.table import number
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.tgcn.common import last_rows
from dgbench.systems.tgcn.exchange_runs import (
    BEST,
    LITERAL,
    OFF,
    ON,
    OTHERS,
    measure_copies,
    measure_ring,
    measure_volume,
)
from dgbench.systems.tgcn.settings import panel

NAME: Final = "schedule"
RING, VOLUME, COPIES = "ring", "volume", "copies"
GRAPHS: Final = {
    "smoke": ("college-msg",),
    "quick": ("wikipedia", "enron", "flickr"),
    "full": ("lastfm", "reddit", "flickr", "wikipedia", "enron", "sx-mathoverflow"),
}
CHANNELS: Final = 128
"""Floats of the embedding that is split over two channels (section 4.2)."""
PAPERS_MACHINE: Final = "dgx1-v100"

Rows = Sequence[Any]


class Schedule(Grid):
    paper = "tgcn"
    name = NAME
    title = "Section 4.2: the ring of swaps"
    question = "Does every grid get its turn over direct links, and are the links the wide ones?"
    reading = (
        "Rounds of 1 to 16 devices are followed part by part. Link matrices are the published one "
        "of a DGX-1 with V100, NVSwitch, and PCIe alone; the paper does not print its own, and "
        "GPU numbers vary between machines. A phase lasts as long as its slowest pair, by "
        "published bandwidths. An interval moves the embedding of a destination and brings home "
        "its gradient and the sum over its partners: three vectors of 64 floats. Rows that travel "
        "are those that an interval names; asked one by one, a device gets those that its own "
        "grid names. Bytes over PCIe are compared with vectors that live in host memory."
    )
    claims = (
        "tgcn-s42-intergroup-cost",
        "tgcn-s42-two-channel-split",
        "tgcn-s42-schedule-rounds",
        "tgcn-s42-schedule-no-two-hop",
        "tgcn-s42-schedule-uses-dual-links",
        "tgcn-s41-hbm-embeddings-cut-traffic",
        "tgcn-s1-nvlink-faster-than-pcie",
    )
    sources: ClassVar = {"part_time": "projected"}
    group = ""
    timeout_s: ClassVar = {"smoke": 60, "quick": 60, None: 900}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        from dgbench.systems.tgcn.links import MACHINES

        yield from ({"kind": RING, "machine": name} for name in MACHINES)
        yield from ({"kind": VOLUME, "dataset": n} for n in GRAPHS.get(preset, GRAPHS["full"]))
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

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("schedule_seconds",
                "Exchange of an interval of Flickr's size on 8 devices, by published links",
                exchange_points, xlabel="schedule", ylabel="s", sort=False),
            sweep("schedule_bytes",
                "Bytes of an epoch on 8 devices, by way of bringing destinations", volume_points,
                xlabel="graph", ylabel="bytes", sort=False),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = last_rows(rows, NAME, kind=RING, machine=PAPERS_MACHINE)
        if not found:
            return ""
        doubled, best = (
            number(found[-1], "links", of="doubled", setting=ring) for ring in (LITERAL, BEST)
        )
        faster = exchange_time(found[-1], LITERAL) / exchange_time(found[-1], BEST)
        return (
            "Algorithm 6 trains every grid once over direct links; on the published table "
            f"{doubled} of its 8 pairs have a doubled one. The best ring has {best} and leaves out "
            f"what need not travel: {faster:.1f} times as fast."
        )


def _unavailable(device: str) -> str:
    if device != "cuda":
        return "needs 2 CUDA devices: links of GPUs are timed"
    return devices_lacking(2, device)


def exchange_time(row: Any, setting: str, p2p: str = ON) -> float:
    """Projected seconds of an interval's exchange."""
    return number(row, "part_time", phase="exchange", setting=setting, p2p=p2p)


def exchange_points(rows: Rows) -> list[dict[str, Any]]:
    """Projected seconds of an interval's exchange by schedule; a panel for each machine."""
    points = [
        {
            "panel": row.params["machine"],
            "series": series,
            "x": title,
            "y": exchange_time(row, title, p2p),
            "projected": True,
            "row_ids": [row.id],
        }
        for row in last_rows(rows, NAME, kind=RING)
        for title in (LITERAL, BEST, *OTHERS)
        for series, p2p in (("peer to peer", ON), ("through the host", OFF))
    ]
    return points + [
        {"panel": row.params["machine"], "series": "peer to peer", "x": LITERAL,
         "failed": failed(row)}
        for row in failures(rows, NAME, kind=RING)
    ]  # fmt: skip


def volume_points(rows: Rows) -> list[dict[str, Any]]:
    """Bytes of an epoch: between devices, and over PCIe."""
    series = {
        "ring, whole parts": "whole",
        "ring, named rows": "ring",
        "asked one by one": "asked",
        "PCIe, vectors in the host": "host",
        "PCIe, vectors on devices": "device",
    }
    points = [
        mark(
            row,
            series=title,
            x=panel(row),
            y=float(number(row, "swapped", method=method)),
            counted=True,
        )
        for row in last_rows(rows, NAME, kind=VOLUME)
        for title, method in series.items()
    ]
    return points + [
        {"series": "ring, named rows", "x": panel(row), "failed": failed(row)}
        for row in failures(rows, NAME, kind=VOLUME)
    ]
