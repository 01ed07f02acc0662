"""Figure 3: how much of a PyGT step is copying, and how busy the device is (section 3.1).

On CUDA the phases of an instrumented run give the share, and NVML the busy share. On a CPU nothing
is copied, so PyGT's switch `arena` copies what a device would be sent into memory of its own: the
bytes are exact, the share of time is a proxy, and there is no device to be busy.
"""

from __future__ import annotations

import math
from statistics import fmean

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.experiment import Cell, Measurement, Preset, RunContext
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.probes import probe
from dgbench.lab.quantities import observed, of_rows
from dgbench.lab.result_checks import equal
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Workload
from dgbench.systems.base import data as workload_data
from dgbench.systems.base.race import timed
from dgbench.systems.pipad.experiments.settings import ALL, FORMS, MODELS, NEEDS_CUDA, task_of

GRAPHS = {None: [g.name for g in ALL]} | dict.fromkeys(
    ("smoke", "quick"), ("flickr", "covid19-england")
)
"""One large and one small graph in short presets, else all."""
SM = probe("gpm_sm_active_percent")
"""NVML's share of time in which a multiprocessor had a warp; only newer devices offer it."""
WORKLOAD = ("model", "dataset")
COPIES = 100 * observed("time_share", per=WORKLOAD, phase="transfer").instrumented(also=True)
"""Percent of a step that copies take: of instrumented processes on CUDA, of plain ones on a CPU."""
ACTIVE = of_rows(
    lambda row: math.nan if (value := SM.read(row)) is None else value, per=WORKLOAD, device="cuda"
)
"""Percent of time in which a multiprocessor was active, over whole processes, start included."""
NO_METER = "not-supported: the device has no such meter"
STEP_BYTES = observed("host_to_device", per=WORKLOAD, of="epoch") / observed("frames", per=WORKLOAD)

transfer_share = combine.as_proxy(
    rules.near_claim(COPIES.mean_over(*WORKLOAD)), "copies in memory in place of PCIe",
    on_cpu_only=True,
)  # fmt: skip
active_share = combine.needs_gpu(rules.near_claim(ACTIVE.mean_over(*WORKLOAD)), NEEDS_CUDA)


class Fig3(FormExperiment):
    forms, name = FORMS, "fig3"
    axes = {"dataset": GRAPHS, "model": MODELS}
    fixed = {"system": "pygt"}
    repeats = {"full": 5, "paper": 5, None: 1}
    timeout_s = {"full": 600, "paper": 600, None: 60}
    headline, unit = COPIES, "%"
    figure_forms = (
        Sweep(
            "fig3", "Share of a PyGT step that copies take",
            {
                "copies over the link": COPIES.where(device="cuda"),
                "copies into an arena (CPU proxy)": COPIES.where(device="cpu"),
                "active multiprocessors": ACTIVE,
            },
            panel="of", series="{model}", x="{dataset}", without=NO_METER,
            xlabel="graph", ylabel="share of a step, %", ylog=False,
        ),
        Sweep(
            "fig3_bytes", "Bytes that a step of PyGT sends to the device", STEP_BYTES,
            series="{model}", x="{dataset}", drawn_gaps=False, xlabel="graph",
            ylabel="bytes of a step",
        ),
    )  # fmt: skip
    claims = {
        "pipad-fig3-transfer-share": transfer_share,
        "pipad-fig3-sm-util": active_share,
        "pipad-s1-transfer-share-approx": transfer_share,
        "pipad-s1-gpu-util-bound": active_share,
    }

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        on_gpu = device == "cuda"
        return [self.cell(one, preset, phases=on_gpu) for one in self.points(preset, device)]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        task = task_of(cell.params, context.preset)
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
