"""Cells of Table 2: walks, parts of the vertices, and races of both partitions."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, Final

from dgbench.datasets import SnapshotSequence
from dgbench.lab.compare import observe_speedup, take_control, with_control
from dgbench.lab.result_checks import close, summarised
from dgbench.systems.base import Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.timeline import (
    TimelineTask,
    TimelineWorkload,
    load_timeline,
    timeline_model,
)
from dgbench.systems.base.transport import Transport
from dgbench.systems.esdg.experiments.rank_turns import SnapshotRaceResult, take_rank_turns
from dgbench.systems.esdg.experiments.recount import (
    OVER_EDGES,
    OVER_PAIRS,
    Widths,
    agree,
    partition_check,
    redistributed,
    remote_ends,
    remote_readers,
)
from dgbench.systems.esdg.experiments.settings import BY_NAME, SMOOTHING, workload
from dgbench.systems.esdg.oracle import comparison, largest_gap, later_ranks
from dgbench.systems.esdg.partition import block_ranges
from dgbench.systems.esdg.vertex_parts import METHODS, VertexParts, split_vertices
from dgbench.systems.esdg.vertex_plan import needs, remote_reads
from dgbench.systems.esdg.volumes import (
    PAPER_NODES,
    PAPER_STEPS,
    count_snapshot,
    floats_per_vertex_step,
    gradient_floats,
    snapshot_floats,
    timeline,
    vertex_floats,
)

RANKS: Final = (4, 16, 64)
"""P of Table 2."""


HYPER_FLOATS: Final = 18
"""Floats per vertex and step that a remote part reads: width 6, second layer alone, 3 passes."""

SAMPLES: Final = ("amlsim-20k-cycle200", "amlsim-20k-fanin200", "amlsim-20k-fanin200cycle200")
"""Real output of the paper's generator, with 20 000 accounts."""

CUTS: Final[dict[str, dict[str, int]]] = {
    "own": {},
    "dense": {"bins": 9, "edge_life": 8, "window": 8},
}
"""Cuts of a sample into snapshots. `own`: by its own steps. `dense`: into so few windows that a raw
snapshot has as many edges per vertex as the paper's (124 M / 200 M = 0.62; 0.65 here), smoothed
over all but one of them, which gives 3.2 where the paper has 5.2 to 5.5: a sample has no more."""

EXTRAS: Final[dict[str, dict[str, dict[str, bool]]]] = {
    "own": {"reuse": {"reuse": True}},
    "dense": {"reuse+late+scored": {"reuse": True, "late": True, "scored": True}},
}
"""Beyond the paper, by cut: the re-run takes what the first pass received; dense halves behind the
exchange, so that narrower rows travel; and only those outputs come home that the loss reads."""

LEAN: Final = "vertex lean"
"""The vertex partition without what a model's first pass computes for nobody, as the snapshot
partition of EvolveGCN does by default."""

GENERATED: Final = {"amlsim-drawn-100k": "100K", "amlsim-drawn-1m": "1M"}
"""Graphs drawn by the rules and published parameters of the paper's generator, by dataset: size."""

_PRINTED: Final = BY_NAME["amlsim"].printed
RAW_DENSITY: Final = _PRINTED["nnz"] / (_PRINTED["N"] * _PRINTED["T"])
"""Edges of a vertex in a raw snapshot of the paper's graph (Table 1)."""
LONGEST_SMOOTHING: Final = 15
"""w of our AMLSim, which reaches Table 1's smoothed edges."""

MIXINGS: Final = (0.05, 0.3, 1.0)
"""Shares of a twin's edges that leave their planted block."""

ROUNDS: Final = {"smoke": 3, "quick": 2, "full": 8, "paper": 10}
"""Turns of a process at least; a race that is judged has several processes."""
BUDGETS_S: Final = {"smoke": 0.1, "quick": 0.1, "full": 4.0, "paper": 10.0}
KEPT: Final = {"smoke": 3, "quick": 9, "full": 33, "paper": 97}
"""Snapshots that a race keeps of a sample cut by its own steps."""
DENSE_KEPT: Final = {"quick": 5}
"""The same of a dense cut, the last ones, whose smoothing reaches back furthest; else all."""


def methods(preset: Preset) -> list[str]:
    """All partitioners where there is time; else the first that takes under a second."""
    if preset in ("full", "paper"):
        return list(METHODS)
    return ["pymetis" if importlib.util.find_spec("pymetis") else "ranges"]


def sample_workload(params: Mapping[str, Any], preset: Preset) -> TimelineWorkload:
    """Link prediction on a sample, cut as `CUTS` says; a cell that parts vertices keeps all."""
    if params["part"] == "parts":
        kept = None
    else:
        kept = (DENSE_KEPT if params["cut"] == "dense" else KEPT).get(preset)
    cut = str(params["cut"])
    fields: dict[str, Any] = dict(CUTS[cut])
    fields["snapshots"] = kept
    return workload(BY_NAME[str(params["dataset"])], str(params["model"]), preset, **fields)


