"""Table 2: building and partitioning a graph against training an epoch on it (section 2.2)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import product
from typing import Any, Final

from dgbench import datasets
from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.entry_rules import in_order_of_entries, within_claim
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import observed, of_rows
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Table
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.stream import load_stream
from dgbench.systems.gnnflow.contenders.ours import records_of_rows
from dgbench.systems.gnnflow.experiments.fig2 import (
    BASELINES,
    baseline_checks,
    baseline_task,
    open_baseline,
    size_notes,
    time_batches,
)
from dgbench.systems.gnnflow.experiments.partition import assignment_check
from dgbench.systems.gnnflow.experiments.sample_checks import records_check
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    FORMS,
    GROWTH,
    PRESETS,
    at_full_size,
)

TRAINED: Final = {"tgl": "tgn", "dgl": "graphsage"}
"""The model whose epoch stands in the table. TGL's is not named; TGN is its cheapest."""
PARTS: Final = 4
"""Partitions that DGL makes; the paper does not say how many."""
GRAPHS: Final = {
    "smoke": ("mag",),
    "quick": ("mag",),
    None: ("mag", "sx-mathoverflow", "epinions-2011-ratings"),
}
SECONDS: Final = (0.2, 0.2, 10.0, 60.0)
"""Seconds of batches that an epoch is told from, by preset."""
PLACES: Final = ("dataset", "baseline")
READY: Final = of_rows(
    lambda row: sum(Table.of([row]).where("preparation_time").values), per=PLACES
)
"""Seconds of loading, building and partitioning."""
TRAINING: Final = observed("epoch_time", per=PLACES)
STAGES: Final = {
    phase: observed("preparation_time", per=PLACES, phase=phase, **where)
    for phase, where in {"load": {}, "build": {}, "partition": {"baseline": ("dgl",)}}.items()
} | {"training": TRAINING}
OF_AN_EPOCH: Final = 100 * READY / TRAINING
MAG: Final = {"dataset": "mag"}


def hours(baseline: str, *stages: str) -> outcomes.Rule:
    """Hours of stages of a baseline; the direction is their order of length."""
    seconds = {"load_and_build": STAGES["load"] + STAGES["build"], **STAGES}
    entries = {one: seconds[one].where(baseline=baseline, **MAG) * (1 / 3600) for one in stages}
    return rules.entries_near_claim(entries, in_order_of_entries(entries))


class Table2(FormExperiment):
    forms, name = FORMS, "table2"
    group = "{dataset} {baseline}"
    timeout_s = {"smoke": 60, "quick": 90, "full": 1200, "paper": 14400}
    headline, unit = OF_AN_EPOCH, "%"
    figure_forms = (
        Sweep(
            "table2", "Building and partitioning against an epoch of training", STAGES,
            panel="{dataset}", series="{baseline}", x="of", xlabel="", ylabel="time, s", sort=False,
        ),
    )  # fmt: skip
    claims = {
        "gnnflow-tab2-tgl": hours("tgl", "load_and_build", "training"),
        "gnnflow-tab2-dgl": hours("dgl", "load_and_build", "partition", "training"),
        "gnnflow-s22-build-share": within_claim(
            OF_AN_EPOCH.where(**MAG), required={"baseline": tuple(BASELINES)}
        ),
        "gnnflow-s22-build-range": combine.by_model(
            rules.all_above(at_full_size(READY).where(**MAG) * (1 / 60), 30.0, unit="minutes"),
            GROWTH,
        ),
    }

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        for name, (baseline, model) in product(by_preset(GRAPHS, preset), TRAINED.items()):
            yield {"dataset": name, "baseline": baseline, "model": model}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        baseline = str(cell.params["baseline"])
        task = baseline_task(graph, str(cell.params["model"]), context.preset)
        start = time.perf_counter()
        events = datasets.open_events(task.dataset, task.source, task.scale, task.seed)
        int(events.src.sum() + events.dst.sum())  # touches each
        load = time.perf_counter() - start
        data = load_stream(task)
        trainer = open_baseline(
            baseline, task, data, device=context.device, threads=context.threads
        )
        start = time.perf_counter()
        trainer.prepare()
        found = Measurement(data=data.describe(), notes=size_notes(context.preset))
        found.observe("preparation_time", load, phase="load")
        found.observe("preparation_time", time.perf_counter() - start, phase="build")
        checks: list[ResultCheck] = found.checks
        if baseline == "dgl":
            start = time.perf_counter()
            part = trainer.access.partition(PARTS)  # type: ignore[attr-defined]
            found.observe("preparation_time", time.perf_counter() - start, phase="partition")
            checks.append(assignment_check(part, data.events.num_nodes, PARTS))
        else:
            find = records_of_rows(trainer.access.rows)  # type: ignore[attr-defined]
            checks.append(records_check(find, data.events, task.undirected))
        times = time_batches(trainer, SECONDS[PRESETS.index(context.preset)])
        checks += baseline_checks(baseline, trainer, task, data)
        trainer.close()
        found.observe("epoch_time", times.total * times.epoch)
        found.observe("counted_steps", times.batches)
        return found
