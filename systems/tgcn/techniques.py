"""The switches of T-GCN, in the order in which the paper brings them."""

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
        "touched",
        "Move and refresh only rows that an interval's edges name; off, whole parts.",
        exact=True,
        source="added: the paper moves whole intervals of vertices",
    ),
)
