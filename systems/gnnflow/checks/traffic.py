"""Claims on feature traffic and on what rounds have in common (2.2, 4.3, Tables 3 and 4, Figure 5).

Counts are exact, but the paper's graphs are twins here: limits of what those may decide are applied
to the findings later. What held graphs show stands beside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from dgbench.lab.evidence import finding, missing, some
from dgbench.lab.printed import ledger
from dgbench.lab.table import Table, rows_of
from dgbench.lab.verbs import readings
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.gnnflow.experiments.fig5 import KINDS, law, law_z
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    DATASET_OF,
    LEDGER,
    MODEL_OF,
    MODEL_TITLES,
    MODELS,
    PAPERS_GRAPHS,
)
from dgbench.systems.gnnflow.experiments.table4 import common

Rows = Sequence[Any]

WITHIN: Final = 5.0
"""Tolerance of a share against a printed one, in points."""
HALF: Final = 50.0
"""Percent above which a share is most of the traffic."""
COUNTING: Final = {"once a batch": "unique memory", "every sample": "requests memory"}
"""Readings of Table 3, by the setting of its rows."""
LAWS: Final = ("power law", "exponential")
"""Laws of nodes and of edges that the paper finds."""
TASKS: Final = {
    "from events": "link", "from all vertices": "vertex", "from a tenth of them": "tenth",
}  # fmt: skip
"""Tasks that a static model may be trained on, by the setting of the rows."""
SKEWED: Final = 0.5
"""Gini index of an exponential law: a skewed one has more."""


def shares(rows: Rows, which: str) -> dict[tuple[str, str], tuple[float, Any]]:
    """Edge share in percent and row, by dataset and model."""
    found = Table.of(rows, experiment="table3").where("portion", setting=which)
    return {(one["dataset"], one["model"]): (100 * one.value, one.row) for one in found}


def by_counting(judge: Callable[[Claim, Rows, str], Finding]) -> Check:
    """A check under both readings of Table 3: what repeats in a batch counts once, or each time.

    Node memories are counted in both, as the text says so.
    """
    return readings(
        "the paper does not say whether what repeats in a batch is fetched once",
        **{name: partial(_counted, judge, which) for name, which in COUNTING.items()},
    )


def _counted(
    judge: Callable[[Claim, Rows, str], Finding], which: str, claim: Claim, rows: Rows
) -> Finding:
    return judge(claim, rows, which)


def _edge_share(claim: Claim, rows: Rows, which: str) -> Finding:
    model = MODEL_OF[claim.workload["model"]]
    found = shares(rows, which)
    keys = {title: (DATASET_OF[title], model) for title in claim.value}
    if not all(key in found for key in keys.values()):
        return missing("the experiment 'table3' did not run on all graphs of the table")
    ours = {title: found[key][0] for title, key in keys.items()}
    off = {title: ours[title] - float(printed) for title, printed in claim.value.items()}
    return finding(
        [found[key][1] for key in keys.values()],
        measured={title: round(value, 1) for title, value in ours.items()},
        holds=max(map(abs, off.values())) <= WITHIN,
        direction=_same_order(ours, claim.value),
        reason="off by "
        + ", ".join(f"{gap:+.1f} ({title})" for title, gap in off.items())
        + " points",
    )


def _same_order(ours: Mapping[str, float], printed: Mapping[str, Any]) -> bool:
    """Return True if graphs lie in the printed order."""
    return sorted(ours, key=ours.__getitem__) == sorted(printed, key=printed.__getitem__)


def _lowest_share() -> float:
    """The lowest share of edge features on the dense graphs in Table 3, %."""
    columns = [ledger(LEDGER)[f"tab3-{model}"] for model in MODELS]
    return min(column[title] for column in columns for title in ("Reddit", "GDELT"))


def _dense_range(claim: Claim, rows: Rows, which: str) -> Finding:
    names = [DATASET_OF[title] for title in claim.workload["datasets"]]
    found = {key: one for key, one in shares(rows, which).items() if key[0] in names}
    if len({key[0] for key in found}) < len(names):
        return missing("the experiment 'table3' did not run on Reddit and GDELT")
    low, high = (pick(value for value, _ in found.values()) for pick in (min, max))
    printed = claim.value
    at = min(found, key=lambda key: found[key][0])
    return finding(
        list({row.id: row for _, row in found.values()}.values()),
        measured={"low": round(low, 1), "high": round(high, 1)},
        holds=abs(low - printed["low"]) <= WITHIN and abs(high - printed["high"]) <= WITHIN,
        direction=printed["low"] - WITHIN <= low and high <= printed["high"] + WITHIN,
        reason=f"lowest for {MODEL_TITLES[at[1]]} on {BY_NAME[at[0]].title}; Table 3 prints "
        f"{_lowest_share()} as its lowest share; the direction is that all lie in the printed "
        "range",
    )


def _dense_above_sparse(claim: Claim, rows: Rows, which: str) -> Finding:
    found = shares(rows, which)
    names = ("reddit", "gdelt", "netflix")
    if any((name, model) not in found for name in names for model in MODELS):
        return missing("the experiment 'table3' did not run on Reddit, GDELT and Netflix")
    dense = {m: min(found["reddit", m][0], found["gdelt", m][0]) for m in MODELS}
    sparse = {m: found["netflix", m][0] for m in MODELS}
    others = [r for r in rows_of(rows, experiment="table3") if r.params["dataset"] not in names]
    words = ", ".join(
        f"{BY_NAME[r.params['dataset']].title} "
        f"{min(found[r.params['dataset'], m][0] for m in MODELS):.0f}"
        for r in others
    )
    return finding(
        [found[name, MODELS[0]][1] for name in names],
        measured={MODEL_TITLES[m]: f"{dense[m]:.0f} % and {sparse[m]:.0f} %" for m in MODELS},
        holds=all(dense[m] > HALF >= sparse[m] for m in MODELS),
        direction=all(dense[m] > max(HALF, sparse[m]) for m in MODELS),
        reason="the lower of Reddit and GDELT, and Netflix"
        + (f"; lowest on real graphs, %: {words}" if words else ""),
    )


edge_share = by_counting(_edge_share)
"""Shares of one model within five points of the printed ones; the direction is their order."""
dense_range = by_counting(_dense_range)
"""Range of shares over the dense graphs and all models against the printed range."""
dense_above_sparse = by_counting(_dense_above_sparse)
"""Reddit and GDELT above half, Netflix below, for every model; the direction is the order."""


def jaccard(claim: Claim, rows: Rows) -> Finding:
    """Jaccard's index of one kind within five points of the printed ones."""
    kind = "node" if "node" in claim.id else "edge"
    found = {row.params["dataset"]: row for row in rows_of(rows, experiment="table4")}
    named = {title: found.get(DATASET_OF[title]) for title in claim.value}
    if None in named.values():
        return missing("the experiment 'table4' did not run on all graphs of the table")
    ours = {title: common(row, kind) for title, row in named.items()}
    off = {title: ours[title] - float(printed) for title, printed in claim.value.items()}
    return finding(
        list(named.values()),
        measured={title: round(value, 1) for title, value in ours.items()},
        holds=max(map(abs, off.values())) <= WITHIN,
        direction=_same_order(ours, claim.value),
        reason="off by "
        + ", ".join(f"{gap:+.1f} ({title})" for title, gap in off.items())
        + " points",
    )


