"""Helpers of the checks of races: selection of their rows, and words for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

from dgbench.lab.paper import Check, Claim
from dgbench.lab.verbs import asking
from dgbench.systems.dgc.experiments.race_rows import RaceRecord, dataset_title
from dgbench.systems.dgc.experiments.race_runs import FORMER_WORDS, PLACED, TITLES
from dgbench.systems.dgc.experiments.settings import standing_in

Rows = Sequence[Any]


def asking_races(
    select: Callable[[Rows], Sequence[Any]], none: str
) -> Callable[[Callable[[Claim, Any], Mapping[str, Any]]], Check]:
    """A decorator as `asking`, of a function of races; its finding rests on all their processes."""

    def decorate(say: Callable[[Claim, Any], Mapping[str, Any]]) -> Check:
        @wraps(say)
        def of_all(claim: Claim, found: Sequence[Any]) -> Mapping[str, Any]:
            return {"rows": rows_of(found), **say(claim, found)}

        return asking(select, none)(of_all)

    return decorate


def standing(dataset: str, found: Sequence[RaceRecord], **more: bool) -> list[RaceRecord]:
    """Races on a graph of the paper, or on what stands in for it, see `standing_in`."""
    return standing_in(dataset, found, lambda o: o.dataset, lambda o: o.twin, **more)


def where(found: Sequence[RaceRecord]) -> str:
    """Graphs, ranks and processes of races in words."""
    names = dict.fromkeys(dataset_title(one.dataset, one.twin) for one in found)
    fewest = min(one.processes for one in found)
    processes = f", {fewest} processes" if fewest > 1 else ""
    former = f"; {FORMER_WORDS}" if any(one.former for one in found) else ""
    return f"on {', '.join(names)}; {found[0].row.params['ranks']} ranks{processes}{former}"


def rows_of(found: Iterable[Any]) -> list[Any]:
    """The rows of all processes of races, each once."""
    return list({row.id: row for one in found for row in one.rows}.values())


def in_order(one: RaceRecord) -> str:
    """The placements from the shortest epoch to the longest: `PTS < PSS < PSS-TS`."""
    names = [name for name in PLACED if name in one.names]
    return " < ".join(TITLES[name] for name in sorted(names, key=one.epoch))


def sent_words(one: RaceRecord) -> str:
    """Counted megabytes of the placements in words."""
    sent = ", ".join(
        f"{TITLES[b]} {one.number('exchanged', b) / 1e6:.2g} MB" for b in PLACED if b in one.names
    )
    return f"counted on {dataset_title(one.dataset, one.twin)}: {sent}"


def agreed(each: Iterable[bool]) -> int:
    """1 if all processes say so, -1 if none does, 0 where they disagree."""
    said = list(each)
    return 1 if all(said) else 0 if any(said) else -1


def side_fields(sides: Iterable[int]) -> dict[str, bool]:
    """Fields of a finding that holds where all sides do; open where none is lost but some are."""
    worst = min(sides)
    return {"holds": worst > 0, "undecided": worst == 0}


__all__ = [
    "agreed", "asking_races", "in_order", "rows_of", "sent_words", "side_fields", "standing",
    "where",
]  # fmt: skip
