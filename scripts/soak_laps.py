"""Laps of a soak: some groups of some papers, at smoke sizes and in the order of `full`."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dgbench.harness.plan import Plan
from dgbench.runtime.errors import InvalidInputError

ROUNDS = 3
"""Of every cell of a lap; from three on an experiment gets its A/A control, as in `full`."""


class Lap:
    """An experiment with some of its groups, rounds of each, and a name of its own."""

    def __init__(
        self, experiment: Any, groups: Iterable[str], name: str, rounds: int = ROUNDS
    ) -> None:
        self.name, self.inner, self.rounds = experiment.name, experiment, rounds
        self.device = experiment.device
        self.groups, self.lap = set(groups), name

    def cells(self, preset: str, device: str) -> list[Any]:
        return [
            msgspec.structs.replace(cell, repeats=self.rounds, group=f"{cell.group} lap {self.lap}")
            for cell in self.inner.cells(preset, device)
            if cell.group in self.groups and not cell.unavailable
        ]

    def expected_seconds(self, cell: Any, preset: str) -> float:
        return self.inner.expected_seconds(cell, preset)


def draw_groups(
    papers: Sequence[Any], draw: random.Random, slow: set[tuple[str, str, str]]
) -> list[tuple[Any, str, str]]:
    """One group of every paper, as (paper, experiment, group), papers in any order.

    Raises:
        InvalidInputError: no paper has a group that is not slow.
    """
    chosen = []
    for paper in draw.sample(list(papers), len(papers)):
        groups = sorted(
            {
                (experiment.name, cell.group)
                for experiment in paper.experiments
                for cell in experiment.cells("smoke", "cpu")
                if not cell.unavailable
                and (paper.name, experiment.name, cell.group) not in slow
            }
        )  # fmt: skip
        if groups:
            chosen.append((paper, *draw.choice(groups)))
    if not chosen:
        raise InvalidInputError("'papers' have no group left whose cells are quick enough")
    return chosen


def lap_of(chosen: Iterable[tuple[Any, str, str]], name: str, rounds: int = ROUNDS) -> Plan:
    """A plan of these groups; names tell laps of one run apart."""
    papers = [
        dataclasses.replace(
            paper,
            experiments=tuple(
                Lap(e, [group], name, rounds) for e in paper.experiments if e.name == experiment
            ),
        )
        for paper, experiment, group in chosen
    ]
    return Plan.build(papers, None, "smoke", "cpu", control="experiment")
