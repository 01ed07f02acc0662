"""Figure 15: time of loading with and without chunk fusion, and utilisation (section 7.3.2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import Any, ClassVar, Final

import numpy as np
import torch

from dgbench.lab.charts import failed, failures, sweep
from dgbench.lab.compare import Ratio, rounds_of, select, take_control, with_control
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import ResultCheck, summarised
from dgbench.lab.table import number
from dgbench.runtime.collectives import LocalCommunicator
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.dgc.experiments.common import gain_over_rounds, observe_gains, over_rounds
from dgbench.systems.dgc.experiments.settings import BY_NAME, panel, workload
from dgbench.systems.dgc.loading import (
    OFF,
    ON,
    SETTINGS,
    Loader,
    between,
    count_loads,
    dealt_out,
    in_turns,
    plans_of,
)
from dgbench.systems.dgc.recount import EdgeRecount, recounted
from dgbench.systems.dgc.sequence_oracle import SequenceOracle

NAME: Final = "fig15"
LOADED: Final = "host_to_device"
MODEL: Final = "mpnn_lstm_bare"
WORKERS: Final = 8
LOADING, USE = "loading", "utilisation"
GRAPHS: Final[dict[Preset, tuple[str, ...]]] = {
    "smoke": ("amazon",),
    "quick": ("amazon", "epinions", "movie", "stack"),
    "full": ("amazon", "epinions", "movie", "stack", "sx-mathoverflow", "epinions-2011-ratings",
             "amazon-magazine", "wikipedia", "email-eu-core"),
    "paper": ("amazon", "epinions", "movie", "stack", "sx-mathoverflow", "epinions-2011-ratings",
              "amazon-magazine", "wikipedia", "email-eu-core"),
}  # fmt: skip
ROUNDS: Final[dict[Preset, int | None]] = {"smoke": 0, "quick": 1, "full": None, "paper": None}
"""Of the partition's refinement, most of a process in quick."""
TURNS: Final = {"smoke": 3, "quick": 15, "full": 40, "paper": 40}
SECONDS: Final = {"smoke": 0.0, "quick": 0.1, "full": 5.0, "paper": 10.0}
"""Of turns; a setting of the second figure trains for as long."""
TIMEOUTS_S: Final = {"smoke": 60, "quick": 60, "full": 600, "paper": 3600}
PERIOD_S: Final = 0.02

Rows = Sequence[Any]


