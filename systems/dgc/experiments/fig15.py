"""Figure 15: time of loading with and without chunk fusion, and utilisation (section 7.3.2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import mean, median
from typing import Any, Final

import torch

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import take_control, with_control
from dgbench.lab.estimates import EvaluationContext
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import observed, of_rows
from dgbench.lab.ranks import devices_lacking
from dgbench.lab.result_checks import ResultCheck, summarised
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import number
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.sequences import load_sequences, sequence_model
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.dgc.experiments.common import observe_gains, trainer_on_one
from dgbench.systems.dgc.experiments.settings import (
    BY_NAME,
    FORMS,
    GRAPHS,
    HELD,
    NEEDS_CUDA,
    workload,
)
from dgbench.systems.dgc.loading import (
    OFF,
    ON,
    SETTINGS,
    Loader,
    dealt_out,
    in_turns,
    loaded_bytes,
    plans_of,
)
from dgbench.systems.dgc.recount import EdgeRecount, recounted
from dgbench.systems.dgc.sequence_oracle import SequenceOracle
from dgbench.systems.dgc.volumes import shape_of

MODEL: Final = "mpnn_lstm_bare"
WORKERS: Final = 8
LOADING, USE = "loading", "utilisation"
TWINS: Final = tuple(graph.name for graph in GRAPHS)
LOADED: Final = {
    "smoke": TWINS[:1], "quick": TWINS, None: (*TWINS, *(graph.name for graph in HELD))
}  # fmt: skip
"""Graphs whose loading is timed."""
ROUNDS: Final[dict[Preset, int | None]] = {"smoke": 0, "quick": 1, "full": None, "paper": None}
"""Of the partition's refinement, most of a process in quick."""
TURNS: Final = {"smoke": 3, "quick": 15, "full": 40, "paper": 40}
SECONDS: Final = {"smoke": 0.0, "quick": 0.1, "full": 5.0, "paper": 10.0}
"""Of turns; a setting of the second figure trains for as long."""
PERIOD_S: Final = 0.02

EACH = ("dataset", "setting")
TIME = observed("phase_time", per=EACH, phase="loading").pooled("seeds")
BYTES = observed("host_to_device", per=EACH)
BUSY = 100 * observed("utilisation", per=EACH, kind=USE)
"""Percent of time in which the device works."""
GAIN = observed("speedup", per="dataset", kind=LOADING, setting=ON, baseline=OFF)
"""Loading without fusion over loading with it."""
SPARED = 100 * (1 - BYTES.where(setting=ON) / BYTES.where(setting=OFF))
BUSIER = BUSY.where(setting=ON).less(BUSY.where(setting=OFF))


USED = {
    "by 20 to 95 points": rules.all_within(BUSIER, 20, 95),
    "from 20 to 95 %": combine.both(
        rules.all_within(BUSY.where(setting=OFF).joined_over(min, "dataset"), 15, 25),
        rules.all_within(BUSY.where(setting=ON).joined_over(max, "dataset"), 90, 100),
    ),
}


def full_size(row: Any) -> float:
    """Bytes of loading without fusion, for as many vertex-steps as the paper's graph has."""
    printed = BY_NAME[row.params["dataset"]].printed["vertices"]
    return number(row, "host_to_device", setting=OFF) * printed / number(row, "vertex_steps")


COST = of_rows(full_size, per="dataset", kind=LOADING).where(dataset=TWINS)


