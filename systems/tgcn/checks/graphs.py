"""Claims on the graphs and the machine: Table 1, sections 1 and 6.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.lab.laws import DECIDED
from dgbench.lab.table import Table
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.tgcn.checks.common import finding, missing, of_the_paper
from dgbench.systems.tgcn.experiments.common import number, panel
from dgbench.systems.tgcn.experiments.settings import DATASET_OF, GRAPHS, PRINTED_TITLE
from dgbench.systems.tgcn.experiments.table1 import (
    DEFINITIONS,
    HALF,
    SIZES,
    WHOLE,
    graph_rows,
    machine_row,
    mean_degree,
    rounds_to,
    sides_of,
    size_of,
)

NOT_LOOKED_UP: Final = "the sizes of the graphs were not looked up in this run"
NEEDS_FILES: Final = "needs the publishers' files of the four graphs"
SAME: Final = 0.05
"""Difference of exponents, and share of vertices out of place, that still is the same shape."""

Rows = Sequence[Any]


def sizes(size: str) -> Check:
    """A check of a column of sizes, by counts of the files or as their publisher states them."""

    def check(claim: Claim, rows: Rows) -> Finding:
        row = machine_row(rows)
        if row is None:
            return missing(NOT_LOOKED_UP)
        known: dict[str, int] = {}
        counted = True
        words: list[str] = []
        for graph in GRAPHS:
            there = size_of(row, graph.name, size)
            if there is None:
                return missing(f"nobody states the {SIZES[size]} of {graph.title}")
            known[PRINTED_TITLE[graph.name]], here = there
            counted = counted and here
            printed = getattr(graph.printed, size)
            if not rounds_to(there[0], printed):
                words.append(f"{graph.title} has {there[0]:,}, printed are {printed:,}")
        apart = bool(words)
        if not counted:
            words.append("counts are the publishers', their files are not here")
        # That a printed number is wrong, two sources say; that all are right, none was counted for.
        return finding(
            [row],
            evidence="counted" if apart or counted else "analogue",
            measured=known,
            holds=not apart,
            reason="; ".join(words),
        )

    return check


def mean_degrees(claim: Claim, rows: Rows) -> Finding:
    """Whether one definition of a mean degree gives the column."""
    row = machine_row(rows)
    if row is None:
        return missing(NOT_LOOKED_UP)
    fits = dict.fromkeys(DEFINITIONS, 0)
    measured: dict[str, str] = {}
    for graph in GRAPHS:
        assert graph.printed is not None
        found = {word: mean_degree(row, graph.name, ends) for word, ends in DEFINITIONS.items()}
        measured[PRINTED_TITLE[graph.name]] = " or ".join(
            f"{degree:.1f}" for degree in found.values() if degree is not None
        )
        for word, ends in DEFINITIONS.items():
            degree = found[word]
            own = ends * graph.printed.edges / graph.printed.vertices
            fits[word] += rounds_to(own, graph.printed.degree) or (
                degree is not None and rounds_to(degree, graph.printed.degree)
            )
    words = ", ".join(f"{word} fits {count}" for word, count in fits.items())
    return finding(
        [row],
        evidence="counted",
        measured=measured,
        holds=max(fits.values()) == len(GRAPHS),
        reason=f"E/V or 2 E/V of the published sizes; of {len(GRAPHS)} printed degrees {words}",
    )


def features(claim: Claim, rows: Rows) -> Finding:
    """Widths of features in the publishers' files, where these are here."""
    row = machine_row(rows)
    widths = Table.of([] if row is None else [row]).where("feature_width").numbers("dataset")
    known = {title: widths[name] for title, name in DATASET_OF.items() if name in widths}
    if len(known) < len(claim.value):
        return missing(f"{NEEDS_FILES}; what the column means is not explained")
    return finding([row], evidence="counted", measured=known, holds=known == claim.value)


def twitter_edges(claim: Claim, rows: Rows) -> Finding:
    """Billion edges of Twitter."""
    row = machine_row(rows)
    there = None if row is None else size_of(row, "twitter", "edges")
    if there is None:
        return missing(NOT_LOOKED_UP)
    edges, counted = there
    return finding(
        [row],
        evidence="counted" if counted else "analogue",
        measured=edges / 1e9,
        holds=rounds_to(edges, 1.46e9),
        reason=f"{edges:,}: cut to three digits this is 1.46, rounded as in Table 1 it is 1.47"
        + ("" if counted else "; the publisher's count, its file is not here"),
    )


