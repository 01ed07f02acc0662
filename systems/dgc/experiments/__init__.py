"""DGC's experiments, in the order of the paper."""

from __future__ import annotations

from dgbench.systems.base import Experiment
from dgbench.systems.dgc.experiments.fig3 import Fig3
from dgbench.systems.dgc.experiments.fig4 import Fig4
from dgbench.systems.dgc.experiments.fig5 import Fig5
from dgbench.systems.dgc.experiments.fig5c import Fig5c
from dgbench.systems.dgc.experiments.fig7 import Fig7
from dgbench.systems.dgc.experiments.fig11 import Fig11
from dgbench.systems.dgc.experiments.fig12 import Fig12
from dgbench.systems.dgc.experiments.fig14 import Fig14
from dgbench.systems.dgc.experiments.fig15 import Fig15
from dgbench.systems.dgc.experiments.fig16 import Fig16
from dgbench.systems.dgc.experiments.fig17 import Fig17
from dgbench.systems.dgc.experiments.fig18 import Fig18
from dgbench.systems.dgc.experiments.fusion_ablation import FusionAblation
from dgbench.systems.dgc.experiments.partition import Partition, PartitionAblation
from dgbench.systems.dgc.experiments.stale_ablation import StaleAblation
from dgbench.systems.dgc.experiments.table1 import Table1
from dgbench.systems.dgc.experiments.table2 import Table2
from dgbench.systems.dgc.experiments.table3 import Table3

EXPERIMENTS: tuple[Experiment, ...] = (
    Table1(),
    Fig3(),
    Fig4(),
    Fig5(),
    Fig5c(),
    Partition(),
    PartitionAblation(),
    Fig7(),
    Fig16(),
    Fig17(),
    Fig11(),
    Table2(),
    Table3(),
    StaleAblation(),
    Fig12(),
    Fig14(),
    Fig15(),
    FusionAblation(),
    Fig18(),
)
