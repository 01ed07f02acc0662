"""The subjects that rows name: datasets and systems under one name each, and what became of them.

Rows name datasets in a paper's spelling and several at once, and systems by name, by title, or by a
title and a setting ("DGC w/o SG"). A name that nothing here knows stays as it is: it gets a page,
too, which says that it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from dgbench import datasets
from dgbench.harness.plugins import Broken, describe_ahead, find_system, system_names
from dgbench.harness.report.run import FAILED, RunData
from dgbench.harness.report.run import slug as file_name
from dgbench.harness.report.site import SiteData
from dgbench.runtime.errors import DgbenchError
from dgbench.systems.base.registry import SYSTEMS, third_party

NO_DATA: Final = ("none", "all")
"""What rows say that read no dataset of their own: none at all, or only printed sizes of all."""

STATES: Final = ("ok", "failed", "not run")


@cache
def dataset_name(name: str) -> str:
    """The card's name of a dataset; a name without a card stays as it is."""
    try:
        return datasets.card(name).name
    except DgbenchError:
        return name


def is_dataset(words: str) -> bool:
    """Whether words are the name of a dataset with a card, or an alias of one."""
    return dataset_name(words) in datasets.cards()


def datasets_of(row: Any) -> list[str]:
    """The datasets that a row names, in its data or else (it did not run) in its params."""
    named = row.data.get("dataset") or row.params.get("dataset") or ""
    parts = (part.strip().partition("#")[0] for part in str(named).split(","))
    return list(dict.fromkeys(dataset_name(p) for p in parts if p and p.lower() not in NO_DATA))


def named_system(row: Any) -> str:
    """What a row calls its system, without a setting behind a comma: `tgcn, streamed` is `tgcn`."""
    return str(row.params.get("system") or "").partition(",")[0].strip()


class Systems:
    """Every installed system, and which of them words mean.

    Attributes:
        loaded: name -> System. broken: name -> why it does not load.
    """

    def __init__(self, words: Iterable[str] | None = None) -> None:
        """Third parties' systems are asked for where one of `words` (None: anyway) is not ours."""
        self.loaded: dict[str, Any] = {}
        self.broken: dict[str, Broken] = {}
        theirs = third_party(SYSTEMS)
        self._add(name for name in system_names() if name not in theirs)
        if words is None or any(word and not self.find(word) for word in words):
            describe_ahead()
            self._add(theirs)

    @classmethod
    def named_in(cls, site: SiteData) -> Systems:
        """Those of a site: all that are installed; of the report of one run those that it needs."""
        if site.merged:
            return cls()
        rows = (row for run in site.runs for row in run.rows)
        return cls({*map(named_system, rows), *(paper.paper.system for paper in site.papers)})

    def _add(self, names: Iterable[str]) -> None:
        for name in names:
            found = find_system(name)
            (self.broken if isinstance(found, Broken) else self.loaded)[name] = found
        self._words = {s.title: n for n, s in self.loaded.items()}
        self._words |= {name: name for name in (*self.loaded, *self.broken)}

    def find(self, words: str) -> str:
        """The name of the system that words mean, or "".

        They mean one where they are its name or title, or begin with it and go on behind a space
        or comma ("DGC w/o SG"); `PyGT-PSS` is not PyGT.
        """
        if words in self._words:
            return self._words[words]
        heads = [w for w in self._words if re.match(re.escape(w) + r"[ ,]", words)]
        return self._words[max(heads, key=len)] if heads else ""

    def described(self, words: str) -> str:
        """A contender with what it is: `PyGT, released torch-geometric-temporal 0.56.2`."""
        system = self.loaded.get(self.find(words))
        said = system.provenance if system is not None else ""
        return f"{self.title(words)}, {said}" if said else self.title(words)

    def title(self, words: str) -> str:
        """Words with a system's title for its name: `dygnn, relaxed` is "DyGNN, relaxed"."""
        head = re.match(r"[^ ,]+", words)
        system = self.loaded.get(head[0]) if head else None
        return system.title + words[head.end() :] if head and system is not None else words


@dataclass(slots=True)
class Cells:
    """How many cells worked, failed and did not run; a cell with one failed process failed."""

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