def walk(model: str, ranks: int) -> Measurement:
    """Every message of an epoch at the paper's size, and what formulas say."""
    net = timeline(model)
    counted = count_snapshot(model, size=ranks)
    layers = len(net.redistributed_dims)
    phases = {
        phase: counted.total("floats", phase=phase) for phase in ("forward", "rerun", "backward")
    }
    found = _walk(
        phases,
        # All ranks talk to all others in each redistribution.
        {
            phase: counted.total("messages", phase=phase) // (ranks * (ranks - 1))
            for phase in ("forward", "backward")
        },
        floats=counted.total("floats"),
        formula=snapshot_floats(net, PAPER_NODES, block_ranges(PAPER_STEPS, 1), ranks),
        messages=counted.total("messages"),
        layers=layers,
        width=floats_per_vertex_step(net),
        gradients=gradient_floats(net, ranks),
        size=(PAPER_STEPS, PAPER_NODES),
    )
    if ranks == RANKS[0]:
        plain = count_snapshot(model, size=ranks, checkpoint=False)
        found.observe("floats", plain.total("floats"), setting="without_rerun")
    found.checks = [agree(found, _walked(model, ranks), against=OVER_PAIRS)]
    found.observe("estimate", counted.total("floats") / 1e9, of="floats")
    return found


def _walk(
    phases: Mapping[str, int],
    exchanges: Mapping[str, int],
    *,
    floats: int,
    formula: int,
    messages: int,
    layers: int,
    width: int,
    gradients: int,
    size: tuple[int, int],
) -> Measurement:
    """Counts of a walk; `size` are T and N."""
    found = Measurement()
    for phase, count in phases.items():
        found.observe("floats", count, phase=phase)
    for phase, count in exchanges.items():
        found.observe("exchanges", count, phase=phase)
    found.observe("floats", floats)
    found.observe("floats", formula, method="formula")
    found.observe("messages", messages)
    found.observe("exchanges", layers, of="layers")
    found.observe("columns", width, of="redistributed")
    found.observe("floats", gradients, of="gradients")
    found.observe("snapshots", size[0])
    found.observe("vertices", size[1])
    return found


def _walked(model: str, ranks: int) -> Measurement:
    """The counters of a walk again, pair by pair, from widths of tensors."""
    widths = Widths.of(model, task="class")
    layers, pairs = len(widths.redistributed), ranks * (ranks - 1)
    forward, backward = (
        int(
            redistributed(
                widths.redistributed, PAPER_STEPS, PAPER_NODES, ranks, forward=f, backward=1 - f
            ).sum()
        )
        for f in (1, 0)
    )
    wanted = _walk(
        {"forward": forward, "rerun": forward, "backward": backward},
        {"forward": 2 * layers, "backward": 2 * layers},
        floats=2 * forward + backward,
        formula=2 * forward + backward,
        # There and back, in each of three passes.
        messages=3 * 2 * layers * pairs,
        layers=layers,
        width=sum(map(sum, widths.redistributed)),
        # Each rank of a ring sends all but the P-th part twice.
        gradients=2 * (ranks - 1) * widths.parameters,
        size=(192, 1_000_000),
    )
    if ranks == RANKS[0]:
        wanted.observe("floats", forward + backward, setting="without_rerun")
    return wanted


def part(task: TimelineWorkload, method: str) -> Measurement:
    """Mean number of remote parts that read a vertex at a step, for each P of Table 2."""
    data = load_timeline(task)
    steps = [data.topology[t] for t in range(len(data))]
    return _remote(steps, data.num_nodes, method, describe(data))


def draw(dataset: str, model: str, method: str) -> Measurement:
    """The same of a drawn graph, cut into windows as dense as the paper's snapshots and smoothed as
    they are for the model."""
    from dgbench.datasets import amlsim
    from dgbench.datasets.transforms import equal_windows
    from dgbench.kernels_cuda.snapshots import edge_snapshots

    events = amlsim.generate(amlsim.published(GENERATED[dataset]), name=dataset)
    count = max(2, round(len(events.src) / (RAW_DENSITY * events.num_nodes)))
    life = 1 if SMOOTHING[model] == "none" else min(LONGEST_SMOOTHING, count - 1)
    bins, _ = equal_windows(events.t, count)
    steps = edge_snapshots(
        events.src, events.dst, bins.long(), count, events.num_nodes, edge_life=life
    )
    found = _remote(list(steps), events.num_nodes, method, describe(events))
    found.notes += [f"{count} windows, an edge stays for {life}", *events.origin.notes]
    return found


