"""Which check answers which claim. Every id of the ledger stands here exactly once."""

from collections.abc import Sequence
from functools import wraps
from typing import Any

from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.pipad.checks import (
    formats,
    layer,
    mechanisms,
    memory,
    profile,
    sizes,
    slicing,
    training,
    tuning,
    utilisation,
)
from dgbench.systems.pipad.experiments.settings import EXTRAS

_METHODS = ("pygt", "pygt-a", "pygt-r", "pygt-g", "pipad")

_CHECKS: dict[str, Check] = {
    "pipad-abs-speedup-range": training.abstract_range,
    "pipad-s1-transfer-share-approx": profile.transfer_share,
    "pipad-s1-gpu-util-bound": profile.sm_bound,
    "pipad-s1-topology-slow-change": formats.slow_change,
    "pipad-s2-reordering-cost": mechanisms.reordering,
    "pipad-fig3-transfer-share": profile.transfer_share,
    "pipad-fig3-sm-util": profile.sm_bound,
    "pipad-fig4-gnn-dominates-compute": profile.gnn_dominates,
    "pipad-s32-access-granularity": memory.granularity,
    "pipad-fig5-request-transaction-knees": memory.knees,
    "pipad-s33-first-agg-param-free": mechanisms.reuse_is_exact,
    "pipad-s33-stride": mechanisms.stride,
    "pipad-s41-space-sliced-csr": formats.formula,
    "pipad-s41-space-csr": formats.formula,
    "pipad-s41-space-coo": formats.formula,
    "pipad-s41-slice-cap": formats.slice_cap,
    "pipad-s41-space-between": formats.between,
    "pipad-s42-coalesce-num": memory.coalesce_num,
    "pipad-s42-vector-widths": memory.vector_widths,
    "pipad-s43-preprocessing-epochs": mechanisms.preparation_cost,
    "pipad-s43-sper-options": tuning.s_per_options,
    "pipad-s44-memory-bound": mechanisms.partition_memory,
    "pipad-fig9a-sper-order-vs-or": tuning.order_by_rate,
    "pipad-fig9b-sper-order-vs-dim": tuning.order_by_dim,
    "pipad-s44-low-or-penalty": tuning.rises_with_rate,
    "pipad-s44-reuse-removes-topology-transfer": mechanisms.topology_not_sent_again,
    "pipad-s52-sper-large": tuning.sper_large,
    "pipad-s41-overlap-transfer-less": formats.overlap_transfer,
    "pipad-s43-epochs-similar": mechanisms.epochs_alike,
    **dict.fromkeys(sizes.TABLE1, sizes.table1),
    "pipad-fig10-speedup-range-pygt": training.speedup_range,
    **dict.fromkeys(training.MODEL_OF, training.average),
    "pipad-fig10-pipad-best": training.best,
    "pipad-fig10-pygtg-second": training.pygtg_second,
    "pipad-fig10-small-gain-more": training.small_gain_more,
    "pipad-s52-csc-extra-transfer": formats.csc_transfer,
    "pipad-s52-evolvegcn-vs-pygtg": training.evolvegcn_over_g,
    "pipad-s52-model-order-vs-pygtg": training.model_order,
    "pipad-s52-mpnn-lowest": training.mpnn_lowest,
    "pipad-s52-mpnn-highest": training.mpnn_highest,
    "pipad-s52-mpnn-rnn-heavy": profile.mpnn_rnn_heavy,
    "pipad-s52-evolvegcn-other-small": profile.evolvegcn_rest_small,
    "pipad-s52-tgcn-all-agg-removed": training.aggregation_removed,
    **{
        f"pipad-tab2-util-{model}-{method}": utilisation.table2
        for model in utilisation.MODEL_WORDS
        for method in _METHODS
    },
    "pipad-tab2-order-pipad-over-pygtg": utilisation.pipad_over_g,
    "pipad-tab2-order-ra-highest": utilisation.ra_highest,
    "pipad-tab2-small-low": utilisation.small_low,
    "pipad-fig11a-gnn-speedup-pygt": layer.average,
    "pipad-fig11a-gnn-speedup-pygtg": layer.average,
    "pipad-fig11a-requests": memory.saved,
    "pipad-fig11a-transactions": memory.saved,
    "pipad-fig11a-denser-better": layer.denser_better,
    "pipad-fig11a-youtube-memory": memory.youtube_saves_most,
    "pipad-s53-example-dim2": memory.example_dim2,
    "pipad-s53-example-dim16": memory.example_dim16,
    "pipad-s53-thread-util": memory.lanes,
    "pipad-fig11b-dim-sensitivity": layer.dim_sensitivity,
    "pipad-fig11b-small-dim-better": layer.small_dim_better,
    "pipad-fig12-load-balance": slicing.load_balance,
    "pipad-fig12-speedup-trend": slicing.speedup_trend,
    "pipad-s54-youtube-space": formats.youtube_space,
    "pipad-s51-protocol": sizes.protocol,
    "pipad-s51-feature-dims": sizes.feature_dims,
}


def _on_the_papers_graphs(check: Check) -> Check:
    """Keep rows of graphs that the paper does not use out of its claims."""
    others = {graph.name for graph in EXTRAS}

    @wraps(check)
    def checked(claim: Claim, rows: Sequence[Any]) -> Finding:
        return check(claim, [r for r in rows if r.params.get("dataset") not in others])

    return checked


CHECKS: dict[str, Check] = {key: _on_the_papers_graphs(check) for key, check in _CHECKS.items()}