def nodes_above_edges(claim: Claim, rows: Rows) -> Finding:
    """Nodes more alike than edges, on the paper's graphs and on held ones."""
    found = rows_of(rows, experiment="table4")
    mine = PAPERS_GRAPHS.of(found)
    if len(mine) < len(claim.workload["datasets"]):
        return missing("the experiment 'table4' did not run on all graphs of the table")
    above = [row for row in found if common(row, "node") > common(row, "edge")]
    real = [row for row in found if row not in mine]
    return finding(
        mine,
        measured=f"on {len(above)} of {some(len(found), 'graph')}",
        holds=all(row in above for row in mine),
        reason=f"on {sum(row in above for row in real)} of {some(len(real), 'real graph')}, too",
    )


def already_cached(claim: Claim, rows: Rows) -> Finding:
    """Check the share that a re-initialised cache would load and holds already, nodes far above
    edges."""
    found = rows_of(rows, experiment="table4")
    if not found:
        return missing("the experiment 'table4' did not run")
    ours = {
        kind: {r.params["dataset"]: common(r, kind, "already cached") for r in found}
        for kind in KINDS
    }
    near = [
        name
        for name in ours["node"]
        if all(abs(ours[k][name] - float(claim.value[k])) <= WITHIN for k in KINDS)
    ]
    ranges = {k: f"{min(v.values()):.0f} to {max(v.values()):.0f} %" for k, v in ours.items()}
    return finding(
        found,
        measured=ranges,
        holds=len(near) == len(ours["node"]),
        direction=all(ours["node"][name] > ours["edge"][name] for name in ours["node"]),
        reason="Table 4, to which the text points, holds no such pair of numbers"
        + (f"; near it on {', '.join(BY_NAME[n].title for n in near)}" if near else ""),
    )


