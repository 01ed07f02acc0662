"""The subjects that rows name: datasets and systems under one name each, and what became of them.

A name that nothing here knows stays as it is: it gets a page, too, which says that it is not known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from dgbench import datasets
from dgbench.harness.plugins import Broken, describe_ahead, find_system, system_names
from dgbench.harness.report.run import FAILED, RunData
from dgbench.harness.report.run import slug as file_name
from dgbench.harness.report.site import SiteData
from dgbench.lab.experiment import Contender
from dgbench.runtime.errors import DgbenchError
from dgbench.systems.base.registry import SYSTEMS, third_party

STATES: Final = ("ok", "failed", "not run")


@cache
def dataset_name(name: str) -> str:
    """The card's name of a dataset; a name without a card stays as it is."""
    try:
        return datasets.card(name).name
    except DgbenchError:
        return name


def datasets_of(row: Any) -> list[str]:
    """The datasets that a row names, by their cards."""
    return list(dict.fromkeys(map(dataset_name, row.datasets)))


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a race, for people.

    Attributes:
        name: of the system that it is, or is a setting of; "" where it is none.
        title: as figures call it. described: with what it is:
            `PyGT, released torch-geometric-temporal 0.56.2`.
    """

    name: str
    title: str
    described: str


class Systems:
    """Every installed system by its name.

    Attributes:
        loaded: name -> System. broken: name -> why it does not load.
    """

    def __init__(self, names: Iterable[str] | None = None) -> None:
        """Third parties' systems are asked for where one of `names` (None: anyway) is not ours."""
        self.loaded: dict[str, Any] = {}
        self.broken: dict[str, Broken] = {}
        theirs = third_party(SYSTEMS)
        self._add(name for name in system_names() if name not in theirs)
        if names is None or any(name and name not in self for name in names):
            describe_ahead()
            self._add(theirs)

    @classmethod
    def named_in(cls, site: SiteData) -> Systems:
        """Those of a site: all that are installed; of the report of one run those that it needs."""
        if site.merged:
            return cls()
        rows = (row for run in site.runs for row in run.rows)
        named = {row.system for row in rows}
        return cls({*named, *(paper.paper.system for paper in site.papers)})

    def _add(self, names: Iterable[str]) -> None:
        for name in names:
            found = find_system(name)
            (self.broken if isinstance(found, Broken) else self.loaded)[name] = found

    def __contains__(self, name: str) -> bool:
        return name in self.loaded or name in self.broken

    def title(self, name: str) -> str:
        """The title of a system; a name that is not known stays as it is."""
        return self.loaded[name].title if name in self.loaded else name

    def side(
        self, name: str, contenders: Mapping[str, Contender], settings: Collection[str] = ()
    ) -> Side:
        """System or baseline of a figure as a side of a race, with its title.

        Args:
            name: of a system, of `contenders`, or of `settings`: those that rows name like a
                system, which have pages, too. Any other is a way that is no system.
        """
        means = contenders.get(name)
        if means is not None:
            system, title = means.system, means.title or name
        else:
            system, title = name if name in self or name in settings else "", self.title(name)
        said = self.loaded[system].provenance if system in self.loaded else ""
        return Side(system, title, f"{title}, {said}" if said else title)


@dataclass(slots=True)
class Cells:
    """Numbers of cells that worked, failed and did not run; one failed process fails a cell."""

    ok: int = 0
    failed: int = 0
    missing: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.ok + self.failed + self.missing


def count_cells(rows: Iterable[Any]) -> Cells:
    """Cells by what became of them."""
    state: dict[str, str] = {}
    for row in rows:
        now = "ok" if row.ok else "failed" if row.status in FAILED else "not run"
        key = row.cell_hash or row.id
        worse = now == "failed" or (now == "ok" and state.get(key) == "not run")
        state[key] = now if worse else state.get(key, now)
    values = list(state.values())
    return Cells(*(values.count(word) for word in STATES))


def by_experiment(
    pairs: Sequence[tuple[RunData, Any]],
) -> dict[tuple[str, str, str], tuple[RunData, list[Any]]]:
    """Rows by run, paper and experiment, in the order in which they are met."""
    found: dict[tuple[str, str, str], tuple[RunData, list[Any]]] = {}
    for run, row in pairs:
        key = (run.slug, row.paper, row.experiment)
        found.setdefault(key, (run, []))[1].append(row)
    return found


def experiment_place(site: SiteData, paper: str, experiment: str) -> dict[str, str]:
    """An experiment as pages name it: its title and where it stands (href "" without a page)."""
    shown = next((p for p in site.papers if p.name == paper), None)
    if shown is None:
        return {"title": f"{paper}/{experiment}", "href": "", "paper": paper}
    plugin = next((e for e in shown.paper.experiments if e.name == experiment), None)
    title = plugin.title if plugin is not None else experiment
    anchor = f"#exp-{experiment}" if plugin is not None else ""
    return {
        "title": f"{shown.title}, {title}",
        "href": f"papers/{paper}.html{anchor}",
        "paper": shown.title,
    }


def page_of(part: str, name: str) -> str:
    """The page of a subject, relative to the front page: `datasets/wikipedia.html`."""
    return f"{part}/{file_name(name)}.html"
