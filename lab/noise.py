"""Noise floor of a claim: how far equal things lay apart where the claim's numbers were taken.

An A/A pair is two runs of one thing: two processes of a cell, or two turns of a setting inside one
process (`observe_control`). Which pairs count for what an experiment measures is decided in this
order; the first that has `MIN_PAIRS` pairs is taken, and where none has, all pairs of the run.

1. Pairs of the experiment itself.
2. Pairs of the main race of its paper.
3. Pairs of the reference training that a run without these adds (`paper="-"`).

Of a cluster's run each node has a floor of its own, by the pairs that ran on it; what was measured
on several nodes has the largest of theirs.

So a kernel of some milliseconds says nothing of a race of seconds. A claim that several experiments
decide has the largest of their floors. None is smaller than the median difference of all pairs that
1 to 3 name: five lucky pairs must not look quieter than the machine was.

A pair of which a process was disturbed counts in none of this, unless a run has fewer than
`MIN_PAIRS` others. By a floor above `runtime.statistics.MAX_FLOOR` nothing is judged.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from dgbench.lab.compare import control_ratios
from dgbench.lab.paper import Claim, Paper
from dgbench.runtime.statistics import noise_floor

MIN_PAIRS: Final = 5
"""Pairs of an experiment below which those of another are asked."""
REFERENCE: Final = ("-", "noise")
"""Paper and experiment of the reference training."""


@dataclass(frozen=True, slots=True)
class NoisePairs:
    """A/A ratios of a run by (paper, experiment).

    Attributes:
        ratios: of all its nodes, without disturbed pairs.
        nodes: those of each node of a cluster by its label, with the experiments that ran there;
            empty where a run is of one machine.
        disturbed: ratios of the pairs that were disturbed.
    """

    ratios: Mapping[tuple[str, str], Sequence[float]]
    nodes: Mapping[str, tuple[NoisePairs, frozenset[tuple[str, str]]]] = field(default_factory=dict)
    disturbed: Sequence[float] = ()

    @classmethod
    def of(cls, rows: Iterable[Any]) -> NoisePairs:
        """The pairs among the rows of a run."""
        apart: dict[str, dict[tuple[str, str], list[Any]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            apart[getattr(row, "node", "")][row.paper, row.experiment].append(row)
        ratios: dict[tuple[str, str], list[float]] = {}
        disturbed: list[float] = []
        nodes = {}
        for node, mine in apart.items():
            found = {where: control_ratios(some) for where, some in mine.items()}
            found = {where: pairs for where, pairs in found.items() if pairs}
            hit = [one for some in mine.values() for one in control_ratios(some, disturbed=True)]
            for where, pairs in found.items():
                ratios.setdefault(where, []).extend(pairs)
            disturbed += hit
            if node:
                nodes[node] = cls(found, disturbed=hit), frozenset(mine)
        return cls(ratios, nodes, disturbed)

    def floor_of_claim(self, claim: Claim, paper: Paper) -> float | None:
        """The floor of a claim, from the experiments that decide it; None without pairs."""
        deciding = [one.name for one in paper.experiments if claim.id in one.claims]
        return self.floor(paper, deciding)

    def floor(self, paper: Paper, experiments: Collection[str] = ()) -> float | None:
        """The floor of what these experiments of a paper measure; None without pairs.

        Args:
            paper: of the experiments. experiments: their names; without any the main race's.
        """
        here = {(paper.name, name) for name in experiments or self._main(paper)}
        ran = [pairs for pairs, where in self.nodes.values() if where & here]
        if ran:  # a node without pairs of its own is judged by those of all
            floors = [pairs.floor(paper, experiments) for pairs in ran]
            if None in floors:
                floors.append(self._of_pairs(paper, experiments))
            return max((one for one in floors if one is not None), default=None)
        return self._of_pairs(paper, experiments)

    def _of_pairs(self, paper: Paper, experiments: Collection[str]) -> float | None:
        """`floor` by all pairs together, whatever node they ran on."""
        main = [
            ratio for name in self._main(paper) for ratio in self.ratios.get((paper.name, name), ())
        ]
        reference = self.ratios.get(REFERENCE, ())
        floors = [
            self._floor([self.ratios.get((paper.name, name), ()), main, reference])
            for name in experiments or ("",)
        ]
        return max((one for one in floors if one is not None), default=None)

    def of_run(self) -> float | None:
        """The floor of all pairs of a run together; None without pairs."""
        return noise_floor(self._every())

    def _every(self) -> list[float]:
        """All pairs; disturbed ones among them where there are too few others."""
        found = [ratio for pairs in self.ratios.values() for ratio in pairs]
        return found if len(found) >= MIN_PAIRS else [*found, *self.disturbed]

    def _main(self, paper: Paper) -> list[str]:
        """Names of the paper's main races."""
        return [one.name for one in paper.experiments if one.main_race is not None]

    def _floor(self, ranked: Sequence[Sequence[float]]) -> float | None:
        """The floor by the first of these that has enough pairs, not below the median of all."""
        found = noise_floor(
            next((some for some in ranked if len(some) >= MIN_PAIRS), self._every())
        )
        like = [abs(math.log(ratio)) for some in ranked for ratio in some]
        least = math.expm1(median(like)) if like else 0.0
        return None if found is None else max(found, least)
