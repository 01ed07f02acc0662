"""Cells that project Figure 12: what work costs here, what placements give to whom, and the epochs
that follow (`projection`)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace as changed

from dgbench.lab.result_checks import ResultCheck, equal, summarised
from dgbench.runtime.collectives import LocalCommunicator
from dgbench.runtime.meter import Meter
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Measurement, Preset
from dgbench.systems.base.calibration import copy_rate
from dgbench.systems.base.data import describe
from dgbench.systems.base.sequences import load_sequences
from dgbench.systems.dgc.experiments.partition import PLACED, weighted
from dgbench.systems.dgc.experiments.race_runs import EXACT, PLAIN, TWINS, task_of
from dgbench.systems.dgc.experiments.settings import BY_NAME, MODELS, workload
from dgbench.systems.dgc.partition import PAPER, partition_chunks
from dgbench.systems.dgc.placement import Placement
from dgbench.systems.dgc.projection import (
    LINKS,
    PROJECTED,
    WORKERS,
    Factor,
    MeasuredEpoch,
    Rates,
    fit_rates,
    load_of,
    machine,
    project,
)
from dgbench.systems.dgc.recount import AGAINST, EdgeRecount, drawn
from dgbench.systems.dgc.sequence_oracle import SequenceOracle
from dgbench.systems.dgc.settings_run import BASELINES
from dgbench.systems.dgc.trainer import ChunkRankTrainer
from dgbench.systems.dgc.volumes import Shape, hearing

if TYPE_CHECKING:
    from dgbench.kernels_cuda.supergraph import Supergraph

COUNTED: Final = {"smoke": (), "quick": (), None: TWINS}
"""Twins that are counted; none in quick, as no twin decides these claims."""

SCALES: Final[dict[Preset, dict[str, float]]] = {
    "full": {"amazon": 1 / 128, "epinions": 1 / 256, "movie": 1 / 512, "stack": 1 / 128},
    # Vertex-steps grow slower than events do; these are as many as fit into 16 GiB.
    "paper": {"amazon": 1 / 8, "epinions": 1 / 16, "movie": 1 / 32, "stack": 1 / 8},
}
"""Size of the twins that are counted, all their snapshots."""

MEASURED: Final = ("email-eu-core", "amazon-magazine")
"""Held graphs that the cost of work is measured on: 4.5 edges per vertex-step, and 0.6."""
EPOCHS: Final = {"full": 5, "paper": 10}


def measure_runs(model: str, preset: Preset, checks: list[ResultCheck]) -> list[MeasuredEpoch]:
    """Epochs of one rank on held graphs, in one unit and chunk by chunk; the fastest of each.

    `checks` gets those of the trainers of a drawn graph, as they were timed.
    """
    found = []
    (compared,) = drawn(MEASURED, 1)
    for dataset in MEASURED:
        task = task_of(dataset, model, "quick")
        data = load_sequences(task)
        edges = sum(data.topology[t].nnz for t in range(len(data) - 1))
        graph, shape = weighted(data, task)
        placement = _chunks(graph, shape, 1)
        trainers = {}
        for fusion, units in (("none", placement.units), ("whole", 1)):
            meter = Meter(device="cpu", timing=True)
            comm = LocalCommunicator(meter=meter, seed=task.seed)
            trainer = ChunkRankTrainer(comm, task, data, placement, fusion=fusion, graph=graph)
            trainer.train_epoch()
            best: dict[str, float] = {}
            for _ in range(EPOCHS[preset]):
                meter.reset()
                trainer.train_epoch()
                for phase, seconds in meter.phases().items():
                    best[phase] = min(best.get(phase, float("inf")), seconds)
            vertices = graph.num_vertices
            structure = best["gnn"] + best.get("transfer", 0.0)
            found.append(MeasuredEpoch(vertices, edges, units, vertices, structure, best["rnn"]))
            trainers[f"DGC, fusion {fusion}"] = trainer
        if dataset == compared:
            oracle = SequenceOracle(task, data, label=f"{dataset}/{model}")
            checks += oracle.check_used(trainers)
        for trainer in trainers.values():
            trainer.close()
    return found


def _chunks(graph: Supergraph, shape: Shape, workers: int) -> Placement:
    settings = replace(PAPER, workload="vertices")
    return partition_chunks(graph, shape.counts(), workers, settings, None).placement


def project_twin(dataset: str, preset: Preset) -> Measurement:
    """Project every model on the twin of a graph to eight V100; the preset decides its size."""
    found = Measurement()
    with one_thread():
        rate = copy_rate(0.05)
        rates = {
            model: fit_rates(measure_runs(model, preset, found.checks), rate) for model in MODELS
        }
        found.data = _project(found, dataset, preset, rates)
    found.checks = summarised(found.checks)
    found.notes = [machine(links).assumed for links in LINKS]
    return found


def _project(
    found: Measurement, dataset: str, preset: Preset, rates: dict[str, Rates]
) -> dict[str, Any]:
    scale = SCALES[preset][dataset]
    data, hears, recount = None, None, None
    for model in MODELS:
        task = workload(BY_NAME[dataset], model, preset, scale=scale, snapshots=None)
        data = load_sequences(task) if data is None else data
        graph, shape = weighted(data, task)
        hears = hearing(data, graph) if hears is None else hears
        edges = sum(data.topology[t].nnz for t in range(graph.steps))
        recount = EdgeRecount(data) if recount is None else recount
        found.checks.append(recount.vertex_steps(graph))
        printed = BY_NAME[dataset].printed
        factor = Factor(printed["vertices"] / graph.num_vertices, printed["edges"] / edges)
        observe = partial(found.observe, dataset=dataset, model=model)
        observe("vertex_steps", graph.num_vertices)
        placements = {name: PLACED[BASELINES[name].partition](graph, WORKERS) for name in BASELINES}
        placements[PLAIN] = _chunks(graph, shape, WORKERS)
        for name, placement in placements.items():
            load = load_of(graph, hears, placement, shape)
            found.checks.append(recount.partition(placement, name))
            totals = {of: int(getattr(load, of).sum()) for of in ("vertices", "edges", "rows")}
            every = {"vertices": graph.num_vertices, "edges": edges, "rows": graph.num_vertices}
            check = equal("counters", totals, every, against=AGAINST, system=name)
            found.checks.append(changed(check, part=f"{dataset}/{model} {check.part}"))
            for links in LINKS:
                for fused in (False, True) if name == PLAIN else (False,):
                    epoch = project(
                        load, shape, rates[model], machine(links), factor=factor, fused=fused
                    )
                    who = EXACT if fused else name
                    for phase in PROJECTED:
                        seconds = getattr(epoch, f"{phase}_s")
                        observe("projected_time", seconds, link=links, phase=phase, setting=who)
    assert data is not None
    return {**describe(data), "dataset": dataset}
