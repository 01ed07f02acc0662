"""T-GCN's experiments, in the order of the paper."""

from __future__ import annotations

from dgbench.systems.base import Experiment
from dgbench.systems.tgcn.experiments.ablation import Ablation
from dgbench.systems.tgcn.experiments.cited import Cited
from dgbench.systems.tgcn.experiments.depth import Depth
from dgbench.systems.tgcn.experiments.fig6 import Fig6
from dgbench.systems.tgcn.experiments.fig7 import Fig7
from dgbench.systems.tgcn.experiments.fig8 import Fig8
from dgbench.systems.tgcn.experiments.fig9 import Fig9
from dgbench.systems.tgcn.experiments.fig10 import Fig10
from dgbench.systems.tgcn.experiments.large import Large
from dgbench.systems.tgcn.experiments.partition import Partition
from dgbench.systems.tgcn.experiments.quality import InteractionQuality
from dgbench.systems.tgcn.experiments.schedule import Schedule
from dgbench.systems.tgcn.experiments.table1 import Table1
from dgbench.systems.tgcn.experiments.table2 import Table2
from dgbench.systems.tgcn.experiments.table3 import Table3

EXPERIMENTS: tuple[Experiment, ...] = (
    Table1(),
    Cited(),
    Depth(),
    Partition(),
    Schedule(),
    Fig6(),
    Fig7(),
    Fig8(),
    Fig9(),
    Table2(),
    Table3(),
    Ablation(),
    Fig10(),
    Large(),
    InteractionQuality(),
)
