"""Findings on the graphs and the machine (Table 1), and what the paper quotes of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dgbench.lab.evidence import missing
from dgbench.lab.laws import DECIDED
from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.printed import as_printed, same_printed
from dgbench.lab.printed import printed as printed_number
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import Judge, last, readings, rows_with, says
from dgbench.systems.tgcn import graph_runs
from dgbench.systems.tgcn.experiments import cited, table1
from dgbench.systems.tgcn.findings.common import Fields, Rows
from dgbench.systems.tgcn.printed import DATASET_OF, PRINTED_TITLE, values
from dgbench.systems.tgcn.settings import GRAPHS, PAPERS_GRAPHS, panel

# The graphs and the machine: Table 1, sections 1 and 6.1.

MACHINE = rows_with(
    table1.NAME, "the sizes of the graphs were not looked up in this run", last,
    part=table1.MACHINE,
)  # fmt: skip
TESTBED = rows_with(
    table1.NAME, "the machine was not looked at in this run", last, part=table1.MACHINE
)
NEEDS_FILES: Final = "needs the publishers' files of the four graphs"
SAME: Final = 0.05
"""Difference of exponents, and share of vertices out of place, that still is the same shape."""


def real_graphs(rows: list[Any]) -> list[Any]:
    """Rows on real graphs: the paper's, if all are here."""
    real = [row for row in rows if "dataset" in row.params and not row.data.get("twin")]
    own = PAPERS_GRAPHS.of(real)
    return own if len(own) == len(GRAPHS) else real


DEGREES = rows_with(
    table1.NAME, f"{NEEDS_FILES}: degrees of a twin are drawn from a power law", real_graphs
)


def sizes(metric: str) -> Judge:
    """A column of sizes, by counts of the files or as their publisher states them."""

    def judge(claim: Claim, rows: Rows) -> Fields | Finding:
        known: dict[str, int] = {}
        fits = {"rounded": 0, "cut": 0}
        words: list[str] = []
        for graph in GRAPHS:
            there = table1.size_of(rows[0], graph.name, metric)
            if there is None:
                return missing(f"nobody states the {graph_runs.SIZES[metric]} of {graph.title}")
            known[PRINTED_TITLE[graph.name]] = there[0]
            printed = getattr(graph.printed, metric)
            text = claim.value[PRINTED_TITLE[graph.name]]
            fits["rounded"] += as_printed(there[0], text)
            fits["cut"] += cut_off(there[0], text)
            if not same_printed(there[0], printed):
                words.append(f"{graph.title} has {there[0]:,}, printed are {printed:,}")
        return {
            "measured": known,
            "holds": max(fits.values()) == len(GRAPHS),
            "reason": "; ".join(words),
        }

    return judge


def mean_degree_by(ends: int) -> Judge:
    """Mean degrees by one definition, of the published sizes."""

    def judge(claim: Claim, rows: Rows) -> Fields | None:
        known = {}
        for graph in GRAPHS:
            degree = table1.mean_degree(rows[0], graph.name, ends)
            if degree is None:
                return None
            known[PRINTED_TITLE[graph.name]] = round(degree, 1)
        fits = [
            same_printed(known[PRINTED_TITLE[graph.name]], graph.printed.degree) for graph in GRAPHS
        ]
        return {
            "measured": known,
            "holds": all(fits),
            "reason": f"{sum(fits)} of {len(fits)} printed degrees",
        }

    return judge


mean_degrees: Final[Check] = readings(
    **{word: says(MACHINE, mean_degree_by(ends)) for word, ends in graph_runs.DEFINITIONS.items()}
)


def cut_off(found: float, text: float | str) -> bool:
    """Return True if a number, cut to the digits of a printed one, equals it."""
    value, half = printed_number(text)
    return value <= found < value + 2 * half


def features(claim: Claim, rows: Rows) -> Finding:
    """Widths of features in the publishers' files, where these are here."""
    widths = Table.of(MACHINE(rows)).where("columns", of="edge features").numbers("dataset")
    known = {title: widths[name] for title, name in DATASET_OF.items() if name in widths}
    if len(known) < len(claim.value):
        return missing(f"{NEEDS_FILES}; what the column means is not explained")
    told: Fields = {"measured": known, "holds": known == claim.value}
    return says(MACHINE, lambda *_: told)(claim, rows)


def twitter_edges_by(same: Callable[[float, float | str], bool]) -> Judge:
    """Billion edges of Twitter, printed by one convention."""

    def judge(claim: Claim, rows: Rows) -> Fields | None:
        there = table1.size_of(rows[0], "twitter", "edges")
        if there is None:
            return None
        edges, _ = there
        return {
            "measured": edges / 1e9,
            "holds": same(edges / 1e9, claim.value),
            "reason": f"{edges:,} edges; Table 1 prints 1.47",
        }

    return judge


twitter_edges: Final[Check] = readings(
    **{
        "cut to three digits": says(MACHINE, twitter_edges_by(cut_off)),
        "rounded, as in Table 1": says(MACHINE, twitter_edges_by(as_printed)),
    }
)


