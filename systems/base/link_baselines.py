"""Predictors of links that train nothing: what any trained model has to beat.

Each answers from the events before a given ordinal alone. Histories are sorted arrays that are
searched for (key, ordinal), so that a later event cannot be counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.link_ranking import RankBlock

if TYPE_CHECKING:
    from dgbench.datasets import EventStream


class KeyHistory:
    """Events by a key of each, looked up for what was before an ordinal."""

    def __init__(self, keys: Tensor) -> None:
        """
        Args:
            keys: int64[E], of each event in the order of the stream.
        """
        self._count = keys.numel()
        self._keys, group = torch.unique(keys, return_inverse=True)
        self._places = (group * self._count + torch.arange(self._count)).sort().values
        self._begins = torch.searchsorted(
            self._places, torch.arange(self._keys.numel() + 1) * self._count
        )

    @property
    def ordinals(self) -> Tensor:
        """int64[E]: events grouped by key, in their order inside a group."""
        return self._places % max(1, self._count)

    def before(self, keys: Tensor, seen: Tensor | int) -> tuple[Tensor, Tensor]:
        """Count events of keys among the first `seen`, and find the last one.

        Args:
            keys: int64 of any shape. seen: of the same shape, or one number for all.

        Returns:
            count int64, and place int64 in `ordinals` of the last event, -1 where there is none.
        """
        if not self._count:
            return torch.zeros_like(keys), torch.full_like(keys, -1)
        group = torch.searchsorted(self._keys, keys.contiguous()).clamp_(max=self._keys.numel() - 1)
        end = torch.searchsorted(self._places, group * self._count + seen)
        count = torch.where(self._keys[group] == keys, end - self._begins[group], 0)
        return count, torch.where(count > 0, end - 1, -1)

    def last_before(self, keys: Tensor, seen: Tensor | int) -> Tensor:
        """int64: ordinal of the last event of keys among the first `seen`, -1 without one."""
        _, place = self.before(keys, seen)
        if not self._count:
            return place
        return torch.where(place >= 0, self.ordinals[place.clamp(min=0)], -1)


class LinkBaseline(ABC):
    """A predictor over one stream. `baseline(block)` is a `Scorer`."""

    def __init__(self, events: EventStream) -> None:
        self.events = events

    @abstractmethod
    def score(self, src: Tensor, dst: Tensor, seen: int) -> Tensor:
        """float64[b, C]: scores of pairs from the first `seen` events.

        Args:
            src: int64[b, 1]. dst: int64[b, C].
        """

    def __call__(self, block: RankBlock) -> Tensor:
        return self.score(block.src.unsqueeze(1), block.candidates, block.seen)


class _OfPairs(LinkBaseline):
    """One that asks for what a pair (source, destination) did."""

    def __init__(self, events: EventStream) -> None:
        super().__init__(events)
        self.pairs = KeyHistory(self.keys(events.src, events.dst))

    def keys(self, src: Tensor, dst: Tensor) -> Tensor:
        """A number for each pair."""
        if self.events.num_nodes >= 1 << 31:
            raise InvalidInputError(f"{self.events.num_nodes} vertices, allowed are < 2^31")
        return src * self.events.num_nodes + dst


class EdgeBank(_OfPairs):
    """1 for a pair that was seen before, else 0 (Poursafaei et al., NeurIPS 2022).

    With a window, a pair counts that was seen no longer than so long before the last event seen.
    """

    def __init__(self, events: EventStream, window: float | None = None) -> None:
        super().__init__(events)
        if window is not None and not window >= 0:
            raise InvalidInputError(f"window is {window!r}; a length >= 0 or None is allowed")
        self.window = window

    def score(self, src: Tensor, dst: Tensor, seen: int) -> Tensor:
        last = self.pairs.last_before(self.keys(src, dst), seen)
        if self.window is None or seen == 0:
            return (last >= 0).double()
        oldest = float(self.events.t[seen - 1]) - self.window
        return ((last >= 0) & (self.events.t[last.clamp(min=0)] >= oldest)).double()


class LocalRecency(_OfPairs):
    """The later a pair was last seen, the higher; pairs never seen come last."""

    def score(self, src: Tensor, dst: Tensor, seen: int) -> Tensor:
        return self.pairs.last_before(self.keys(src, dst), seen).double()


class _OfDestinations(LinkBaseline):
    """One that asks for what a destination did, whoever was the source."""

    def __init__(self, events: EventStream) -> None:
        super().__init__(events)
        self.destinations = KeyHistory(events.dst)

    @abstractmethod
    def value(self, dst: Tensor, seen: int) -> Tensor:
        """float64 like `dst`: scores of destinations."""

    def score(self, src: Tensor, dst: Tensor, seen: int) -> Tensor:
        return self.value(dst, seen)

    def __call__(self, block: RankBlock) -> Tensor:
        if not block.shared:
            return super().__call__(block)
        return self.value(block.candidates[:1], block.seen).expand(block.candidates.shape)


class GlobalRecency(_OfDestinations):
    """The later a destination was last seen, the higher."""

    def value(self, dst: Tensor, seen: int) -> Tensor:
        return self.destinations.last_before(dst, seen).double()


class Popularity(_OfDestinations):
    """Events of a destination so far, with a half life as in PopTrack (Daniluk and Dabrowski 2023).

    PopTrack multiplies counts by 0.96 after every batch of 200 events; that is a half life of about
    3,400 events, and here counts decay from event to event. None: they do not.
    """

    def __init__(self, events: EventStream, half_life: float | None = None) -> None:
        super().__init__(events)
        if half_life is not None and not half_life > 0:
            raise InvalidInputError(f"half_life is {half_life!r}; events > 0 or None are allowed")
        self._decay = 1.0 if half_life is None else 0.5 ** (1 / half_life)
        self._sums = self._decayed() if half_life is not None else None

    def _decayed(self) -> Tensor:
        """float64[E]: decayed count of an event's destination just after it, by its place."""
        sums: list[float] = []
        dst, before = self.events.dst.tolist(), (-1, 0, 0.0)
        for ordinal in self.destinations.ordinals.tolist():
            who, last, total = before
            same = dst[ordinal] == who
            total = 1.0 + (total * self._decay ** (ordinal - last) if same else 0.0)
            sums.append(total)
            before = dst[ordinal], ordinal, total
        return torch.tensor(sums, dtype=torch.float64)

    def value(self, dst: Tensor, seen: int) -> Tensor:
        count, place = self.destinations.before(dst, seen)
        if self._sums is None or not self._sums.numel():
            return count.double()
        at = place.clamp(min=0)
        age = (seen - 1 - self.destinations.ordinals[at]).double()
        return torch.where(place >= 0, self._sums[at] * self._decay**age, 0.0)


