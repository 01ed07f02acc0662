"""Claims of section 2.2: what building, sampling and fetching cost TGL and DGL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.evidence import finding, missing
from dgbench.lab.table import rows_of
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.gnnflow.experiments.baseline_runs import BASELINE_TITLES, BASELINES
from dgbench.systems.gnnflow.experiments.fig2 import shares
from dgbench.systems.gnnflow.experiments.settings import PAPERS_GRAPHS
from dgbench.systems.gnnflow.experiments.table2 import full_hours, prepared, stages

STAGES = ("load_and_build", "training", "partition")


def sample_fetch_share(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Sampling and fetching in percent of a batch, the least and the most over all models."""
    found = PAPERS_GRAPHS.of(rows_of(rows, experiment="fig2"))
    if not found:
        return missing("no batch of TGL or DGL was timed on GDELT in this run")
    bars = shares(found)
    low, high = (pick(share for _, _, share in bars) for pick in (min, max))
    there = {row.params["baseline"] for row in found}
    absent = [BASELINE_TITLES[b] for b in BASELINES if b not in there]
    words = f"{len(bars)} models" + (f"; without {', '.join(absent)}" if absent else "")
    return finding(
        found,
        measured={"low": round(low, 1), "high": round(high, 1)},
        holds=claim.value["low"] <= low and high <= claim.value["high"],
        reason=f"{words}; on a CPU the model's own share is larger than on a GPU",
    )


def hours(baseline: str) -> Check:
    """A check of one row of Table 2: its stages in their order of length."""

    def check(claim: Claim, rows: Sequence[Any]) -> Finding:
        found = PAPERS_GRAPHS.of(rows_of(rows, experiment="table2", baseline=baseline))
        if not found:
            return missing(f"{BASELINE_TITLES[baseline]} was not timed on MAG in this run")
        row = found[-1]
        seconds = stages(row)
        seconds["load_and_build"] = seconds.pop("load") + seconds.pop("build")
        ours = {name: seconds[name] for name in STAGES if name in seconds}
        printed = {name: claim.value[name] for name in ours}
        alike = sorted(ours, key=ours.get) == sorted(printed, key=printed.get)
        return finding(
            [row],
            measured={name: round(one / 3600, 6) for name, one in ours.items()},
            holds=None,
            direction=alike,
            reason=(
                f"hours at a scale of {row.data['scale']:.2g}; "
                + ("the order of the stages is the printed one" if alike else "another order")
            ),
        )

    return check


def build_share(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Building and partitioning in percent of an epoch, TGL's and DGL's."""
    found = _last(PAPERS_GRAPHS.of(rows_of(rows, experiment="table2")))
    if len(found) < len(BASELINES):
        return missing("needs both TGL and DGL on MAG: nox -s reproduce -- gnnflow")
    part = {BASELINE_TITLES[name]: prepared(row) for name, row in found.items()}
    low, high = min(part.values()), max(part.values())
    return finding(
        list(found.values()),
        measured={name: round(share, 2) for name, share in part.items()},
        holds=claim.value["low"] <= low and high <= claim.value["high"],
        reason="building by counting is fast beside an epoch whose model runs on a CPU",
    )


def build_range(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Minutes of building and partitioning the whole graph, told from a part of it."""
    found = _last(PAPERS_GRAPHS.of(rows_of(rows, experiment="table2")))
    if not found:
        return missing("neither TGL nor DGL was timed on MAG in this run")
    minutes = {BASELINE_TITLES[name]: 60 * full_hours(row) for name, row in found.items()}
    return finding(
        list(found.values()),
        model="growth in proportion to edges",
        measured={name: round(value, 1) for name, value in minutes.items()},
        holds=min(minutes.values()) >= float(claim.value["low"]),
        reason="minutes at full size, linear in the edges; on this machine's threads",
    )


def _last(rows: Sequence[Any]) -> dict[str, Any]:
    """The last row of each baseline."""
    return {row.params["baseline"]: row for row in rows}
