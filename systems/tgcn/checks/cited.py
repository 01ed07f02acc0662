"""Claims that the paper quotes from other works: sections 2.3 and 2.4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.table import rows_of
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.tgcn.checks.common import finding, missing
from dgbench.systems.tgcn.experiments.cited import MARIUS_HOURS, NAME, TWITTER_EDGES, derived
from dgbench.systems.tgcn.experiments.common import number

Rows = Sequence[Any]


def quoted(needs: str) -> Check:
    """A check of a result of another work, which is not run again here."""

    def check(claim: Claim, rows: Rows) -> Finding:
        return missing(f"a quoted result of another work, without its settings; needs {needs}")

    return check


def marius_rate(claim: Claim, rows: Rows) -> Finding:
    """Whether the rate is the edges over the hours that are quoted beside it."""
    found = rows_of(rows, experiment=NAME)
    if not found:
        return missing("needs the experiment cited")
    one = next(d for d in derived() if f"tgcn-{d.claim}" == claim.id)
    rate = number(found[-1], "derived_number", of=one.words)
    return finding(
        found[-1:],
        evidence="counted",
        measured=f"{rate / 1e3:.1f}K",
        holds=one.agrees,
        reason=(
            f"{TWITTER_EDGES / 1e9:g} billion edges in {MARIUS_HOURS:g} hours: arithmetic on two "
            "printed numbers, Marius was not run"
        ),
    )


CHECKS: dict[str, Check] = {
    "tgcn-s2-graphsaint-over-clustergcn": quoted(
        "GraphSAINT and ClusterGCN on a static graph with labels"
    ),
    "tgcn-s24-dglke-gpu-utilisation": quoted("DGL-KE and a GPU"),
    "tgcn-s24-pbg-gpu-utilisation": quoted("PyTorch-BigGraph and a GPU"),
    "tgcn-s24-marius-epoch-time": quoted("Marius, a GPU and the Twitter graph"),
    "tgcn-s24-marius-throughput": marius_rate,
}
