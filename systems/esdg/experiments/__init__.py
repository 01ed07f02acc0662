"""ESDG's experiments, in the order of the paper."""

from dgbench.systems.esdg.experiments.ablation import Ablation
from dgbench.systems.esdg.experiments.encoding import Encoding
from dgbench.systems.esdg.experiments.fig4 import Fig4
from dgbench.systems.esdg.experiments.fig5 import Fig5
from dgbench.systems.esdg.experiments.fig6 import Fig6
from dgbench.systems.esdg.experiments.fig7 import Fig7
from dgbench.systems.esdg.experiments.memory import Memory
from dgbench.systems.esdg.experiments.preparation import Preparation
from dgbench.systems.esdg.experiments.sec65 import Sec65
from dgbench.systems.esdg.experiments.smoothing import Smoothing
from dgbench.systems.esdg.experiments.table1 import Table1
from dgbench.systems.esdg.experiments.table2 import Table2

EXPERIMENTS = (
    Table1(),
    Smoothing(),
    Encoding(),
    Fig4(),
    Memory(),
    Fig5(),
    Fig7(),
    Table2(),
    Preparation(),
    Fig6(),
    Sec65(),
    Ablation(),
)
