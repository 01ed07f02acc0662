"""Helpers of PiPAD's experiments: snapshots of a graph, and settings that take turns."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from dgbench import datasets
from dgbench.datasets import SnapshotSequence
from dgbench.lab.grid import by_preset
from dgbench.systems.base import Measurement, Preset, RunContext, Workload
from dgbench.systems.base.data import describe, latest
from dgbench.systems.base.race import oracle_of
from dgbench.systems.base.turns import RaceContender, opened, turns_of
from dgbench.systems.pipad.experiments.settings import ALL, GRAPHS, FrameGraph, snapshots
from dgbench.systems.pipad.ladders import ON

QUICK = ("flickr", "youtube", "hepth", "covid19-england")
SMOKE = ("youtube", "hepth", "pems08", "covid19-england", "bitcoin-otc")
COUNTED = {
    "smoke": SMOKE,
    "quick": [graph.name for graph in GRAPHS],
    None: [graph.name for graph in ALL],
}
"""Graphs that counting experiments look at; in quick those that claims count."""
FEW = {"smoke": SMOKE[:2], "quick": QUICK, None: [graph.name for graph in ALL]}
"""Graphs of experiments that take longer."""
TURNS = {"smoke": 3, "quick": 6, None: 10}
"""Turns at least; six are the fewest whose extremes bound a median with 95 %."""


def open_graph(
    graph: FrameGraph,
    preset: Preset,
    *,
    edge_life: int | None = None,
    feature_dim: int | None = None,
    whole: bool = False,
) -> SnapshotSequence:
    """Snapshots of a graph at a preset's size.

    Args:
        edge_life: smoothing instead of the graph's own; 1 gives raw snapshots.
        feature_dim: floats per vertex instead of the paper's.
        whole: all snapshots, not only those that a timed cell keeps.
    """
    found = datasets.open_snapshots(
        datasets.SnapshotSpec(
            dataset=graph.name,
            scale=graph.scale(preset),
            edge_life=graph.edge_life if edge_life is None else edge_life,
            feature_dim=graph.feature_dim if feature_dim is None else feature_dim,
        )
    )
    return found if whole else latest(found, snapshots(preset))


def race_settings(
    contenders: Mapping[str, Mapping[str, bool]],
    task: Workload,
    context: RunContext,
    *,
    main: str,
    budgets: float,
) -> tuple[Measurement, dict[str, list[float]]]:
    """Let settings of PiPAD take turns on a task.

    Args:
        contenders: switches by name. main: the one whose step time is the cell's.
        budgets: budgets of a process that all of them share.

    Returns:
        Checks, times and sent bytes of all; and seconds of each step by name.
    """
    oracle = oracle_of(task, context)
    racing = {name: RaceContender("pipad", switches) for name, switches in contenders.items()}
    with opened(racing, task, context) as trainers:
        turns = turns_of(trainers, by_preset(TURNS, context.preset), context.budget_s * budgets)
        first = context.round == 1
        checks = turns.audited(oracle, first=first)
        checks += oracle.settings(trainers, first=first, starts=turns.starts)
        measured = Measurement(
            deviation={"output": max(check.gap for check in checks if check.of == "outputs")},
            checks=checks,
            data=describe(oracle.trainer.data),
            notes=list(getattr(trainers.get(ON), "notes", [])),
        )
    measured.observe("step_time", median(turns.seconds[main]), samples=turns.seconds[main])
    for name, seconds in turns.seconds.items():
        measured.observe("step_time", median(seconds), setting=name)
        measured.observe("host_to_device", turns.sent[name], setting=name)
    return measured, turns.seconds
