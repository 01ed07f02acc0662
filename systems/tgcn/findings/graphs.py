"""Findings on the graphs and the machine (Table 1), and what the paper quotes of others."""

from __future__ import annotations

from typing import Any, Final

from dgbench.lab.evidence import missing
from dgbench.lab.laws import DECIDED
from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.printed import same_printed
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import Judge, last, rows_with, says
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
        words: list[str] = []
        counted_here = True
        for graph in GRAPHS:
            there = table1.size_of(rows[0], graph.name, metric)
            if there is None:
                return missing(f"nobody states the {graph_runs.SIZES[metric]} of {graph.title}")
            known[PRINTED_TITLE[graph.name]], here = there
            counted_here = counted_here and here
            printed = getattr(graph.printed, metric)
            if not same_printed(there[0], printed):
                words.append(f"{graph.title} has {there[0]:,}, printed are {printed:,}")
        apart = bool(words)
        if not counted_here:
            words.append("counts are the publishers', their files are not here")
        # That a printed number is wrong, two sources say; that all are right, none was counted for.
        proxy = "" if counted_here else "counts that publishers state"
        return {
            "proxy": proxy, "measured": known, "holds": not apart, "reason": "; ".join(words)
        }  # fmt: skip

    return judge


def mean_degrees(claim: Claim, rows: Rows) -> Fields:
    """Check that one definition of a mean degree gives the column."""
    fits = dict.fromkeys(graph_runs.DEFINITIONS, 0)
    measured: dict[str, str] = {}
    for graph in GRAPHS:
        found = {
            word: table1.mean_degree(rows[0], graph.name, ends)
            for word, ends in graph_runs.DEFINITIONS.items()
        }
        measured[PRINTED_TITLE[graph.name]] = " or ".join(
            f"{degree:.1f}" for degree in found.values() if degree is not None
        )
        for word, ends in graph_runs.DEFINITIONS.items():
            own = ends * graph.printed.edges / graph.printed.vertices
            fits[word] += any(
                same_printed(degree, graph.printed.degree)
                for degree in (own, found[word])
                if degree is not None
            )
    words = ", ".join(f"{word} fits {count}" for word, count in fits.items())
    return {
        "measured": measured,
        "holds": max(fits.values()) == len(GRAPHS),
        "reason": f"E/V or 2 E/V of the published sizes; of {len(GRAPHS)} printed degrees {words}",
    }


def features(claim: Claim, rows: Rows) -> Finding:
    """Widths of features in the publishers' files, where these are here."""
    widths = Table.of(MACHINE(rows)).where("feature_width").numbers("dataset")
    known = {title: widths[name] for title, name in DATASET_OF.items() if name in widths}
    if len(known) < len(claim.value):
        return missing(f"{NEEDS_FILES}; what the column means is not explained")
    told: Fields = {"measured": known, "holds": known == claim.value}
    return says(MACHINE, lambda *_: told)(claim, rows)


def twitter_edges(claim: Claim, rows: Rows) -> Fields | None:
    """Billion edges of Twitter."""
    there = table1.size_of(rows[0], "twitter", "edges")
    if there is None:
        return None
    edges, here = there
    return {
        "proxy": "" if here else "the publisher's count",
        "measured": edges / 1e9,
        "holds": same_printed(edges, claim.value * 1e9),
        "reason": f"{edges:,}: cut to three digits this is 1.46, rounded as in Table 1 it is 1.47"
        + ("" if here else "; the publisher's count, its file is not here"),
    }


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
        "direction": not other and 2 * near > len(scores),
        "undecided": not other and near == 0,
        "reason": f"a power law is nearer than an exponential one on {near} of {len(scores)} "
        f"distributions, farther on {other}"
        + ("" if own else "; other real graphs, the paper's are not here"),
    }


def degrees_kept(claim: Claim, rows: Rows) -> Fields:
    """Exponents of the tails before and after, and degrees over their mean."""
    found = Table.of(rows)
    gaps, tails = (
        [0.0, *found.where("distribution_gap", method=method).values]
        for method in ("halved", "halved tail")
    )
    said: dict[str, str] = {}
    bends = [0.0]
    before, after = (
        {(one.row.id, one["of"]): one for one in found.where("tail_exponent", setting=setting)}
        for setting in (graph_runs.WHOLE, graph_runs.HALF)
    )
    for key in (key for key in before if key in after):
        whole, half = before[key], after[key]
        bends.append(abs(half.value / whole.value - 1))
        name = side_title(whole.row, whole["of"])
        said[name] = f"exponent {whole.value:.2f}, then {half.value:.2f}"
    return {
        "measured": said,
        "holds": max(*bends, *gaps) <= SAME,
        "reason": f"the mean degree halves; exponents move by up to {100 * max(bends):.0f} %, and "
        f"of degrees over their mean up to {100 * max(gaps):.0f} % of the vertices are out of "
        f"place, {100 * max(tails):.0f} % in the tails: small degrees cannot be halved evenly",
    }


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
        "reason": f"{words}; a V100 has 6 MB of L2 and six links, not 768 KB and four slots",
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
    rate = number(rows[0], "derived_number", of=one.words)
    return {
        "measured": f"{rate / 1e3:.1f}K",
        "holds": one.agrees,
        "reason": f"{values()['s1-twitter-edge-count']:g} billion edges in "
        f"{values()['s24-marius-epoch-time']:g} hours: "
        "arithmetic on two printed numbers, Marius was not run",
    }
