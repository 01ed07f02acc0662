"""GNNFlow's experiments, in the order of the paper."""

from __future__ import annotations

from dgbench.systems.base import Experiment
from dgbench.systems.gnnflow.experiments.accuracy import Accuracy
from dgbench.systems.gnnflow.experiments.cache_ablation import CacheAblation
from dgbench.systems.gnnflow.experiments.contenders import Contenders
from dgbench.systems.gnnflow.experiments.fig2 import Fig2
from dgbench.systems.gnnflow.experiments.fig5 import Fig5
from dgbench.systems.gnnflow.experiments.fig8 import Fig8
from dgbench.systems.gnnflow.experiments.fig9 import Fig9
from dgbench.systems.gnnflow.experiments.fig10 import Fig10
from dgbench.systems.gnnflow.experiments.fig11 import Fig11
from dgbench.systems.gnnflow.experiments.fig12 import Fig12
from dgbench.systems.gnnflow.experiments.fig13 import Fig13
from dgbench.systems.gnnflow.experiments.fig14 import Fig14
from dgbench.systems.gnnflow.experiments.fig15 import Fig15
from dgbench.systems.gnnflow.experiments.large import Large
from dgbench.systems.gnnflow.experiments.partition import Partition
from dgbench.systems.gnnflow.experiments.quality import StreamQuality
from dgbench.systems.gnnflow.experiments.sampling_ablation import SamplingAblation
from dgbench.systems.gnnflow.experiments.table2 import Table2
from dgbench.systems.gnnflow.experiments.table3 import Table3
from dgbench.systems.gnnflow.experiments.table4 import Table4
from dgbench.systems.gnnflow.experiments.table5 import Table5
from dgbench.systems.gnnflow.experiments.table6 import Table6
from dgbench.systems.gnnflow.experiments.table7 import Table7
from dgbench.systems.gnnflow.experiments.update import Update

EXPERIMENTS: tuple[Experiment, ...] = (
    Table2(),
    Fig2(),
    Table3(),
    Table4(),
    Fig5(),
    Table5(),
    Table6(),
    Update(),
    Fig8(),
    Fig9(),
    Fig10(),
    Fig11(),
    Accuracy(),
    StreamQuality(),
    Fig12(),
    SamplingAblation(),
    Contenders(),
    Fig13(),
    Fig14(),
    CacheAblation(),
    Partition(),
    Fig15(),
    Table7(),
    Large(),
)