class Fig15(Experiment):
    paper = "dgc"
    name = NAME
    title = "Figure 15: loading with and without chunk fusion"
    question = "How much loading does chunk fusion spare, and is the device busier with it?"
    reading = (
        "Loading is what an epoch of MPNN-LSTM copies before it computes, for the fullest of 8 "
        "workers: features and matrix of every chunk, in the second round the rows of the first, "
        "and rows of sequences with the zeros between them. Without fusion each chunk is loaded "
        "alone. A CPU copies in memory, a proxy of a link to a device: bytes are exact, and "
        "time is mostly that of the calls where chunks are small. The paper does not say what it "
        "loads, nor whether its second figure is the share of time in which a GPU works or of its "
        "memory in use; both need a CUDA device. Twins are scaled down, and so are their chunks."
    )
    control: ClassVar = {"dataset": "amazon", "kind": LOADING}
    claims = ("dgc-fig15a-loading", "dgc-fig15a-stack-highest", "dgc-fig15b-gpu-util")

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        lacking = devices_lacking(1, "cuda") if device != "cuda" else devices_lacking(1, device)
        if device != "cuda" and not lacking:
            lacking = "needs a CUDA device, this run is on the CPU"
        return [
            self.cell_of(
                {"dataset": name, "model": MODEL, "kind": kind},
                f"{name}/{kind}",
                repeats=turn_rounds(preset) if kind == LOADING else 1,
                interleaved=True,
                timeout_s=TIMEOUTS_S[preset],
                unavailable=lacking if kind == USE else "",
            )
            for kind in (LOADING, USE)
            for name in GRAPHS[preset]
            if kind == LOADING or not BY_NAME[name].real
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        from dgbench.systems.base.sequences import load_sequences

        task = workload(BY_NAME[str(cell.params["dataset"])], MODEL, context.preset)
        with one_thread():
            data = load_sequences(task)
            if cell.params["kind"] == USE:
                return _use(task, data, context)
            return _loading(task, data, context, control=self.controls(cell))

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("fig15a",
                "Time to load an epoch of MPNN-LSTM, the fullest of 8 workers (Figure 15a)",
                loading_points, xlabel="graph", ylabel="ms an epoch"),
            sweep("fig15a_bytes", "Bytes loaded in an epoch of MPNN-LSTM, the fullest of 8 workers",
                byte_points, xlabel="graph", ylabel="MB an epoch"),
            sweep("fig15b", "Share of time in which the device works (Figure 15b)", use_points,
                xlabel="graph", ylabel="utilisation, %", ylog=False),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = loading_rows(rows)
        if not found:
            return ""
        less = [reduction(fused_gain(row, rows).value) for row in found]
        bytes_less = [100 * bytes_spared(row) for row in found]
        words = (
            f"Chunk fusion takes {between(less, '.0f')} % off the time of loading and "
            f"{between(bytes_less, '.0f')} % off its bytes, over {len(found)} "
            f"{'graph' if len(found) == 1 else 'graphs'}."
        )
        if not use_rows(rows):
            words += " Utilisation needs a CUDA device."
        return words


def _loading(task: Any, data: Any, context: RunContext, *, control: bool) -> Measurement:
    from dgbench.systems.base.sequences import sequence_model
    from dgbench.systems.dgc.volumes import shape_of

    shape = shape_of(sequence_model(task))
    dealt = dealt_out(task, data, WORKERS, context.device, rounds=ROUNDS[context.preset])
    plans = plans_of(data, dealt, norm=task.norm)
    found = Measurement(data=describe(data), notes=list(dealt.notes))
    found.observe("vertex_steps", dealt.graph.num_vertices)
    found.observe("vertex_steps", plans[ON].structure.rows.numel(), of="worker")
    for name, plan in plans.items():
        loads = count_loads(plan, shape)
        found.observe("chunks", loads.runs, of="time", setting=name)
        _observe(found, name, loads.groups, loads.rows, loads.zeros, loads.bytes)
    loaders = {name: Loader(plan, shape, context.device) for name, plan in plans.items()}
    sides = with_control(loaders, on=control)
    seconds = in_turns(sides, TURNS[context.preset], SECONDS[context.preset])
    take_control(found, seconds)
    found.observe("turns", len(seconds[OFF]))
    for name, times in seconds.items():
        found.observe("phase_time", median(times), phase="loading", setting=name)
    observe_gains(found, seconds, OFF)
    found.deviation = {"loads": max(loader.gap() for loader in loaders.values())}
    found.checks = [loader.check(name) for name, loader in loaders.items()]
    if context.round == 1:
        found.checks += recounted(found, _recount(data, dealt, plans, loaders))
    return found


def _observe(found: Measurement, name: str, groups: int, rows: int, zeros: int, size: int) -> None:
    """Groups, rows, zeros between sequences and bytes that an epoch loads."""
    found.observe("chunks", groups, of="structure", setting=name)
    found.observe("rows_loaded", rows, setting=name)
    found.observe("padding", zeros, setting=name)
    found.observe("host_to_device", size, setting=name)


def _recount(
    data: Any, dealt: Any, plans: dict[str, Any], loaders: dict[str, Loader]
) -> Measurement:
    """Recount a row's values: rows edge by edge, bytes from the tensors that were loaded."""
    edges, placement = EdgeRecount(data), dealt.placement
    unit, worker = placement.unit.numpy(), placement.structure.numpy()
    mine = int(np.bincount(placement.structure.numpy(), minlength=placement.workers).argmax())
    own = worker == mine
    found = Measurement()
    found.observe("vertex_steps", edges.entity.size)
    found.observe("vertex_steps", int(own.sum()), of="worker")
    reads = own[edges.reader]
    for name, plan in plans.items():
        whole = SETTINGS[name][0] == "whole"
        part = np.where(own, 0 if whole else unit, -1)
        apart = reads & (part[edges.reader] != part[edges.heard])
        pairs = np.stack([edges.heard[apart], part[edges.reader[apart]]])
        runs = [run for stage in plan.time.stages for run in stage.groups]
        empty = sum(int((run.rows.sequence < 0).sum()) for run in runs)
        rows = int(own.sum()) + np.unique(pairs, axis=1).shape[1]
        zeros = empty * loaders[name].spatial_dim
        groups = 1 if whole else np.unique(unit[own]).size
        _observe(found, name, groups, rows, zeros, loaders[name].nbytes)
    return found


def _use(task: Any, data: Any, context: RunContext) -> Measurement:
    """Train all chunks of 8 workers on one device, with and without fusion."""
    from dataclasses import replace

    from dgbench.systems.dgc.trainer import ChunkRankTrainer

    device = torch.device(context.device)
    busy = _counter(device)
    dealt = dealt_out(task, data, WORKERS, context.device)
    alone = torch.zeros_like(dealt.placement.structure)
    placement = replace(dealt.placement, workers=1, structure=alone, time=alone)
    seconds = max(1.0, SECONDS[context.preset])
    found = Measurement(data=describe(data), notes=list(dealt.notes))
    checks: list[ResultCheck] = []
    oracle = SequenceOracle(task, data, context.device)
    for name in (OFF, ON):
        fusion, temporal = SETTINGS[name]
        trainer = ChunkRankTrainer(
            LocalCommunicator(device=device),
            task,
            data,
            placement,
            fusion=fusion,
            temporal=temporal,
            graph=dealt.graph,
            entries=dealt.entries,
        )
        torch.cuda.reset_peak_memory_stats(device)
        for _ in range(3):
            trainer.train_epoch()
        samples, epochs = _sampled(busy, trainer.train_epoch, seconds)
        total = torch.cuda.mem_get_info(device)[1]
        held = torch.cuda.max_memory_allocated(device) / total
        found.observe("utilisation", mean(samples) / 100, setting=name)
        found.observe("utilisation", held, setting=name, of="memory")
        found.observe("epoch_time", seconds / max(1, epochs), setting=name)
        checks += oracle.check_used({name: trainer})
    found.checks = summarised(checks)
    return found


def _counter(device: torch.device) -> Callable[[], float]:
    """Percent of time with a kernel running, as NVML has it; raises UnsupportedError without."""
    try:
        torch.cuda.utilization(device)
    except Exception as error:  # a missing package or driver, by classes of their own
        raise UnsupportedError(
            f"NVML gives no utilisation: {error}", hint="install nvidia-ml-py"
        ) from error
    return lambda: float(torch.cuda.utilization(device))


def _sampled(
    ask: Callable[[], float], step: Callable[[], Any], seconds: float
) -> tuple[list[float], int]:
    """Call `step` for some seconds; samples of `ask` every PERIOD_S, and number of calls."""
    samples: list[float] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(PERIOD_S):
            samples.append(ask())

    thread = threading.Thread(target=sample, daemon=True)
    begin, calls = time.perf_counter(), 0
    thread.start()
    while time.perf_counter() - begin < seconds:
        step()
        calls += 1
    stop.set()
    thread.join()
    return samples or [ask()], calls


def reduction(gain: float) -> float:
    """Percent less for a factor."""
    return 100 * (1 - 1 / gain)


def loading_rows(rows: Rows) -> list[Any]:
    """The last row of each graph whose loading was timed."""
    last = {r.params["dataset"]: r for r in select(rows, experiment=NAME, kind=LOADING)}
    return list(last.values())


def fused_gain(row: Any, rows: Rows) -> Ratio:
    """Loading without fusion over loading with it, over the rounds of the row's cell."""
    return gain_over_rounds(row, rows, ON)


def bytes_spared(row: Any) -> float:
    """Share of the bytes of loading that fusion spares."""
    return 1 - number(row, LOADED, setting=ON) / number(row, LOADED, setting=OFF)


def use_rows(rows: Rows) -> list[Any]:
    """The last row of each graph whose device was watched."""
    last = {r.params["dataset"]: r for r in select(rows, experiment=NAME, kind=USE)}
    return list(last.values())


def loading_points(rows: Rows) -> list[dict[str, Any]]:
    """Milliseconds of loading by graph and setting."""
    found = loading_rows(rows)
    return _points(rows, LOADING, found, 1e3, "phase_time", phase="loading")


def byte_points(rows: Rows) -> list[dict[str, Any]]:
    """Megabytes of loading by graph and setting."""
    return _points(rows, LOADING, loading_rows(rows), 1e-6, LOADED)


def use_points(rows: Rows) -> list[dict[str, Any]]:
    """Percent of time in which the device worked."""
    return _points(rows, USE, use_rows(rows), 100.0, "utilisation")


def _points(
    rows: Rows, kind: str, found: Sequence[Any], unit: float, metric: str, **dims: str
) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    for row in found:
        mine = rounds_of(row, rows)
        counted = metric == LOADED  # exactly, so that one round says it
        for name in SETTINGS:
            heights = [
                number(r, metric, None, setting=name, **dims) for r in ([row] if counted else mine)
            ]
            if heights[-1] is None:
                continue
            point = {
                "series": name,
                "x": panel(row),
                **over_rounds([unit * height for height in heights]),
                "counted": counted,
                "twin": bool(row.data.get("twin")),
                "row_ids": [r.id for r in mine],
            }
            points.append(point)
    for row in failures(rows, NAME):
        if row.params["kind"] == kind:
            title = BY_NAME[row.params["dataset"]].title
            points.append({"series": ON, "x": title, "y": 0.0, "failed": failed(row)})
    return points
