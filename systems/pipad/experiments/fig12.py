"""Figure 12: sliced CSR against CSR, in balance and in training time (section 5.4).

Balance: on CUDA from the clocks that each warp reads, on a CPU from rows or slices that are timed
one by one and handed out to workers (`kernels_cuda.variants.work_items`). Training: PiPAD with
`sliced_csr` on and off.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.slices import SlicedCsr, csr_words, slice_csr
from dgbench.kernels_cuda.variants import warp_clocks
from dgbench.kernels_cuda.variants.balance import balance
from dgbench.kernels_cuda.variants.work_items import time_items
from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.compare import TURN_INTERVAL, observe_speedup
from dgbench.lab.figure_forms import SpeedupBars, Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, observed, paired
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.study import FormExperiment
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Cell, Contender, Measurement, Preset, RunContext, Workload
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import open_trainer, oracle_of
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.system import Trainer
from dgbench.systems.base.turns import turns_of
from dgbench.systems.pipad.experiments.common import FEW, data_of, open_graph
from dgbench.systems.pipad.experiments.settings import (
    ALL,
    BY_NAME,
    FORMS,
    MODELS,
    workload,
)
from dgbench.systems.pipad.partitions import Partitions, on_device
from dgbench.systems.pipad.recounts import edges_of, slices_of

CAPS = (8, 16, 32, 64)
CAP = 32
"""The paper's."""
CSR = "PiPAD with plain CSR"
WORKERS = 80
"""Workers that the CPU's model hands out items to: multiprocessors of the paper's V100."""
REPEATS = 7
TURNS = {"smoke": 3, "quick": 6, "full": 10, "paper": 10}
BUDGETS = 1.5
"""Budgets of a process that one process may take: both formats share it."""
TRAINED = {
    "smoke": (("hepth", "evolvegcn"),),
    "quick": (("youtube", "evolvegcn"), ("covid19-england", "evolvegcn")),
    None: [(graph.name, model) for graph in ALL for model in MODELS],
}


def imbalance(*per: str, **where: Any) -> MeasuredQuantity:
    """Time of the busiest worker over the balanced time."""
    spent = observed(("worker_time", "worker_cycles"), per=per, part="balance", **where)
    return spent.where(of="busiest") / spent.where(of="balanced")


def shrink(*per: str) -> MeasuredQuantity:
    """Imbalance with CSR over that with slices."""
    return paired(imbalance(*per, format="csr"), imbalance(*per, format="sliced", cap=CAP))


GAIN = observed("speedup", per=("model", "dataset"), part="train", setting="sliced")
"""Step time with CSR over step time with slices."""
WORDS = observed("words", per="dataset", part="balance")
BALANCE = combine.or_direction(
    combine.both(
        rules.all_above(shrink("dataset"), 1.0, unit="x"),
        rules.clearly_larger(shrink("size"), {"size": "large"}),
    ),
    rules.all_above(shrink("dataset"), 1.0),
)
"""Nearer to balance with slices on every graph, least on small ones."""
COUNTED_BALANCE = combine.as_proxy(
    rules.at_most(
        observed("imbalance", experiment="memory", per="dataset", of="slices")
        / observed("imbalance", experiment="memory", per="dataset", of="rows"), 1.0,
    ), "largest over mean work in place of times",
)  # fmt: skip


class Fig12(FormExperiment):
    forms, name = FORMS, "fig12"
    timeout_s = 300
    headline, unit = GAIN, "x"
    figure_forms = (
        Sweep(
            "fig12", "Time of the busiest worker over the balanced time",
            {
                "CSR": imbalance("device", "dataset", "round", format="csr"),
                "sliced CSR": imbalance("device", "dataset", "round", format="sliced", cap=CAP),
            },
            panel="{device}", series="of", x="{dataset}", xlabel="graph",
            ylabel="actual over balanced time", hline=1.0, hline_label="balanced",
        ),
        SpeedupBars(
            "fig12_training", "PiPAD with sliced CSR over PiPAD with CSR", GAIN,
            panel="{model}", row="{dataset}", system="pipad", baseline=CSR,
            baseline_label=CSR, xlabel="speed-up of a training step by sliced CSR",
            interval=f"{TURN_INTERVAL}; paired t where rounds are several",
            contenders={CSR: Contender("pipad")},
        ),
        Sweep(
            "slice_cap", "Entries of a slice: words and balance",
            {
                "words over CSR's (counted)": (
                    WORDS.where(format="sliced", cap=CAPS) / WORDS.where(format="csr")
                ).pooled("median"),
                "actual over balanced time": imbalance(
                    "dataset", format="sliced", cap=CAPS
                ).pooled("median"),
            },
            panel="of", series="{dataset}", x="cap", xlabel="entries of a slice at most",
            ylabel="words over CSR's; actual over balanced time", base=2, hline=1.0,
            hline_label="CSR's words; balanced",
        ),
    )  # fmt: skip
    claims = {
        "pipad-fig12-load-balance": combine.first_found(
            combine.by_model(
                BALANCE, f"{WORKERS} workers that take timed items in turn", on_cpu_only=True
            ),
            COUNTED_BALANCE,
        ),
        "pipad-fig12-speedup-trend": rules.clearly_larger(
            GAIN, {"dataset": "youtube", "model": "evolvegcn"}
        ),
    }

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        cells = [
            self.cell(
                {"part": "balance", "dataset": name},
                preset,
                group=f"balance/{name}",
                repeats=1 if preset == "smoke" else 5,
            )
            for name in by_preset(FEW, preset)
        ]
        rounds = 1 if preset == "smoke" else 5
        for dataset, model in by_preset(TRAINED, preset):
            params = {"part": "train", "dataset": dataset, "model": model, "system": "pipad"}
            cells.append(self.cell(params, preset, group=f"train/{model}", repeats=rounds))
        return cells

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        if cell.params["part"] == "balance":
            return _balance(graph, context)
        return _train(workload(graph, str(cell.params["model"]), context.preset), context)


