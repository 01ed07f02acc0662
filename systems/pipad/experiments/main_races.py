"""The races that say how much faster PiPAD is, and how much of that is ours."""

from dgbench.lab.main_race import MainRace, RaceComparison, observed_ratio, paired_systems
from dgbench.lab.quality import observed_quality
from dgbench.systems.pipad.experiments.settings import ALL, MODEL_TITLES
from dgbench.systems.pipad.ladders import BARE, PUBLISHED

QUALITY = observed_quality("mean_squared_error", contender={})
"""Reader of the errors of `quality`: all forms of PiPAD train the same model."""

TRAINING = MainRace(
    verb="trains",
    checks={"check": True},
    titles={
        **{graph.name: graph.title for graph in ALL},
        **MODEL_TITLES,
        "covid19-england": "England-Covid",
        "tgcn_model": "T-GCN model",
    },
    comparisons=(
        RaceComparison(
            subject="PiPAD",
            rival="PyG-Temporal",
            package="torch-geometric-temporal",
            rival_without="PyG-Temporal (re-implemented)",
            systems=(PUBLISHED, "pygt"),
            ratio=paired_systems("pygt", PUBLISHED, "end_to_end_time"),
            quality=QUALITY,
        ),
        RaceComparison(
            subject="PiPAD",
            rival="PyGT-G, the paper's strongest variant of it (re-implemented)",
            systems=(PUBLISHED, "pygt-g"),
            ratio=paired_systems("pygt-g", PUBLISHED, "end_to_end_time"),
            quality=QUALITY,
            fairer=True,
        ),
        RaceComparison(
            subject="PiPAD",
            rival="its own engine with all techniques off",
            systems=(PUBLISHED, BARE),
            ratio=paired_systems(BARE, PUBLISHED, "end_to_end_time"),
            quality=QUALITY,
            fairer=True,
        ),
    ),
)
"""End to end: preparation and all epochs."""

RECURRENCE = MainRace(
    verb="takes a step",
    where={"kind": "removed", "link": ("plain", "device")},
    titles=TRAINING.titles,
    comparisons=(
        RaceComparison(
            subject="PiPAD + dgbench without compiled steps",
            rival="the same without its fused recurrence, which is our addition",
            ratio=observed_ratio(setting="fused_gates"),
            quality=QUALITY,
            fairer=True,
        ),
        RaceComparison(
            subject="PiPAD + dgbench",
            rival="the same without its compiled steps, which are our addition",
            ratio=observed_ratio(setting="compiled_step"),
            quality=QUALITY,
            fairer=True,
        ),
    ),
)
"""Parts of the main race's factors that are ours and not the paper's."""
