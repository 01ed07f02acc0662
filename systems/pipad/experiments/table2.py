"""Table 2: utilisation of the device by every method (section 5.2)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import EvaluationContext
from dgbench.lab.experiment import Cell, Measurement, Preset, RunContext
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.probes import probe
from dgbench.lab.quantities import MeasuredQuantity, observed, of_rows
from dgbench.lab.study import FormExperiment
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base.race import timed
from dgbench.systems.pipad.experiments.settings import (
    BY_NAME,
    FORMS,
    GRAPHS,
    METHODS,
    MODELS,
    MUCH,
    NEEDS_CUDA,
    SMOKE_GRAPHS,
    task_of,
)

PERIOD_S = 0.05
"""Between two readings; the driver renews its value every 20 to 170 ms."""


@dataclass(slots=True)
class MeterReadings:
    """Readings of a meter while a block ran, and the reason why it stopped reading, or ""."""

    values: list[float] = field(default_factory=list)
    broken: str = ""


@contextmanager
def readings(read: Callable[[], float], period_s: float = PERIOD_S) -> Iterator[MeterReadings]:
    """Values of `read` taken by a thread while the block runs, until it raises."""
    found = MeterReadings()
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(period_s):
            try:
                found.values.append(float(read()))
            except Exception as error:  # a driver or container without NVML fails in its own ways
                found.broken = f"{type(error).__name__}: {error}"
                return

    thread = threading.Thread(target=loop, name="dgbench-utilisation", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


BUDGETS_S = {"smoke": 0.5, "quick": 1.0, "full": 5.0, "paper": 20.0}
NO_DEVICE = "utilisation is what NVML reads from a CUDA device"
RESIDENT = probe("gpu_kernel_resident_percent")
"""Probe of NVML's utilisation."""
MODEL_WORDS = {"evolvegcn": "evolvegcn", "mpnn-lstm": "mpnn_lstm", "t-gcn": "tgcn_model"}
"""Name of a model in the ledger -> ours."""
BUSY = 100 * observed("utilisation", per=("model", "dataset", "system"), experiment="table2")


def busy(*per: str, **where: Any) -> MeasuredQuantity:
    """Mean utilisation in percent on a GPU.

    From the experiment `table2`, whose steps run long enough for NVML; where that did not run,
    from the probes of Figure 10's processes, which hold start-up too.
    """
    steps = 100 * observed("utilisation", per=per, experiment="table2")
    probes = of_rows(
        lambda row: math.nan if row.params.get("check") or (value := RESIDENT.read(row)) is None
        else value, per=per, experiment="fig10",
    )  # fmt: skip
    return steps.where(device="cuda", **where).or_else(probes.where(device="cuda", **where))


def printed_mean(quantity: MeasuredQuantity) -> outcomes.Rule:
    """The mean over graphs against the mean of the numbers that are printed for these."""

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        mine = quantity.estimates(context)
        found = rules.near_claim(
            quantity.mean_over("dataset"),
            of=lambda value: fmean(value[BY_NAME.title(dict(at)["dataset"])] for at in mine),
        )(context)
        on_device = [
            row
            for row in context.rows
            if row.experiment == "table2" and row.device == "cuda" and row.reason
        ]
        if found.lacking:
            return outcomes.RuleOutcome(lacking=on_device[0].reason if on_device else NEEDS_CUDA)
        return found

    return rule


def best_of(systems: tuple[str, ...]) -> MeasuredQuantity:
    """Utilisation of the best of these systems, of workloads that all of them ran."""

    def best(values: list[float]) -> float:
        return max(values) if len(values) == len(systems) else math.nan

    return busy("model", "dataset", system=systems).joined_over(best, "system")


def busier(high: tuple[str, ...], low: tuple[str, ...], *, most: bool = False) -> outcomes.Rule:
    """The best of `high` above the best of `low` in all cells of (model, dataset), or in most."""
    lead = best_of(high).less(best_of(low))
    rule = rules.on_most(lead, lambda points: points > 0, "cell", whole=not most)
    return combine.needs_gpu(rule, NEEDS_CUDA)


LARGE, SMALL = (busy("dataset", size=size).mean_over("dataset") for size in ("large", "small"))


class Table2(FormExperiment):
    forms, name = FORMS, "table2"
    axes = {
        "dataset": {
            "smoke": SMOKE_GRAPHS[-1:],
            "quick": ("flickr", "hepth", "pems08", "covid19-england"),
            None: [graph.name for graph in GRAPHS],
        },
        "model": MODELS,
        "system": METHODS,
    }
    group = "{dataset}/{model}"
    headline, unit = BUSY.mean_over("model", "dataset"), "%"
    figure_forms = (
        Sweep(
            "table2", "Share of time with a kernel on the device", BUSY,
            panel="{model}", series="system", x="{dataset}", gaps={"series": "pygt"},
            without="not-supported: NVML is silent",
            xlabel="utilisation by NVML, %", ylabel="utilisation by NVML, %", ylog=False,
        ),
    )  # fmt: skip
    claims = {
        **{
            f"pipad-tab2-util-{word}-{method}": printed_mean(
                busy("dataset", model=model, system=method)
            )
            for word, model in MODEL_WORDS.items()
            for method in METHODS
        },
        "pipad-tab2-order-pipad-over-pygtg": busier(("pipad",), ("pygt-g",)),
        "pipad-tab2-order-ra-highest": busier(("pygt-a", "pygt-r"), ("pipad", "pygt-g"), most=True),
        "pipad-tab2-small-low": combine.needs_gpu(
            combine.with_printed_value(
                rules.all_above(LARGE.less(SMALL), 0.0), rules.all_above(LARGE.over(SMALL), MUCH)
            ),
            NEEDS_CUDA,
        ),
    }
    timeout_s = {"full": 600, "paper": 600, None: 60}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        why = "" if device == "cuda" else NO_DEVICE
        return [self.cell(one, preset, unavailable=why) for one in self.points(preset, device)]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        task = task_of(cell.params, context.preset)
        context.budget_s = max(context.budget_s, BUDGETS_S[context.preset])
        from torch.cuda import utilization

        with readings(utilization) as found:
            measured = timed(str(cell.params["system"]), task, context)
        # Steady steps come last and take the budget; what was read before is preparation.
        steady = found.values[-max(1, round(context.budget_s / PERIOD_S)) :]
        if found.broken or not steady:
            raise UnsupportedError(
                f"NVML gave no utilisation: {found.broken or 'the process was over before it did'}"
            )
        measured.observe("utilisation", fmean(steady) / 100)
        return measured
