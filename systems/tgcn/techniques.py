"""The switches of T-GCN, in the order in which the paper brings them.

By default they are those of the published form: all of the paper's techniques, none of ours. Where
the paper has two readings of sampling (2.3 and Algorithm 4), the default is its definition.
"""

from dgbench.systems.base.system import Technique

TECHNIQUES = (
    Technique(
        "sampling",
        "Train on half of every neighbourhood; off, on all edges.",
        exact=False,
        source="T-GCN 3, 6.3",
    ),
    Technique(
        "sis",
        "Draw by Segment Its Search; off, by inverse transform with a linear scan. The same "
        "distribution, another sample.",
        exact=False,
        source="T-GCN 3",
    ),
    Technique(
        "union",
        "Draw from the pools of Algorithm 4, half of the union of neighbourhoods around root after "
        "root, until half of all edges are in; off, half of every source's edges.",
        exact=False,
        source="T-GCN 3.1, Algorithm 4",
        default=False,
    ),
    Technique(
        "device_sampling",
        "Let a GPU that trains also draw by Segment Its Search; off, the host draws, another "
        "sample of the same distribution. On a CPU there is no difference.",
        exact=False,
        source="T-GCN 3",
    ),
    Technique(
        "partition",
        "Cut an interval's edges by the owners of both ends, vectors stay with their owner; off, "
        "edges lie in stream order and vectors in host memory, as in NeuGraph.",
        exact=True,
        source="T-GCN 4.1",
    ),
    Technique(
        "schedule",
        "Pass destinations round the ring of devices, one part at a time; off, every device "
        "gathers all of them at once. One device has nothing to pass.",
        exact=True,
        source="T-GCN 4.2",
    ),
    Technique(
        "measured_ring",
        "Pass destinations round the ring of the widest swaps that ranks measure between them at "
        "start; off, round that of a DGX-1, the paper's machine. What shares memory is alike.",
        exact=True,
        source="T-GCN 4.2, for the machine at hand",
    ),
    Technique(
        "overlap",
        "Bring what comes next into a third region while training on the second; off, bring it "
        "when it is needed and wait.",
        exact=True,
        source="T-GCN 4.3",
    ),
    Technique(
        "p2p",
        "Devices pass vectors to each other; off, through host memory.",
        exact=True,
        source="T-GCN 6.7",
    ),
    Technique(
        "affected",
        "Compute new embeddings of the vertices that an interval's edges name; off, of all "
        "vertices of its parts.",
        exact=True,
        source="T-GCN 4.1",
    ),
    Technique(
        "touched",
        "Move only rows that an interval's edges name between devices and host memory; off, whole "
        "parts, whose embeddings are then all computed. Where nothing moves there is no "
        "difference.",
        exact=True,
        source="added: the paper moves whole intervals of vertices",
        default=False,
        ours=True,
    ),
)