POPTRACK_HALF_LIFE = 3400.0


class PairThenPopularity(_OfPairs):
    """Pairs that were seen before, then all others; the more popular destination first in both."""

    def __init__(self, events: EventStream) -> None:
        super().__init__(events)
        self.popularity = Popularity(events)

    def score(self, src: Tensor, dst: Tensor, seen: int) -> Tensor:
        count, _ = self.pairs.before(self.keys(src, dst), seen)
        # The share of all events is at most 1, so that no popularity outweighs a pair.
        return 2.0 * (count > 0) + self.popularity.value(dst, seen) / max(1, seen)


def recent_span(t: Tensor, first: int, share: float = 0.15) -> float:
    """Time from the `1 - share` quantile of the times before `first` to the last of them.

    This is the window that TGB's EdgeBank takes; 0 where nothing was before.
    """
    if first == 0:
        return 0.0
    times = t[:first]
    return float(times[-1] - torch.quantile(times[-min(first, 1 << 24) :], 1 - share))


def link_baselines(events: EventStream, first: int) -> dict[str, LinkBaseline]:
    """All of them by name, for events that are predicted from ordinal `first` on."""
    return {
        "edgebank": EdgeBank(events),
        "edgebank_window": EdgeBank(events, recent_span(events.t, first)),
        "local_recency": LocalRecency(events),
        "global_recency": GlobalRecency(events),
        "popularity": Popularity(events),
        "poptrack": Popularity(events, POPTRACK_HALF_LIFE),
        "pair_then_popularity": PairThenPopularity(events),
    }