def access_law(claim: Claim, rows: Rows) -> Finding:
    """The nearer law of TGAT's accesses by Vuong's test, on every real graph.

    The twin of Reddit draws its degrees from a power law, so that it stands in the reason only.
    """
    kind = "node" if "node" in claim.id else "edge"
    model = MODEL_OF[claim.workload["model"][0]]
    every = rows_of(rows, experiment="fig5")
    found = [row for row in every if not row.data.get("twin")]
    if not found:
        return missing("the experiment 'fig5' did not run on a real graph")
    seen = {BY_NAME[r.params["dataset"]].title: law(r, model, kind) for r in found}
    beside = [
        f"{BY_NAME[r.params['dataset']].title} (twin): {law(r, model, kind)}"
        for r in every
        if r not in found
    ]
    scores = ", ".join(f"{law_z(r, model, kind):.1f}" for r in found)
    return finding(
        found,
        measured=seen,
        holds=all(one == claim.value for one in seen.values()),
        undecided=_open(seen.values(), str(claim.value)),
        reason=f"Vuong's z is {scores}, above 0 for a power law"
        + "".join(f"; {one}" for one in beside),
    )


def _open(seen: Iterable[str], wanted: str) -> bool:
    """Return True if no law is another than the wanted one, and some are not told apart."""
    laws = set(seen)
    return "neither" in laws and laws <= {"neither", wanted}


def other_workloads(claim: Claim, rows: Rows) -> Finding:
    """Power law of nodes and exponential law of edges, for TGN and TGAT on the graphs named."""
    named = {name.lower() for name in claim.workload["datasets"]}
    found = [r for r in rows_of(rows, experiment="fig5")
             if r.params["dataset"] in named and not r.data.get("twin")]  # fmt: skip
    if not found:
        return missing("needs real data: Wikipedia, MOOC, LastFM or GDELT")
    models = ("tgn", "tgat")
    seen = {
        f"{MODEL_TITLES[m]} on {BY_NAME[r.params['dataset']].title}": (
            law(r, m, "node"), law(r, m, "edge"),
        )
        for r in found
        for m in models
    }  # fmt: skip
    good = [name for name, pair in seen.items() if pair == LAWS]
    apart = [
        name
        for name, pair in seen.items()
        if any(one not in ("neither", wanted) for one, wanted in zip(pair, LAWS, strict=True))
    ]
    return finding(
        found,
        measured=f"{len(good)} of {len(seen)} workloads",
        holds=len(good) == len(seen),
        undecided=len(good) < len(seen) and not apart,
        reason="; ".join(f"{name}: nodes {n}, edges {e}" for name, (n, e) in seen.items()),
    )


def _skew(task: str, claim: Claim, rows: Rows) -> Finding:
    found = [r for r in rows_of(rows, experiment="fig5") if not r.data.get("twin")]
    index = Table.of(found).where("gini_index", model="graphsage", of="edge", task=task)
    if not index:
        return missing("the experiment 'fig5' did not run on a real graph")
    values = index.values
    return finding(
        index.rows,
        measured=f"{min(values):.2f} to {max(values):.2f}",
        holds=min(values) > SKEWED,
        reason=f"Gini index over all edges of {some(len(values), 'real graph')}; an exponential "
        f"law has {SKEWED}",
    )


static_skew = readings(
    "the paper does not name the task",
    **{name: partial(_skew, task) for name, task in TASKS.items()},
)
"""GraphSAGE's accesses of edges less even than an exponential law, by what it is trained on."""
