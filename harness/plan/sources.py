"""Datasets that a plan names, and its cells that run on a twin or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dgbench.datasets.catalogue import card
from dgbench.datasets.first_use import DatasetSource
from dgbench.harness.plan.own_data import KEYS
from dgbench.harness.plan.plan import Plan, PlannedCell
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


def settled(build: Callable[[], Plan], settle: Callable[[list[str]], list[DatasetSource]]) -> Plan:
    """A plan whose data is settled. It is built again where files came, as cells may hang on them.

    Args:
        build: makes the plan. settle: decides where datasets come from, and may fetch.
    """
    plan = build()
    sources = settle(dataset_names(plan))
    if any(source.source == "fetched" for source in sources):
        plan = build()
    set_sources(plan, sources)
    return plan


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
