"""Claims on chunks, on what models send, and on what partition and fusion cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, Final

from dgbench.lab.evidence import some
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import asking
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.dgc.experiments.common import by_row
from dgbench.systems.dgc.experiments.fig17 import (
    PARTITIONING,
    PUBLISHED,
    overhead,
    overheads,
    parts_of,
)
from dgbench.systems.dgc.experiments.partition import WORKERS
from dgbench.systems.dgc.experiments.partition_rows import LABELS_ONCE
from dgbench.systems.dgc.experiments.settings import (
    BY_NAME,
    MODEL_TITLES,
    MODELS,
    PAPERS_GRAPHS,
    standing_in,
)

TGCN = "tgcn_2layer"
NONE = "no partition was counted in this run: the experiment 'partition' did not run"
NO_COST = "the experiment 'fig17' did not run"
FAR_BELOW = 0.1
"""Share of the training time below which a cost is far below it."""

Rows = Sequence[Any]
Said = dict[str, Any]


def _counted(rows: Rows, method: str = "chunks") -> list[Any]:
    """Rows that hold all models under chunks for all numbers of workers."""
    sent = Table.of(rows, experiment="partition").where("exchanged", of=None, method=method)
    every = {(model, size) for model in MODELS for size in WORKERS}
    return [mine[0].row for mine in by_row(sent) if every <= {*mine.by("model", "ranks")}]


def _deciding(method: str) -> Callable[[Rows], list[Any]]:
    """Rows of real data, else of twins: what a partition cuts, a twin may not decide."""

    def select(rows: Rows) -> list[Any]:
        found = _counted(rows, method)
        return [row for row in found if not row.data.get("twin")] or found

    return select


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


def spatial_by(method: str) -> Check:
    """Spatial over temporal bytes of the T-GCN model under chunks, on real data where there is."""

    @asking(_deciding(method), NONE)
    def check(claim: Claim, found: Rows) -> Said:
        ratios = {}
        for row in found:
            chunks = Table.of([row]).where("exchanged", model=TGCN, method=method)
            for size in WORKERS:
                sent = chunks.where(ranks=size).numbers("of")
                temporal = sent["temporal"]
                ratios[_case(row, size)] = sent["spatial"] / temporal if temporal else float("inf")
        more = [ratio > 1 for ratio in ratios.values()]
        return {
            "measured": {case: round(ratio, 3) for case, ratio in ratios.items()},
            "holds": all(more),
            "reason": f"spatial over temporal bytes between chunks, more in {sum(more)} of "
            f"{len(more)} cases; a cut edge of a snapshot costs 3 times a cut in time, so the "
            f"partition cuts in time; {_names(found)}",
        }

    return check


def published(make: Callable[[str], Check]) -> Check:
    """A check of the paper's chunks, whose labels are propagated once; of those with our refinement
    in rows from before the paper's were counted."""

    def check(claim: Claim, rows: Rows) -> Finding:
        found = make(LABELS_ONCE)(claim, rows)
        if not found.empty:
            return found
        former = make("chunks")(claim, rows)
        if former.reason and not former.empty:
            former.reason = f"{former.reason}; chunks with our refinement, as counted before"
        return former

    return check


spatial_more: Final = published(spatial_by)


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


def mpnn_by(method: str) -> Check:
    """Bytes of the three models under chunks, and how far PSS-TS lies above."""

    @asking(_deciding(method), NONE)
    def check(claim: Claim, found: Rows) -> Said:
        most, narrow = [], []
        shown: dict[str, str] = {}
        for row in found:
            for size in WORKERS:
                case = Table.of([row]).where("exchanged", of=None, ranks=size)
                sent, both = (case.where(method=of).numbers("model") for of in (method, "both"))
                gaps = {m: both[m] / sent[m] if sent[m] else float("inf") for m in MODELS}
                most.append(sent["mpnn_lstm_bare"] == max(sent.values()))
                narrow.append(gaps["mpnn_lstm_bare"] == min(gaps.values()))
                shown[_case(row, size)] = ", ".join(
                    f"{MODEL_TITLES[m]} {sent[m] / 1e6:.3g} MB (PSS-TS {gaps[m]:.3g}x)"
                    for m in MODELS
                )
        return {
            "measured": shown,
            "holds": all(most) and all(narrow),
            "proxy": "bytes for the time of communication",
            "reason": f"MPNN-LSTM sends most in {sum(most)} of {len(most)} cases and has the "
            f"narrowest gap in {sum(narrow)}; {_names(found)}",
        }

    return check


