"""PiPAD's experiments, in the order of the paper."""

from dgbench.systems.pipad.experiments.ablation import Ablation
from dgbench.systems.pipad.experiments.epochs import Epochs
from dgbench.systems.pipad.experiments.fig3 import Fig3
from dgbench.systems.pipad.experiments.fig4 import Fig4
from dgbench.systems.pipad.experiments.fig9 import Fig9
from dgbench.systems.pipad.experiments.fig10 import Fig10
from dgbench.systems.pipad.experiments.fig11 import Fig11
from dgbench.systems.pipad.experiments.fig12 import Fig12
from dgbench.systems.pipad.experiments.memory import MemoryTraffic
from dgbench.systems.pipad.experiments.preparation import Preparation
from dgbench.systems.pipad.experiments.quality import SnapshotQuality
from dgbench.systems.pipad.experiments.space import Space
from dgbench.systems.pipad.experiments.table1 import Table1
from dgbench.systems.pipad.experiments.table2 import Table2
from dgbench.systems.pipad.experiments.tuning import Tuning

EXPERIMENTS = (
    Table1(),
    Space(),
    MemoryTraffic(),
    Preparation(),
    Fig10(),  # before other timed ones: the A/A control goes to the first
    Fig3(),
    Fig4(),
    Fig9(),
    Fig11(),
    Fig12(),
    Tuning(),
    Epochs(),
    Table2(),
    Ablation(),
    SnapshotQuality(),
)
