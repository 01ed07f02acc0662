"""Checks of T-GCN's claims: claim id -> what is asked of which rows."""

from __future__ import annotations

from typing import Final

from dgbench.lab.paper import Check
from dgbench.lab.rules import checks_of
from dgbench.lab.verbs import says
from dgbench.systems.tgcn.experiments import EXPERIMENTS
from dgbench.systems.tgcn.findings import (
    accuracy,
    devices,
    draws,
    graphs,
    memory,
    sampling,
    scaling,
    training,
)
from dgbench.systems.tgcn.methods import ITS
from dgbench.systems.tgcn.races import DYGNN, JODIE, TGCN
from dgbench.systems.tgcn.settings import FORMS

CHECKS: Final[dict[str, Check]] = {
    **checks_of(FORMS, *(one for one in EXPERIMENTS if hasattr(one, "forms"))),
    "tgcn-abs-e2e-max-speedup": training.largest_gain,
    "tgcn-abs-8gpu-mean-scaling": scaling.projected(8, float),
    "tgcn-abs-sampling-max-speedup": sampling.largest_sampling_gain,
    "tgcn-s1-brs-twitter-time": sampling.twitter_hours,
    "tgcn-s1-twitter-edge-count": graphs.twitter_edges,
    "tgcn-s1-nvlink-faster-than-pcie": devices.nvlink,
    "tgcn-s2-nodewise-exponential": says(
        sampling.BY_DEPTH,
        sampling.by_layer("node", sampling.multiplies, sampling.FOURFOLD),
    ),
    "tgcn-s2-layerwise-linear": says(
        sampling.BY_DEPTH,
        sampling.by_layer("layer", sampling.alike, sampling.LINEAR),
    ),
    "tgcn-s2-graphsaint-over-clustergcn": graphs.quoted(
        "GraphSAINT and ClusterGCN on a static graph with labels"
    ),
    "tgcn-s2-brs-complexity": says(draws.DRAWN, draws.brs_linear),
    "tgcn-s2-its-complexity": draws.its_linear,
    "tgcn-s24-prior-throughput-floor": training.throughput_floor,
    "tgcn-s24-dglke-gpu-utilisation": graphs.quoted("DGL-KE and a GPU"),
    "tgcn-s24-pbg-gpu-utilisation": graphs.quoted("PyTorch-BigGraph and a GPU"),
    "tgcn-s24-marius-epoch-time": graphs.quoted("Marius, a GPU and the Twitter graph"),
    "tgcn-s24-marius-throughput": says(graphs.QUOTED, graphs.marius_rate),
    "tgcn-s3-sis-query-complexity": says(draws.DRAWN, draws.levels("search")),
    "tgcn-s3-sis-modify-complexity": says(draws.DRAWN, draws.levels("modify")),
    "tgcn-s3-sis-total-complexity": draws.total_complexity,
    "tgcn-s3-sis-no-repeats": says(draws.ALL_DRAWN, draws.no_repeats),
    "tgcn-s3-tree-height-example": says(draws.DRAWN, draws.tree_example),
    "tgcn-s41-partition-degree-independent": devices.degree_independent,
    "tgcn-s41-hbm-embeddings-cut-traffic": says(devices.VOLUME, devices.device_vectors),
    "tgcn-s42-intergroup-cost": says(devices.DGX1, devices.intergroup_cost),
    "tgcn-s42-two-channel-split": says(devices.DGX1, devices.two_channels),
    "tgcn-s42-schedule-rounds": says(devices.DGX1, devices.swap_rounds),
    "tgcn-s42-schedule-no-two-hop": says(devices.DGX1, devices.no_two_hop),
    "tgcn-s42-schedule-uses-dual-links": devices.dual_links,
    "tgcn-s43-pingpong-no-conflict": training.pingpong,
    "tgcn-s61-testbed": says(graphs.TESTBED, graphs.testbed),
    "tgcn-s61-power-law": says(graphs.DEGREES, graphs.power_law),
    "tgcn-s61-sampling-keeps-degree-dist": graphs.degrees_kept,
    "tgcn-s613-partition-not-separable": says(memory.PLANNED, memory.not_separable),
    "tgcn-tab1-vertices": says(graphs.MACHINE, graphs.sizes("vertices")),
    "tgcn-tab1-edges": says(graphs.MACHINE, graphs.sizes("edges")),
    "tgcn-tab1-avg-degree": graphs.mean_degrees,
    "tgcn-tab1-feature": graphs.features,
    "tgcn-fig6-vs-dygnn": training.faster_than(DYGNN),
    "tgcn-fig6-vs-jodie": training.faster_than(JODIE),
    "tgcn-fig6-beats-both-everywhere": training.beats_both,
    "tgcn-fig6-8gpu-included": scaling.eight_ahead,
    "tgcn-fig6-gpu-underused-small": says(training.GPU_RACES, training.underused),
    "tgcn-fig6-twitter-time": says(training.GPU_RATE, training.twitter_time),
    "tgcn-fig6-twitter-oom": says(memory.PLANNED, memory.twitter_oom),
    "tgcn-s62-throughput-dygnn": training.throughput(DYGNN),
    "tgcn-s62-throughput-jodie": training.throughput(JODIE),
    "tgcn-s62-throughput-tgcn": says(training.RACES, training.largest_throughput),
    "tgcn-s62-padding-blocks-baselines": memory.padding,
    "tgcn-fig7-nodewise-2layer": sampling.gains_over("node 2", ITS, sampling.OTHERS),
    "tgcn-fig7-nodewise-3layer": sampling.gains_over("node 3", ITS, sampling.OTHERS),
    "tgcn-fig7-layerwise": sampling.gains_over("layer", ITS, sampling.OTHERS),
    "tgcn-fig7-subgraph": sampling.subgraph_gains,
    "tgcn-fig7-degree-trend": sampling.degree_trend,
    "tgcn-fig7-cost-order": sampling.cost_order,
    "tgcn-fig7-3layer-exponential": says(sampling.SAMPLED, sampling.third_layer),
    "tgcn-fig8-sis-flat": says(draws.TIMED, draws.sis_flat),
    "tgcn-fig8-its-brs-grow": draws.others_grow,
    "tgcn-fig8-order": draws.scales_best,
    "tgcn-s64-dygnn-over-jodie": says(accuracy.SCORED, accuracy.dygnn_over_jodie),
    "tgcn-fig9-no-accuracy-loss": accuracy.no_loss,
    "tgcn-fig9-twitter": says(accuracy.SCORED_LARGE, accuracy.twitter_accuracy),
    "tgcn-fig9-stable-over-time": says(accuracy.SCORED, accuracy.stable),
    **{
        f"tgcn-tab2-{system}-{part}": training.gpu_seconds(system, part)
        for system in (DYGNN, TGCN)
        for part in ("io", "compute", "total")
    },
    "tgcn-tab2-compute-share": says(training.TIMES, training.compute_share),
    "tgcn-tab2-overlap": training.overlap,
    "tgcn-tab2-both-parts-reduced": says(training.TIMES, training.both_reduced),
    "tgcn-s65-partition-share": devices.share_of_time,
    "tgcn-s65-ablation-order": says(training.LADDER, training.every_step_gains),
    **{f"tgcn-tab3-{system}-memory": memory.gpu_memory(system) for system in (DYGNN, JODIE, TGCN)},
    "tgcn-tab3-ordering": memory.least_memory,
    "tgcn-s66-max-space-saving": memory.largest_saving,
    "tgcn-fig10-8gpu": scaling.projected(8, lambda printed: None),
    "tgcn-fig10-4gpu": scaling.projected(4, lambda printed: None),
    "tgcn-s67-p2p-off-slowdown": scaling.without_p2p,
    "tgcn-s67-p2p-benefit": scaling.p2p_benefit,
}
"""Claim id -> check, in the order of the paper."""