def mix(mixing: float, preset: Preset) -> Measurement:
    """The same on raw snapshots of a twin with planted blocks."""
    from dgbench.datasets.transforms import equal_windows
    from dgbench.datasets.twins.api import generate
    from dgbench.kernels_cuda.snapshots import edge_snapshots

    graph = BY_NAME["amlsim"]
    scale = graph.scale("smoke" if preset == "quick" else preset)
    events = generate(graph.name, scale, mixing=mixing)
    count = graph.bins or 1
    bins, _ = equal_windows(events.t, count)
    steps = edge_snapshots(events.src, events.dst, bins.long(), count, events.num_nodes)
    data = {
        "dataset": graph.name,
        "twin": True,
        "scale": scale,
        "note": f"planted blocks, mixing {mixing:g}",
    }
    return _remote(list(steps), events.num_nodes, methods("quick")[0], data)


def _remote(steps: list[Any], num_nodes: int, method: str, data: dict[str, Any]) -> Measurement:
    vertex_steps, edges = len(steps) * num_nodes, sum(csr.nnz for csr in steps)
    found, wanted = Measurement(data=data), Measurement()
    found.observe("vertices", vertex_steps, of="steps")
    found.observe("vertices", num_nodes, of="graph")
    found.observe("edges", edges)
    found.observe("density", edges / vertex_steps, of="edges")
    wanted.observe("vertices", len(steps) * num_nodes, of="steps")
    wanted.observe("vertices", steps[0].indptr.numel() - 1, of="graph")
    wanted.observe("edges", sum(csr.indices.numel() for csr in steps))
    used = method
    checks = []
    for ranks in RANKS:
        parts = split_vertices(steps, ranks, method)  # type: ignore[arg-type]
        used = parts.method
        remote = remote_reads(steps, parts)
        # What the paper's graph would send if its vertex-steps were like these.
        scaled = HYPER_FLOATS * (remote / vertex_steps) * PAPER_STEPS * PAPER_NODES / 1e9
        found.observe("remote_reads", remote, ranks=ranks)
        found.observe("density", remote / vertex_steps, of="remote_reads", ranks=ranks)
        found.observe("estimate", scaled, of="floats", ranks=ranks)
        readers = remote_readers(steps, parts.owner, ranks)
        wanted.observe("remote_reads", readers, ranks=ranks)
        lists = [parts.vertices(part) for part in range(ranks)]
        checks.append(partition_check(lists, num_nodes, f"{ranks} parts"))
        # Widths 6, three passes, 192 steps of a million vertices.
        sent = 18 * readers / (len(steps) * num_nodes) * 192e6 / 1e9
        checks.append(close("volumes", scaled, sent, 1e-9, against=OVER_EDGES))
    checks.append(agree(found, wanted, against=OVER_EDGES))
    found.notes, found.checks = [f"vertices parted by {used}"], summarised(checks)
    return found


def race(
    task: TimelineWorkload,
    ranks: int,
    context: RunContext,
    more: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    transport: Transport = "auto",
    lean: bool = False,
    control: bool = False,
) -> Measurement:
    """Both partitions in turns on the same processes, and further ways of the snapshot partition.

    Args:
        task: what is trained.
        ranks: P.
        context: of the cell.
        more: name -> arguments of `SnapshotRankTrainer` for the snapshot partition.
        transport: what carries rows between the ranks.
        lean: also race the snapshot partition against `LEAN`.
        control: also race the snapshot partition with itself.
    """
    data = load_timeline(task)
    steps = range(len(data) - 1)
    parts = split_vertices([data.topology[t] for t in steps], ranks, methods("quick")[0])  # type: ignore[arg-type]
    oracle, kept = comparison(task, data, ranks, context)
    contenders: dict[str, dict[str, Any]] = {
        "snapshot": {"partition": "snapshot"},
        "vertex": {"partition": "vertex", "parts": parts},
    }
    contenders |= {name: {"partition": "snapshot", **o} for name, o in (more or {}).items()}
    if lean:
        contenders[LEAN] = {"partition": "vertex", "parts": parts, "lean": True}
    turns = take_rank_turns(
        task,
        data,
        ranks,
        with_control(contenders, on=control),
        least=ROUNDS[context.preset],
        budget_s=BUDGETS_S[context.preset],
        device=context.device,
        transport=transport,
        request=None if oracle is None else oracle.request,
    )
    pair = turns.take_control()
    found = _traffic(task, data, parts, turns)
    take_control(found, pair)
    if oracle is None:
        checks = later_ranks(task, data, kept, turns.losses, turns.audits, context.device)
    else:
        checks = turns.checks(oracle)
        found.deviation = {"output": largest_gap(checks, "outputs", "gradients")}
        kept.keep(turns.losses, checks)
    lists = [parts.vertices(rank) for rank in range(ranks)]
    found.checks = [
        *checks,
        agree(found, _recounted(task, data, parts, turns), against=OVER_PAIRS),
        partition_check(lists, data.num_nodes, f"{ranks} parts"),
    ]
    for name in ("snapshot", *(more or {})):
        observe_speedup(found, turns.seconds["vertex"], turns.seconds[name], setting=name)
    if lean:
        observe_speedup(found, turns.seconds[LEAN], turns.seconds["snapshot"], setting=LEAN)
    turns.observe_times(found, "setting")
    for name, seconds in turns.prepare_s.items():
        found.observe("preparation_time", seconds, setting=name)
    found.observe("turns", len(turns.seconds["snapshot"]))
    found.data = describe(data)
    found.notes = [
        f"vertices parted by {parts.method}",
        f"{ranks} processes over {turns.carrier}",
    ]
    return found


