"""Every experiment works on the device that it is given, or says that it measures the CPU."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType

import pytest

from dgbench.harness.plan import Plan
from dgbench.lab.experiment import Experiment
from dgbench.systems.base.registry import get_paper
from dgbench.systems.operators.race import OperatorRace

PAPERS = ("pipad", "esdg", "dgc", "gnnflow", "tgcn", "operators")


def _names(node: ast.AST) -> Iterator[str]:
    """Names of the functions that a call leads to: `f`, or `C` and `m` of `C.m`."""
    while isinstance(node, ast.Attribute):
        yield node.attr
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def reads_device(module: ModuleType, seen: set[str] | None = None) -> bool:
    """Return True if a module, or one of a function that receives its context, reads its device.

    A function that is chosen from a table stands for all of that table.
    """
    seen = set() if seen is None else seen
    if module.__name__ in seen or not module.__name__.startswith("dgbench.systems"):
        return False
    seen.add(module.__name__)
    tree = ast.parse(inspect.getsource(module))
    handed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "device":
            owner = node.value
            if isinstance(owner, ast.Name) and owner.id == "context":
                return True
        if isinstance(node, ast.Call):
            given = [*node.args, *(k.value for k in node.keywords)]
            if any(isinstance(x, ast.Name) and x.id == "context" for x in given):
                handed |= set(_names(node.func))
                if isinstance(node.func, ast.Name) and not hasattr(module, node.func.id):
                    tables = [n for n in ast.walk(tree) if isinstance(n, ast.Dict)]
                    handed |= {n for one in tables for v in one.values for n in _names(v)}
    found = [getattr(module, name, None) for name in handed]
    for node in ast.walk(tree):  # imported where it is used
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            wanted = {alias.name for alias in node.names} & handed
            if wanted and node.module.startswith("dgbench.systems"):
                __import__(node.module)
                found += [getattr(sys.modules[node.module], name) for name in wanted]
    modules = {sys.modules[x.__module__] for x in found if getattr(x, "__module__", None)}
    return any(reads_device(m, seen) for m in modules if m is not module)


def works_where_asked(experiment: Experiment) -> bool:
    """Return True if an experiment's process reads its device, and a race makes its inputs there.

    A race runs by its base class, which hands the device to the case.
    """
    if isinstance(experiment, OperatorRace):
        used = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(type(experiment).case))))
        if not any(isinstance(n, ast.Name) and n.id == "device" for n in used):
            return False
        return reads_device(sys.modules[type(experiment).run.__module__])
    return reads_device(sys.modules[type(experiment).__module__])


@pytest.mark.parametrize("name", PAPERS)
def test_an_experiment_reads_its_device_or_declares_the_cpu(name: str) -> None:
    silent = [
        experiment.name
        for experiment in get_paper(name).experiments
        if not experiment.device
        and not all(c.unavailable or c.device for c in experiment.cells("quick", "cuda"))
        and not works_where_asked(experiment)
    ]
    assert not silent, f"{name}: {silent} ignore the device, their rows would say 'cuda'"


ON_THE_HOST = {
    "gnnflow": ("fig12", "fig14", "fig15", "table7", "sampling_ablation", "cache_ablation"),
    "tgcn": ("fig7",),
}
"""Experiments that time the host: rows of theirs once said 'cuda'."""


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_experiments_that_time_the_host_are_planned_there(name: str) -> None:
    wanted = ON_THE_HOST[name]
    plans = {
        device: Plan.build([get_paper(name)], wanted, "quick", device, control="none", gpus=1)
        for device in ("cpu", "cuda")
    }
    assert {planned.cell.device for planned in plans["cuda"].cells} == {"cpu"}
    assert {planned.cell.experiment for planned in plans["cuda"].cells} == set(wanted)
    hashes = {device: [planned.hash for planned in plan.cells] for device, plan in plans.items()}
    assert hashes["cpu"] == hashes["cuda"]  # the same cells, whatever the run was asked for
    assert plans["cuda"].on_cpu == len(plans["cuda"].runnable)
