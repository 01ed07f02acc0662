"""The arena: tasks that no paper owns, and every system that can enter them."""

from dgbench.lab.paper import Paper
from dgbench.systems.arena.hosted import GraphUpdate, StreamTraining, TemporalSampling, WeightedDraw
from dgbench.systems.arena.timeline import TimelineTraining
from dgbench.systems.arena.training import SnapshotTraining

PAPER = Paper(
    name="arena",
    title="The arena",
    venue="dgbench's own tasks",
    about=(
        "Frozen tasks that no paper owns. Every system that can enter one does, released peers "
        "included, and every other one says why it does not."
    ),
    system="dgbench",
    ledger=None,
    experiments=(
        SnapshotTraining(),
        TimelineTraining(),
        StreamTraining(),
        TemporalSampling(),
        GraphUpdate(),
        WeightedDraw(),
    ),
    checks={},
    readings=("A definition is changed by a new version alone; its digest stands in every row.",),
    since="2026-11-29",
)

__all__ = ["PAPER"]
