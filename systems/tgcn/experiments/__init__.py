"""T-GCN's experiments, in the order of the paper."""

from __future__ import annotations

from dgbench.systems.base import Experiment
from dgbench.systems.tgcn.experiments.cited import Cited
from dgbench.systems.tgcn.experiments.depth import Depth
from dgbench.systems.tgcn.experiments.fig7 import Fig7
from dgbench.systems.tgcn.experiments.fig8 import Fig8
from dgbench.systems.tgcn.experiments.partition import Partition
from dgbench.systems.tgcn.experiments.schedule import Schedule
from dgbench.systems.tgcn.experiments.table1 import Table1

EXPERIMENTS: tuple[Experiment, ...] = (
    Cited(),
    Depth(),
    Partition(),
    Schedule(),
    Table1(),
    Fig7(),
    Fig8(),
)
