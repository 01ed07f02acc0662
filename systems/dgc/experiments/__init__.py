"""DGC's experiments, in the order of the paper."""

from __future__ import annotations

from dgbench.systems.base import Experiment

EXPERIMENTS: tuple[Experiment, ...] = ()
