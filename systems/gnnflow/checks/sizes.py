"""Claims of Tables 1 and 5, of the machine and of the size of the code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dgbench.lab.evidence import finding, missing
from dgbench.lab.printed import same_printed
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.gnnflow.experiments.contenders import OURS, contender_rows
from dgbench.systems.gnnflow.experiments.settings import DATASET_OF, DAY, GRAPHS
from dgbench.systems.gnnflow.experiments.table5 import size_of

NEEDS_FILES = (
    "needs the publishers' files of the five graphs; the twins here were fitted to these numbers"
)
NEAR = 0.05
"""Relative difference up to which a length of time agrees with a printed one."""


def sizes(size: str) -> Check:
    """A check of one column of Table 5, by counts of the files or as their publisher states."""

    def check(claim: Claim, rows: Sequence[Any]) -> Finding:
        found = rows_of(rows, experiment="table5")
        if not found:
            return missing("the sizes of the graphs were not looked up in this run")
        row = found[-1]
        known: dict[str, int] = {}
        counted = True
        words: list[str] = []
        for graph in GRAPHS:
            there = size_of(row, graph.name, size)
            if there is None:
                words.append(f"nobody states {graph.title}")
                counted = False
                continue
            known[graph.title] = there[0]
            counted = counted and there[1]
        apart = [
            graph for graph in GRAPHS
            if graph.title in known and not same_printed(known[graph.title], graph.printed[size])
        ]  # fmt: skip
        for graph in reversed(apart):
            found_here, printed = known[graph.title], graph.printed[size]
            words.insert(0, f"{graph.title} has {found_here:,}, printed are {printed:,}")
        if size == "nodes" and "Netflix" in (graph.title for graph in apart):
            words.append("Table 6 fits the smaller number of Netflix too")
        if not counted:
            words.append("counts are the publishers', their files are not here")
        return finding(
            [row],
            measured=known,
            holds=not apart and len(known) == len(GRAPHS),
            direction=not apart,
            reason="; ".join(words),
        )

    return check


def widths(kind: str) -> Check:
    """A check of one of the widths of features, where the publishers' files are here."""

    def check(claim: Claim, rows: Sequence[Any]) -> Finding:
        found = Table.of(rows_of(rows, experiment="table5")[-1:]).where("columns", of=kind)
        counted = found.numbers("dataset")
        known = {
            title: counted[DATASET_OF[title]]
            for title in claim.value
            if DATASET_OF[title] in counted
        }
        if len(known) < len(claim.value):
            return missing(f"{NEEDS_FILES}; widths of drawn features are these by choice")
        return finding(
            found.rows,
            measured=known,
            holds=all(known[title] == (claim.value[title] or 0) for title in known),
        )

    return check


def of_times(what: str, printed: Callable[[str], float], unit: float = 1.0) -> Check:
    def check(claim: Claim, rows: Sequence[Any]) -> Finding:
        found = Table.of(rows_of(rows, experiment="table5")[-1:]).where("window", of=what)
        seconds = found.numbers("dataset")
        known = {
            title: seconds[DATASET_OF[title]] / unit
            for title in claim.value
            if DATASET_OF[title] in seconds
        }
        if len(known) < len(claim.value):
            return missing(NEEDS_FILES)
        agree = {
            title: abs(number / printed(claim.value[title]) - 1) <= NEAR
            for title, number in known.items()
            if printed(claim.value[title])
        }
        return finding(
            found.rows, measured=known, holds=all(agree.values()),
            reason=f"{'days' if unit == DAY else 'step_s'} of the files, within {NEAR:.0%}",
        )  # fmt: skip

    return check


def seconds_of(words: str) -> float:
    """Seconds of `15 mins.`, `1 day` or `1 month`; 0 for what has no number (`few secs.`)."""
    units = {"min": 60.0, "day": 86_400.0, "month": 30 * 86_400.0, "year": 365.25 * 86_400.0}
    number, unit = words.split()
    if not number.replace(".", "").isdigit():
        return 0.0
    return float(number) * next(s for name, s in units.items() if unit.startswith(name))


def code(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Lines of the authors' code are not ours to count; the printed parts can be added up."""
    parts = [int(str(claim.value[k]).replace(",", "")) for k in ("cpp_storage", "python", "cuda")]
    total = str(claim.value["total"]).replace(",", "")
    return missing(
        f"needs the authors' code, this is another implementation; the parts that are printed add "
        f"up to {sum(parts):,} of {int(total):,} lines"
    )


def testbed(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Check that this run is on a machine like the paper's."""
    found = rows_of(rows, experiment="table5")
    if not found:
        return missing("the machine was not looked at in this run")
    row = found[-1]
    here = {
        "gpus": number(row, "devices"),
        "gpu_memory_gb": round(number(row, "memory", of="gpu") / 2**30),
        "vcpus": number(row, "processors"),
        "memory_gb": round(number(row, "memory", of="host") / 2**30),
    }
    same = all(
        abs(number - claim.value[key]) <= NEAR * claim.value[key] for key, number in here.items()
    )
    words = f"this machine has {here['gpus']} GPUs, {here['vcpus']} processors, " + (
        f"{here['memory_gb']} GiB"
    )
    if not same:
        return missing(f"needs a g4dn.metal; {words}")
    return finding([row], measured=here, holds=True, reason=words)


def capabilities(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Observed capabilities of contenders. Table 1's marks are lost: nothing is compared."""
    found = contender_rows(rows)
    if not found:
        return missing("no sampler was judged in this run; the marks of Table 1 are lost")
    seen: dict[str, str] = {}
    for row in found:
        here = Table.of([row])
        for name in sorted(here.where("operation_time", phase="add").by("setting")):
            leaks = here.where("portion", setting=name, statistic="leaks").values
            gain = number(row, "speedup", 1.0, baseline=name, phase="add")
            seen[name] = (
                f"{'looks before its roots only' if max(leaks) == 0 else 'returns later edges'}, "
                f"grows in {gain:.0f}x our time"
                if name != OURS
                else "looks before its roots only, grows in place"
            )
    return finding(
        found,
        measured=seen,
        reason="the marks of Table 1 are lost in the text; this is what samplers here did",
    )
