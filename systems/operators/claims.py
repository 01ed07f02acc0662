"""The check of each claim in `claims.yaml`."""

from collections.abc import Mapping
from typing import Any

from dgbench.lab.paper import Check
from dgbench.lab.verbs import Selection, at_least
from dgbench.systems.operators.experiments import (
    attention,
    cache,
    difference,
    edge_sampling,
    sampling,
    scan,
    twins,
)
from dgbench.systems.operators.race import OURS

REBUILT = tuple(f"{method} whole" for method in edge_sampling.TABLES)


def over(experiment: str, *baselines: str, none: str = "", **where: Any) -> Check:
    """The lowest speed-up of ours over these peers, or over all; see `at_least`.

    Args:
        none: why nothing was found, where nothing was.
        where: params of the workloads, where it is not all of them.
    """
    only = {"baseline": baselines, **where} if baselines else where
    return at_least(Selection(experiment, "speedup", none, {"method": OURS, **only}))


CHECKS: Mapping[str, Check] = {
    "operators-aggregate-best-peer": over("aggregate"),
    "operators-merged-one-by-one": over("merged"),
    "operators-scan-best-peer": over("scan"),
    "operators-packed-scan-zeros": over("packed_scan", scan.ZEROS),
    "operators-packed-scan-lstm": over("packed_scan", scan.LSTM),
    "operators-packed-scan-packed-sequence": over("packed_scan", scan.PACKED),
    "operators-attention-torch": over("attention", attention.TORCH),
    "operators-attention-pyg": over("attention", attention.PYG),
    "operators-attention-dgl": over("attention", attention.DGL),
    "operators-packed-attention-mask": over("packed_attention", attention.MASK),
    "operators-packed-attention-zeros": over("packed_attention", attention.ZEROS),
    "operators-difference-best-peer": over("difference"),
    "operators-rebuild-best-peer": over(
        "rebuild", *difference.REBUILDERS, changed=lambda share: share < 1
    ),
    "operators-labels-metis": over("labels"),
    "operators-weighted-best-peer": over("weighted"),
    "operators-weighted-million": over(
        "weighted", items=1_000_000, none="only the presets full and paper draw from a million"
    ),
    "operators-subgraphs-prefix-sums": over("subgraph_sampling", *REBUILT),
    "operators-sampling-tcsr": over("sampling", sampling.TCSR),
    "operators-insert-rebuild": over(
        "insert", batch=100_000, none="only the presets full and paper insert into ten million"
    ),
    "operators-cache-list": over("cache", cache.LIST),
    "operators-loading-source": over("loading"),
    "operators-twins-free": over("twins", twins.BARS[False][1]),
    "operators-twins-distinct": over("twins", twins.BARS[True][1]),
}
