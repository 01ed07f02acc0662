"""`dgbench arena`: race every system on frozen tasks, and print who is fastest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from dgbench.harness.cli import running
from dgbench.harness.cli.running import (
    BUDGET,
    CLUSTER,
    DEVICE,
    OFFLINE,
    OUT,
    PRESET,
    RESUME,
    RETRY,
    THREADS,
    Options,
)

PAPER = "arena"


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("arena", short_help="Race all systems on frozen tasks.")(arena)


def arena(
    tasks: list[str] = typer.Argument(
        None, metavar="[TASK]...", help="As snapshot-training or snapshot-training@1; all without."
    ),
    dataset: str = typer.Option(
        "",
        "--dataset",
        help="Only workloads on this dataset; one of yours races tasks that fit.",
    ),
    system: list[str] = typer.Option(
        None, "--system", help="Only this system, beside those that race in one process."
    ),
    with_ours: bool = typer.Option(
        False, "--with-ours", help="Rank systems with dgbench's own additions, too."
    ),
    division: str = typer.Option(
        "base",
        "--division",
        help="base: settings of the task; tuned: threads and switches searched for each system; "
        "both.",
    ),
    preset: str = PRESET,
    device: str = DEVICE,
    resume: str = RESUME,
    retry: str = RETRY,
    out: Path = OUT,
    offline: bool = OFFLINE,
    budget: int = BUDGET,
    threads: int = THREADS,
    cluster: Path = CLUSTER,
) -> None:
    """Race every system that can enter on frozen tasks; print the race table and write its pages.

    Example: dgbench arena snapshot-training --preset smoke
    """
    from dgbench.harness.plugins import get_paper

    paper = _in_divisions(get_paper(PAPER), division, resume)
    names = [_experiment(task, paper) for task in tasks or ()]
    named = _named(dataset, paper)
    options = Options(
        *(preset, device, resume, retry, out, None, 0, offline),
        dataset="" if named else dataset,
        budget=budget,
        keep=_filter(named, tuple(system or ())),
        cluster=cluster,
        stand_ins=not named,
        with_ours=with_ours,
        threads=threads,
    )
    running.go([paper], names, options, asked=() if names else [PAPER])


def _in_divisions(paper: Any, division: str, resume: str | None) -> Any:
    """The arena with cells of one division or of both."""
    from dataclasses import replace

    from dgbench.lab.arena import BASE, TUNED
    from dgbench.runtime.errors import DgbenchError

    chosen = {BASE: (BASE,), TUNED: (TUNED,), "both": (BASE, TUNED)}
    if division not in chosen:
        raise DgbenchError(f"--division is '{division}', allowed: {', '.join(chosen)}")
    if division == BASE:
        return paper
    if resume:
        raise DgbenchError("--resume goes on with the divisions of that run; leave out --division")
    made = tuple(one.in_divisions(*chosen[division]) for one in paper.experiments)
    return replace(paper, experiments=made)


def _named(dataset: str, paper: object) -> str:
    """The canonical name of a dataset that a task names, or ""."""
    from dgbench.datasets.catalogue import card
    from dgbench.runtime.errors import UnknownKeyError

    try:
        name = card(dataset).name if dataset else ""
    except UnknownKeyError:  # a file
        return ""
    tasks = (one.arena_task for one in paper.experiments)  # type: ignore[attr-defined]
    cases = (case for task in tasks if task is not None for case in task.cases)
    return name if any(case.settings.get("dataset") == name for case in cases) else ""


def _experiment(task: str, paper: object) -> str:
    """The experiment of a task by its name, with or without a version."""
    from dgbench.runtime.errors import unknown_key

    found = {}
    for one in paper.experiments:  # type: ignore[attr-defined]
        if one.arena_task is not None:
            found[one.arena_task.name] = found[one.arena_task.label] = f"{PAPER}/{one.name}"
    if task not in found:
        raise unknown_key("task", task, found, of="the arena")
    return found[task]


def _filter(dataset: str, systems: tuple[str, ...]) -> running.Keep | None:
    """Filter of cells by dataset and systems; None keeps all."""
    if not dataset and not systems:
        return None

    def keep(params: dict) -> bool:
        if dataset and params.get("dataset") != dataset:
            return False
        return not systems or params.get("system") in (None, *systems)

    return keep
