"""The claims of PiPAD's ledger: what is looked at, and the verb that it is checked with."""

from __future__ import annotations

from dgbench.lab.verbs import (
    ahead_on_most,
    average,
    best_everywhere,
    equals,
    larger,
    mean,
    observed,
    readings,
    spread,
)
from dgbench.systems.base import Check
from dgbench.systems.pipad.experiments.fig9 import AT_DIM, AT_RATE
from dgbench.systems.pipad.experiments.fig10 import METHODS, RACE
from dgbench.systems.pipad.experiments.memory import KNEES, LOADS
from dgbench.systems.pipad.experiments.settings import EXTRAS, MODELS
from dgbench.systems.pipad.findings.devices import MODEL_WORDS, busier, small_low, utilisation
from dgbench.systems.pipad.findings.formats import (
    between,
    feature_dims,
    formula,
    overlap_transfer,
    printed_sizes,
    slice_cap,
    slow_change,
    youtube_space,
)
from dgbench.systems.pipad.findings.layers import (
    denser_better,
    dim_sensitivity,
    layer_gain,
    load_balance,
    released,
    small_dim_better,
    speedup_trend,
)
from dgbench.systems.pipad.findings.memory import (
    MODEL,
    example,
    example_dim2,
    knee,
    lanes,
    lengths,
    partition_memory,
    reordering,
    reuse_is_exact,
    stride,
    youtube_saves_most,
)
from dgbench.systems.pipad.findings.time_split import (
    evolvegcn_rest_small,
    gnn_dominates,
    mpnn_rnn_heavy,
    sm_bound,
    transfer_share,
)
from dgbench.systems.pipad.findings.training import (
    AVERAGE,
    aggregation_removed,
    beside,
    csc_transfer,
    end_of_range,
    epochs_alike,
    preparation_in_epochs,
    protocol,
    small_gain_more,
    topology_not_sent_again,
)
from dgbench.systems.pipad.findings.tuning import (
    rises_with_rate,
    s_per_options,
    size_order,
    sper_large,
)
from dgbench.systems.pipad.ladders import BARE, PUBLISHED, REUSED