def own_graphs(rows: Rows) -> bool:
    """Return True if the rows are of the paper's graphs."""
    return len(PAPERS_GRAPHS.of(rows)) == len(GRAPHS)


def side_title(row: Any, side: str) -> str:
    """A graph, and which of its vertices where there are two kinds."""
    return panel(row) + ("" if side == "all" else f" {side}")


def power_law(claim: Claim, rows: Rows) -> Fields:
    """Tails nearer to a power law than to an exponential one, on each side of each graph."""
    own = own_graphs(rows)
    said: dict[str, str] = {}
    scores = Table.of(rows).where("likelihood_z", setting=graph_runs.WHOLE)
    for one in scores:
        about = {"of": one["of"], "setting": graph_runs.WHOLE}
        least = number(one.row, "degree", method="tail", **about)
        said[side_title(one.row, one["of"])] = (
            f"exponent {number(one.row, 'tail_exponent', **about):.2f} from {least:.0f} edges on "
            f"({'nearer' if one.value > DECIDED else 'open'}"
            f"{'' if one.value > -DECIDED else ', an exponential law is nearer'})"
        )
    near = sum(z > DECIDED for z in scores.values)
    other = sum(z < -DECIDED for z in scores.values)
    return {
        "measured": said,
        "holds": near == len(scores),
        "undecided": not other and near < len(scores),
        "reason": f"a power law is nearer than an exponential one on {near} of {len(scores)} "
        f"distributions, farther on {other}"
        + ("" if own else "; other real graphs, the paper's are not here"),
    }


def shape_kept(claim: Claim, rows: Rows) -> Fields | None:
    """Vertices whose degree over the mean degree is out of place after sampling."""
    gaps = Table.of(rows).where("distribution_gap", method="halved")
    if not gaps:
        return None
    said = {side_title(one.row, one["of"]): f"{100 * one.value:.0f} %" for one in gaps}
    return {
        "measured": said,
        "holds": max(gaps.values) <= SAME,
        "reason": "vertices out of place, of degrees over their mean, which halves: small degrees "
        "cannot be halved evenly",
    }


def exponent_kept(claim: Claim, rows: Rows) -> Fields | None:
    """Exponents of the tails before and after sampling."""
    before, after = (
        {
            (one.row.id, one["of"]): one
            for one in Table.of(rows).where("tail_exponent", setting=setting)
        }
        for setting in (graph_runs.WHOLE, graph_runs.HALF)
    )
    pairs = [(before[key], after[key]) for key in before if key in after]
    if not pairs:
        return None
    return {
        "measured": {
            side_title(one.row, one["of"]): f"{one.value:.2f}, then {half.value:.2f}"
            for one, half in pairs
        },
        "holds": max(abs(half.value / one.value - 1) for one, half in pairs) <= SAME,
        "reason": f"exponents of the tails; the same is up to {SAME:.0%}",
    }


degrees_kept: Final[Check] = readings(
    **{
        "degrees over their mean": says(DEGREES, shape_kept),
        "exponent of the tail": says(DEGREES, exponent_kept),
    }
)


def testbed(claim: Claim, rows: Rows) -> Fields | Finding:
    """Check that this run is on a machine like the paper's."""
    row = rows[0]
    here = {
        "gpus": number(row, "devices"),
        "sm_per_gpu": number(row, "processors", of="device"),
        "gpu_memory_gb": round(number(row, "memory", of="device") / 2**30),
        "processors": number(row, "processors", of="host"),
        "main_memory_gb": round(number(row, "memory", of="host") / 2**30),
    }
    words = (
        f"this machine has {here['gpus']} GPUs, {here['processors']} processors, "
        f"{here['main_memory_gb']} GiB"
    )
    printed = ("sm_per_gpu", "gpu_memory_gb", "main_memory_gb")
    wanted = {"gpus": 8, **{name: claim.value[name] for name in printed}}
    if any(abs(here[key] - size) > SAME * size for key, size in wanted.items()):
        return missing(f"needs a DGX with eight V100; {words}")
    return {
        "measured": here,
        "holds": False,
        "reason": f"{words}; a V100 has 6 MB of L2 and six links, "
        f"not {claim.value['l2_kb']} KB and {claim.value['nvlink_slots_per_gpu']} slots",
    }


# What the paper quotes from other works: sections 2.3 and 2.4.

QUOTED = rows_with(cited.NAME, "needs the experiment cited", last)


def quoted(needs: str) -> Check:
    """A result of another work, which is not run again here."""
    why = f"a quoted result of another work, without its settings; needs {needs}"
    return lambda claim, rows: missing(why)


def marius_rate(claim: Claim, rows: Rows) -> Fields:
    """Check that the rate equals the edges over the hours that are quoted beside it."""
    one = next(d for d in cited.derived() if f"tgcn-{d.claim}" == claim.id)
    rate = number(rows[0], "estimate", of=one.words)
    return {
        "measured": f"{rate / 1e3:.1f}K",
        "holds": one.agrees,
        "reason": f"{values()['s1-twitter-edge-count']:g} billion edges in "
        f"{values()['s24-marius-epoch-time']:g} hours: "
        "arithmetic on two printed numbers, Marius was not run",
    }
