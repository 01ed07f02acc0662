"""Figure 12: sliced CSR against CSR, in balance and in training time (section 5.4).

Balance: on CUDA from the clocks that each warp reads, on a CPU from rows or slices that are timed
one by one and handed out to workers (`kernels_cuda.variants.work_items`). Training: PiPAD with `sliced_csr`
on and off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.slices import SlicedCsr, csr_words, slice_csr
from dgbench.kernels_cuda.variants import warp_clocks
from dgbench.kernels_cuda.variants.balance import balance
from dgbench.kernels_cuda.variants.work_items import time_items
from dgbench.lab.compare import TURN_INTERVAL, Ratio, select
from dgbench.lab.compare import gain_of as pooled_gain
from dgbench.lab.compare import gains as timed_gains
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.runtime.meter import Meter
from dgbench.systems.base import (
    Cell,
    Experiment,
    FigureSpec,
    Measurement,
    Preset,
    RunContext,
    Workload,
)
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import open_trainer, oracle_of
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.system import Trainer
from dgbench.systems.base.turns import take_turns
from dgbench.systems.pipad.experiments.common import QUICK, SMOKE, data_of, open_graph
from dgbench.systems.pipad.experiments.settings import (
    ALL,
    BY_NAME,
    MODEL_TITLES,
    MODELS,
    workload,
)
from dgbench.systems.pipad.partitions import Partitions, on_device
from dgbench.systems.pipad.recounts import edges_of, slices_of

CAPS = (8, 16, 32, 64)
WORKERS = 80
"""Workers that the CPU's analogue hands out items to: multiprocessors of the paper's V100."""
REPEATS = 7
ROUNDS = {"smoke": 1, "quick": 1, "full": 5, "paper": 5}
TURNS = {"smoke": 3, "quick": 6, "full": 10, "paper": 10}
BUDGETS = 3.0
"""Budgets of a process that one process may take: both formats share it."""
TRAINED = {
    "smoke": (("hepth", "evolvegcn"),),
    "quick": (
        ("youtube", "evolvegcn"),
        ("covid19-england", "evolvegcn"),
    ),
}


class Fig12(Experiment):
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
        "is free, as a device does with its warps: an analogue. Training on a CPU "
        "sends the topology into an arena in memory; its kernels divide work by entries in either "
        "format, so a gain there comes from bytes alone."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        cells = [
            self._cell({"part": "balance", "dataset": name}, f"balance/{name}", 1)
            for name in _graphs(preset)
        ]
        for dataset, model in _trained(preset):
            params = {"part": "train", "dataset": dataset, "model": model, "system": "pipad"}
            cells.append(self._cell(params, f"train/{model}", ROUNDS[preset]))
        return cells

    def _cell(self, params: dict[str, Any], group: str, repeats: int) -> Cell:
        return Cell(
            paper=self.paper,
            experiment=self.name,
            params=params,
            group=group,
            repeats=repeats,
            timeout_s=300,
        )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        if cell.params["part"] == "balance":
            return _balance(graph, context)
        return _train(workload(graph, str(cell.params["model"]), context.preset), context)

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="fig12",
                title="Time of the busiest worker over the balanced time",
                points=balance_points,
                options={
                    "xlabel": "graph",
                    "ylabel": "actual over balanced time",
                    "hline": 1.0,
                    "hline_label": "balanced",
                },
            ),
            FigureSpec(
                kind="speedup",
                name="fig12_training",
                title="PiPAD with sliced CSR over PiPAD with CSR",
                points=training_points,
                options={
                    "baseline_label": "PiPAD with plain CSR",
                    "xlabel": "speed-up of a training step by sliced CSR",
                    "interval": f"{TURN_INTERVAL}; paired t where rounds are several",
                },
            ),
            FigureSpec(
                kind="sweep",
                name="slice_cap",
                title="Entries of a slice: words and balance",
                points=cap_points,
                options={
                    "xlabel": "entries of a slice at most",
                    "ylabel": "words over CSR's; actual over balanced time",
                    "base": 2,
                    "hline": 1.0,
                    "hline_label": "CSR's words; balanced",
                },
            ),
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        parts = []
        found = balances(rows)
        if found:
            better = [r for r in found if gap(r, "sliced") < gap(r, "csr")]
            kind = "" if found[0].device == "cuda" else " (CPU analogue)"
            parts.append(
                f"With slices the busiest worker is nearer to the mean on {len(better)} of "
                f"{len(found)} graphs{kind}"
            )
        gains = {key: ratio for key in _keys(rows) if (ratio := gain_of(rows, *key)) is not None}
        if gains:
            best = max(gains, key=lambda key: gains[key].value)
            parts.append(
                f"training gains most from it on {BY_NAME[best[0]].title} with "
                f"{MODEL_TITLES[best[1]]}: {gains[best].value:.2f}x"
            )
        return "; ".join(parts) + "." if parts else ""


def _graphs(preset: Preset) -> list[str]:
    if preset in ("smoke", "quick"):
        return list(SMOKE[:2] if preset == "smoke" else QUICK)
    return [graph.name for graph in ALL]


def _trained(preset: Preset) -> Iterable[tuple[str, str]]:
    return TRAINED.get(preset) or [(graph.name, model) for graph in ALL for model in MODELS]


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
    values: dict[str, float] = {}
    counters = {"words_csr": sum(csr_words(csr, with_values=False) for csr, _ in launches)}
    for name, cap in (("csr", None), *((f"cap{cap}", cap) for cap in CAPS)):
        items = [(csr if cap is None else slice_csr(csr, cap), x) for csr, x in launches]
        actual, balanced = measure(items)
        values |= {f"actual_{name}": actual, f"balanced_{name}": balanced}
        if cap is not None:
            counters[f"words_{name}"] = sum(m.words(with_values=False) for m, _ in items)
    return Measurement(
        values=values,
        units=dict.fromkeys(values, "cycles" if on_gpu else "s"),
        checks=_recount(launches),
        counters=counters if on_gpu else counters | {"workers": WORKERS},
        data=data_of(data),
    )


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
        checks = [check for name, t in opened.items() for check in oracle.ask(name, t)]
        gap = max(check.gap for check in checks if check.of == "outputs")
        budget_s = context.budget_s * BUDGETS
        found, sent = take_turns(opened, TURNS[context.preset], budget_s)
        if context.round == 1:
            for name, trainer in opened.items():
                checks += oracle.ask(name, trainer, "after the timed steps")
    finally:
        for trainer in opened.values():
            trainer.close()
    values = {f"step {name}": median(seconds) for name, seconds in found.items()}
    return Measurement(
        values=values | timed_gains("sliced", found["csr"], found["sliced"]),
        units=dict.fromkeys(values, "s"),
        counters={f"bytes {name}": count for name, count in sent.items()},
        samples=found["sliced"],
        deviation={"output": gap},
        checks=checks,
        data=describe(oracle.trainer.data),
    )


def _by_warps(items: Sequence[tuple[Csr | SlicedCsr, Tensor]]) -> tuple[float, float]:
    """The same in cycles, from the clocks of the warps; the median of a few runs by actual time."""
    totals = []
    for _ in range(REPEATS):
        found = [balance(warp_clocks(matrix, x)) for matrix, x in items]
        totals.append((sum(f.actual for f in found), sum(f.balanced for f in found)))
    return sorted(totals)[REPEATS // 2]


def balances(rows: Sequence[Any]) -> list[Any]:
    """Rows with balanced and actual times."""
    return select(rows, experiment="fig12", part="balance")


def gap(row: Any, name: str) -> float:
    """Actual over balanced time of `csr`, `sliced` (the paper's 32) or `cap8` ... `cap64`."""
    name = "cap32" if name == "sliced" else name
    return row.values[f"actual_{name}"] / row.values[f"balanced_{name}"]


def _title(row: Any) -> str:
    return BY_NAME[row.params["dataset"]].title + (" (twin)" if row.data.get("twin") else "")


def balance_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Actual over balanced time, by graph and format."""
    return [
        {
            "panel": "warps of the device"
            if row.device == "cuda"
            else f"items handed out to {WORKERS} workers (CPU analogue)",
            "series": title,
            "x": _title(row),
            "y": gap(row, name),
            "row_ids": [row.id],
        }
        for name, title in (("csr", "CSR"), ("sliced", "sliced CSR"))
        for row in balances(rows)
    ]


def cap_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Words over CSR's, and actual over balanced time, by the length of slices."""
    points = []
    for panel in ("words over CSR's (counted)", "actual over balanced time"):
        counted = panel.startswith("words")
        for row in balances(rows):
            for cap in CAPS:
                words = row.counters[f"words_cap{cap}"] / row.counters["words_csr"]
                points.append(
                    {
                        "panel": panel,
                        "series": _title(row),
                        "x": cap,
                        "y": words if counted else gap(row, f"cap{cap}"),
                        "counted": counted,
                        "row_ids": [row.id],
                    }
                )
    return points


def _keys(rows: Sequence[Any]) -> list[tuple[str, str]]:
    mine = [r for r in rows if r.experiment == "fig12" and r.params.get("part") == "train"]
    return list(dict.fromkeys((r.params["dataset"], r.params["model"]) for r in mine))


def gain_of(rows: Sequence[Any], dataset: str, model: str) -> Ratio | None:
    """Step time with CSR over step time with slices, or None."""
    mine = select(rows, experiment="fig12", part="train", dataset=dataset, model=model)
    return pooled_gain(mine, "sliced") if mine else None


def gains(rows: Sequence[Any]) -> dict[tuple[str, str], Any]:
    """Gain of slices in training by (dataset, model)."""
    found = {key: gain_of(rows, *key) for key in _keys(rows)}
    return {key: ratio for key, ratio in found.items() if ratio is not None}


def training_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Gain of slices in training, by graph and model."""
    points = []
    order = list(MODELS)
    for dataset, model in sorted(_keys(rows), key=lambda key: order.index(key[1])):
        point: dict[str, Any] = {
            "panel": MODEL_TITLES[model],
            "row": BY_NAME[dataset].title,
            "system": "pipad",
            "baseline": "PiPAD with plain CSR",
        }
        ratio = gain_of(rows, dataset, model)
        if ratio is None:
            bad = [
                r for r in rows
                if r.status != "ok" and r.experiment == "fig12"
                and (r.params.get("dataset"), r.params.get("model")) == (dataset, model)
            ]  # fmt: skip
            reason = f"{bad[0].status}: {bad[0].reason}" if bad else "skipped: not run"
            points.append({**point, "failed": reason, "failed_system": "pipad"})
            continue
        points.append(
            {
                **point,
                "value": ratio.value,
                "low": ratio.low,
                "high": ratio.high,
                "n": ratio.n,
                "twin": ratio.twin,
                "row_ids": ratio.rows,
            }
        )
    return points
