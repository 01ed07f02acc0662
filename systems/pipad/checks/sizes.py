"""Claims of Table 1 and of the experimental settings (5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.compare import select
from dgbench.systems.base import Claim, Finding
from dgbench.systems.pipad.checks.common import counted, missing_finding
from dgbench.systems.pipad.experiments.settings import EPOCHS, FRAME, GRAPHS
from dgbench.systems.pipad.experiments.table1 import agrees

TABLE1 = {
    "pipad-tab1-flickr": "flickr",
    "pipad-tab1-youtube": "youtube",
    "pipad-tab1-automotive": "amz-automotive",
    "pipad-tab1-epinions": "epinions",
    "pipad-tab1-hepth": "hepth",
    "pipad-tab1-pems08": "pems08",
    "pipad-tab1-covid": "covid19-england",
}


def table1(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Every printed number of one graph, at the printed number of digits."""
    found = select(rows, experiment="table1", dataset=TABLE1[claim.id])
    if not found:
        return missing_finding("the graph was not opened in this run")
    row = found[-1]
    same = agrees(row)
    differ = [key for key, value in same.items() if not value]
    reason = f"differs in {', '.join(differ)}" if differ else "equal at the printed digits"
    if differ and "E_per_snapshot" in row.counters:
        links, printed = row.counters["E_per_snapshot"], claim.value["expanded"]["E"]
        reason += f"; {links} distinct links, of which {printed} is {printed / links:g} times"
    measured = {key: row.counters[key] for key in same}
    return counted([row], holds=not differ, measured=measured, reason=reason)


def feature_dims(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Feature lengths of every opened graph."""
    found = select(rows, experiment="table1")
    if not found:
        return missing_finding("no graph was opened in this run")
    by_name = {graph.name: graph for graph in GRAPHS}
    measured: dict[str, Any] = {}
    for row in found:
        kind = "small" if by_name[row.params["dataset"]].small else "large"
        measured.setdefault(kind, set()).add((row.counters["D"], row.counters["H"]))
    wanted = {
        kind: {(claim.value[kind]["input"], claim.value[kind]["hidden"])} for kind in measured
    }
    shown = {k: " and ".join(f"{d} -> {h}" for d, h in sorted(v)) for k, v in measured.items()}
    return counted(found, holds=measured == wanted, measured=shown)


def protocol(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Frames and epochs; the 200 epochs are computed from steady steps, so this is a projection."""
    found = [r for r in select(rows, experiment="fig10") if "end_to_end_s" in r.values]
    if not found:
        return missing_finding("no end-to-end time was measured in this run")
    return Finding(
        measured={"frame_size": FRAME, "epochs": EPOCHS},
        holds=claim.value == {"frame_size": FRAME, "epochs": EPOCHS},
        evidence="projected",
        twin=False,
        rows=[found[0].id],
        reason="end-to-end time is preparation plus 200 times the median step times frames",
    )