def _observe_graph(
    formulas: Mapping[str, int],
    *,
    vertex_steps: int,
    width: int,
    remote: int,
    edges: int,
    parameters: int,
) -> Measurement:
    """Observe the sizes of the trained graph, and the traffic by formulas, by setting."""
    found = Measurement()
    for setting, count in formulas.items():
        found.observe("floats", count, method="formula", setting=setting)
    found.observe("vertices", vertex_steps, of="steps")
    found.observe("columns", width, of="redistributed")
    found.observe("remote_reads", remote)
    found.observe("edges", edges)
    found.observe("parameters", parameters)
    return found


def _recounted(
    task: TimelineWorkload, data: SnapshotSequence, parts: VertexParts, turns: SnapshotRaceResult
) -> Measurement:
    """Recount the traffic: pair by pair of ranks, and edge by edge of the snapshots and pairs."""
    todo = TimelineTask(data, task)
    steps = [data.topology[t] for t in range(todo.steps)]
    size, widths = parts.size, Widths.of(task.model, window=task.window)
    sent, reused = (
        int(
            redistributed(
                widths.redistributed, len(steps), data.num_nodes, size, forward=forward
            ).sum()
        )
        for forward in (2, 1)
    )
    remote = remote_readers(steps, parts.owner, size)
    ends = remote_ends((todo.pairs(t)[0] for t in range(todo.steps)), parts.owner, size)
    # Rows of six floats: hidden ones in each pass, outputs of the pairs in those with a loss.
    asked = {"vertex": 18 * remote + 12 * ends, LEAN: 12 * remote + 12 * ends}
    wanted = _observe_graph(
        {"snapshot": sent, "reuse": reused, "vertex": asked["vertex"]},
        vertex_steps=len(steps) * data.num_nodes,
        width=sum(map(sum, widths.redistributed)),
        remote=remote,
        edges=sum(csr.indices.numel() for csr in steps),
        parameters=widths.parameters,
    )
    volumes = {"snapshot": sent, "reuse": reused, **asked}
    reduced = 2 * (size - 1) * (widths.parameters + 1)
    for name in turns.traffic:
        if name in volumes:
            wanted.observe("floats", volumes[name], setting=name)
        wanted.observe("floats", reduced, setting=name, of="reduced")
    return wanted


def _traffic(
    task: TimelineWorkload, data: SnapshotSequence, parts: VertexParts, turns: SnapshotRaceResult
) -> Measurement:
    """Floats that a trained epoch sent, and what formulas say; all-reduces apart."""
    todo = TimelineTask(data, task)
    steps = [data.topology[t] for t in range(todo.steps)]
    net = timeline(task.model, window=task.window)
    blocks = block_ranges(len(steps), 1)
    remote = remote_reads(steps, parts)
    pairs = 0
    for t in range(todo.steps):
        source, target = todo.pairs(t)[0]
        pairs += needs(target, source, parts).shape[1]
    size = parts.size
    found = _observe_graph(
        {
            "snapshot": snapshot_floats(net, data.num_nodes, blocks, size),
            "vertex": vertex_floats(net, remote, remote_pairs=pairs),
            "reuse": snapshot_floats(net, data.num_nodes, blocks, size, checkpoint=False),
        },
        vertex_steps=len(steps) * data.num_nodes,
        width=floats_per_vertex_step(net),
        remote=remote,
        edges=sum(csr.nnz for csr in steps),
        parameters=sum(p.numel() for p in timeline_model(task).parameters()),
    )
    for name, traffic in turns.traffic.items():
        for metric in ("floats", "messages"):
            found.observe(metric, traffic.total(metric, operation="all_to_all"), setting=name)
        reduced = traffic.total("floats", operation="all_reduce")
        found.observe("floats", reduced, setting=name, of="reduced")
    return found
