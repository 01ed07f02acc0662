"""Checks of ESDG's ledger by claim. Every id stands here exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any, Final

from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.rules import checks_of
from dgbench.systems.esdg.checks import checkpoint, convergence, difference, scaling, sizes, volume
from dgbench.systems.esdg.experiments import EXPERIMENTS
from dgbench.systems.esdg.experiments.settings import FORMS, STAND_INS

TABLE: Final[dict[str, Check]] = {
    **checks_of(FORMS, *(one for one in EXPERIMENTS if hasattr(one, "forms"))),
    # The graphs and settings
    **dict.fromkeys(sizes.TABLE1, sizes.table1),
    "esdg-s61-settings": sizes.settings,
    # Snapshots sent as differences: sections 3.2 and 6.2, Figure 4
    "esdg-abs-gd-transfer": difference.transfer,
    "esdg-abs-gd-overall": difference.overall,
    "esdg-s32-gd-bytes": difference.bytes_sent,
    "esdg-s32-transfer-important": difference.transfer_matters,
    "esdg-s54-window-equivalence": difference.smoothings_alike,
    "esdg-s62-gd-benefit-fraction": difference.benefit_fraction,
    "esdg-s62-gd-gains-shrink": difference.gains_shrink,
    "esdg-s62-gd-order-smoothing": difference.order_by_smoothing,
    "esdg-s62-cdgcn-gd": difference.cdgcn,
    "esdg-fig4-components": difference.components,
    # Blocks and memory: sections 3.1 and 6.2
    "esdg-s31-oom-below-8": checkpoint.oom_below,
    "esdg-s62-baseline-oom-node": checkpoint.oom_node,
    "esdg-s31-block-memory": checkpoint.block_memory,
    "esdg-s31-fewer-blocks-faster": checkpoint.fewer_blocks,
    "esdg-s32-transfer-twice": checkpoint.transfer_twice,
    "esdg-s62-bsize-tuned": checkpoint.blocks_tuned,
    "esdg-s55-precompute": checkpoint.precompute,
    # Strong and weak scaling: section 6.3, Figures 5 and 7, Table 2
    "esdg-abs-strong-scaling": scaling.strong,
    "esdg-s1-max-system": scaling.max_system,
    "esdg-fig5-compute-scales": scaling.compute_scales,
    "esdg-fig5-comm-bottleneck": scaling.comm_bottleneck,
    "esdg-fig5-node-boundary-drop": scaling.boundary_drop,
    "esdg-s63-inter-node-share": scaling.inter_node,
    "esdg-s63-recovers-with-nodes": scaling.recovers,
    "esdg-s1-sublinear-nodes": scaling.sublinear,
    **dict.fromkeys(scaling.WEAK, scaling.weak),
    "esdg-s63-weak-drop": scaling.weak_drop,
    "esdg-s63-weak-sizes": scaling.weak_sizes,
    "esdg-s63-weak-n": scaling.weak_nodes,
    **dict.fromkeys(scaling.SNAPSHOT_TIMES, scaling.snapshot_times),
    **dict.fromkeys(scaling.HYPER_TIMES, scaling.hyper_times),
    "esdg-s65-idle-when-t-small": scaling.idle,
    # What is sent: sections 4.1 and 4.2, Table 2
    "esdg-s1-volume-constant": volume.volume_constant,
    "esdg-s41-vertex-volume": volume.vertex_volume,
    "esdg-s41-vertex-volume-grows": volume.vertex_grows,
    "esdg-s42-redistributions": volume.redistributions,
    "esdg-s64-volume-factor": volume.volume_factor,
    "esdg-s55-evolvegcn-comm": volume.evolvegcn,
    **{f"esdg-tab2-volume-{m}": volume.volume for m in volume.MODEL_OF},
    **{f"esdg-tab2-hyper-volume-{m}": volume.hyper_volume for m in volume.MODEL_OF},
    "esdg-tab2-cross-tmgcn": volume.cross,
    "esdg-tab2-cross-cdgcn": volume.cross,
    "esdg-tab2-egcn-superior": volume.egcn_superior,
    "esdg-tab2-time-order": volume.time_order,
    "esdg-s41-preprocessing": volume.preprocessing,
    # Convergence: section 6.4, Figure 6
    "esdg-fig6-convergence-tmgcn": convergence.tmgcn,
    "esdg-fig6-convergence-cdgcn": convergence.cdgcn,
    "esdg-fig6-convergence-egcn": convergence.evolvegcn,
    "esdg-s64-sequential-equivalence": convergence.equivalence,
    "esdg-s64-theta": convergence.theta,
    **dict.fromkeys(("esdg-s65-large-1", "esdg-s65-large-2"), convergence.large),
}


def on_stand_ins(check: Check) -> Check:
    """The check with rows of the paper's graphs and of what its generators make, where its claim
    names some; a formula or a mechanism takes rows of any graph."""

    @wraps(check)
    def checked(claim: Claim, rows: Sequence[Any]) -> Finding:
        return check(claim, STAND_INS.of(rows) if claim.workload.get("datasets") else rows)

    return checked


CHECKS: Final = {name: on_stand_ins(check) for name, check in TABLE.items()}
