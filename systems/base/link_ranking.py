"""Temporal link prediction by rank: one task for all contenders, and the scores of their ranks.

Events are predicted window by window. What a prediction may use are the events before its window
opens, whoever predicts; the candidates of an event are all destinations or seeded negatives of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.ranking import Ranks, rank_columns
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.time_borders import time_cuts

if TYPE_CHECKING:
    from dgbench.datasets import EventStream

HITS: Final = (1, 3, 10)
"""Ranks up to which a true destination counts as a hit."""
BLOCK_SCORES: Final = 1 << 22
"""Scores of a block at most, unless a single event has more candidates."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoringWindows:
    """Windows of events that are predicted from what was before the window opens.

    Attributes:
        cuts: int64[W + 1]; window w holds events cuts[w] .. cuts[w + 1] - 1, at least one.
        opens: float64[W], times at which windows open; no event of a window is earlier.
        seen: int64[W], events earlier than the opening, which are those a prediction may use.
    """

    cuts: Tensor
    opens: Tensor
    seen: Tensor

    def of_events(self) -> Tensor:
        """int64[n]: the window of each event of the range."""
        return torch.repeat_interleave(self.cuts.diff())


def time_windows(t: Tensor, first: int, last: int, seconds: float) -> ScoringWindows:
    """Windows of a fixed length in time over events first .. last - 1; empty ones are left out.

    Args:
        t: float64[E], not falling. first, last: of the range, at least one event.
        seconds: length, in the unit of `t`. The first window opens with the first event.
    """
    _check_range(t, first, last)
    if not seconds > 0:
        raise InvalidInputError(f"seconds is {seconds!r}; a length > 0 is allowed")
    begin = t[first]
    number = ((t[first:last] - begin) / seconds).floor()
    # Rounding of the division must not let an event come before its window opens.
    number -= (begin + number * seconds > t[first:last]).double()
    starts = torch.ones(last - first, dtype=torch.bool)
    starts[1:] = number[1:] != number[:-1]
    places = starts.nonzero().squeeze(1)
    cuts = torch.cat([places + first, torch.tensor([last])])
    return _windows(t, cuts, begin + number[places] * seconds)


def event_windows(t: Tensor, first: int, last: int, size: int) -> ScoringWindows:
    """Windows of about `size` events over first .. last - 1, never cut inside of a time value."""
    _check_range(t, first, last)
    if size < 1:
        raise InvalidInputError(f"size is {size}; an integer >= 1 is allowed")
    cuts = torch.tensor(time_cuts(t[first:last], size)) + first
    return _windows(t, cuts, t[cuts[:-1]])


def _windows(t: Tensor, cuts: Tensor, opens: Tensor) -> ScoringWindows:
    return ScoringWindows(cuts, opens, torch.searchsorted(t, opens))


def _check_range(t: Tensor, first: int, last: int) -> None:
    if not 0 <= first < last <= t.numel():
        raise InvalidInputError(
            f"events {first} .. {last} hold none to score; there are {t.numel()}",
            hint="score a range of at least one event",
        )


@dataclass(frozen=True, slots=True)
class Staleness:
    """Age of what predictions saw, over all scored events.

    Attributes:
        events: mean number of events earlier than the predicted one that it did not see.
        seconds: mean time from the last event that it saw, in the unit of the stream.
        most_events, most_seconds: largest of both; time is NaN where nothing was seen.
    """

    events: float
    seconds: float
    most_events: int
    most_seconds: float


def staleness(t: Tensor, first: int, seen: Tensor) -> Staleness:
    """Staleness of predictions of events first .. that saw the first `seen[i]` events.

    Args:
        t: float64[E]. seen: int64[n]; those of an event's own time and later do not count.
    """
    times = t[first : first + seen.numel()].contiguous()
    missed = (torch.searchsorted(t, times) - seen).clamp_(min=0)
    age = times - t[(seen - 1).clamp_(min=0)]
    age = age[seen > 0]
    whole = age.numel() > 0
    return Staleness(
        float(missed.double().mean()),
        float(age.mean()) if whole else float("nan"),
        int(missed.max()),
        float(age.max()) if whole else float("nan"),
    )


