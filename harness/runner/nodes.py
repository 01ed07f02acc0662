"""Nodes of a cluster as a run sees them: labels, makes, and rounds that stay on one of them."""

from __future__ import annotations

import hashlib
import os
import socket
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from dgbench.harness.store import LACKING
from dgbench.lab.compare import start_of
from dgbench.lab.experiment import Cell

if TYPE_CHECKING:
    from dgbench.harness.plan import GroupKey, Plan
    from dgbench.harness.store import Row

ProcessKey = tuple[str, int, bool]
"""Cell hash, round, instrumented: one process of a plan."""


def node_label(host: str = "", salt: str = "") -> str:
    """Label of a node that rows may carry to others: digits of a hash, not the name of a host.

    Args:
        host: name of the node; "" for this one, as Slurm or the system calls it.
        salt: secret of the submission; without it names could be tried until one fits.
    """
    host = host or os.environ.get("SLURMD_NODENAME", "") or socket.gethostname()
    return f"node-{hashlib.sha256(f'{salt}{host}'.encode()).hexdigest()[:8]}"


def make_of(machine: Mapping[str, Any]) -> str:
    """Make of a node from its facts: processor, cores, architecture and GPUs, in words."""
    cpu = machine.get("cpu") or {}
    words = [f"{cpu.get('cores')} cores", str(cpu.get("model")), str(machine.get("architecture"))]
    words += [str(gpu.get("name")) for gpu in machine.get("gpus") or ()]
    return ", ".join(words)


def on_node(cell: Cell, node: str) -> Cell:
    """A cell that measures the machine itself, in a group of its own for each node."""
    return msgspec.structs.replace(cell, group=f"{cell.group} {node}") if node else cell


def group_round(row: Row) -> tuple[GroupKey, int]:
    """Group and round of a row, whose timed processes belong on one node."""
    return (row.paper, row.experiment, row.group), row.round


def nodes_of_rounds(rows: Iterable[Row]) -> dict[tuple[GroupKey, int], set[str]]:
    """Nodes that the timed processes of each group's rounds ran on."""
    found: dict[tuple[GroupKey, int], set[str]] = defaultdict(set)
    for row in rows:
        if not row.instrumented and row.paper != "-":
            found[group_round(row)].add(row.node)
    return found


def without_begun_rounds(
    plan: Plan, rows: Mapping[ProcessKey, Row], lacking: Collection[str] = ()
) -> dict[ProcessKey, Row]:
    """Rows without those of rounds that no start of the run, on one node, ran from end to end.

    Contenders of a round form pairs, so that minutes, commits and nodes must not lie between them.
    Cells that never start belong to no round.

    Args:
        lacking: hashes of cells that could not start when they ran last.
    """
    lacking = {*lacking, *(row.cell_hash for row in rows.values() if row.status in LACKING)}
    begun = set()
    for step in plan.steps:
        key = plan.cells[step.index].hash, step.round, False
        if not step.instrumented and key not in rows and key[0] not in lacking:
            begun.add((plan.group_of(step), step.round))
    timed = [row for row in rows.values() if not row.instrumented and row.cell_hash not in lacking]
    starts: dict[tuple[GroupKey, int], set[tuple]] = defaultdict(set)
    for row in timed:
        starts[group_round(row)].add((row.node, start_of(row)))
    begun |= {place for place, some in starts.items() if len(some) > 1}
    dropped = {id(row) for row in timed if group_round(row) in begun}
    return {key: row for key, row in rows.items() if id(row) not in dropped}
