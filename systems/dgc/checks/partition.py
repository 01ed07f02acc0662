"""Claims on chunks, on what models send, and on what partition and fusion cost."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dgbench.lab.paper import Evidence
from dgbench.lab.table import Table
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.dgc.checks.common import (
    any_graph,
    finding,
    missing,
    of_the_paper,
    some,
    strength,
)
from dgbench.systems.dgc.experiments.common import number
from dgbench.systems.dgc.experiments.fig17 import PARTITIONING, overhead, overheads, parts_of
from dgbench.systems.dgc.experiments.partition import WORKERS
from dgbench.systems.dgc.experiments.settings import BY_NAME, GRAPHS, MODEL_TITLES, MODELS

TGCN = "tgcn_2layer"
NONE = "no partition was counted in this run: the experiment 'partition' did not run"
NO_COST = "the experiment 'fig17' did not run on the paper's graphs"
FAR_BELOW = 0.1
"""Share of the training time below which a cost is far below it."""
ABOUT = 0.5
"""How far, relative, a share of about 4 % may be off."""

Rows = Sequence[Any]


def equivalence(claim: Claim, rows: Rows) -> Finding:
    """Weight inside chunks and between them, summed apart, against all weight."""
    same, found = [], Table.of(rows, experiment="partition_ablation").where("edge_weight")
    for row in found.rows:
        weight = number(row, "edge_weight")
        parts = Table.of([row]).where("edge_weight", of=("inside", "between"))
        same += [sum(of.values) == weight for of in parts.by("setting").values()]
    if not same:
        return missing("the experiment 'partition_ablation' did not run")
    return finding(
        found.rows,
        evidence="counted",
        measured=f"constant in {sum(same)} of {len(same)} partitions",
        holds=all(same),
        reason="profiled weights, each edge once",
    )


@any_graph
def spatial_twice(claim: Claim, rows: Rows) -> Finding:
    """Exchanges of a forward pass of the T-GCN model under chunks."""
    found = _counted(rows)
    if not found:
        return missing(NONE)
    dims = {"model": "tgcn_2layer", "ranks": WORKERS[0], "method": "chunks"}
    exchanges = Table.of(found).where("exchanges", **dims)
    counts = {kind: set(of.values) for kind, of in exchanges.by("of").items()}
    return finding(
        found,
        evidence="counted",
        measured={kind: max(numbers) for kind, numbers in counts.items()},
        holds=all(numbers == {claim.value[kind]} for kind, numbers in counts.items()),
        reason="the first reads the input and could be kept; weights count floats, not exchanges",
    )


@any_graph
def spatial_more(claim: Claim, rows: Rows) -> Finding:
    """Spatial over temporal bytes of the T-GCN model under chunks, on real data where there is."""
    found = _deciding(rows)
    if not found:
        return missing(NONE)
    ratios = {}
    for row in found:
        for size in WORKERS:
            sent = {
                of: number(row, "exchanged", of=of, model=TGCN, ranks=size, method="chunks")
                for of in ("spatial", "temporal")
            }
            ratios[row.params["dataset"], size] = (
                sent["spatial"] / sent["temporal"] if sent["temporal"] else float("inf")
            )
    more = [ratio > 1 for ratio in ratios.values()]
    return finding(
        found,
        evidence=_evidence(found),
        measured={
            f"{BY_NAME[name].title}, P = {size}": round(ratio, 3)
            for (name, size), ratio in ratios.items()
        },
        holds=all(more),
        direction=sum(more) * 2 > len(more),
        reason=(
            "spatial over temporal bytes between chunks; a cut edge of a snapshot costs 3 times a "
            f"cut in time, so the partition cuts in time; {_names(found)}"
        ),
    )


@any_graph
def attention_neighbours(claim: Claim, rows: Rows) -> Finding:
    """Steps of its entity that a vertex-step needs from other workers, snapshots dealt in turn."""
    found = _counted(rows)
    if not found:
        return missing(NONE)
    size = WORKERS[-1]
    table = Table.of(found)
    needed = table.where("remote_steps", ranks=size, method="snapshots").by("model")
    gru, heard = set(needed[TGCN].values), needed["dysat"].values
    longest = table.where("vertex_steps", of="longest").values
    # All but those of the own worker, which has every P-th.
    wanted = [steps - max(1, steps // size) for steps in longest]
    return finding(
        found,
        evidence="counted",
        measured={"GRU": max(gru), "attention": max(heard)},
        holds=gru == {1} and heard == wanted and max(heard) > 1,
        reason=(
            f"most counterparts at other workers, {size} workers with every {size}-th snapshot; "
            f"sequences have up to {some(max(longest), 'step')}"
        ),
    )


@any_graph
def mpnn_more(claim: Claim, rows: Rows) -> Finding:
    """Bytes of the three models under chunks, and how far PSS-TS lies above."""
    found = _deciding(rows)
    if not found:
        return missing(NONE)
    most, narrow = [], []
    shown: dict[str, str] = {}
    for row in found:
        for size in WORKERS:
            case = Table.of([row]).where("exchanged", of=None, ranks=size)
            sent, both = (case.where(method=of).numbers("model") for of in ("chunks", "both"))
            gaps = {m: both[m] / sent[m] if sent[m] else float("inf") for m in MODELS}
            most.append(sent["mpnn_lstm_bare"] == max(sent.values()))
            narrow.append(gaps["mpnn_lstm_bare"] == min(gaps.values()))
            shown[f"{BY_NAME[row.params['dataset']].title}, P = {size}"] = ", ".join(
                f"{MODEL_TITLES[m]} {sent[m] / 1e6:.3g} MB (PSS-TS {gaps[m]:.3g}x)" for m in MODELS
            )
    return finding(
        found,
        evidence=_evidence(found),
        measured=shown,
        holds=all(most) and all(narrow),
        direction=sum(most) * 2 > len(most) and sum(narrow) * 2 > len(narrow),
        reason=(
            f"MPNN-LSTM sends most in {sum(most)} of {len(most)} cases and has the narrowest gap "
            f"in {sum(narrow)}; bytes, not time; {_names(found)}"
        ),
    )


def cost(claim: Claim, rows: Rows) -> Finding:
    """Partition and fusion, % of a training job of 100 epochs, averaged over graphs."""
    found = overheads(rows)
    if not found:
        return missing(NO_COST)
    shares = [100 * overhead(row) for row in found]
    mean = fmean(shares)
    made = finding(
        found,
        evidence=strength(found),
        measured=mean,
        holds=abs(mean / claim.value - 1) <= ABOUT,
        direction=mean < 100 * FAR_BELOW,
        target=float(claim.value),
        reason="processor time of one core; an epoch is the work of all workers together",
    )
    made.low, made.high = min(shares), max(shares)
    return made


def amazon_generation(claim: Claim, rows: Rows) -> Finding:
    """Amazon's rank in seconds of generation and of assignment among the paper's four."""
    found = overheads(rows)
    names = {row.params["dataset"] for row in found}
    if not {graph.name for graph in GRAPHS} <= names:
        return missing(NO_COST)
    seconds = {
        part: Table.of(found).where("preparation_time", phase=part).numbers("dataset")
        for part in ("generation", "assignment")
    }
    lowest = seconds["generation"]["amazon"] == min(seconds["generation"].values())
    others = [s for name, s in seconds["assignment"].items() if name != "amazon"]
    high = seconds["assignment"]["amazon"] > fmean(others)
    return finding(
        found,
        evidence=strength(found),
        measured={
            part: {BY_NAME[name].title: round(s, 6) for name, s in by.items()}
            for part, by in seconds.items()
        },
        holds=lowest and high,
        direction=lowest or high,
        reason="seconds; a twin's size is its scale's, not the graph's",
    )


def fusion_larger(claim: Claim, rows: Rows) -> Finding:
    """Seconds of fusion over those of partitioning, and fusion's share of training."""
    found = overheads(rows)
    if not found:
        return missing(NO_COST)
    seconds = [(row, parts_of(row)) for row in found]
    larger = [s["fusion"] > sum(s[part] for part in PARTITIONING) for _, s in seconds]
    # Without our refinement, which the paper's partitioning does not have.
    plain = [s["fusion"] > s["generation"] + s["assignment"] for _, s in seconds]
    small = [overhead(row, ("fusion",)) < FAR_BELOW for row in found]
    return finding(
        found,
        evidence=strength(found),
        measured={
            BY_NAME[row.params["dataset"]].title: (
                f"partitioning {sum(s[part] for part in PARTITIONING):.3g} s, "
                f"fusion {s['fusion']:.3g} s, "
                f"{100 * overhead(row, ('fusion',)):.2g} % of training"
            )
            for row, s in seconds
        },
        holds=all(larger) and all(small),
        direction=all(small) and sum(plain) * 2 > len(plain),
        reason=(
            f"fusion takes longer in {sum(larger)} of {len(larger)} graphs, without our refinement "
            f"in {sum(plain)}"
        ),
    )


