"""Traffic of every partition on the data available here (sections 2.2, 3 and 7.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, ClassVar, Final, NamedTuple

from dgbench.lab.charts import failed, failures, mark, sweep
from dgbench.lab.compare import select
from dgbench.lab.grid import Grid
from dgbench.lab.table import Table, number
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.dgc.experiments.common import PARTITION_TITLES
from dgbench.systems.dgc.experiments.partition_rows import (
    ANY_SPAN,
    BASELINES,
    CONTIGUOUS,
    LABELS_ONCE,
    count_partitions,
)
from dgbench.systems.dgc.experiments.settings import BY_NAME, MODEL_TITLES, MODELS, panel, workload
from dgbench.systems.dgc.partition import ChunkSettings

NAME: Final = "partition"
LIMIT: Final = ChunkSettings().span_limit
WORKERS: Final = (4, 8)
GRAPHS: Final[dict[Preset, tuple[str, ...]]] = {
    "smoke": ("email-eu-core",),
    "quick": ("wikipedia",),
    "full": ("email-eu-core", "wikipedia", "amazon-magazine", "sx-mathoverflow",
             "epinions-2011-ratings", "amazon", "epinions", "movie", "stack"),
    "paper": ("email-eu-core", "wikipedia", "amazon-magazine", "sx-mathoverflow",
              "epinions-2011-ratings", "amazon", "epinions", "movie", "stack"),
}  # fmt: skip
TITLES: Final = {
    **PARTITION_TITLES,
    "chunks": "PGC + dgbench",
    LABELS_ONCE: "PGC",
    ANY_SPAN: "PGC + dgbench, any span",
    "metis": "METIS",
    "kahypar": "KaHyPar",
}
SHOWN: Final = tuple(name for name in TITLES if name != "kahypar")
ROUNDS: Final[dict[Preset, int | None]] = {"smoke": 0, "quick": 1, "full": None, "paper": None}
"""Of refinement with coarsening; None: as many as the partition takes by default."""

SLOW: Final = ("email-eu-core", "wikipedia")
"""Graphs small enough for KaHyPar."""

Rows = Sequence[Any]


class Partition(Grid):
    paper = "dgc"
    name = NAME
    title = "What partitions send"
    claims = (
        "dgc-s41-spatial-weight-twice",
        "dgc-s72-tgcn-spatial-more",
        "dgc-s72-mpnn-more-comm",
        "dgc-s72-attention-neighbours",
    )
    device = "cpu"
    question = "Do chunks send less than snapshots, sequences and both, at even work?"
    reading = (
        "Bytes of an epoch, forward and backward, are counted from the partition: a vertex-step "
        "goes once to each other worker that reads it. Snapshots are dealt out in turn, which fits "
        "the paper's words; contiguous ones stand beside them. Balance is the largest over the "
        "mean number of vertex-steps and edges. Span says how serial a recurrence is: vertex-steps "
        "that have to be done one after another over an even share, 1 if all workers work at once "
        "and P if one does. PGC propagates labels once, as the paper prints it. PGC + dgbench is "
        "refined on what is sent, and where that is possible a recurrence keeps a span of at most "
        "1.5; the ablation takes both away again. METIS cuts the same supergraph at the same "
        "work, at whatever span."
    )

    axes: ClassVar = {"dataset": GRAPHS}
    timeout_s: ClassVar = {"full": 1800, "paper": 1800, None: 60}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        from dgbench.systems.base.sequences import load_sequences

        graph = BY_NAME[str(cell.params["dataset"])]
        long = context.preset in ("full", "paper")
        # Real data is taken whole: windows and snapshots decide what is sent.
        tasks = {
            model: workload(
                graph, model, context.preset, **({"snapshots": None} if graph.real else {})
            )
            for model in MODELS
        }
        data = load_sequences(tasks[MODELS[0]])
        with one_thread():
            return count_partitions(
                data,
                tasks,
                WORKERS,
                settings=ChunkSettings(rounds=ROUNDS[context.preset]),
                controls=("metis", "kahypar") if long and graph.name in SLOW else ("metis",),
                timed_balance_s=1.0 if long else 0.0,
                rest=_measured_work if long else None,
            )

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("partition", "Bytes of an epoch between 8 workers", byte_points, xlabel="graph",
                ylabel="MB an epoch"),
            sweep("partition_span",
                "How serial the recurrence is, 8 workers (1: all at once, 8: one by one)",
                span_points, xlabel="graph", ylabel="vertex-steps in a row, even share = 1"),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = list(compared(rows, real=True))
        if not found:
            return ""
        ratios = [one.ratio for one in found]
        worst = max(found, key=lambda one: one.ratio)
        metis = [one.against_metis for one in found if one.against_metis]
        words = (
            f"Chunks send {_compared_words(ratios)} the best of PSS, contiguous PSS, PTS and "
            f"PSS-TS, averaged over {len(found)} cases (graph, model, 4 or 8 workers), and "
            f"{_compared_words([one.over_papers for one in found])} the best of the paper's three; "
            f"worst for {MODEL_TITLES[worst.model]} on {BY_NAME[worst.dataset].title} with "
            f"{worst.workers} workers ({worst.ratio:.2f} of the best), at a balance of at most "
            f"{max(one.balance for one in found):.2f}."
        )
        if metis:
            words += (
                f" Against METIS, which like these knows no limit of span, chunks of any span send "
                f"{min(metis):.2f} to {max(metis):.2f} times as much."
            )
        spans = [one for one in found if one.model != "dysat"]
        serial = [one for one in spans if one.span > LIMIT]
        if spans:
            words += (
                f" Of recurrences at most {max(one.span for one in spans):.2f} times an even share "
                "is done in a row"
            )
            words += (
                f"; it is above {LIMIT} in {len(serial)} of {len(spans)} cases, where nothing "
                "found below sends less than the best baseline."
                if serial
                else "."
            )
        return words


def _compared_words(ratios: Sequence[float]) -> str:
    """Mean of ratios in words: `12 % less than`."""
    share = 100 * (fmean(ratios) - 1)
    return f"{abs(share):.0f} % {'more' if share > 0 else 'less'} than"


class Compared(NamedTuple):
    """Chunks against the best baseline in one case."""

    row: Any
    dataset: str
    model: str
    workers: int
    ratio: float  # bytes over those of the best placement without chunks
    over_papers: float  # the same of the paper's three, without contiguous snapshots
    best: str
    balance: float
    span: float
    against_metis: float | None  # without a limit of span


def compared(rows: Rows, *, real: bool | None = None) -> Iterator[Compared]:
    """Every case that was counted; `real` keeps those of real data, or of twins."""
    for row in select(rows, experiment=NAME):
        twin = bool(row.data.get("twin"))
        if real is not None and real == twin:
            continue
        for model in MODELS:
            for size in WORKERS:
                case = Table.of([row]).where(model=model, ranks=size)
                sent = case.where("exchanged", of=None).numbers("method")
                if "chunks" not in sent:
                    continue
                best = min(BASELINES, key=lambda name: sent[name])
                three = min(sent[name] for name in BASELINES if name != CONTIGUOUS)
                chunks = case.where(method="chunks")
                balance = chunks.where("imbalance").numbers("of")
                yield Compared(
                    row,
                    row.params["dataset"],
                    model,
                    size,
                    sent["chunks"] / sent[best] if sent[best] else 1.0,
                    sent["chunks"] / three if three else 1.0,
                    best,
                    balance.get("time", balance[None]),
                    chunks.where("span").one().value,
                    (sent.get(ANY_SPAN) or sent["chunks"]) / sent["metis"]
                    if sent.get("metis")
                    else None,
                )


def byte_points(rows: Rows) -> list[dict[str, Any]]:
    """A dot per partition, a panel per model."""
    return _points(rows, "exchanged", 1e6, MODELS)


def span_points(rows: Rows) -> list[dict[str, Any]]:
    """The same of spans; attention has none."""
    recurrent = tuple(model for model in MODELS if model != "dysat")
    return _points(rows, "span", 1, recurrent)


def _points(rows: Rows, metric: str, unit: float, models: Sequence[str]) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = []
    for model in models:
        for row in select(rows, experiment=NAME):
            common = mark(row, panel=MODEL_TITLES[model], x=panel(row), counted=True)
            for name in SHOWN:
                found = number(row, metric, 0, model=model, ranks=WORKERS[-1], method=name)
                if found > 0:
                    points.append({**common, "series": TITLES[name], "y": found / unit})
        for row in failures(rows, NAME):
            points.append(
                {
                    "panel": MODEL_TITLES[model],
                    "x": BY_NAME[row.params["dataset"]].title,
                    "series": TITLES["chunks"],
                    "failed": failed(row),
                }
            )
    return points


def _measured_work(shape: Any) -> Any:
    from dgbench.systems.dgc.workloads import workload_of

    return workload_of("mlp", shape)