@dataclass(frozen=True, slots=True, eq=False)
class RankBlock:
    """Events of one window with their candidates.

    Attributes:
        window: its number.
        events: int64[b].
        src: int64[b].
        seen: events that predictions may use. opens: time of the window's opening.
        candidates: int64[b, C], a row for each event.
        shared: True if all events have the same candidates.
        column: int64[b], the true destination's column.
        skip_offsets, skip: columns that are left out, see `rank_columns`.
    """

    window: int
    events: Tensor
    src: Tensor
    seen: int
    opens: float
    candidates: Tensor
    shared: bool
    column: Tensor
    skip_offsets: Tensor
    skip: Tensor


@dataclass(frozen=True, eq=False)
class RankingTask:
    """Events to rank, with windows and candidates.

    Attributes:
        events: the whole stream.
        windows: over the events that are scored.
        negatives: int64[n, K], other destinations for each scored event, -1 where there are fewer;
            what is a true destination of the source at that time is left out. None: all
            destinations of the stream are candidates.
        every: every so many-th window is ranked, the first one among them; the events of others
            are seen and not scored.
    """

    events: EventStream
    windows: ScoringWindows
    negatives: Tensor | None = None
    every: int = 1

    def __post_init__(self) -> None:
        if self.negatives is not None and self.negatives.shape[0] != self.last - self.first:
            raise InvalidInputError(
                f"negatives has {self.negatives.shape[0]} rows, expected {self.last - self.first}"
            )
        if self.every < 1:
            raise InvalidInputError(f"every is {self.every}; an integer >= 1 is allowed")

    @property
    def first(self) -> int:
        """The first scored event."""
        return int(self.windows.cuts[0])

    @property
    def last(self) -> int:
        """The first event behind those that are scored."""
        return int(self.windows.cuts[-1])

    @cached_property
    def destinations(self) -> Tensor:
        """int64[D]: all destinations of the stream, ascending."""
        return torch.unique(self.events.dst)

    @cached_property
    def staleness(self) -> Staleness:
        """Staleness of any contender's predictions in this task."""
        seen = self.windows.seen[self.windows.of_events()]
        return staleness(self.events.t, self.first, seen)

    def blocks(self) -> Iterator[RankBlock]:
        """Events window by window, in pieces of at most `BLOCK_SCORES` scores."""
        width = self.destinations.numel() if self.negatives is None else self.negatives.shape[1] + 1
        size = max(1, BLOCK_SCORES // max(1, width))
        for window, (begin, end) in enumerate(pairwise(self.windows.cuts.tolist())):
            if window % self.every:
                continue
            for at in range(begin, end, size):
                yield self._block(window, torch.arange(at, min(end, at + size)))

    def _block(self, window: int, events: Tensor) -> RankBlock:
        true, shared = self.events.dst[events], self.negatives is None
        if self.negatives is None:
            candidates = self.destinations.expand(events.numel(), -1)
            column = torch.searchsorted(self.destinations, true)
            offsets, skip = self._others(events)
        else:
            drawn = self.negatives[events - self.first]
            candidates = torch.cat([true.unsqueeze(1), drawn], dim=1)
            column = torch.zeros_like(events)
            absent = candidates < 0
            absent[:, 1:] |= self._true(events, drawn)
            offsets = torch.zeros(events.numel() + 1, dtype=torch.int64)
            torch.cumsum(absent.sum(1), 0, out=offsets[1:])
            skip = absent.nonzero()[:, 1]
            candidates = torch.where(absent, true.unsqueeze(1), candidates)
        return RankBlock(
            window, events, self.events.src[events], int(self.windows.seen[window]),
            float(self.windows.opens[window]), candidates, shared, column, offsets, skip,
        )  # fmt: skip

    def _others(self, events: Tensor) -> tuple[Tensor, Tensor]:
        """Columns of other true destinations of each event's source at the same time."""
        lists = [self._other_columns.get(one, ()) for one in events.tolist()]
        offsets = torch.tensor([0, *map(len, lists)]).cumsum(0)
        return offsets, torch.tensor([c for one in lists for c in one], dtype=torch.int64)

    def _true(self, events: Tensor, drawn: Tensor) -> Tensor:
        """bool[b, K]: negatives that are a destination of the event's source at its time."""
        found = drawn == self.events.dst[events].unsqueeze(1)
        for row, event in enumerate(events.tolist()):
            if others := self._other_columns.get(event):
                found[row] |= torch.isin(drawn[row], self.destinations[others])
        return found

    @cached_property
    def _other_columns(self) -> dict[int, list[int]]:
        """Columns to leave out, by event, of those events that have any."""
        found: dict[int, list[int]] = {}
        columns = torch.searchsorted(self.destinations, self.events.dst).tolist()
        for together in true_together(self.events, self.first, self.last):
            true = {columns[one] for one in together}
            for one in together:
                found[one] = sorted(true - {columns[one]})
        return found


def true_together(events: EventStream, first: int, last: int) -> list[list[int]]:
    """Events first .. last - 1 of one source at one time, where there are several."""
    groups: dict[tuple[int, float], list[int]] = {}
    pairs = zip(events.src[first:last].tolist(), events.t[first:last].tolist(), strict=True)
    for number, key in enumerate(pairs, first):
        groups.setdefault(key, []).append(number)
    return [one for one in groups.values() if len(one) > 1]


def seeded_negatives(
    events: EventStream, first: int, last: int, *, count: int, seed: int, history: float = 0.5
) -> Tensor:
    """int64[n, count]: destinations that are not true for each of events first .. last - 1.

    As TGB draws them (`hist_rnd`): up to a share of them are destinations that the source had
    before `first`, the others any destinations, each at most once; none is a destination of the
    source at the same time. A function of the seed and of the event alone, so that all contenders
    and batch sizes are ranked against the same ones.

    Args:
        events: the stream. count: K. seed: of the draws. history: share, from 0 to 1.

    Returns:
        Rows are padded with -1 where fewer destinations exist.
    """
    if count < 1 or not 0 <= history <= 1:
        raise InvalidInputError(f"count is {count}, history {history}; allowed are >= 1 and [0, 1]")
    _check_range(events.t, first, last)
    src, dst = events.src.numpy(), events.dst.numpy()
    everyone = np.unique(dst)
    order = np.argsort(src[:first], kind="stable")
    begins = np.searchsorted(src[:first][order], np.arange(events.num_nodes + 1))
    true = {number: {int(dst[number])} for number in range(first, last)}
    for together in true_together(events, first, last):
        for number in together:
            true[number] = {int(dst[one]) for one in together}
    found = np.full((last - first, count), -1, dtype=np.int64)
    for number in range(first, last):
        draw = np.random.default_rng([seed, number])
        forbidden = np.fromiter(true[number], np.int64)
        before = np.unique(dst[order[begins[src[number]] : begins[src[number] + 1]]])
        before = np.setdiff1d(before, forbidden, assume_unique=True)
        old = draw.permutation(before)[: int(count * history)]
        others = np.setdiff1d(everyone, np.concatenate([forbidden, before]), assume_unique=False)
        new = draw.choice(others, min(count - len(old), len(others)), replace=False)
        found[number - first, : len(old) + len(new)] = np.concatenate([old, new])
    return torch.from_numpy(found)


@dataclass(frozen=True, slots=True)
class RankScores:
    """Scores of ranks over all events of a task; ties count by their mean rank.

    Attributes:
        mrr: mean reciprocal rank. optimistic, pessimistic: the same where the true destination
            comes first or last among equal scores.
        hits: share of events whose rank is at most k, by k.
        n: events that were ranked.
    """

    mrr: float
    optimistic: float
    pessimistic: float
    hits: dict[int, float]
    n: int


Scorer = Callable[[RankBlock], Tensor]
"""Scores [b, C] of a block's candidates, the higher the more likely."""


def rank_scores(task: RankingTask, scorer: Scorer) -> RankScores:
    """Rank every event of a task among its candidates.

    Args:
        task: is gone through in the order of time, so that a scorer may take in the events of a
            window when the next one begins.
        scorer: called once a block.

    Raises:
        InvalidInputError: a score is not finite.
    """
    return scores_of_ranks(
        [
            rank_columns(scorer(block).cpu(), block.column, block.skip_offsets, block.skip)
            for block in task.blocks()
        ]
    )


def scores_of_ranks(parts: list[Ranks]) -> RankScores:
    """Scores of all ranks together."""
    ranks = Ranks(torch.cat([p.above for p in parts]), torch.cat([p.equal for p in parts]))
    mean = ranks.mean
    return RankScores(
        mrr=float(mean.reciprocal().mean()),
        optimistic=float(ranks.optimistic.reciprocal().mean()),
        pessimistic=float(ranks.pessimistic.reciprocal().mean()),
        hits={k: float((mean <= k).double().mean()) for k in HITS},
        n=mean.numel(),
    )
