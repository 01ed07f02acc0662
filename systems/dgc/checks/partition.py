"""Claims on chunks, on what models send, and on what partition and fusion cost."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dgbench.lab.evidence import any_graph, some
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import asking
from dgbench.systems.base import Claim
from dgbench.systems.dgc.experiments.common import by_row
from dgbench.systems.dgc.experiments.fig17 import PARTITIONING, overhead, overheads, parts_of
from dgbench.systems.dgc.experiments.partition import WORKERS
from dgbench.systems.dgc.experiments.settings import (
    BY_NAME,
    GRAPHS,
    MODEL_TITLES,
    MODELS,
)

TGCN = "tgcn_2layer"
NONE = "no partition was counted in this run: the experiment 'partition' did not run"
NO_COST = "the experiment 'fig17' did not run on the paper's graphs"
FAR_BELOW = 0.1
"""Share of the training time below which a cost is far below it."""
ABOUT = 0.5
"""Relative tolerance for a share of about 4 %."""

Rows = Sequence[Any]
Said = dict[str, Any]


def _counted(rows: Rows) -> list[Any]:
    """Rows that hold all models under chunks for all numbers of workers."""
    sent = Table.of(rows, experiment="partition").where("exchanged", of=None, method="chunks")
    every = {(model, size) for model in MODELS for size in WORKERS}
    return [mine[0].row for mine in by_row(sent) if every <= {*mine.by("model", "ranks")}]


def _deciding(rows: Rows) -> list[Any]:
    """Rows of real data, else of twins: what a partition cuts, a twin may not decide."""
    found = _counted(rows)
    return [row for row in found if not row.data.get("twin")] or found


def _case(row: Any, size: int) -> str:
    return f"{BY_NAME[row.params['dataset']].title}, P = {size}"


def _names(rows: Rows) -> str:
    return "counted on " + ", ".join(BY_NAME[row.params["dataset"]].title for row in rows)


@asking(
    lambda rows: Table.of(rows, experiment="partition_ablation").where("edge_weight"),
    "the experiment 'partition_ablation' did not run",
)
def equivalence(claim: Claim, found: Table) -> Said:
    """Weight inside chunks and between them, summed apart, against all weight."""
    same = [
        sum(parts.values) == mine.where(of=None).one().value
        for mine in by_row(found)
        for parts in mine.where(of=("inside", "between")).by("setting").values()
    ]
    return {
        "measured": f"constant in {sum(same)} of {len(same)} partitions",
        "holds": all(same),
        "reason": "profiled weights, each edge once",
    }


@any_graph
@asking(_counted, NONE)
def spatial_twice(claim: Claim, found: Rows) -> Said:
    """Exchanges of a forward pass of the T-GCN model under chunks."""
    exchanges = Table.of(found).where("exchanges", model=TGCN, ranks=WORKERS[0], method="chunks")
    counts = {kind: set(of.values) for kind, of in exchanges.by("of").items()}
    return {
        "measured": {kind: max(numbers) for kind, numbers in counts.items()},
        "holds": all(numbers == {claim.value[kind]} for kind, numbers in counts.items()),
        "reason": "the first reads the input and could be kept; weights count floats, not "
        "exchanges",
    }


@any_graph
@asking(_deciding, NONE)
def spatial_more(claim: Claim, found: Rows) -> Said:
    """Spatial over temporal bytes of the T-GCN model under chunks, on real data where there is."""
    ratios = {}
    for row in found:
        chunks = Table.of([row]).where("exchanged", model=TGCN, method="chunks")
        for size in WORKERS:
            sent = chunks.where(ranks=size).numbers("of")
            temporal = sent["temporal"]
            ratios[_case(row, size)] = sent["spatial"] / temporal if temporal else float("inf")
    more = [ratio > 1 for ratio in ratios.values()]
    return {
        "measured": {case: round(ratio, 3) for case, ratio in ratios.items()},
        "holds": all(more),
        "direction": sum(more) * 2 > len(more),
        "reason": "spatial over temporal bytes between chunks; a cut edge of a snapshot costs 3 "
        f"times a cut in time, so the partition cuts in time; {_names(found)}",
    }


@any_graph
@asking(_counted, NONE)
def attention_neighbours(claim: Claim, found: Rows) -> Said:
    """Steps of its entity that a vertex-step needs from other workers, snapshots dealt in turn."""
    table, size = Table.of(found), WORKERS[-1]
    needed = table.where("remote_steps", ranks=size, method="snapshots").by("model")
    gru, heard = set(needed[TGCN].values), needed["dysat"].values
    longest = table.where("vertex_steps", of="longest").values
    # All but those of the own worker, which has every P-th.
    wanted = [steps - max(1, steps // size) for steps in longest]
    return {
        "measured": {"GRU": max(gru), "attention": max(heard)},
        "holds": gru == {1} and heard == wanted and max(heard) > 1,
        "reason": f"most counterparts at other workers, {size} workers with every {size}-th "
        f"snapshot; sequences have up to {some(int(max(longest)), 'step')}",
    }


@any_graph
@asking(_deciding, NONE)
def mpnn_more(claim: Claim, found: Rows) -> Said:
    """Bytes of the three models under chunks, and how far PSS-TS lies above."""
    most, narrow = [], []
    shown: dict[str, str] = {}
    for row in found:
        for size in WORKERS:
            case = Table.of([row]).where("exchanged", of=None, ranks=size)
            sent, both = (case.where(method=of).numbers("model") for of in ("chunks", "both"))
            gaps = {m: both[m] / sent[m] if sent[m] else float("inf") for m in MODELS}
            most.append(sent["mpnn_lstm_bare"] == max(sent.values()))
            narrow.append(gaps["mpnn_lstm_bare"] == min(gaps.values()))
            shown[_case(row, size)] = ", ".join(
                f"{MODEL_TITLES[m]} {sent[m] / 1e6:.3g} MB (PSS-TS {gaps[m]:.3g}x)" for m in MODELS
            )
    return {
        "measured": shown,
        "holds": all(most) and all(narrow),
        "direction": sum(most) * 2 > len(most) and sum(narrow) * 2 > len(narrow),
        "reason": f"MPNN-LSTM sends most in {sum(most)} of {len(most)} cases and has the narrowest "
        f"gap in {sum(narrow)}; bytes, not time; {_names(found)}",
    }


@asking(overheads, NO_COST)
def cost(claim: Claim, found: Rows) -> Said:
    """Partition and fusion, % of a training job of 100 epochs, averaged over graphs."""
    shares = [100 * overhead(row) for row in found]
    mean = fmean(shares)
    return {
        "measured": mean,
        "low": min(shares),
        "high": max(shares),
        "holds": abs(mean / claim.value - 1) <= ABOUT,
        "direction": mean < 100 * FAR_BELOW,
        "target": float(claim.value),
        "reason": "processor time of one core; an epoch is the work of all workers together",
    }


def _all_four(rows: Rows) -> list[Any]:
    found = overheads(rows)
    names = {row.params["dataset"] for row in found}
    return found if {graph.name for graph in GRAPHS} <= names else []


@asking(_all_four, NO_COST)
def amazon_generation(claim: Claim, found: Rows) -> Said:
    """Amazon's rank in seconds of generation and of assignment among the paper's four."""
    seconds = {
        part: Table.of(found).where("preparation_time", phase=part).numbers("dataset")
        for part in ("generation", "assignment")
    }
    lowest = seconds["generation"]["amazon"] == min(seconds["generation"].values())
    others = [s for name, s in seconds["assignment"].items() if name != "amazon"]
    high = seconds["assignment"]["amazon"] > fmean(others)
    return {
        "measured": {
            part: {BY_NAME[name].title: round(s, 6) for name, s in by.items()}
            for part, by in seconds.items()
        },
        "holds": lowest and high,
        "direction": lowest or high,
        "reason": "seconds; a twin's size is its scale's, not the graph's",
    }


@asking(overheads, NO_COST)
def fusion_larger(claim: Claim, found: Rows) -> Said:
    """Seconds of fusion over those of partitioning, and fusion's share of training."""
    seconds = [(row, parts_of(row)) for row in found]
    larger = [s["fusion"] > sum(s[part] for part in PARTITIONING) for _, s in seconds]
    # Without our refinement, which the paper's partitioning does not have.
    plain = [s["fusion"] > s["generation"] + s["assignment"] for _, s in seconds]
    small = [overhead(row, ("fusion",)) < FAR_BELOW for row in found]
    return {
        "measured": {
            BY_NAME[row.params["dataset"]].title: (
                f"partitioning {sum(s[part] for part in PARTITIONING):.3g} s, "
                f"fusion {s['fusion']:.3g} s, "
                f"{100 * overhead(row, ('fusion',)):.2g} % of training"
            )
            for row, s in seconds
        },
        "holds": all(larger) and all(small),
        "direction": all(small) and sum(plain) * 2 > len(plain),
        "reason": f"fusion takes longer in {sum(larger)} of {len(larger)} graphs, without our "
        f"refinement in {sum(plain)}",
    }


@any_graph
@asking(overheads, "the experiment 'fig17' did not run")
def once(claim: Claim, found: Rows) -> Said:
    """Partitions made in a training job of several epochs, and epochs timed without them."""
    made = {number(row, "partitions") for row in found}
    epochs = min(number(row, "epochs") for row in found)
    return {
        "measured": "once" if made == {1} else f"{max(made)} times",
        "holds": made == {1} and epochs > 1,
        "reason": f"partitions made while a job of at least {some(epochs, 'epoch')} ran",
    }
