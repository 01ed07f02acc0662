"""Table 3: how much of the feature traffic is edge features."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.row_cache import RowCache
from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.entry_rules import near_entries, within_claim
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.gnnflow.experiments.accesses import WITHIN, Accesses, as_printed
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    FORMS,
    INITIAL,
    MODELS,
    by_dataset,
    by_graph,
)

PAPERS: Final = ("reddit", "gdelt", "netflix")
"""Graphs of the table, in its order."""
GRAPHS: Final = {
    "smoke": ("netflix", "wikipedia"),
    "quick": PAPERS,
    "full": (*PAPERS, "wikipedia", "sx-mathoverflow", "epinions-2011-ratings"),
    "paper": PAPERS,
}
SCALES: Final = {"reddit": {"quick": 1.0}, "gdelt": {"quick": 1 / 64}, "netflix": {"quick": 1 / 64}}
"""Larger than where models are trained: a batch of the printed size should be small beside it."""
BATCHES: Final = {"smoke": 2, "quick": 6, "full": 40, "paper": 100}
"""Batches of each model, spread evenly over the stream."""
MEMORY: Final = 100
"""Floats of a node's memory (TGN), read for every node of a batch."""
READINGS: Final = ("unique", "unique memory", "requests", "requests memory")
CHOSEN: Final = "unique memory"
"""Reading of the headline: rows are moved once a batch, and the text counts memories."""
SHARE: Final = 100 * observed("portion", per=("dataset", "model", "setting"))
DENSE: Final = ("reddit", "gdelt")
HALF: Final = 50.0
"""Percent above which a share is most of the traffic."""


def by_counting(rule_of: Callable[[MeasuredQuantity], outcomes.Rule]) -> outcomes.Rule:
    """A rule on shares under both ways to count what repeats in a batch.

    Node memories are counted in both, as the text says so.
    """
    return combine.interpretations(
        "the paper does not say whether what repeats in a batch is fetched once",
        {
            "once a batch": rule_of(SHARE.where(setting="unique memory")),
            "every sample": rule_of(SHARE.where(setting="requests memory")),
        },
    )


def dense_range(share: MeasuredQuantity) -> outcomes.Rule:
    """Lowest and highest share on dense graphs; the direction is that all lie in the range."""
    dense = share.where(dataset=DENSE)
    ends = {"low": dense.joined_over(min, "dataset", "model"),
            "high": dense.joined_over(max, "dataset", "model")}  # fmt: skip
    return combine.with_printed_value(
        within_claim(dense, slack=WITHIN, required={"dataset": DENSE}),
        near_entries(ends, points=WITHIN),
    )


def dense_above_sparse(share: MeasuredQuantity) -> outcomes.Rule:
    """Dense graphs above half, Netflix not; the direction is the order."""
    dense, sparse = share.where(dataset=DENSE), share.where(dataset="netflix")
    most = rules.all_above(dense, HALF, unit="%", required={"dataset": DENSE, "model": MODELS})
    return combine.or_direction(
        combine.both(most, rules.at_most(sparse, HALF, unit="%", required={"model": MODELS})),
        combine.both(most, rules.all_above(dense.less(sparse), 0.0)),
    )  # fmt: skip


class Table3(FormExperiment):
    forms, name = FORMS, "table3"
    sources = {"portion": "counted"}
    device = "cpu"
    axes = {"dataset": GRAPHS}
    timeout_s = {"paper": 3600, None: 300}
    headline, unit = SHARE.where(setting=CHOSEN), "%"
    figure_forms = (
        Sweep(
            "table3", "Edge features in percent of the feature traffic (Table 3)",
            {"features": SHARE.where(setting=READINGS[::2]),
             "and memories": SHARE.where(setting=READINGS[1::2], model=("tgn",))},
            panel="{dataset}", series="{setting}", x="{model}", more=lambda *_: {"counted": True},
            printed=SHARE.where(setting=CHOSEN).printed(
                lambda at: by_dataset(f"tab3-{at['model']}").get(at["dataset"])
            ),
            gaps={"series": "failed", "x": "TGN"}, ylog=False, sort=False,
            ylabel="edge features, % of the bytes of a batch",
        ),
    )  # fmt: skip
    claims = {
        **{
            f"gnnflow-tab3-{model}": by_counting(
                lambda share, model=model: as_printed(by_graph(share.where(model=model), PAPERS))
            )
            for model in MODELS
        },
        "gnnflow-tab3-dense-vs-sparse": by_counting(dense_above_sparse),
        "gnnflow-s1-edge-feature-share": by_counting(dense_range),
        "gnnflow-s22-edge-feature-share": by_counting(dense_range),
    }

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        preset = context.preset
        scale = SCALES.get(graph.name, {}).get(preset, graph.scale(preset))
        found = Measurement()
        for model in MODELS:
            accesses = Accesses(graph, model, preset, scale=scale)
            numbers, check = count(accesses, BATCHES[preset])
            found.checks += [check, *accesses.checks()]
            for reading in READINGS:
                one = share(numbers, model, graph, reading)
                found.observe("portion", one, model=model, setting=reading)
            found.data = accesses.data.describe()
        return found


def count(accesses: Accesses, batches: int) -> tuple[dict[Any, int], ResultCheck]:
    """Rows that some batches fetch, spread over the stream after its initial part.

    Returns:
        By (`node` or `edge`, `requests` or `unique`); and a check of them, counted
        once more by sets.
    """
    total, size = accesses.count("edge"), accesses.task.batch
    begin = round(INITIAL * total)
    steps = max(1, min(batches, (total - begin) // size))
    starts = [begin + (total - begin - size) * i // max(1, steps - 1) for i in range(steps)]
    kinds = {kind: RowCache(accesses.count(kind), 1, 0) for kind in ("node", "edge")}
    found: dict[Any, int] = dict.fromkeys(product(kinds, ("requests", "unique")), 0)
    again = dict(found)
    for start in starts:
        access = accesses.batch(torch.arange(max(0, start), min(total, start + size)))
        for kind, counter in kinds.items():
            ids = access.of(kind)
            found[kind, "requests"] += ids.numel()
            found[kind, "unique"] += different(counter, ids)
            again[kind, "requests"] += len(ids.numpy())
            again[kind, "unique"] += np.unique(ids.numpy()).size
    return found, equal("counters", found, again, against="ids sorted by numpy")


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
