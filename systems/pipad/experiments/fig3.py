"""Figure 3: how much of a PyGT step is copying, and how busy the device is (section 3.1).

On CUDA the phases of an instrumented run give the share, and NVML the busy share. On a CPU nothing
is copied, so PyGT's switch `arena` copies what a device would be sent into memory of its own: the
bytes are exact, the share of time is an analogue, and there is no device to be busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dgbench.lab.charts import sweep, why_not
from dgbench.lab.evidence import ids
from dgbench.lab.grid import Grid
from dgbench.lab.printed import ledger
from dgbench.lab.probes import probe
from dgbench.lab.result_checks import equal
from dgbench.lab.table import Table, rows_of
from dgbench.lab.verbs import instrumented
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext, Workload
from dgbench.systems.base import data as workload_data
from dgbench.systems.base.race import timed
from dgbench.systems.pipad.experiments.settings import (
    ALL,
    BY_NAME,
    LEDGER,
    MODEL_TITLES,
    MODELS,
    panel,
    workload,
)

GRAPHS = {None: [g.name for g in ALL]} | dict.fromkeys(
    ("smoke", "quick"), ("flickr", "covid19-england")
)
"""One large and one small graph in short presets, else all."""
SM = probe("gpm_sm_active_percent")
"""NVML's share of time in which a multiprocessor had a warp; only newer devices offer it."""


class Fig3(Grid):
    paper = "pipad"
    name = "fig3"
    title = "Figure 3: transfer share and device utilisation of PyGT"
    question = "How much of its time does PyGT spend copying, and how busy is the device?"
    claims = (
        "pipad-fig3-transfer-share",
        "pipad-fig3-sm-util",
        "pipad-s1-transfer-share-approx",
        "pipad-s1-gpu-util-bound",
    )
    reading = (
        "On CUDA: time of copies over the time of copies and compute, by stream events, and "
        "NVML's share of active multiprocessors. On a CPU the bytes that a device would be sent "
        "are copied into a separate arena and the share is the time that these copies block a "
        "step. Memory stands for the link and cores for a device, so the share is an analogue and "
        "its size says nothing about PCIe; the bytes are exact."
    )
    axes = {"dataset": GRAPHS, "model": MODELS}
    fixed = {"system": "pygt"}
    repeats = {"full": 5, "paper": 5, None: 1}
    timeout_s = {"full": 600, "paper": 600, None: 60}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        on_gpu = device == "cuda"
        return [self.cell(one, preset, phases=on_gpu) for one in self.points(preset, device)]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        task = workload(graph, str(cell.params["model"]), context.preset)
        switches = {"arena": True} if context.device == "cpu" else None
        found = timed("pygt", task, context, switches=switches)
        observed = {(one.metric, one.dims.get("phase")): one.value for one in found.observations}
        frames = frame_bytes(task)
        # The first step is not counted, and frames come round again after the last.
        steps = range(1, int(observed["counted_steps", None]) + 1)
        expected = sum(frames[i % len(frames)] for i in steps)
        sent = observed["host_to_device", None]
        found.checks.append(equal("counters", sent, expected, against="formula of bytes"))
        found.observe("host_to_device", sum(frames), of="epoch")
        found.observe("frames", len(frames))
        phases = found.seconds_by_phase
        if context.device == "cpu":
            share = observed["spent_time", "copy_wait"] / fmean(found.steady)
            found.observe("time_share", share, phase="transfer")
        elif context.instrumented and (spent := sum(phases.values())):
            found.observe("time_share", phases.get("transfer", 0.0) / spent, phase="transfer")
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("fig3", "Share of a PyGT step that copies take", share_points, xlabel="graph",
                ylabel="share of a step, %", ylog=False),
            sweep("fig3_bytes", "Bytes that a step of PyGT sends to the device", byte_points,
                xlabel="graph", ylabel="bytes of a step"),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = shares(rows)
        if not found:
            return ""
        percent = [100 * value for value in found.values]
        printed = ledger(LEDGER)["fig3-transfer-share"]
        how = (
            "copies over the link take"
            if found[0].row.device == "cuda"
            else "copies into an arena in memory, which stand in for a link (CPU analogue), take"
        )
        return (
            f"In PyGT {how} {min(percent):.2g} to {max(percent):.2g} % of a step, "
            f"{fmean(percent):.2g} % on average; the paper has {printed} % on a V100."
        )


def frame_bytes(task: Workload) -> list[int]:
    """Bytes that PyGT sends for each frame: edges as pairs of int64 ids, weights, features."""
    data = workload_data.load(task)
    features = 4 * data.num_nodes * data.features.shape[2]
    snapshots = [
        (16 if csr.values is None else 20) * csr.nnz + features
        for csr in (data.topology[t] for t in range(len(data)))
    ]
    count = (len(data) - task.frame - 1) // task.stride + 1
    starts = [frame * task.stride for frame in range(count)]
    return [sum(snapshots[first : first + task.frame]) for first in starts]


def shares(rows: Sequence[Any]) -> Table:
    """Shares of copies: of instrumented processes on CUDA, of plain ones on a CPU."""
    found = Table.of(rows, experiment="fig3") + instrumented(rows, experiment="fig3")
    return found.where("time_share", phase="transfer")


def share_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Share of copies, and of active multiprocessors, by graph and model."""
    rows = [row for row in rows if row.experiment == "fig3"]
    found = shares(rows).by("model", "dataset")
    points, busy = [], []
    for model, dataset in dict.fromkeys((r.params["model"], r.params["dataset"]) for r in rows):
        where = {"dataset": dataset, "model": model}
        here = [r for r in rows if {k: r.params[k] for k in where} == where]
        on_gpu = here[0].device == "cuda"
        point = {
            "panel": "copies over the link" if on_gpu else "copies into an arena (CPU analogue)",
            "series": MODEL_TITLES[model],
            "x": panel(next((r for r in here if r.data), here[0])),
        }
        if mine := found.get((model, dataset)):
            y = fmean(100 * value for value in mine.values)
            points.append({**point, "y": y, "row_ids": ids(mine.rows)})
        else:
            points.append({**point, "failed": why_not(here)})
        if not on_gpu:
            continue
        point["panel"] = "active multiprocessors"
        active = [r for r in rows_of(here) if SM.read(r) is not None]
        if active:
            y = fmean(SM.read(r) for r in active)
            busy.append({**point, "y": y, "row_ids": ids(active)})
        else:
            busy.append({**point, "failed": "not-supported: the device has no such meter"})
    return points + busy


def byte_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Bytes of a step, mean over the frames of an epoch, counted."""
    table = Table.of(rows, experiment="fig3")
    frames = table.where("frames").numbers("dataset", "model")
    return [
        {
            "series": MODEL_TITLES[model],
            "x": panel(found[0].row),
            "y": found[0].value / frames[dataset, model],
            "counted": True,
            "row_ids": ids(found.rows),
        }
        for (dataset, model), found in table.where("host_to_device", of="epoch")
        .by("dataset", "model")
        .items()
    ]
