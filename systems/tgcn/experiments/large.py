"""Graphs beyond one device: Twitter by count, and Flickr whole within 16 GB."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import failed, failures, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.table import Table, number
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.tgcn.common import last_rows
from dgbench.systems.tgcn.memory_runs import (
    BASELINES,
    LIMIT,
    TRAINED,
    count_grids_streamed,
    plan_memory,
    train_within_limit,
)
from dgbench.systems.tgcn.settings import GPU_BYTES, TWIN_NAMES, graph_title

NAME: Final = "large"
PLAN, COUNT, TRAIN = "plan", "count", "train"

Rows = Sequence[Any]


class Large(Grid):
    paper = "tgcn"
    name = NAME
    title = "Graphs beyond one GPU"
    own_data = "it plans memory at the sizes that the paper prints of its graphs"
    question = "What fits into 32 GB, and what does T-GCN need where nothing fits?"
    reading = (
        "Bytes follow from the printed sizes: state of every vertex with two layers of 64, and all "
        "edges, as the baselines hold them; the smallest count is five vectors and two times a "
        "vertex. T-GCN holds sampled edges in the host and three regions on the device, for 1000 "
        "intervals an epoch; rows that an interval names are counted at most. Grids of Twitter's "
        "twin are counted a piece at a time, so that memory does not grow with edges. Flickr's "
        "twin is sampled, cut and trained on for one epoch in a process of 16 GiB."
    )
    claims = ("tgcn-fig6-twitter-oom", "tgcn-s613-partition-not-separable")
    group = "{kind}/{dataset}"
    timeout_s: ClassVar = {"smoke": 60, "quick": 60, None: 7200}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield from ({"kind": PLAN, "dataset": name} for name in TWIN_NAMES)
        yield {"kind": COUNT, "dataset": "twitter"}
        if preset in TRAINED:
            yield {"kind": TRAIN, "dataset": "flickr"}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell(one, preset, memory_bytes=LIMIT if one["kind"] == TRAIN else None)
            for one in self.points(preset, device)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        work = {PLAN: plan_memory, COUNT: count_grids_streamed, TRAIN: train_within_limit}[
            str(cell.params["kind"])
        ]
        with one_thread():
            return work(str(cell.params["dataset"]), context)

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("large", "Device memory by printed sizes, and 32 GiB of a V100", memory_points,
                xlabel="graph", ylabel="bytes", sort=False, hline=float(GPU_BYTES),
                hline_label="32 GiB"),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        words = []
        for row in last_rows(rows, NAME, kind=PLAN, dataset="twitter"):
            words.append(
                "the state of Twitter's vertices alone takes "
                f"{number(row, 'memory', of='state', setting='paper') / 1e9:.0f} GB; T-GCN trains "
                f"it on one V100 in {number(row, 'parts')} parts that stream, or on "
                f"{number(row, 'devices')} V100"
            )
        for row in last_rows(rows, NAME, kind=TRAIN):
            held = number(row, "memory", of="device", method=None)
            words.append(
                f"Flickr's twin at scale {row.data['scale']:g} is trained on in "
                f"{number(row, 'epoch_time'):.0f} s with {held / 1e9:.1f} GB"
            )
        said = "; ".join(words)
        return f"{said[0].upper()}{said[1:]}." if said else ""


def memory_points(rows: Rows) -> list[dict[str, Any]]:
    """Device memory of contenders by printed sizes."""
    series: dict[tuple[str, int | None], str] = {
        **{(system, None): title for system, title in BASELINES.items()},
        ("tgcn", None): "T-GCN, 1 GPU",
        ("parts", None): "T-GCN, 1 GPU, streamed",
        ("tgcn", 8): "T-GCN, 8 GPUs",
    }
    points = [
        {
            "series": title,
            "x": graph_title(row.params["dataset"]),
            "y": float(held[key]),
            "counted": True,
            "row_ids": [row.id],
        }
        for row in last_rows(rows, NAME, kind=PLAN)
        for held in [Table.of([row]).where("memory", of="device").numbers("setting", "ranks")]
        for key, title in series.items()
        if key in held
    ]
    return points + [
        {"series": "DyGNN", "x": graph_title(row.params["dataset"]), "failed": failed(row)}
        for row in failures(rows, NAME, kind=PLAN)
    ]
