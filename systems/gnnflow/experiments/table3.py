"""Table 3: how much of the feature traffic is edge features."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.row_cache import RowCache
from dgbench.lab.charts import failed, failures, mark, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck, close, equal
from dgbench.lab.table import Table
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.gnnflow.experiments.accesses import Accesses
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    INITIAL,
    MODEL_TITLES,
    MODELS,
    SETTINGS,
    by_dataset,
    panel,
)

PAPERS: Final = ("reddit", "gdelt", "netflix")
"""Graphs of the table, in its order."""
GRAPHS: Final = {
    "smoke": ("netflix", "wikipedia"),
    "quick": PAPERS,
    "full": (*PAPERS, "wikipedia", "sx-mathoverflow", "epinions-2011-ratings"),
    "paper": PAPERS,
}
SCALES: Final = {
    "reddit": {"quick": 1.0},
    "gdelt": {"quick": 1 / 64},
    "netflix": {"quick": 1 / 64},
}
"""Larger than where models are trained: a batch of the printed size should be small beside it."""
BATCHES: Final = {"smoke": 2, "quick": 6, "full": 40, "paper": 100}
"""Batches of each model, spread evenly over the stream."""
MEMORY: Final = 100
"""Floats of a node's memory (TGN), read for every node of a batch."""
READINGS: Final = {
    "unique": "once a batch",
    "unique memory": "once a batch, with memory",
    "requests": "every sample",
    "requests memory": "every sample, with memory",
}
CHOSEN: Final = "unique memory"
"""The reading that is told: rows are moved once a batch, and the text counts memories."""


class Table3(Grid):
    paper = "gnnflow"
    name = "table3"
    sources: ClassVar[Any] = {"portion": "counted"}
    title = "Table 3: edge features in the feature traffic"
    device = "cpu"
    question = "What share of the bytes that a batch fetches are features of edges?"
    reading = (
        "A batch fetches the features of all sampled edges, and those of the nodes that the "
        "outermost hop samples or starts from. The paper does not say whether ids that repeat in "
        "a batch count once: only so do its shares for GDELT come out, where nodes are few and "
        "wide. The text counts TGN's node memories, which we take as 100 floats a node. Shares of "
        "a twin hang on its size, since a smaller graph repeats more ids in a batch."
    )
    claims = (
        "gnnflow-tab3-tgn",
        "gnnflow-tab3-tgat",
        "gnnflow-tab3-dysat",
        "gnnflow-tab3-dense-vs-sparse",
        "gnnflow-s1-edge-feature-share",
        "gnnflow-s22-edge-feature-share",
    )

    axes: ClassVar[Any] = {"dataset": GRAPHS}
    timeout_s: ClassVar[Any] = {"paper": 3600, None: 300}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        preset = context.preset
        scale = SCALES.get(graph.name, {}).get(preset, graph.scale(preset))
        found = Measurement()
        for model in MODELS:
            accesses = Accesses(graph, model, preset, scale=scale)
            numbers, check = count(accesses, BATCHES[preset])
            found.observe("events", numbers.pop("events"), model=model)
            for (kind, which), asked in numbers.items():
                found.observe("requests", asked, model=model, of=kind, setting=which)
            found.checks += [check, *accesses.checks()]
            shares = {reading: share(numbers, model, graph, reading) for reading in READINGS}
            for reading, one in shares.items():
                found.observe("portion", one, model=model, setting=reading)
            found.checks.append(bytes_check(numbers, shares, accesses, model))
            found.data = accesses.describe()
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("table3", "Edge features in percent of the feature traffic (Table 3)", points,
                ylabel="edge features, % of the bytes of a batch", ylog=False, sort=False),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = [
            (100 * one.value, MODEL_TITLES[one["model"]], panel(one.row))
            for one in Table.of(rows, experiment="table3").where("portion", setting=CHOSEN)
        ]
        if not found:
            return ""
        low, high = min(found), max(found)
        return (
            f"From {low[0]:.0f} % ({low[1]} on {low[2]}) to {high[0]:.0f} % ({high[1]} on "
            f"{high[2]}), each id counted once a batch."
        )


def count(accesses: Accesses, batches: int) -> tuple[dict[Any, int], ResultCheck]:
    """Rows that some batches fetch, spread over the stream after its initial part.

    Returns:
        By (`node` or `edge`, `requests` or `unique`), and `events`; and a check of them, counted
        once more by sets.
    """
    total, size = accesses.count("edge"), accesses.task.batch
    begin = round(INITIAL * total)
    steps = max(1, min(batches, (total - begin) // size))
    starts = [begin + (total - begin - size) * i // max(1, steps - 1) for i in range(steps)]
    kinds = {kind: RowCache(accesses.count(kind), 1, 0) for kind in ("node", "edge")}
    found: dict[Any, int] = dict.fromkeys(product(kinds, ("requests", "unique")), 0)
    found["events"] = 0
    again = dict(found)
    for start in starts:
        access = accesses.batch(torch.arange(max(0, start), min(total, start + size)))
        found["events"] += access.events
        for kind, counter in kinds.items():
            ids = access.of(kind)
            found[kind, "requests"] += ids.numel()
            found[kind, "unique"] += different(counter, ids)
            again[kind, "requests"] += len(ids.numpy())
            again[kind, "unique"] += np.unique(ids.numpy()).size
        again["events"] += min(total, start + size) - max(0, start)
    return found, equal("counters", found, again, against="ids sorted by numpy")


def bytes_check(
    counts: dict[Any, int], shares: dict[str, float], accesses: Accesses, model: str
) -> ResultCheck:
    """A check of the shares of a model against the bytes of rows, one tensor of each kind."""
    rows = {kind: torch.empty(1, accesses.dim(kind)).nbytes for kind in ("node", "edge")}
    memory = torch.empty(1, MEMORY).nbytes if model == "tgn" else 0
    wanted = []
    for reading in READINGS:
        which = reading.split()[0]
        node = rows["node"] + (memory if "memory" in reading else 0)
        moved = counts["edge", which] * rows["edge"], counts["node", which] * node
        wanted.append(moved[0] / max(1, sum(moved)))
    own = list(shares.values())
    return close("shares", own, wanted, 1e-12, against="bytes of rows", part=model)


def different(nothing: RowCache, ids: Tensor) -> int:
    """Number of distinct ids; a cache without slots counts them faster than a sort."""
    return nothing.lookup(ids).misses.numel()


def share(counts: dict[Any, int], model: str, graph: Any, reading: str) -> float:
    """Edge features of all feature bytes, by one of `READINGS`."""
    which, _, memory = reading.partition(" ")
    width = graph.node_dim + (MEMORY if memory and model == "tgn" else 0)
    nodes = counts["node", which] * width
    edges = counts["edge", which] * graph.edge_dim
    return edges / max(1, nodes + edges)


def points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Every share by model and reading, with the printed ones beside."""
    made: list[dict[str, Any]] = []
    shares = Table.of(rows, experiment="table3").where("portion")
    for (dataset, model), mine in shares.by("dataset", "model").items():
        common = {"panel": panel(mine[0].row), "x": SETTINGS[model].title}
        made += [
            mark(one.row, **common, series=READINGS[reading], y=100 * one.value, counted=True)
            for one in mine
            if "memory" not in (reading := one["setting"]) or model == "tgn"
        ]
        if (printed := by_dataset(f"tab3-{model}").get(dataset)) is not None:
            made.append({**common, "series": "printed", "y": printed, "paper": True})
    for row in failures(rows, "table3"):
        made.append({"panel": panel(row), "series": "failed", "x": "TGN", "failed": failed(row)})
    return made
