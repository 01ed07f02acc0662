"""Findings on memory access, reuse and preparation (sections 2.2, 3.2, 3.3, 4.2 to 4.4, 5.3)."""

from __future__ import annotations

from statistics import fmean, median
from typing import Any

from dgbench.lab.evidence import missing
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import observed, readings
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.base.race import TOLERANCE
from dgbench.systems.pipad.experiments.memory import KNEES
from dgbench.systems.pipad.experiments.preparation import PREPARED
from dgbench.systems.pipad.experiments.settings import BY_NAME
from dgbench.systems.pipad.findings.common import Rows, resting

MODEL = "counting model of loads"
SAVED = observed("memory", "saving")
MIN_SECONDS, MAX_SECONDS = 1.0, 60.0
"""Bounds of what counts as seconds; from a minute on one would say minutes."""


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


def most_saved(of: str) -> Check:
    """Youtube's share of loads saved above all other graphs'."""

    def check(claim: Claim, rows: Rows) -> Finding:
        saved = SAVED(rows, of=of)
        by_graph = saved.numbers("dataset")
        if "youtube" not in by_graph or len(by_graph) < 2:
            return missing("Youtube and another graph are needed; " + SAVED.missing.reason)
        first, second = sorted(by_graph, key=lambda name: by_graph[name], reverse=True)[:2]
        empty = Table.of(saved.rows).where("empty_share", dataset="youtube")[0].value
        return resting(
            saved.rows,
            holds=first == "youtube" and by_graph[first] > by_graph[second],
            measured=f"largest on {BY_NAME[first].title}",
            model=MODEL,
            reason=f"{100 * by_graph['youtube']:.0f} % of {of}; "
            f"{100 * empty:.0f} % of Youtube's rows are empty",
        )

    return check


youtube_saves_most = readings(
    "'memory accesses' may be either",
    requests=most_saved("requests"),
    transactions=most_saved("transactions"),
)
"""The saving of memory accesses is largest on Youtube."""


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
        model="lane occupancy model",
        direction=measured["pipad"] > measured["pygt_g"],
        reason="lanes of the dense loads only; the profiler counts every instruction",
    )


def reuse_gap(row: Any) -> float:
    """Gap of kept and fresh aggregation; rows of older runs have it as their deviation alone."""
    return float(number(row, "relative_error", row.deviation["output"], of="reuse"))


def reuse_is_exact(claim: Claim, rows: Rows) -> Finding:
    """Kept against fresh aggregation, largest relative gap."""
    found = PREPARED(rows).rows
    if not found:
        return PREPARED.missing
    worst = max(reuse_gap(row) for row in found)
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
        model="formula of an aggregation's tensors",
    )


def reordering(claim: Claim, rows: Rows) -> Finding:
    """Seconds of one reordering pass on the largest graph; only one of full size can answer."""
    found = Table.of(rows, experiment="preparation").where("operation_time", phase="reordering")
    if not found:
        return PREPARED.missing
    whole = [one for one in found if one.row.data.get("scale", 1.0) >= 1]
    sizes = {id(one): BY_NAME[one["dataset"]].printed.get("E_smoothed", 0) for one in whole}
    largest = [one for one in whole if sizes[id(one)] == max(sizes.values())]
    if not largest or BY_NAME[largest[0]["dataset"]].small:
        return missing("needs a large graph at full size")
    graph = BY_NAME[largest[0]["dataset"]]
    drawn = largest[0]["part"] is not None
    kind = f"a random graph of {graph.title}'s size" if drawn else graph.title
    times = [one.value for one in largest]
    fit = [MIN_SECONDS <= value < MAX_SECONDS for value in times]
    return resting(
        [one.row for one in largest],
        measured=f"{median(times):.2g} s",
        holds=all(fit),
        undecided=any(fit) and not all(fit),
        reason=f"reverse Cuthill-McKee on {kind}; seconds are read as 1 to 60",
    )
