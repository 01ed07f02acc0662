"""GNNFlow's experiments, in the order of the paper."""

from __future__ import annotations

import importlib
import importlib.util

from dgbench.systems.base import Experiment

_MODULES = (
    "table2", "fig2", "table3", "table4", "fig5", "table5", "table6", "update", "fig8", "fig9",
    "fig10", "fig11", "accuracy", "fig12", "sampling_ablation", "contenders", "fig13", "fig14",
    "cache_ablation", "partition", "fig15", "table7", "large",
)  # fmt: skip


def _found() -> tuple[Experiment, ...]:
    made: list[Experiment] = []
    for name in _MODULES:
        full = f"{__name__}.{name}"
        if importlib.util.find_spec(full) is None:
            continue
        module = importlib.import_module(full)
        made += [
            one()
            for one in vars(module).values()
            if isinstance(one, type)
            and issubclass(one, Experiment)
            and one is not Experiment
            and one.__module__ == full
        ]
    return tuple(made)


EXPERIMENTS = _found()
