"""The switches of DGC on one process, in the order in which the paper brings them.

By default they are those of the published form: all of the paper's techniques, none of ours.
Rows are held back between workers alone, so that `stale` is off where there is one.
"""

from dgbench.systems.base.system import Technique

TECHNIQUES = (
    Technique(
        "pgc",
        "Work on chunks across snapshots and sequences; off, on snapshots.",
        exact=True,
        source="DGC 4.1",
    ),
    Technique(
        "refine",
        "Propagate labels over several levels and improve the workers of chunks on what is really "
        "sent; off, labels once and Algorithm 1.",
        exact=True,
        source="added: the paper deals chunks out once (Algorithm 1)",
        default=False,
        ours=True,
    ),
    Technique(
        "predictor",
        "Deal chunks out by predicted time; off, by their vertices.",
        exact=True,
        source="DGC 4.2",
    ),
    Technique(
        "spatial_fusion",
        "Take chunks that load each other's rows at once.",
        exact=True,
        source="DGC 5.1.1",
    ),
    Technique(
        "temporal_fusion",
        "Put short sequences behind each other in rows instead of padding them.",
        exact=True,
        source="DGC 5.1.2",
    ),
    Technique(
        "stale",
        "Hold back rows that hardly changed since they were sent to another worker.",
        exact=False,
        source="DGC 5.2",
        default=False,
    ),
    Technique(
        "precompute",
        "Fetch input rows and aggregate them once.",
        exact=True,
        source="added: the paper exchanges them in every epoch",
        ours=True,
        default=False,
    ),
)
