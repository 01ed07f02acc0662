"""The switches of GNNFlow on one process, in the order in which the paper brings them.

By default they are those of the published form: all of the paper's techniques, none of ours.
"""

from typing import Final

from dgbench.systems.base.system import Technique

TECHNIQUES = (
    Technique(
        "in_place",
        "Append a round's edges to the graph that is there; off, build it anew from all edges.",
        exact=True,
        source="GNNFlow 4.1",
    ),
    Technique(
        "adaptive_blocks",
        "Size a new block by its vertex's degree; off, by the edges that have just come.",
        exact=True,
        source="GNNFlow 4.1",
    ),
    Technique(
        "grown_blocks",
        "Let a vertex's only block grow with it; off, add adaptive ones. Needs `adaptive_blocks`.",
        exact=True,
        source="added: the paper never moves a block",
        default=False,
        ours=True,
    ),
    Technique(
        "fences",
        "Find the blocks of a window by search; off, walk the list from its newest block.",
        exact=True,
        source="added: the paper walks (Algorithm 1)",
        default=False,
        ours=True,
    ),
    Technique(
        "node_cache",
        "Keep features of nodes that are asked for again.",
        exact=True,
        source="GNNFlow 4.3",
    ),
    Technique(
        "edge_cache",
        "Keep features of edges that are asked for again.",
        exact=True,
        source="GNNFlow 4.3",
    ),
    Technique(
        "reuse",
        "Carry what the caches hold over to the next round; off, begin each round empty.",
        exact=True,
        source="GNNFlow 4.3",
    ),
    Technique(
        "restoration",
        "Begin each epoch with the caches of the round's begin; off, with those of the last epoch.",
        exact=True,
        source="GNNFlow 4.3",
    ),
    Technique(
        "chunk_scheduling",
        "Move the borders of batches from epoch to epoch, where the workload has chunks.",
        exact=False,
        source="TGL, used for TGN (section 6)",
    ),
    Technique(
        "replay",
        "Train on old edges beside a round's new ones.",
        exact=False,
        source="GNNFlow 3; off in Figure 8, on in Figure 11",
        default=False,
    ),
    Technique(
        "recorded_steps",
        "Record a batch on a device as one CUDA graph, over a resident graph and without caches.",
        exact=True,
        source="added: the paper starts operators from the host",
        default=False,
        ours=True,
    ),
)
STORE_ADDITIONS: Final = dict.fromkeys(("grown_blocks", "fences"), True)
"""Switches of our additions to the paper's store, on."""
