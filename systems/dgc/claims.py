"""Checks of DGC's ledger by claim.

Each check takes the paper's graphs where they are held and says what stands in for them where they
are not (`experiments.settings.standing_in`); what other graphs tell is weak (`lab.evidence`).
"""

from __future__ import annotations

from typing import Final

from dgbench.lab.paper import Check
from dgbench.lab.rules import checks_of
from dgbench.systems.dgc.checks import (
    baselines,
    convergence,
    fusion,
    partition,
    scaling,
    sizes,
    stale,
    synthetic,
    workload,
)
from dgbench.systems.dgc.experiments import EXPERIMENTS
from dgbench.systems.dgc.experiments.race_runs import DGC, EXACT, PLAIN, PSS, PSS_TS, PTS
from dgbench.systems.dgc.experiments.settings import FORMS

GRAPHS = ("amazon", "epinion", "movie", "stack")
MODELS = ("t-gcn", "dysat", "mpnn-lstm")


CHECKS: Final[dict[str, Check]] = {
    **checks_of(FORMS, *(one for one in EXPERIMENTS if hasattr(one, "forms"))),
    # The graphs: Table 1, Figures 3 and 5(a, b), 13
    **{f"dgc-tab1-{graph}": sizes.table1 for graph in GRAPHS},
    "dgc-s71-windows": sizes.windows,
    "dgc-s71-protocol": sizes.protocol,
    "dgc-fig3-nonuniform": sizes.nonuniform,
    "dgc-fig5a-vertices-parts": sizes.quarters_vertices,
    "dgc-fig5b-edges-parts": sizes.quarters_edges,
    "dgc-s22-others-same": sizes.others_alike,
    "dgc-s731-synthetic": synthetic.sizes,
    # Three partitions: Figures 4 and 5(c)
    "dgc-fig4a-pts-best-three": baselines.pts_best,
    "dgc-fig4a-epinion-pss-comm": baselines.epinion_pss,
    "dgc-fig4a-movie-pts-comm": baselines.movie_pts,
    "dgc-fig4a-psst-reassign": baselines.reassignment,
    "dgc-fig4-no-single-winner": baselines.no_single_winner,
    "dgc-fig4b-pts-stack-balance": baselines.pts_stack,
    "dgc-fig4b-balance-order": baselines.balance_order,
    "dgc-fig5c-part-order": baselines.part_order,
    "dgc-fig5c-trends": baselines.trends,
    # Chunks: sections 4 and 7.2, Figures 7, 14, 16 and 17
    "dgc-s41-equivalence": partition.equivalence,
    "dgc-s41-spatial-weight-twice": partition.spatial_twice,
    "dgc-s72-tgcn-spatial-more": partition.spatial_more,
    "dgc-s72-attention-neighbours": partition.attention_neighbours,
    "dgc-s72-mpnn-more-comm": partition.mpnn_more,
    "dgc-fig14-nonuniform-trend": synthetic.trend,
    "dgc-fig7-chunk-time-gap": workload.time_gap,
    "dgc-s64-mlp-training": workload.training,
    "dgc-fig16-mlp-error": workload.error,
    "dgc-fig16-divergence-mlp": workload.divergence,
    "dgc-fig16-divergence-vertices": workload.divergence,
    "dgc-fig17-overhead": partition.cost,
    "dgc-fig17-amazon-gen": partition.amazon_generation,
    "dgc-fig17-fusion-larger": partition.fusion_larger,
    "dgc-s75-partition-once": partition.once,
    # Chunk fusion: section 5.1, Figure 15
    "dgc-s511-memory-stable": fusion.memory_stable,
    "dgc-s511-redundant-load": fusion.redundant_load,
    "dgc-s512-mask-correct": fusion.mask_correct,
    "dgc-fig15a-loading": fusion.loading,
    "dgc-fig15a-stack-highest": fusion.stack_highest,
    "dgc-fig15b-gpu-util": fusion.utilisation,
    # Stale aggregation: section 5.2, Figure 11, Tables 2 and 3
    "dgc-fig11-movie-10": stale.share_below,
    "dgc-fig11-stack-10": stale.share_below,
    "dgc-fig11-movie-100": stale.share_below,
    "dgc-s52-distance-shrinks": stale.distance_shrinks,
    "dgc-s52-cache-memory": stale.cache_memory,
    "dgc-s52-stack-03d": stale.stack_03,
    "dgc-s52-movie-05d": stale.movie_05,
    "dgc-s52-theta-monotone": stale.monotone,
    "dgc-s52-eq6-direction": stale.eq6_direction,
    "dgc-s733-comm-range": stale.saved_range,
    "dgc-s733-adaptive-mean": stale.adaptive_mean,
    "dgc-s733-static-spread": stale.static_spread,
    "dgc-s733-static-epinion": stale.static_epinion,
    **{f"dgc-tab2-acc-{graph}": stale.table_accuracy for graph in GRAPHS},
    **{f"dgc-tab2-comm-{graph}": stale.table_traffic for graph in GRAPHS},
    **{f"dgc-tab3-acc-{g}-{m}": stale.table_accuracy for g in GRAPHS for m in MODELS},
    **{f"dgc-tab3-comm-{g}-{m}": stale.table_traffic for g in GRAPHS for m in MODELS},
    # Epochs: sections 7.2 and 7.3, Figure 12
    "dgc-abs-speedup-range": scaling.speedups(DGC),
    "dgc-fig12-avg-t-gcn": scaling.average("T-GCN"),
    "dgc-fig12-avg-dysat": scaling.average("DySAT"),
    "dgc-fig12-avg-mpnn-lstm": scaling.average("MPNN-LSTM"),
    "dgc-fig12-dgc-best": scaling.best,
    "dgc-fig12-amazon-order": scaling.order("amazon", first=PTS, last=PSS_TS),
    "dgc-fig12-epinion-order": scaling.order("epinions", last=PSS),
    "dgc-s72-tgcn-movie": scaling.named_cell("T-GCN", "movie", PTS),
    "dgc-s72-dysat-epinion": scaling.named_cell("DySAT", "epinions", PSS),
    "dgc-s72-mpnn-movie": scaling.named_cell("MPNN-LSTM", "movie", PTS),
    "dgc-s72-mpnn-epinion": scaling.named_cell("MPNN-LSTM", "epinions", PSS),
    "dgc-s731-pgc-only": scaling.speedups(PLAIN),
    "dgc-s731-amazon-pts-close": scaling.amazon_close,
    "dgc-s732-cf-speedup": scaling.module(EXACT, PLAIN),
    "dgc-s732-cf-stack-best": scaling.stack_gains_most,
    "dgc-s733-sg-speedup": scaling.module(DGC, EXACT),
    # Equal training: section 7.6, Figure 18
    "dgc-fig18-convergence": convergence.convergence,
    "dgc-s5-disable-same": convergence.disable_same,
}
