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
    sizes,
    slicing,
    tuning,
)
from dgbench.systems.pipad.claims import MOVED
from dgbench.systems.pipad.experiments.settings import EXTRAS

_CHECKS: dict[str, Check] = {
    **MOVED,
    "pipad-s1-topology-slow-change": formats.slow_change,
    "pipad-s2-reordering-cost": mechanisms.reordering,
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
    "pipad-s43-sper-options": tuning.s_per_options,
    "pipad-s44-memory-bound": mechanisms.partition_memory,
    "pipad-fig9a-sper-order-vs-or": tuning.order_by_rate,
    "pipad-fig9b-sper-order-vs-dim": tuning.order_by_dim,
    "pipad-s44-low-or-penalty": tuning.rises_with_rate,
    "pipad-s52-sper-large": tuning.sper_large,
    "pipad-s41-overlap-transfer-less": formats.overlap_transfer,
    **dict.fromkeys(sizes.TABLE1, sizes.table1),
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
