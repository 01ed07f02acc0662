"""Datasets that a plan names, and its cells that run on a twin or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dgbench.datasets.catalogue import card
from dgbench.datasets.first_use import DatasetSource
from dgbench.harness.plan.own_data import KEYS, on_card
from dgbench.harness.plan.plan import Plan, PlannedCell, cell_hash
from dgbench.harness.plugins import get_paper
from dgbench.runtime.errors import UnknownKeyError


def dataset_names(plan: Plan) -> list[str]:
    """Canonical names of the datasets that cells of a plan name, in their order, each once."""
    return list(dict.fromkeys(name for one in plan.runnable for name in _named(one)))


def set_sources(plan: Plan, sources: Iterable[DatasetSource]) -> None:
    """Write into a plan where its data comes from; a cell whose data is missing will not start."""
    plan.sources = list(sources)
    known = {source.name: source for source in plan.sources}
    for planned in plan.runnable:
        found = [known[name] for name in _named(planned) if name in known]
        if not found:
            continue
        asked = planned.cell.params.get("source")
        twin = asked == "twin" or not all(source.real for source in found)
        planned.data = "twin" if twin else "real"
        lacking = [s for s in found if s.source == "missing" or (asked == "real" and not s.real)]
        if lacking and asked != "twin" and len(found) == 1:
            planned.data, planned.status = "", "skipped"
            planned.reason = f"the real data of '{lacking[0].name}' is not here: {lacking[0].why}"


def settled(
    build: Callable[[], Plan],
    settle: Callable[[list[str]], list[DatasetSource]],
    *,
    stand_ins: bool = True,
) -> Plan:
    """A plan whose data is settled. It is built again where files came, as cells may hang on them.

    Args:
        build: makes the plan. settle: decides where datasets come from, and may fetch.
        stand_ins: tasks of the arena take bundled data in the place of data that is not here.
    """
    plan = build()
    sources = settle(dataset_names(plan))
    if any(source.source == "fetched" for source in sources):
        plan = build()
    if stand_ins and plan.own_data is None:
        use_stand_ins(plan, {source.name for source in sources if not source.real})
        names = dataset_names(plan)
        sources = [source for source in sources if source.name in names]
        sources += settle([name for name in names if name not in {one.name for one in sources}])
    set_sources(plan, sources)
    return plan


def use_stand_ins(plan: Plan, absent: set[str]) -> None:
    """Let tasks of the arena run on bundled data (`ArenaTask.stand_ins`) where theirs is absent."""
    said: list[str] = []
    for planned in plan.cells:
        cell = planned.cell
        dataset = cell.params.get("dataset")
        if "task" not in cell.params or dataset not in absent:
            continue
        experiments = get_paper(cell.paper).experiments
        experiment = next(one for one in experiments if one.name == cell.experiment)
        task = experiment.arena_task
        if task is None or str(dataset) not in task.stand_ins:
            continue
        name = task.stand_ins[str(dataset)]
        planned.cell = on_card(experiment, cell, "dataset", name)
        planned.hash = cell_hash(planned.cell, plan.preset, plan.device)
        said.append(f"{task.name} races on {name}: the real data of '{dataset}' is not here")
    plan.problems += dict.fromkeys(said)


def _named(planned: PlannedCell) -> list[str]:
    """Canonical names of the datasets that a cell's parameters name."""
    words = [w for k in KEYS if isinstance(v := planned.cell.params.get(k), str) for w in v.split()]
    found = []
    for word in words:
        try:
            found.append(card(word).name)
        except UnknownKeyError:  # a plugin's own data, or data that is made on the way
            continue
    return found
