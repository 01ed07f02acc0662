"""Figure 3: how much of a PyGT step is copying, and how busy the device is (section 3.1).

On CUDA the phases of an instrumented run give the share, and NVML the busy share. On a CPU nothing
is copied, so PyGT's switch `arena` copies what a device would be sent into memory of its own: the
bytes are exact, the share of time is an analogue, and there is no device to be busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dgbench.lab.compare import select
from dgbench.lab.probes import probe
from dgbench.lab.result_checks import equal
from dgbench.systems.base import (
    Cell,
    Experiment,
    FigureSpec,
    Measurement,
    Preset,
    RunContext,
    Workload,
)
from dgbench.systems.base import data as workload_data
from dgbench.systems.base.race import timed
from dgbench.systems.pipad.experiments.settings import (
    ALL,
    BY_NAME,
    MODEL_TITLES,
    MODELS,
    workload,
)

QUICK_GRAPHS = ("flickr", "covid19-england")
ROUNDS = {"full": 5, "paper": 5}
SHARE = "transfer_share_percent"
SM = probe("gpm_sm_active_percent")
"""NVML's share of time in which a multiprocessor had a warp; only newer devices offer it."""
PAPER_SHARE = 38.7


def graphs(preset: Preset) -> list[str]:
    """One large and one small graph in short presets, else all."""
    return list(QUICK_GRAPHS) if preset in ("smoke", "quick") else [g.name for g in ALL]


class Fig3(Experiment):
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

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": dataset, "model": model, "system": "pygt"},
                group=dataset,
                repeats=ROUNDS.get(preset, 1),
                timeout_s=600 if preset in ("full", "paper") else 60,
                phases=device == "cuda",
            )
            for dataset in graphs(preset)
            for model in MODELS
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        task = workload(graph, str(cell.params["model"]), context.preset)
        switches = {"arena": True} if context.device == "cpu" else None
        found = timed("pygt", task, context, switches=switches)
        steps = found.counters["counted_steps"]
        frames = frame_bytes(task)
        # The first step is not counted, and frames come round again after the last.
        expected = sum(frames[i % len(frames)] for i in range(1, steps + 1))
        sent = found.counters["bytes_h2d_counted"]
        found.checks.append(equal("counters", sent, expected, against="formula of bytes"))
        found.counters |= {"bytes_per_epoch": sum(frames), "frames": len(frames)}
        if context.device == "cpu":
            found.values[SHARE] = 100 * found.values["copy_wait_s"] / fmean(found.samples)
            found.units[SHARE] = "%"
        elif context.instrumented and (spent := sum(found.phases.values())):
            found.values[SHARE] = 100 * found.phases.get("transfer", 0.0) / spent
            found.units[SHARE] = "%"
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="fig3",
                title="Share of a PyGT step that copies take",
                points=share_points,
                options={
                    "xlabel": "graph",
                    "ylabel": "share of a step, %",
                    "ylog": False,
                },
            ),
            FigureSpec(
                kind="sweep",
                name="fig3_bytes",
                title="Bytes that a step of PyGT sends to the device",
                points=byte_points,
                options={"xlabel": "graph", "ylabel": "bytes of a step"},
            ),
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = with_share(rows)
        if not found:
            return ""
        shares = [row.values[SHARE] for row in found]
        how = (
            "copies over the link take"
            if found[0].device == "cuda"
            else "copies into an arena in memory, which stand in for a link (CPU analogue), take"
        )
        return (
            f"In PyGT {how} {min(shares):.2g} to {max(shares):.2g} % of a step, "
            f"{fmean(shares):.2g} % on average; the paper has {PAPER_SHARE} % on a V100."
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


def with_share(rows: Sequence[Any]) -> list[Any]:
    """Rows that carry the share of copies: instrumented ones on CUDA, plain ones on a CPU."""
    return [r for r in rows if r.experiment == "fig3" and r.status == "ok" and SHARE in r.values]


def by_workload(rows: Sequence[Any], read: Any) -> dict[tuple[str, str], float]:
    """Mean of what `read` finds in a row, by (dataset, model); rows where it is None are left."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        value = read(row)
        if value is not None:
            found.setdefault((row.params["dataset"], row.params["model"]), []).append(value)
    return {key: fmean(values) for key, values in found.items()}


def sm_active(row: Any) -> float | None:
    """Percent of time with an active multiprocessor, None where the machine has no such meter."""
    return SM.read(row)


def title_of(row: Any) -> str:
    """The graph's title, with "(twin)" where its data are synthetic."""
    return BY_NAME[row.params["dataset"]].title + (" (twin)" if row.data.get("twin") else "")


def share_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Share of copies, and of active multiprocessors, by graph and model."""
    mine = [r for r in rows if r.experiment == "fig3"]
    keys = dict.fromkeys((r.params["model"], r.params["dataset"]) for r in mine)
    points, busy = [], []
    for model, dataset in keys:
        where = {"dataset": dataset, "model": model}
        here = [r for r in mine if {k: r.params[k] for k in where} == where]
        found = with_share(here)
        on_gpu = here[0].device == "cuda"
        point = {
            "panel": "copies over the link" if on_gpu else "copies into an arena (CPU analogue)",
            "series": MODEL_TITLES[model],
            "x": title_of(next((r for r in here if r.data), here[0])),
        }
        if found:
            y = fmean(r.values[SHARE] for r in found)
            points.append({**point, "y": y, "row_ids": [r.id for r in found]})
        else:
            bad = next((r for r in here if r.status != "ok"), None)
            reason = f"{bad.status}: {bad.reason}" if bad else "skipped: not run"
            points.append({**point, "failed": reason})
        if not on_gpu:
            continue
        point["panel"] = "active multiprocessors"
        active = [r for r in select(here) if sm_active(r) is not None]
        if active:
            y = fmean(sm_active(r) for r in active)
            busy.append({**point, "y": y, "row_ids": [r.id for r in active]})
        else:
            busy.append({**point, "failed": "not-supported: the device has no such meter"})
    return points + busy


def byte_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Bytes of a step, mean over the frames of an epoch, counted."""
    points: dict[tuple[str, str], dict[str, Any]] = {}
    for row in select(rows, experiment="fig3"):
        key = row.params["dataset"], row.params["model"]
        point = points.setdefault(
            key,
            {
                "series": MODEL_TITLES[row.params["model"]],
                "x": title_of(row),
                "y": row.counters["bytes_per_epoch"] / row.counters["frames"],
                "counted": True,
                "row_ids": [],
            },
        )
        point["row_ids"].append(row.id)
    return list(points.values())