def _balance(graph: Any, context: RunContext) -> Measurement:
    """Actual and balanced time of CSR and of slices, over the launches of one partition."""
    data = open_graph(graph, context.preset)
    size = 8 if graph.small else 2  # the largest allowed partition (5.2)
    times = range(len(data) - size, len(data))
    parts = Partitions(data, norm="sym").partition(times).parts
    draw = torch.Generator().manual_seed(1)
    dim = graph.feature_dim
    wide = torch.randn(data.num_nodes, size * dim, generator=draw)
    one = wide[:, :dim].contiguous()
    launches = [(parts.over, wide), *((csr, one) for csr in parts.exclusive)]
    on_gpu = context.device == "cuda"
    if on_gpu:
        device = torch.device(context.device)
        launches = [(on_device(csr, device), x.to(device)) for csr, x in launches]
    measure = _by_warps if on_gpu else _on_workers
    metric = "worker_cycles" if on_gpu else "worker_time"
    measured = Measurement(checks=_recount(launches), data=data_of(data))
    for cap in (None, *CAPS):
        items = [(csr if cap is None else slice_csr(csr, cap), x) for csr, x in launches]
        dims = {"format": "csr"} if cap is None else {"format": "sliced", "cap": cap}
        for of, spent in zip(("busiest", "balanced"), measure(items), strict=True):
            measured.observe(metric, spent, of=of, **dims)
        words = sum(
            csr_words(m, with_values=False) if cap is None else m.words(with_values=False)
            for m, _ in items
        )
        measured.observe("words", words, **dims)
    if not on_gpu:
        measured.observe("workers", WORKERS)
    return measured


def _recount(launches: Sequence[tuple[Csr, Tensor]]) -> list[ResultCheck]:
    """Checks of the slices of each launch: the entries of every row, in pieces of the cap."""
    checks = []
    for number, (csr, _) in enumerate(launches):
        edges = edges_of(csr)
        for cap in CAPS:
            sliced = slice_csr(csr, cap)
            pieces = sliced.slice_offsets.diff()
            longest = int(pieces.max()) if pieces.numel() else 0
            checks.append(
                equal(
                    "slices",
                    [sliced.num_slices, int(pieces.sum()), longest > cap],
                    [slices_of(edges, csr.num_cols, cap), len(edges), False],
                    against=f"lengths of rows (launch {number})",
                )
            )
    return checks


def _on_workers(items: Sequence[tuple[Csr | SlicedCsr, Tensor]]) -> tuple[float, float]:
    """(busiest, balanced) seconds of the workers, summed over the launches."""
    found = [time_items(matrix, x, repeats=REPEATS) for matrix, x in items]
    return sum(f.actual(WORKERS) for f in found), sum(f.balanced(WORKERS) for f in found)


def _train(task: Workload, context: RunContext) -> Measurement:
    """Steps of PiPAD with slices and with CSR, in turns, both compared with the reference."""
    oracle = oracle_of(task, context)
    opened: dict[str, Trainer] = {}
    try:
        for name in ("sliced", "csr"):
            switches = {"sliced_csr": name == "sliced"}
            if context.device == "cpu":
                switches["arena"] = True
            own = RunContext(context.device, context.preset, context.threads)
            own.meter = Meter(device=context.device)
            opened[name] = open_trainer(get_system("pipad"), task, own, switches)
            opened[name].prepare()
        budget_s = context.budget_s * BUDGETS
        turns = turns_of(opened, TURNS[context.preset], budget_s)
        found, sent = turns.seconds, turns.sent
        first = context.round == 1
        checks = turns.audited(oracle, first=first)
        checks += oracle.settings(opened, first=first, starts=turns.starts)
        worst = max(check.gap for check in checks if check.of == "outputs")
    finally:
        for trainer in opened.values():
            trainer.close()
    measured = Measurement(
        deviation={"output": worst}, checks=checks, data=describe(oracle.trainer.data)
    )
    measured.observe("step_time", median(found["sliced"]), samples=found["sliced"])
    for name, seconds in found.items():
        measured.observe("step_time", median(seconds), setting=name)
        measured.observe("host_to_device", sent[name], setting=name)
    observe_speedup(measured, found["csr"], found["sliced"], setting="sliced")
    return measured


def _by_warps(items: Sequence[tuple[Csr | SlicedCsr, Tensor]]) -> tuple[float, float]:
    """The same in cycles, from the clocks of the warps; the median of a few runs by actual time."""
    totals = []
    for _ in range(REPEATS):
        found = [balance(warp_clocks(matrix, x)) for matrix, x in items]
        totals.append((sum(f.actual for f in found), sum(f.balanced for f in found)))
    return sorted(totals)[REPEATS // 2]
