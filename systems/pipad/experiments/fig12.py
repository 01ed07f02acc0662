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
from dgbench.lab.charts import chart, failed, first_failed, joined, speedup
from dgbench.lab.compare import TURN_INTERVAL, Ratio, observe_speedup, ratio_of
from dgbench.lab.grid import Grid, by_preset
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.table import Table, rows_of
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
    MODEL_TITLES,
    MODELS,
    panel,
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


def balances(rows: Sequence[Any]) -> list[Any]:
    """Rows with balanced and actual times."""
    return rows_of(rows, experiment="fig12", part="balance")


def gap(row: Any, cap: int | None) -> float:
    """Busiest over balanced time of workers: slices of at most `cap` entries, CSR with None."""
    metrics = ("worker_time", "worker_cycles")
    found = Table.of([row]).where(metrics, cap=cap).numbers("of")
    return found["busiest"] / found["balanced"]


def gains(rows: Sequence[Any]) -> dict[tuple[str, str], Ratio]:
    """Step time with CSR over step time with slices, by (dataset, model)."""
    found = Table.of(rows, experiment="fig12").where("speedup", setting="sliced")
    return {key: ratio_of(one) for key, one in found.by("dataset", "model").items()}


def balance_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Actual over balanced time, by graph and format."""
    return [
        {
            "panel": "warps of the device"
            if row.device == "cuda"
            else f"items handed out to {WORKERS} workers (CPU proxy)",
            "series": title,
            "x": panel(row),
            "y": gap(row, cap),
            "row_ids": [row.id],
        }
        for cap, title in ((None, "CSR"), (CAP, "sliced CSR"))
        for row in balances(rows)
    ]


def cap_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Words over CSR's, and actual over balanced time, by the length of slices."""
    points = []
    for heading in ("words over CSR's (counted)", "actual over balanced time"):
        counted = heading.startswith("words")
        for row in balances(rows):
            words = Table.of([row]).where("words").numbers("cap")
            for cap in CAPS:
                y = words[cap] / words[None] if counted else gap(row, cap)
                point = {"panel": heading, "series": panel(row), "x": cap, "y": y}
                points.append({**point, "counted": counted, "row_ids": [row.id]})
    return joined(points, "y")


def training_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Gain of slices in training, by graph and model."""
    mine = [r for r in rows if r.experiment == "fig12" and r.params.get("part") == "train"]
    keys = dict.fromkeys((r.params["dataset"], r.params["model"]) for r in mine)
    found = gains(rows)
    points = []
    for dataset, model in sorted(keys, key=lambda key: MODELS.index(key[1])):
        point: dict[str, Any] = {
            "panel": MODEL_TITLES[model],
            "row": BY_NAME[dataset].title,
            "system": "pipad",
            "baseline": CSR,
        }
        if ratio := found.get((dataset, model)):
            points.append({**point, **speedup(ratio)})
            continue
        bad = first_failed(mine, dataset=dataset, model=model)
        reason = failed(bad) if bad else "skipped: not run"
        points.append({**point, "failed": reason, "failed_system": "pipad"})
    return points


class Fig12(Grid):
    paper = "pipad"
    name = "fig12"
    title = "Figure 12: sliced CSR against CSR"
    question = "Does cutting rows into slices balance the work, and does training gain by it?"
    claims = ("pipad-fig12-load-balance", "pipad-fig12-speedup-trend")
    reading = (
        "Balance is the time of the busiest worker over the time of evenly divided work. On CUDA "
        "the workers are multiprocessors and their time is that of their warps by clock reads, "
        "GE-SpMM's for CSR. On a CPU rows without entries are no work but take time, and every row "
        f"or slice is timed on one core and handed out to {WORKERS} workers, the next item to who "
        "is free, as a device does with its warps: a proxy. Training on a CPU "
        "sends the topology into an arena in memory; its kernels divide work by entries in either "
        "format, so a gain there comes from bytes alone."
    )
    timeout_s = 300
    charts = (
        chart(
            "sweep",
            "fig12",
            "Time of the busiest worker over the balanced time",
            balance_points,
            xlabel="graph",
            ylabel="actual over balanced time",
            hline=1.0,
            hline_label="balanced",
        ),
        chart(
            "speedup",
            "fig12_training",
            "PiPAD with sliced CSR over PiPAD with CSR",
            training_points,
            baseline_label=CSR,
            xlabel="speed-up of a training step by sliced CSR",
            interval=f"{TURN_INTERVAL}; paired t where rounds are several",
            contenders={CSR: Contender("pipad")},
        ),
        chart(
            "sweep",
            "slice_cap",
            "Entries of a slice: words and balance",
            cap_points,
            xlabel="entries of a slice at most",
            ylabel="words over CSR's; actual over balanced time",
            base=2,
            hline=1.0,
            hline_label="CSR's words; balanced",
        ),
    )

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

    def answer(self, rows: Sequence[Any]) -> str:
        parts = []
        found = balances(rows)
        if found:
            better = [r for r in found if gap(r, CAP) < gap(r, None)]
            kind = "" if found[0].device == "cuda" else " (CPU proxy)"
            parts.append(
                f"With slices the busiest worker is nearer to the mean on {len(better)} of "
                f"{len(found)} graphs{kind}"
            )
        trained = gains(rows)
        if trained:
            best = max(trained, key=lambda key: trained[key].value)
            gain = trained[best].value
            where = f"{BY_NAME[best[0]].title} with {MODEL_TITLES[best[1]]}"
            parts.append(
                f"training gains most from it on {where}: {gain:.2f}x"
                if gain > 1
                else f"training gains nothing from it, at best {gain:.2f}x on {where}"
            )
        return "; ".join(parts) + "." if parts else ""


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
