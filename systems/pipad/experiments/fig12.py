"""Figure 12: sliced CSR against CSR, in balance and in training time (section 5.4).

Balance: on CUDA from the clocks that each warp reads, on a CPU from rows or slices that are timed
one by one and handed out to workers (`kernels_cuda.variants.work_items`). Training: PiPAD with
`sliced_csr` on and off.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
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
from dgbench.systems.base import Cell, Contender, Measurement, Preset, RunContext, Workload
from dgbench.systems.base.data import describe
from dgbench.systems.pipad.experiments.settings import (
    ALL,
    BY_NAME,
    FEW,
    FORMS,
    MODELS,
    open_graph,
    race_settings,
    task_of,
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
    repeats = {"smoke": 1, None: 5}
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
        points = [
            *({"part": "balance", "dataset": name} for name in by_preset(FEW, preset)),
            *(
                {"part": "train", "dataset": dataset, "model": model, "system": "pipad"}
                for dataset, model in by_preset(TRAINED, preset)
            ),
        ]
        return [
            self.cell(one, preset, group=f"{one['part']}/{one.get('model', one['dataset'])}")
            for one in points
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        if cell.params["part"] == "balance":
            return _balance(BY_NAME[str(cell.params["dataset"])], context)
        return _train(task_of(cell.params, context.preset), context)


def _balance(graph: Any, context: RunContext) -> Measurement:
    """Actual and balanced time of CSR and of slices, over the launches of one partition."""
    data = open_graph(graph, context.preset)
    size = 8 if graph.small else 2  # the largest allowed partition (5.2)
    times = range(len(data) - size, len(data))
    parts = Partitions(data, norm="sym").partition(times).parts
    draw = torch.Generator().manual_seed(1)
    wide = torch.randn(data.num_nodes, size * graph.feature_dim, generator=draw)
    one = wide[:, : graph.feature_dim].contiguous()
    launches = [(parts.over, wide), *((csr, one) for csr in parts.exclusive)]
    measure, metric = _on_workers, "worker_time"
    if context.device == "cuda":
        device = torch.device(context.device)
        launches = [(on_device(csr, device), x.to(device)) for csr, x in launches]
        measure, metric = _by_warps, "worker_cycles"
    measured = Measurement(checks=_recount(launches), data=describe(data))
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
    return measured


def _recount(launches: Sequence[tuple[Csr, Tensor]]) -> list[ResultCheck]:
    """Checks of the slices of each launch: the entries of every row, in pieces of the cap."""
    checks = []
    for (number, (csr, _)), cap in product(enumerate(launches), CAPS):
        edges, sliced = edges_of(csr), slice_csr(csr, cap)
        pieces = sliced.slice_offsets.diff().tolist()
        own = [sliced.num_slices, sum(pieces), max(pieces, default=0) > cap]
        wanted = [slices_of(edges, csr.num_cols, cap), len(edges), False]
        against = f"lengths of rows (launch {number})"
        checks.append(equal("slices", own, wanted, against=against))
    return checks


def _on_workers(items: Sequence[tuple[Csr | SlicedCsr, Tensor]]) -> tuple[float, float]:
    """(busiest, balanced) seconds of the workers, summed over the launches."""
    found = [time_items(matrix, x, repeats=REPEATS) for matrix, x in items]
    return sum(f.actual(WORKERS) for f in found), sum(f.balanced(WORKERS) for f in found)


def _train(task: Workload, context: RunContext) -> Measurement:
    """Steps of PiPAD with slices and with CSR, in turns, both compared with the reference."""
    arena = {"arena": True} if context.device == "cpu" else {}
    formats = {name: {"sliced_csr": name == "sliced", **arena} for name in ("sliced", "csr")}
    measured, seconds = race_settings(formats, task, context, main="sliced", budgets=BUDGETS)
    observe_speedup(measured, seconds["csr"], seconds["sliced"], setting="sliced")
    return measured


def _by_warps(items: Sequence[tuple[Csr | SlicedCsr, Tensor]]) -> tuple[float, float]:
    """The same in cycles, from the clocks of the warps; the median of a few runs by actual time."""
    totals = []
    for _ in range(REPEATS):
        found = [balance(warp_clocks(matrix, x)) for matrix, x in items]
        totals.append((sum(f.actual for f in found), sum(f.balanced for f in found)))
    return sorted(totals)[REPEATS // 2]