mpnn_more: Final = published(mpnn_by)


def _all_or_real(rows: Rows) -> list[Any]:
    """Rows of Figure 17: of the paper's graphs where they are held, else of all real ones, else of
    twins."""
    found = overheads(rows)
    held = [row for row in found if not row.data.get("twin")]
    return [row for row in held if row in PAPERS_GRAPHS] or held or found


def _parts(*parts: str) -> Check:
    """These parts, % of a training job of 100 epochs, averaged over graphs."""

    @asking(_all_or_real, NO_COST)
    def check(claim: Claim, found: Rows) -> Said:
        shares = [100 * overhead(row, parts) for row in found]
        return {
            "measured": fmean(shares),
            "target": float(claim.value),
            "reason": f"{min(shares):.2g} to {max(shares):.2g} % by graph; processor time of one "
            f"core; an epoch is the work of all workers together; {_timed_on(found)}",
        }

    return check


cost: Final = _parts(*PUBLISHED)


def _timed_on(rows: Rows) -> str:
    return "timed on " + ", ".join(BY_NAME[row.params["dataset"]].title for row in rows)


def _with_amazon(rows: Rows) -> list[Any]:
    """Rows of Amazon, or a graph of its site, and at least two others; [] without."""
    found = _all_or_real(rows)
    return found if _amazon(found) and len(found) > 2 else []


def _amazon(rows: Rows) -> list[Any]:
    return standing_in(
        "amazon", rows, lambda row: row.params["dataset"], lambda row: bool(row.data.get("twin"))
    )


@asking(_with_amazon, "Amazon, or a graph of its site, was not partitioned beside two others")
def amazon_generation(claim: Claim, found: Rows) -> Said:
    """Amazon's rank in seconds of generation and of assignment among the graphs."""
    seconds = {
        part: Table.of(found).where("preparation_time", phase=part).numbers("dataset")
        for part in ("generation", "assignment")
    }
    amazon = _amazon(found)[0].params["dataset"]
    lowest = seconds["generation"][amazon] == min(seconds["generation"].values())
    others = [s for name, s in seconds["assignment"].items() if name != amazon]
    high = seconds["assignment"][amazon] > fmean(others)
    return {
        "measured": {
            part: {BY_NAME[name].title: round(s, 6) for name, s in by.items()}
            for part, by in seconds.items()
        },
        "holds": lowest and high,
        "reason": f"seconds; {BY_NAME[amazon].title} has "
        + ("the cheapest generation" if lowest else "no cheapest generation")
        + (" and an assignment dearer than the mean" if high else " and no dear assignment"),
    }


def _fusion_over(*partitioning: str) -> Check:
    """Seconds of fusion over those of partitioning, and fusion's share of training."""

    @asking(_all_or_real, NO_COST)
    def check(claim: Claim, found: Rows) -> Said:
        seconds = [(row, parts_of(row)) for row in found]
        larger = [s["fusion"] > sum(s[part] for part in partitioning) for _, s in seconds]
        small = [overhead(row, ("fusion",)) < FAR_BELOW for row in found]
        return {
            "measured": {
                BY_NAME[row.params["dataset"]].title: (
                    f"partitioning {sum(s[part] for part in partitioning):.3g} s, "
                    f"fusion {s['fusion']:.3g} s, "
                    f"{100 * overhead(row, ('fusion',)):.2g} % of training"
                )
                for row, s in seconds
            },
            "holds": all(larger) and all(small),
            "reason": f"fusion takes longer in {sum(larger)} of {len(larger)} graphs",
        }

    return check


fusion_larger: Final = _fusion_over(*PARTITIONING)


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