@any_graph
def once(claim: Claim, rows: Rows) -> Finding:
    """Partitions made in a training job of several epochs, and epochs timed without them."""
    found = overheads(rows)
    if not found:
        return missing("the experiment 'fig17' did not run")
    made = set(Table.of(found).where("partitions").values)
    epochs = min(Table.of(found).where("epochs").values)
    return finding(
        found,
        evidence="counted",
        measured="once" if made == {1} else f"{max(made)} times",
        holds=made == {1} and epochs > 1,
        reason=f"partitions made while a job of at least {some(epochs, 'epoch')} ran",
    )


def _counted(rows: Rows) -> list[Any]:
    sent = Table.of(rows, experiment="partition").where("exchanged", of=None, method="chunks")
    every = {(model, size) for model in MODELS for size in WORKERS}
    return [row for row in sent.rows if every <= {*_of_row(sent, row).by("model", "ranks")}]


def _of_row(found: Table, row: Any) -> Table:
    return Table(one for one in found if one.row is row)


def _deciding(rows: Rows) -> list[Any]:
    """Rows of real data, else of twins: what a partition cuts, a twin may not decide."""
    found = _counted(rows)
    return [row for row in found if not row.data.get("twin")] or found


def _evidence(rows: Rows) -> Evidence:
    return "counted" if all(of_the_paper(row) for row in rows) else "analogue"


def _names(rows: Rows) -> str:
    return "counted on " + ", ".join(BY_NAME[row.params["dataset"]].title for row in rows)


CHECKS: dict[str, Check] = {
    "dgc-s41-equivalence": equivalence,
    "dgc-s41-spatial-weight-twice": spatial_twice,
    "dgc-s72-tgcn-spatial-more": spatial_more,
    "dgc-s72-attention-neighbours": attention_neighbours,
    "dgc-s72-mpnn-more-comm": mpnn_more,
    "dgc-fig17-overhead": cost,
    "dgc-fig17-amazon-gen": amazon_generation,
    "dgc-fig17-fusion-larger": fusion_larger,
    "dgc-s75-partition-once": once,
}
