"""ESDG's experiments, in the order of the paper."""

from dgbench.systems.esdg.experiments.fig6 import Fig6
from dgbench.systems.esdg.experiments.preparation import Preparation
from dgbench.systems.esdg.experiments.table2 import Table2

EXPERIMENTS = (
    Table2(),
    Preparation(),
    Fig6(),
)
