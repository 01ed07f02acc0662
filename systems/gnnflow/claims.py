"""Checks of GNNFlow's ledger by claim. Every id stands here exactly once."""

from __future__ import annotations

from typing import Final

from dgbench.lab.paper import Check
from dgbench.lab.rules import checks_of
from dgbench.systems.gnnflow.checks import (
    accuracy,
    build,
    cache,
    distributed,
    partitioned,
    placements,
    rounds,
    sampling,
    sizes,
    storage,
    traffic,
)
from dgbench.systems.gnnflow.experiments import EXPERIMENTS
from dgbench.systems.gnnflow.experiments.settings import FORMS

CHECKS: Final[dict[str, Check]] = {
    **checks_of(FORMS, *(one for one in EXPERIMENTS if hasattr(one, "forms"))),
    # Blocks and memory: sections 2.2, 4.1, 4.2 and 6.2, Table 6
    "gnnflow-s22-tegra-snapshots": storage.tegra_snapshots,
    "gnnflow-s41-edge-block-size": storage.block_size,
    "gnnflow-s41-append-no-resort": storage.append_no_resort,
    "gnnflow-s41-adaptive-size-rule": storage.adaptive_rule,
    "gnnflow-s41-waste-bound": storage.waste_bound,
    "gnnflow-s42-metadata-much-smaller": storage.metadata_smaller,
    "gnnflow-s62-edge-memory-overhead": storage.edge_overhead,
    "gnnflow-s62-list-reduction": storage.list_reduction,
    "gnnflow-s62-extra-edge-memory": storage.extra_edge_memory,
    "gnnflow-s62-metadata-reduced": storage.metadata_reduced,
    **{
        f"gnnflow-tab6-{graph}-{column}": storage.table6
        for graph in storage.TWINS
        for column in ("avg-list", "max-list", "edge-mb", "meta-mb")
    },
    # Sampling from blocks: Figure 12
    "gnnflow-s41-search-log-time": sampling.log_time,
    "gnnflow-fig12-adjlist-zero": sampling.adjacency_lists,
    "gnnflow-fig12-fixed-below-strawman": sampling.fixed_below_strawman,
    "gnnflow-fig12-adaptive-best-dynamic": sampling.adaptive_best,
    # Where the graph lies: Figure 13
    "gnnflow-fig13-small-graph-best": placements.small_graph,
    "gnnflow-fig13-hybrid-over-uva": placements.hybrid_over_uva,
    "gnnflow-fig13-cuda-only-oom": placements.out_of_memory,
    "gnnflow-fig13-uva-below-cpu": placements.uva_below_cpu,
    "gnnflow-fig13-um-thrash": placements.thrashing,
    # Features that are fetched: Tables 3 and 4, Figure 5
    "gnnflow-s1-edge-feature-share": traffic.dense_range,
    "gnnflow-s22-edge-feature-share": traffic.dense_range,
    "gnnflow-tab3-tgn": traffic.edge_share,
    "gnnflow-tab3-tgat": traffic.edge_share,
    "gnnflow-tab3-dysat": traffic.edge_share,
    "gnnflow-tab3-dense-vs-sparse": traffic.dense_above_sparse,
    "gnnflow-tab4-node-jaccard": traffic.jaccard,
    "gnnflow-tab4-edge-jaccard": traffic.jaccard,
    "gnnflow-tab4-node-above-edge": traffic.nodes_above_edges,
    "gnnflow-s22-already-cached": traffic.already_cached,
    "gnnflow-fig5-node-access-powerlaw": traffic.access_law,
    "gnnflow-fig5-edge-access-exponential": traffic.access_law,
    "gnnflow-fig5-other-workloads": traffic.other_workloads,
    "gnnflow-s43-static-gnn-edge-skew": traffic.static_skew,
    # Caches: sections 4.3 and 6.2, Figure 14
    "gnnflow-s22-cache-init-share": cache.init_share,
    "gnnflow-fig14a-fetch-vs-gnnlab": cache.fetch_gain,
    "gnnflow-fig14b-init-share": cache.init_share,
    "gnnflow-fig14cd-rr-gain": cache.rr_gain,
    "gnnflow-fig14d-static-edge-zero": cache.static_zero,
    "gnnflow-fig14d-static-edge-below-dynamic": cache.static_below,
    "gnnflow-s62-lru-best-dynamic": cache.lru_best,
    "gnnflow-s43-lambda-stabilises": cache.lambda_helps,
    "gnnflow-s43-vectorised-faster": cache.batched_faster,
    # Accuracy of continuous training: Figures 10 and 11
    "gnnflow-s1-epochs-per-round": accuracy.epochs_per_round,
    "gnnflow-fig10-diminishing": accuracy.diminishing,
    "gnnflow-fig10-drop-3-to-4": accuracy.drop,
    "gnnflow-fig10-sweet-spot": accuracy.sweet_spot,
    "gnnflow-fig11-accuracy-gap": accuracy.accuracy_gap,
    "gnnflow-fig11-always-ahead": accuracy.always_ahead,
    "gnnflow-fig11-replay": accuracy.replay,
    "gnnflow-fig11-tgl-jump": accuracy.tgl_jump,
    "gnnflow-fig11-no-retrain": accuracy.no_retrain,
    "gnnflow-s61-equal-budget": accuracy.equal_budget,
    # Rounds: section 6.1, Figures 8 and 9
    "gnnflow-abs-max-retrain-speedup": rounds.most_gain,
    "gnnflow-fig8-gdelt": rounds.round_gain,
    "gnnflow-fig8-netflix": rounds.round_gain,
    "gnnflow-s61-tgl-rebuild-time": rounds.rebuild_time,
    "gnnflow-s61-tgl-rebuild-share": rounds.rebuild_share,
    "gnnflow-s61-rebuild-dominates": rounds.rebuild_dominates,
    "gnnflow-s61-update-time": rounds.update_time,
    "gnnflow-s61-insert-size": rounds.insert_size,
    "gnnflow-s61-half-minute": rounds.half_minute,
    "gnnflow-fig9-sampling": rounds.sampling,
    "gnnflow-fig9-feature-fetch": rounds.fetching,
    # Several machines: sections 4.4 and 6.4, Figure 15, Table 7
    "gnnflow-fig15-best-throughput": distributed.best_throughput,
    "gnnflow-fig15-near-linear": distributed.near_linear,
    "gnnflow-fig15-32gpu-efficiency": distributed.efficiency_32,
    "gnnflow-s44-sampling-cv": distributed.sampling_cv,
    "gnnflow-s44-hash-balance": distributed.hash_balance,
    "gnnflow-s44-edge-cut-preferred": distributed.edge_cut,
    "gnnflow-abs-mag-throughput-gain": partitioned.mag_gain,
    "gnnflow-tab7-graph-building": partitioned.graph_building,
    "gnnflow-tab7-dgl-throughput": partitioned.throughput(partitioned.table7.DISTDGL),
    "gnnflow-tab7-gnnflow-throughput": partitioned.throughput(partitioned.table7.OURS),
    "gnnflow-s64-accuracy-parity": partitioned.accuracy_parity,
    "gnnflow-s64-mag-too-large": partitioned.mag_too_large,
    "gnnflow-s64-ldbc-edge-memory": partitioned.ldbc_edges,
    "gnnflow-s64-ldbc-metadata": partitioned.ldbc_metadata,
    "gnnflow-s64-ldbc-throughput": partitioned.ldbc_throughput,
    "gnnflow-s1-five-billion-edges": partitioned.five_billion,
    # The graphs, the code and the machine: Tables 1 and 5
    "gnnflow-tab1-capabilities": sizes.capabilities,
    "gnnflow-tab5-nodes": sizes.sizes("nodes"),
    "gnnflow-tab5-edges": sizes.sizes("edges"),
    "gnnflow-tab5-node-dim": sizes.widths("node"),
    "gnnflow-tab5-edge-dim": sizes.widths("edge"),
    "gnnflow-tab5-span": sizes.of_times(
        "stream", lambda words: sizes.seconds_of(words) / sizes.DAY, sizes.DAY
    ),
    "gnnflow-tab5-granularity": sizes.of_times("step", sizes.seconds_of),
    "gnnflow-s5-loc": sizes.code,
    "gnnflow-s6-testbed": sizes.testbed,
    # Building the graph: section 2.2, Table 2
    "gnnflow-s1-sample-fetch-share": build.sample_fetch_share,
    "gnnflow-tab2-tgl": build.hours("tgl"),
    "gnnflow-tab2-dgl": build.hours("dgl"),
    "gnnflow-s22-build-share": build.build_share,
    "gnnflow-s22-build-range": build.build_range,
}
