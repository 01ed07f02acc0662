"""ESDG's experiments, in the order of the paper."""

from dgbench.systems.esdg.experiments.table2 import Table2

EXPERIMENTS = (Table2(),)
