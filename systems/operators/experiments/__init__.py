"""All races, by operator family."""

from dgbench.systems.operators.experiments.aggregate import Aggregate, Merged
from dgbench.systems.operators.race import OperatorRace

EXPERIMENTS: tuple[OperatorRace, ...] = (
    Aggregate(),
    Merged(),
)
