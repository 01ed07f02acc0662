"""The check of each claim in `claims.yaml`: the lowest speed-up over named peers, or over all."""

from typing import Any

from dgbench.lab.outcomes import check_of
from dgbench.lab.paper import Check
from dgbench.lab.quantities import observed
from dgbench.lab.rules import at_least_claim
from dgbench.systems.operators.experiments import (
    EXPERIMENTS,
    attention,
    cache,
    difference,
    edge_sampling,
    sampling,
    scan,
    twins,
)
from dgbench.systems.operators.race import FORMS, OURS

RACES = {race.name: race for race in EXPERIMENTS}
REBUILT = tuple(f"{method} whole" for method in edge_sampling.TABLES)


def over(experiment: str, *baselines: str, **where: Any) -> Check:
    """Ours is faster than these peers, or than all, by the claim's factor on every workload.

    Args:
        where: params of the workloads, where it is not all of them.
    """
    params = {name for cell in RACES[experiment].cells("full", "cpu") for name in cell.params}
    speedups = observed("speedup", per=(*sorted(params), "baseline"), method=OURS)
    only = {"baseline": baselines, **where} if baselines else where
    return check_of(FORMS, experiment, at_least_claim(speedups.where(**only)))


CHECKS = {
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
    "operators-weighted-million": over("weighted", items=1_000_000),
    "operators-subgraphs-prefix-sums": over("subgraph_sampling", *REBUILT),
    "operators-sampling-tcsr": over("sampling", sampling.TCSR),
    "operators-insert-rebuild": over("insert", batch=100_000),
    "operators-cache-list": over("cache", cache.LIST),
    "operators-loading-source": over("loading"),
    "operators-twins-free": over("twins", twins.BARS[False][1]),
    "operators-twins-distinct": over("twins", twins.BARS[True][1]),
}