_TABLE: dict[str, Check] = {
    "pipad-s1-topology-slow-change": slow_change,
    "pipad-s2-reordering-cost": reordering,
    "pipad-s32-access-granularity": equals(
        KNEES,
        lambda found: {
            "min_transaction_bytes": 4 * knee(found, "transactions"),
            "warp_request_bytes": 4 * knee(found, "requests"),
            "threads_per_warp": lengths(found)[0],
        },
        MODEL,
    ),
    "pipad-fig5-request-transaction-knees": equals(
        KNEES, lambda found: {f"{one}_knee": knee(found, one) for one in LOADS}, MODEL
    ),
    "pipad-s33-first-agg-param-free": reuse_is_exact,
    "pipad-s33-stride": stride,
    "pipad-s41-space-sliced-csr": formula("sliced"),
    "pipad-s41-space-csr": formula("csr"),
    "pipad-s41-space-coo": formula("coo"),
    "pipad-s41-slice-cap": slice_cap,
    "pipad-s41-space-between": between,
    "pipad-s42-coalesce-num": equals(
        KNEES, lambda found: found.where("slices", dim=None).one().value
    ),
    "pipad-s42-vector-widths": equals(KNEES, lengths),
    "pipad-s43-sper-options": s_per_options,
    "pipad-s44-memory-bound": partition_memory,
    "pipad-fig9a-sper-order-vs-or": size_order(
        {"dim": AT_DIM}, lambda key: f"overlap rate {key[1]:g}"
    ),
    "pipad-fig9b-sper-order-vs-dim": size_order(
        {"overlap_rate": AT_RATE}, lambda key: f"length {key[2]}"
    ),
    "pipad-s44-low-or-penalty": rises_with_rate,
    "pipad-s52-sper-large": sper_large,
    "pipad-s41-overlap-transfer-less": overlap_transfer,
    "pipad-tab1-flickr": printed_sizes("flickr"),
    "pipad-tab1-youtube": printed_sizes("youtube"),
    "pipad-tab1-automotive": printed_sizes("amz-automotive"),
    "pipad-tab1-epinions": printed_sizes("epinions"),
    "pipad-tab1-hepth": printed_sizes("hepth"),
    "pipad-tab1-pems08": printed_sizes("pems08"),
    "pipad-tab1-covid": printed_sizes("covid19-england"),
    "pipad-fig11a-gnn-speedup-pygt": released(layer_gain, "pygt", printed=True),
    "pipad-fig11a-gnn-speedup-pygtg": released(layer_gain, "pygt-g", printed=True),
    "pipad-fig11a-requests": average(
        observed("memory", "saving", of="requests"), "mean of {n} graphs", scale=100, model=MODEL
    ),
    "pipad-fig11a-transactions": average(
        observed("memory", "saving", of="transactions"),
        "mean of {n} graphs",
        scale=100,
        model=MODEL,
    ),
    "pipad-fig11a-denser-better": denser_better,
    "pipad-fig11a-youtube-memory": youtube_saves_most,
    "pipad-s53-example-dim2": equals(KNEES, example_dim2),
    "pipad-s53-example-dim16": equals(
        KNEES, lambda found: {who: example(found, 16, who) for who in ("gespmm", "pipad")}
    ),
    "pipad-s53-thread-util": lanes,
    "pipad-fig11b-dim-sensitivity": released(dim_sensitivity, "pygt", small=True),
    "pipad-fig11b-small-dim-better": small_dim_better,
    "pipad-fig12-load-balance": load_balance,
    "pipad-fig12-speedup-trend": speedup_trend,
    "pipad-s54-youtube-space": youtube_space,
    "pipad-s51-feature-dims": feature_dims,
    "pipad-abs-speedup-range": beside(
        spread(RACE(REUSED, PUBLISHED), RACE(BARE, PUBLISHED)), "pygt"
    ),
    "pipad-s1-transfer-share-approx": transfer_share,
    "pipad-s1-gpu-util-bound": sm_bound,
    "pipad-fig3-transfer-share": transfer_share,
    "pipad-fig3-sm-util": sm_bound,
    "pipad-fig4-gnn-dominates-compute": gnn_dominates,
    "pipad-s43-preprocessing-epochs": readings(
        "whose epochs are meant is not told",
        **{
            "epochs of PyGT": preparation_in_epochs("pygt"),
            "epochs on our engine": preparation_in_epochs(BARE),
        },
    ),
    "pipad-s44-reuse-removes-topology-transfer": topology_not_sent_again,
    "pipad-s43-epochs-similar": epochs_alike,
    "pipad-fig10-speedup-range-pygt": beside(spread(RACE(BARE, PUBLISHED)), "pygt"),
    **{
        f"pipad-fig10-avg-{word}": beside(
            mean(RACE(BARE, PUBLISHED, model=model), AVERAGE), "pygt", model=model
        )
        for word, model in MODEL_WORDS.items()
    },
    "pipad-fig10-pipad-best": beside(
        best_everywhere(RACE, PUBLISHED, (BARE, REUSED, *METHODS[:-1])), "pygt-g"
    ),
    "pipad-fig10-pygtg-second": ahead_on_most(RACE, "pygt-g", METHODS[:3]),
    "pipad-fig10-small-gain-more": small_gain_more,
    "pipad-s52-csc-extra-transfer": csc_transfer,
    "pipad-s52-evolvegcn-vs-pygtg": beside(
        mean(RACE(REUSED, PUBLISHED, model="evolvegcn"), AVERAGE), "pygt-g", model="evolvegcn"
    ),
    "pipad-s52-model-order-vs-pygtg": larger(
        "evolvegcn", {m: RACE(REUSED, PUBLISHED, model=m) for m in MODELS}
    ),
    "pipad-s52-mpnn-lowest": beside(
        end_of_range(RACE(REUSED, PUBLISHED), min, "low", "mpnn_lstm", small=False),
        "pygt-g",
        model="mpnn_lstm",
        small=False,
    ),
    "pipad-s52-mpnn-highest": beside(
        end_of_range(RACE(BARE, PUBLISHED), max, "high", "mpnn_lstm", small=True),
        "pygt",
        model="mpnn_lstm",
        small=True,
    ),
    "pipad-s52-mpnn-rnn-heavy": mpnn_rnn_heavy,
    "pipad-s52-evolvegcn-other-small": evolvegcn_rest_small,
    "pipad-s52-tgcn-all-agg-removed": aggregation_removed,
    **{
        f"pipad-tab2-util-{word}-{method}": utilisation(model, method)
        for word, model in MODEL_WORDS.items()
        for method in METHODS
    },
    "pipad-tab2-order-pipad-over-pygtg": busier(("pipad",), ("pygt-g",)),
    "pipad-tab2-order-ra-highest": busier(("pygt-a", "pygt-r"), ("pipad", "pygt-g"), most=True),
    "pipad-tab2-small-low": small_low,
    "pipad-s51-protocol": protocol,
}


def _on_the_papers_graphs(check: Check) -> Check:
    """Keep rows of graphs that the paper does not use out of its claims."""
    others = {graph.name for graph in EXTRAS}
    return lambda claim, rows: check(
        claim, [row for row in rows if row.params.get("dataset") not in others]
    )


CHECKS = {name: _on_the_papers_graphs(check) for name, check in _TABLE.items()}
"""Claim -> its check. Every id of the ledger stands here exactly once."""
