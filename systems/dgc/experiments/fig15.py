"""Figure 15: time of loading with and without chunk fusion, and utilisation (section 7.3.2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import Any, Final

import numpy as np
import torch

from dgbench.lab.compare import Ratio, gain_of, gains, rounds_of, select
from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.collectives import LocalCommunicator
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.dgc.experiments.common import (
    devices_lacking,
    failed,
    failures,
    one_thread,
    over_rounds,
    panel,
    summarised,
)
from dgbench.systems.dgc.experiments.loading import (
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
from dgbench.systems.dgc.experiments.recount import EdgeRecount, counted
from dgbench.systems.dgc.experiments.settings import BY_NAME, workload
from dgbench.systems.dgc.sequence_oracle import SequenceOracle

NAME: Final = "fig15"
MODEL: Final = "mpnn_lstm_bare"
WORKERS: Final = 8
LOADING, USE = "loading", "utilisation"
GRAPHS: Final[dict[Preset, tuple[str, ...]]] = {
    "smoke": ("amazon",),
    "quick": ("amazon", "epinions", "movie", "stack", "wikipedia"),
    "full": ("amazon", "epinions", "movie", "stack", "sx-mathoverflow", "epinions-2011-ratings",
             "amazon-magazine", "wikipedia", "email-eu-core"),
    "paper": ("amazon", "epinions", "movie", "stack", "sx-mathoverflow", "epinions-2011-ratings",
              "amazon-magazine", "wikipedia", "email-eu-core"),
}  # fmt: skip
TURNS: Final = {"smoke": 3, "quick": 40, "full": 40, "paper": 40}
SECONDS: Final = {"smoke": 0.0, "quick": 0.2, "full": 5.0, "paper": 10.0}
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
        "alone. A CPU copies in memory, an analogue of a link to a device: bytes are exact, and "
        "time is mostly that of the calls where chunks are small. The paper does not say what it "
        "loads, nor whether its second figure is the share of time in which a GPU works or of its "
        "memory in use; both need a CUDA device. Twins are scaled down, and so are their chunks."
    )
    claims = ("dgc-fig15a-loading", "dgc-fig15a-stack-highest", "dgc-fig15b-gpu-util")

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        lacking = devices_lacking(1, "cuda") if device != "cuda" else devices_lacking(1, device)
        if device != "cuda" and not lacking:
            lacking = "needs a CUDA device, this run is on the CPU"
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": name, "model": MODEL, "kind": kind},
                group=f"{name}/{kind}",
                repeats=turn_rounds(preset) if kind == LOADING else 1,
                turns=True,
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
            return _loading(task, data, context)

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="fig15a",
                title="Time to load an epoch of MPNN-LSTM, the fullest of 8 workers (Figure 15a)",
                points=loading_points,
                options={"xlabel": "graph", "ylabel": "ms an epoch"},
            ),
            FigureSpec(
                kind="sweep",
                name="fig15a_bytes",
                title="Bytes loaded in an epoch of MPNN-LSTM, the fullest of 8 workers",
                points=byte_points,
                options={"xlabel": "graph", "ylabel": "MB an epoch"},
            ),
            FigureSpec(
                kind="sweep",
                name="fig15b",
                title="Share of time in which the device works (Figure 15b)",
                points=use_points,
                options={"xlabel": "graph", "ylabel": "utilisation, %", "ylog": False},
            ),
        ]

    def answer(self, rows: Rows) -> str:
        found = loading_rows(rows)
        if not found:
            return ""
        less = [reduction(fused_gain(row, rows).value) for row in found]
        bytes_less = [100 * (1 - row.counters[f"bytes {ON}"] / row.counters[f"bytes {OFF}"])
                      for row in found]  # fmt: skip
        words = (
            f"Chunk fusion takes {between(less, '.0f')} % off the time of loading and "
            f"{between(bytes_less, '.0f')} % off its bytes, over {len(found)} "
            f"{'graph' if len(found) == 1 else 'graphs'}."
        )
        if not use_rows(rows):
            words += " Utilisation needs a CUDA device."
        return words


def _loading(task: Any, data: Any, context: RunContext) -> Measurement:
    from dgbench.systems.base.sequences import sequence_model
    from dgbench.systems.dgc.volumes import shape_of

    shape = shape_of(sequence_model(task))
    dealt = dealt_out(task, data, WORKERS, context.device)
    plans = plans_of(data, dealt, norm=task.norm)
    counters: dict[str, int] = {
        "turns": 0,
        "vertex-steps": dealt.graph.num_vertices,
        "of the worker": plans[ON].structure.rows.numel(),
    }
    for name, plan in plans.items():
        loads = count_loads(plan, shape)
        counters |= {
            f"groups {name}": loads.groups,
            f"runs {name}": loads.runs,
            f"rows {name}": loads.rows,
            f"zeros {name}": loads.zeros,
            f"bytes {name}": loads.bytes,
        }
    loaders = {name: Loader(plan, shape, context.device) for name, plan in plans.items()}
    seconds = in_turns(loaders, TURNS[context.preset], SECONDS[context.preset])
    counters["turns"] = len(seconds[OFF])
    values = {f"seconds {name}": median(times) for name, times in seconds.items()}
    for name in SETTINGS:
        if name != OFF:
            values |= gains(name, seconds[OFF], seconds[name])
    return Measurement(
        values=values,
        units={f"seconds {name}": "s" for name in SETTINGS},
        counters=counters,
        deviation={"loads": max(loader.gap() for loader in loaders.values())},
        checks=[
            *(loader.check(name) for name, loader in loaders.items()),
            *(
                [counted(counters, _recounted(data, dealt, plans, loaders))]
                if context.round == 1
                else []
            ),
        ],
        data=describe(data),
        notes=list(dealt.notes),
    )


def _recounted(
    data: Any, dealt: Any, plans: dict[str, Any], loaders: dict[str, Loader]
) -> dict[str, int]:
    """Counters of a row: rows edge by edge, bytes from the tensors that were loaded."""
    edges, placement = EdgeRecount(data), dealt.placement
    unit, worker = placement.unit.numpy(), placement.structure.numpy()
    mine = int(np.bincount(placement.structure.numpy(), minlength=placement.workers).argmax())
    own = worker == mine
    found = {"vertex-steps": edges.entity.size, "of the worker": int(own.sum())}
    reads = own[edges.reader]
    for name, plan in plans.items():
        whole = SETTINGS[name][0] == "whole"
        part = np.where(own, 0 if whole else unit, -1)
        apart = reads & (part[edges.reader] != part[edges.heard])
        pairs = np.stack([edges.heard[apart], part[edges.reader[apart]]])
        runs = [run for stage in plan.time.stages for run in stage.groups]
        empty = sum(int((run.rows.sequence < 0).sum()) for run in runs)
        found |= {
            f"groups {name}": 1 if whole else np.unique(unit[own]).size,
            f"rows {name}": int(own.sum()) + np.unique(pairs, axis=1).shape[1],
            f"zeros {name}": empty * loaders[name].spatial_dim,
            f"bytes {name}": loaders[name].nbytes,
        }
    return found


def _use(task: Any, data: Any, context: RunContext) -> Measurement:
    """Train all chunks of 8 workers on one device, with and without fusion."""
    from dataclasses import replace

    from dgbench.systems.dgc.trainer import RankTrainer

    device = torch.device(context.device)
    busy = _counter(device)
    dealt = dealt_out(task, data, WORKERS, context.device)
    alone = torch.zeros_like(dealt.placement.structure)
    placement = replace(dealt.placement, workers=1, structure=alone, time=alone)
    seconds = max(1.0, SECONDS[context.preset])
    values: dict[str, float] = {}
    checks: list[ResultCheck] = []
    oracle = SequenceOracle(task, data, context.device)
    for name in (OFF, ON):
        fusion, temporal = SETTINGS[name]
        trainer = RankTrainer(
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
        values |= {
            f"busy {name}": mean(samples),
            f"memory {name}": 100 * torch.cuda.max_memory_allocated(device) / total,
            f"seconds {name}": seconds / max(1, epochs),
        }
        checks += oracle.check_used({name: trainer})
    return Measurement(
        values=values, data=describe(data), notes=list(dealt.notes), checks=summarised(checks)
    )


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
    """What `ask` says every PERIOD_S while `step` is called for some time, and calls of it."""
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
    return gain_of(rounds_of(row, rows), ON)


def use_rows(rows: Rows) -> list[Any]:
    """The last row of each graph whose device was watched."""
    last = {r.params["dataset"]: r for r in select(rows, experiment=NAME, kind=USE)}
    return list(last.values())


def loading_points(rows: Rows) -> list[dict[str, Any]]:
    """Milliseconds of loading by graph and setting."""
    return _points(rows, LOADING, loading_rows(rows), "seconds", 1e3)


def byte_points(rows: Rows) -> list[dict[str, Any]]:
    """Megabytes of loading by graph and setting."""
    return _points(rows, LOADING, loading_rows(rows), "bytes", 1e-6)


def use_points(rows: Rows) -> list[dict[str, Any]]:
    """Percent of time in which the device worked."""
    return _points(rows, USE, use_rows(rows), "busy", 1.0)


def _points(
    rows: Rows, kind: str, found: Sequence[Any], quantity: str, unit: float
) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    for row in found:
        mine = rounds_of(row, rows)
        counted = quantity == "bytes"  # exactly, so that one round says it
        known = [row.counters] if counted else [r.values for r in mine]
        for name in SETTINGS:
            if f"{quantity} {name}" not in known[-1]:
                continue
            point = {
                "series": name,
                "x": panel(row),
                **over_rounds([unit * one[f"{quantity} {name}"] for one in known]),
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
