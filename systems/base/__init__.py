"""Base types of systems, experiments and papers."""

from dgbench.lab.experiment import (
    Cell,
    Contender,
    Experiment,
    FigureSpec,
    Measurement,
    Preset,
    RunContext,
)
from dgbench.lab.paper import Check, Claim, Finding, Paper
from dgbench.systems.base.registry import (
    Broken,
    find_paper,
    find_system,
    get_paper,
    get_system,
    paper_names,
    system_names,
)
from dgbench.systems.base.system import System, Technique, Trainer
from dgbench.systems.base.workload import Workload

__all__ = [
    "Broken",
    "Cell",
    "Check",
    "Claim",
    "Contender",
    "Experiment",
    "FigureSpec",
    "Finding",
    "Measurement",
    "Paper",
    "Preset",
    "RunContext",
    "System",
    "Technique",
    "Trainer",
    "Workload",
    "find_paper",
    "find_system",
    "get_paper",
    "get_system",
    "paper_names",
    "system_names",
]
