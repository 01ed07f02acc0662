"""Graphs beyond one device: Twitter by count, and Flickr whole within 16 GB."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.estimates import gaps_of_failures
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.study import FormExperiment
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.tgcn.memory_runs import (
    BASELINES,
    LIMIT,
    TRAINED,
    count_grids_streamed,
    plan_memory,
    train_within_limit,
)
from dgbench.systems.tgcn.settings import FORMS, GPU_BYTES, TWIN_NAMES

PLANNED_BYTES = "formula of bytes at printed sizes"
PLAN, COUNT, TRAIN = "plan", "count", "train"
PLANNED = observed("memory", experiment="large", kind=PLAN, of="device", per="dataset")
"""Planned bytes of a device, on one of it and on several."""
ALONE = PLANNED.where(ranks=None)
GB = 1e-9 * ALONE.where(dataset="twitter")
ROOM = GPU_BYTES / 1e9


class Large(FormExperiment):
    forms, name = FORMS, "large"
    group = "{kind}/{dataset}"
    timeout_s = {"smoke": 60, "quick": 60, None: 7200}
    headline, unit = GB.where(setting=("dygnn", "jodie", "tgcn", "parts")), "GB"
    figure_forms = (
        Sweep(
            "large", "Device memory by printed sizes, and 32 GiB of a V100",
            {
                title: PLANNED.where(setting=system, ranks=ranks).keep(gaps_of_failures)
                for title, system, ranks in (
                    *((title, system, None) for system, title in BASELINES.items()),
                    ("T-GCN, 1 GPU", "tgcn", None),
                    ("T-GCN, 1 GPU, streamed", "parts", None),
                    ("T-GCN, 8 GPUs", "tgcn", 8),
                )
            },
            series="of", x="{dataset}", gaps={"series": "DyGNN"},
            xlabel="graph", ylabel="bytes", sort=False, hline=float(GPU_BYTES),
            hline_label="32 GiB",
        ),
    )  # fmt: skip
    claims = {
        name: combine.by_model(rules.all_above(GB.where(setting=systems), ROOM, unit="GB"),
                               PLANNED_BYTES)
        for name, systems in (("tgcn-fig6-twitter-oom", ("dygnn", "jodie")),
                              ("tgcn-s613-partition-not-separable", "tgcn"))
    }  # fmt: skip

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
