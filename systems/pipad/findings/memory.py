"""Findings on memory access, reuse and preparation (sections 2.2, 3.2, 3.3, 4.2 to 4.4, 5.3)."""

from __future__ import annotations

from statistics import fmean

from dgbench.lab.evidence import missing
from dgbench.lab.table import Table
from dgbench.lab.verbs import observed
from dgbench.systems.base import Claim, Finding
from dgbench.systems.base.race import TOLERANCE
from dgbench.systems.pipad.experiments.memory import KNEES
from dgbench.systems.pipad.experiments.preparation import PREPARED
from dgbench.systems.pipad.experiments.settings import BY_NAME
from dgbench.systems.pipad.findings.common import Rows, resting

MODEL = "by the counting model"
SAVED = observed("memory", "saving")


def knee(found: Table, metric: str) -> int:
    """The longest row that one transaction (request) covers, floats."""
    loads = found.where(metric, method=None).numbers("dim")
    return max(dim for dim, count in loads.items() if count == 1)


def lengths(found: Table) -> list[int]:
    """Floats of a request by vector width."""
    return found.where("length", of="request").values


def example(found: Table, dim: int, method: str) -> dict[str, int]:
    """Loads of a worked example: bytes, requests and transactions."""
    mine = found.where(("requests", "transactions"), dim=dim, method=method)
    together = mine[0]["snapshots_together"]
    loads = {one.of.metric: one.value for one in mine}
    return {"bytes": 4 * dim * together, **loads}


def example_dim2(found: Table) -> dict[str, int]:
    """Two snapshots of two floats."""
    loads = found.where("transactions", dim=2).numbers("method")
    return {
        "bytes": found.where("memory", dim=2).one().value,
        "transactions": loads["pipad"],
        "gespmm_transactions": loads["gespmm"],
    }


def youtube_saves_most(claim: Claim, rows: Rows) -> Finding:
    """Youtube's share of transactions saved above all other graphs'."""
    saved = SAVED(rows, of="transactions")
    by_graph = saved.numbers("dataset")
    if "youtube" not in by_graph or len(saved) < 2:
        return missing("Youtube and another graph are needed; " + SAVED.missing.reason)
    best = max(by_graph, key=lambda name: by_graph[name])
    empty = Table.of(saved.rows).where("empty_share", dataset="youtube")[0].value
    return resting(
        saved.rows,
        holds=best == "youtube",
        measured=f"largest on {best}",
        reason=f"{100 * empty:.0f} % of Youtube's rows are empty",
    )


def lanes(claim: Claim, rows: Rows) -> Finding:
    """Active lanes at lengths 2 and 6 by the occupancy model, which stands for the profiler."""
    found = KNEES(rows).where("utilisation").by("method")
    if not found:
        return missing(KNEES.missing.reason)
    measured = {
        name: 100 * fmean(found[method].values)
        for name, method in (("pygt_g", "gespmm"), ("pipad", "pipad"))
    }
    return resting(
        found["pipad"].rows,
        measured=measured,
        direction=measured["pipad"] > measured["pygt_g"],
        reason="lanes of the dense loads only; the profiler counts every instruction",
    )


def reuse_is_exact(claim: Claim, rows: Rows) -> Finding:
    """Kept against fresh aggregation, largest relative gap."""
    found = PREPARED(rows).rows
    if not found:
        return PREPARED.missing
    worst = max(row.deviation["output"] for row in found)
    return resting(
        found,
        holds=worst <= TOLERANCE,
        measured=f"largest relative gap {worst:.1e}",
        reason=f"on {len(found)} graphs",
    )


def stride(claim: Claim, rows: Rows) -> Finding:
    """Snapshots that a frame slides."""
    found = PREPARED(rows).where("snapshots", of="stride")
    if not found:
        return PREPARED.missing
    return resting(found.rows, holds=set(found.values) == {claim.value}, measured=max(found.values))


def partition_memory(claim: Claim, rows: Rows) -> Finding:
    """Bytes of S snapshots at once over S times the bytes of one, largest over graphs."""
    found = PREPARED(rows).where("memory", of="aggregation")
    if not found:
        return PREPARED.missing
    shares = []
    for table in found.by("dataset", "round").values():
        counts = table.numbers("snapshots_together")
        shares += [nbytes / (s * counts[1]) for s, nbytes in counts.items() if s > 1]
    return resting(
        found.rows,
        measured=f"{100 * max(shares):.3g} % of N times one snapshot",
        holds=max(shares) <= 1,
        reason="tensors of one aggregation are counted, not the peak of a device",
    )


def reordering(claim: Claim, rows: Rows) -> Finding:
    """Seconds of one reordering pass; only a graph of full size can answer."""
    found = Table.of(rows, experiment="preparation").where("operation_time", phase="reordering")
    if not found:
        return PREPARED.missing
    whole = [one for one in found if one.row.data.get("scale", 1.0) >= 1]
    slowest = max(whole or found, key=lambda one: one.value)
    random = slowest["part"] is not None
    if not random and len(whole) < len(found):
        seconds = f"{slowest.value:.2g} s a snapshot here"
        return missing(f"needs the graphs at full size: {seconds}")
    title = BY_NAME[slowest["dataset"]].title
    kind = f"a random graph of {title}'s size" if random else title
    return resting(
        [slowest.row],
        measured=f"{slowest.value:.2g} s",
        holds=1 <= slowest.value < 100,
        reason=f"one reverse Cuthill-McKee pass on {kind}",
    )