def _real(rows: Rows) -> tuple[list[Any], bool]:
    """Rows on real graphs, the paper's if they are here, and whether they are the paper's."""
    real = [row for row in graph_rows(rows) if not row.data.get("twin")]
    own = [row for row in real if of_the_paper(row)]
    return (own, True) if len(own) == len(GRAPHS) else (real, False)


def power_law(claim: Claim, rows: Rows) -> Finding:
    """Tails nearer to a power law than to an exponential one, on each side of each graph."""
    found, own = _real(rows)
    if not found:
        return missing(f"{NEEDS_FILES}: degrees of a twin are drawn from a power law")
    said: dict[str, str] = {}
    scores: list[float] = []
    for row in found:
        for side in sides_of(row):
            about = {"of": side, "setting": WHOLE}
            z = number(row, "likelihood_z", **about)
            if z is None:
                continue
            scores.append(z)
            name = panel(row) + ("" if side == "all" else f" {side}")
            least = number(row, "degree", method="tail", **about)
            said[name] = (
                f"exponent {number(row, 'tail_exponent', **about):.2f} from {least:.0f} edges on "
                f"({'nearer' if z > DECIDED else 'open'}"
                f"{'' if z > -DECIDED else ', an exponential law is nearer'})"
            )
    near, other = sum(z > DECIDED for z in scores), sum(z < -DECIDED for z in scores)
    return finding(
        found,
        evidence="counted" if own else "analogue",
        measured=said,
        holds=near == len(scores),
        direction=not other and 2 * near > len(scores),
        undecided=not other and near == 0,
        reason=(
            f"a power law is nearer than an exponential one on {near} of {len(scores)} "
            f"distributions, farther on {other}"
            + ("" if own else "; other real graphs, the paper's are not here")
        ),
    )


def degrees_kept(claim: Claim, rows: Rows) -> Finding:
    """Exponents of the tails before and after, and degrees over their mean."""
    found, own = _real(rows)
    if not found:
        return missing(f"{NEEDS_FILES}: degrees of a twin are drawn from a power law")
    said: dict[str, str] = {}
    apart = Table.of(found).where("distribution_gap")
    gaps, tails = ([0.0, *apart.where(method=how).values] for how in ("halved", "halved tail"))
    bends = [0.0]
    for row in found:
        for side in sides_of(row):
            before, after = (
                number(row, "tail_exponent", of=side, setting=setting) for setting in (WHOLE, HALF)
            )
            if before is None or after is None:
                continue
            bends.append(abs(after / before - 1))
            name = panel(row) + ("" if side == "all" else f" {side}")
            said[name] = f"exponent {before:.2f}, then {after:.2f}"
    return finding(
        found,
        evidence="counted" if own else "analogue",
        measured=said,
        holds=max(*bends, *gaps) <= SAME,
        reason=(
            f"the mean degree halves; exponents move by up to {100 * max(bends):.0f} %, and of "
            f"degrees over their mean up to {100 * max(gaps):.0f} % of the vertices are out of "
            f"place, {100 * max(tails):.0f} % in the tails: small degrees cannot be halved evenly"
        ),
    )


def testbed(claim: Claim, rows: Rows) -> Finding:
    """Whether this run is on a machine like the paper's."""
    row = machine_row(rows)
    if row is None:
        return missing("the machine was not looked at in this run")
    here = {
        "gpus": number(row, "devices"),
        "sm_per_gpu": number(row, "processors", of="device"),
        "gpu_memory_gb": round(number(row, "memory", of="device") / 2**30),
        "processors": number(row, "processors", of="host"),
        "main_memory_gb": round(number(row, "memory", of="host") / 2**30),
    }
    words = f"this machine has {here['gpus']} GPUs, {here['processors']} processors, " + (
        f"{here['main_memory_gb']} GiB"
    )
    wanted = {"gpus": 8, "sm_per_gpu": 80, "gpu_memory_gb": 32, "main_memory_gb": 256}
    if any(abs(here[key] - number) > SAME * number for key, number in wanted.items()):
        return missing(f"needs a DGX with eight V100; {words}")
    return finding(
        [row],
        evidence="counted",
        measured=here,
        holds=False,
        reason=f"{words}; a V100 has 6 MB of L2 and six links, not 768 KB and four slots",
    )


CHECKS: dict[str, Check] = {
    "tgcn-tab1-vertices": sizes("vertices"),
    "tgcn-tab1-edges": sizes("edges"),
    "tgcn-tab1-avg-degree": mean_degrees,
    "tgcn-tab1-feature": features,
    "tgcn-s1-twitter-edge-count": twitter_edges,
    "tgcn-s61-power-law": power_law,
    "tgcn-s61-sampling-keeps-degree-dist": degrees_kept,
    "tgcn-s61-testbed": testbed,
}
