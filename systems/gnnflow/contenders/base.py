"""Common interface of the contenders of sampling and updating, released or ours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class ContenderEvents:
    """Undirected edges in time order; the id of an edge is its place.

    Attributes:
        num_nodes: N.
        src, dst: int64[E].
        t: float64[E], non-decreasing.
    """

    num_nodes: int
    src: Tensor
    dst: Tensor
    t: Tensor

    def __len__(self) -> int:
        return self.src.numel()

    def first(self, count: int) -> ContenderEvents:
        """The `count` oldest."""
        return ContenderEvents(self.num_nodes, self.src[:count], self.dst[:count], self.t[:count])


class GraphStoreContender(ABC):
    """Holds a growing graph and draws neighbours from it.

    Class attributes:
        name, title: the word in rows, and the name people read.
        note: what a reader must know to compare it, or "".
        temporal: whether it looks only at edges before the root's own time.
        looks_back: whether it answers for a time before the last edge that it holds; one that does
            not must be asked when it holds what is before the batch, and no more.
        ours: whether it is part of this project.
        in_place: whether `add` costs what is added, not what is there.
        policies: rules that it can draw by.
        hops: hops that it can draw at most.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    note: ClassVar[str] = ""
    temporal: ClassVar[bool] = True
    looks_back: ClassVar[bool] = True
    ours: ClassVar[bool] = False
    in_place: ClassVar[bool] = False
    policies: ClassVar[tuple[str, ...]] = ("recent", "uniform")
    hops: ClassVar[int] = 2

    def __init__(self, *, threads: int = 1) -> None:
        self.threads = threads

    @classmethod
    def absent(cls) -> str:
        """Why it is known not to run here without importing anything, or ""."""
        return ""

    @classmethod
    def unavailable(cls) -> str:
        """Why it cannot run here, or ""."""
        return ""

    @classmethod
    def origin(cls) -> str:
        """The release it is, or that it was written anew."""
        return "this project"

    def remarks(self) -> list[str]:
        """Remarks on the graph that was built last, for a reader. Default: nothing."""
        return []

    @abstractmethod
    def build(self, events: ContenderEvents) -> None:
        """Make the graph of these events from nothing, up to the point where it can be sampled."""

    @abstractmethod
    def add(self, events: ContenderEvents, old: int) -> None:
        """Grow from the `old` first events to all of them; a rebuild where there is no other way.

        All events are handed in, so that a rebuild does not pay for joining arrays.
        """

    @abstractmethod
    def sample(self, nodes: Tensor, times: Tensor, fanouts: Sequence[int], policy: str) -> Any:
        """Draw `fanouts[h]` neighbours per target of hop h, in whatever form it answers.

        Args:
            nodes, times: int64[R] and float64[R], roots and when they ask.
            fanouts: of each hop, the hop at the roots first.
            policy: `recent` or `uniform`.
        """

    @abstractmethod
    def first_hop(self, answer: Any) -> tuple[Tensor, Tensor]:
        """Roots of the first hop's neighbours, int64[K], and their edges, int64[K]."""