def time_spared(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: percent of the time of loading by graph, its sign wherever some is clearly saved."""
    gains = GAIN.where(dataset=TWINS)
    found = rules.all_above(gains, 1.0)(context)
    if found.lacking:
        return found
    spared = [100 * (1 - 1 / one.value) for one in found.estimates]
    titles = outcomes.labels(context, gains.estimates(context))
    measured = dict(zip(titles, spared, strict=True))
    return replace(found, sides=(), direction=found.side, measured=measured)


class Fig15(FormExperiment):
    forms, name = FORMS, "fig15"
    control = {"dataset": "amazon", "kind": LOADING}
    timeout_s = {"full": 600, "paper": 3600, None: 60}
    headline, unit = GAIN, "x"
    figure_forms = (
        Sweep(
            "fig15a", "Time to load an epoch of MPNN-LSTM, the fullest of 8 workers (Figure 15a)",
            TIME.where(kind=LOADING, setting=tuple(SETTINGS)), series="setting", x="{dataset}",
            scale=1e3, gaps={"series": ON}, xlabel="graph", ylabel="ms an epoch",
        ),
        Sweep(
            "fig15a_bytes", "Bytes loaded in an epoch of MPNN-LSTM, the fullest of 8 workers",
            BYTES.where(kind=LOADING, setting=tuple(SETTINGS)), series="setting", x="{dataset}",
            scale=1e-6, gaps={"series": ON}, xlabel="graph", ylabel="MB an epoch",
        ),
        Sweep(
            "fig15b", "Share of time in which the device works (Figure 15b)", BUSY,
            series="setting", x="{dataset}", gaps={"series": ON}, xlabel="graph",
            ylabel="utilisation, %", ylog=False,
        ),
    )  # fmt: skip
    claims = {
        "dgc-fig15a-loading": combine.shown_beside(
            time_spared,
            {f"bytes less, at {words}": SPARED.where(dataset=TWINS).joined_over(pick, "dataset")
             for words, pick in (("least", min), ("most", max))}, "%",
        ),
        "dgc-fig15a-stack-highest": combine.as_proxy(
            combine.both(
                rules.largest_at(COST, "dataset", "stack", required={"dataset": TWINS}),
                *(
                    rules.clearly_larger(GAIN.where(dataset=(name, "movie")), {"dataset": name})
                    for name in TWINS if name != "movie"
                ),
            ),
            "bytes of a small twin, scaled to the printed vertices, for the cost",
        ),
        "dgc-fig15b-gpu-util": combine.interpretations(
            "the text can mean either",
            {name: combine.needs_gpu(combine.or_direction(rule, rules.all_above(BUSIER, 0.0)),
                                     NEEDS_CUDA) for name, rule in USED.items()},
        ),
    }  # fmt: skip

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        lacking = devices_lacking(1, "cuda")
        if device != "cuda" and not lacking:
            lacking = "needs a CUDA device, this run is on the CPU"
        return [
            self.cell(
                {"dataset": name, "model": MODEL, "kind": kind}, preset, group=f"{name}/{kind}",
                repeats=turn_rounds(preset) if kind == LOADING else 1, interleaved=True,
                unavailable=lacking if kind == USE else "",
            )
            for kind in (LOADING, USE)
            for name in by_preset(LOADED, preset)
            if kind == LOADING or not BY_NAME[name].real
        ]  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        task = workload(BY_NAME[str(cell.params["dataset"])], MODEL, context.preset)
        with one_thread():
            data = load_sequences(task)
            if cell.params["kind"] == USE:
                return _use(task, data, context)
            return _loading(task, data, context, control=self.controls(cell))


def _loading(task: Any, data: Any, context: RunContext, *, control: bool) -> Measurement:
    shape = shape_of(sequence_model(task))
    dealt = dealt_out(task, data, WORKERS, context.device, rounds=ROUNDS[context.preset])
    plans = plans_of(data, dealt, norm=task.norm)
    found = Measurement(data=describe(data), notes=list(dealt.notes))
    found.observe("vertex_steps", dealt.graph.num_vertices)
    loaders = {name: Loader(plan, shape, context.device) for name, plan in plans.items()}
    sides = with_control(loaders, on=control)
    seconds = in_turns(sides, TURNS[context.preset], SECONDS[context.preset])
    take_control(found, seconds)
    for name, times in seconds.items():
        found.observe("phase_time", median(times), phase="loading", setting=name)
        found.observe("host_to_device", loaded_bytes(plans[name], shape), setting=name)
    observe_gains(found, seconds, OFF)
    found.deviation = {"loads": max(loader.gap() for loader in loaders.values())}
    found.checks = [loader.check(name) for name, loader in loaders.items()]
    if context.round == 1:
        wanted = Measurement()
        for name, loader in loaders.items():  # of the tensors that were loaded
            wanted.observe("host_to_device", loader.nbytes, setting=name)
        vertex_steps = EdgeRecount(data).vertex_steps(dealt.graph)
        found.checks += [vertex_steps, *recounted(found, wanted)]
    return found


def _use(task: Any, data: Any, context: RunContext) -> Measurement:
    """Train all chunks of 8 workers on one device, with and without fusion."""
    device = torch.device(context.device)
    busy = _counter(device)
    dealt = dealt_out(task, data, WORKERS, context.device)
    seconds = max(1.0, SECONDS[context.preset])
    found = Measurement(data=describe(data), notes=list(dealt.notes))
    checks: list[ResultCheck] = []
    oracle = SequenceOracle(task, data, context.device)
    for name in (OFF, ON):
        trainer = trainer_on_one(task, data, dealt, name, context.device)
        for _ in range(3):
            trainer.train_epoch()
        samples = _sampled(busy, trainer.train_epoch, seconds)
        found.observe("utilisation", mean(samples) / 100, setting=name)
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


def _sampled(ask: Callable[[], float], step: Callable[[], Any], seconds: float) -> list[float]:
    """Call `step` for some seconds; samples of `ask` every PERIOD_S."""
    samples: list[float] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(PERIOD_S):
            samples.append(ask())

    thread = threading.Thread(target=sample, daemon=True)
    begin = time.perf_counter()
    thread.start()
    while time.perf_counter() - begin < seconds:
        step()
    stop.set()
    thread.join()
    return samples or [ask()]
