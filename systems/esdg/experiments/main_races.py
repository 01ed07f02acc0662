"""The races that say how much faster ESDG's two techniques make an epoch."""

from dgbench.lab.main_race import MainRace, RaceComparison, observed_ratio
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODEL_TITLES
from dgbench.systems.esdg.experiments.table2_runs import LEAN

TITLES = {
    **{name: graph.title for name, graph in BY_NAME.items()},
    **MODEL_TITLES,
    "flickr": "Flickr",
    "amlsim-20k-fanin200cycle200": "AMLSim 20K fan-in and cycle",
}

DIFFERENCES = MainRace(
    verb="trains an epoch",
    where={"part": "timed"},
    titles=TITLES,
    comparisons=(
        RaceComparison(
            subject="ESDG with graph differences",
            rival="ESDG with whole snapshots",
            ratio=observed_ratio(phase=None),
        ),
    ),
)

PARTITIONS = MainRace(
    verb="trains an epoch",
    dims=("dataset", "model", "ranks"),
    where={"part": "time", "cut": "dense", "transport": "gloo"},
    titles=TITLES | {str(ranks): f"{ranks} ranks" for ranks in (2, 4, 8)},
    comparisons=(
        RaceComparison(
            subject="ESDG",
            rival="a re-implemented vertex partition",
            ratio=observed_ratio(setting="snapshot"),
        ),
        RaceComparison(
            subject="ESDG",
            rival="a vertex partition that skips the needless first pass, too",
            ratio=observed_ratio(setting=LEAN),
            fairer=True,
        ),
    ),
)
"""Snapshots as dense as the paper's; rows travel over Gloo's sockets, as between machines."""
