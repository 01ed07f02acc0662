"""DGC's experiments, in the order of the paper."""

from __future__ import annotations

from dgbench.systems.base import Experiment
from dgbench.systems.dgc.experiments.fig14 import Fig14
from dgbench.systems.dgc.experiments.fig3 import Fig3
from dgbench.systems.dgc.experiments.fig5 import Fig5
from dgbench.systems.dgc.experiments.table1 import Table1

EXPERIMENTS: tuple[Experiment, ...] = (
    Table1(),
    Fig3(),
    Fig5(),
    Fig14(),
)
