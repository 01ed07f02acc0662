"""Store of what groups of snapshots keep, within a budget in bytes.

Training meets its groups in one order, epoch after epoch. So where there is no room for all, those
stay that are needed soonest: what is needed last goes first (Belady's rule), and a newcomer that is
needed later than all that is there is not kept. What is not kept is made anew when it is asked for.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

Identity: TypeAlias = tuple[int, ...]
"""Objects that the snapshots of a group are; groups of one static matrix have the same."""


class Schedule:
    """When frames need their groups.

    Args:
        uses: first snapshots of the frames that need a group, by its identity.
        period: snapshots from a frame to the same frame of the next epoch.

    Attributes:
        now: first snapshot of the frame that is computed on.
        fixed: groups that must stay.
    """

    def __init__(self, uses: Mapping[Identity, Collection[int]], period: int) -> None:
        self._uses = {identity: sorted(set(starts)) for identity, starts in uses.items()}
        self._period = period
        self.now = 0
        self.fixed: frozenset[Identity] = frozenset()

    @classmethod
    def of(
        cls,
        frames: Sequence[range],
        stride: int,
        groups: Callable[[range], Iterable[range]],
        identity: Callable[[range], Identity],
    ) -> Schedule:
        """Of frames in the order of training, with all their groups and single snapshots."""
        uses: dict[Identity, list[int]] = {}
        for times in frames:
            for group in (*groups(times), *(range(t, t + 1) for t in times)):
                uses.setdefault(identity(group), []).append(times.start)
        return cls(uses, frames[-1].start - frames[0].start + stride if frames else 1)

    def wait(self, identity: Identity) -> float:
        """Snapshots until a frame needs the group; 0 is now, infinity never."""
        if identity in self.fixed:
            return -1
        starts = self._uses.get(identity)
        if not starts:
            return math.inf
        place = bisect_left(starts, self.now)
        following = starts[place] if place < len(starts) else starts[0] + self._period
        return following - self.now


class KeptGroups:
    """Things made of groups of snapshots, by group, within a budget; from any thread.

    A group goes as a whole: what was made of it often shares its memory.

    Args:
        limit: the budget in bytes, asked at every `put`.

    Attributes:
        nbytes: how much of it is used.
        schedule: when groups are needed; None: nobody knows, and what came first stays.
        on_evict: told each group that goes.
        on_rebuilt: called when something is made that was made before.
    """

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self.nbytes = 0
        self.schedule: Schedule | None = None
        self.on_evict: Callable[[Identity], None] | None = None
        self.on_rebuilt: Callable[[], None] | None = None
        self._groups: dict[Identity, dict[Any, tuple[Any, int]]] = {}
        self._made: set[tuple[Identity, Any]] = set()
        self._lock = threading.RLock()

    def get(self, identity: Identity, key: Any) -> Any:
        """Value that `put` kept, or None."""
        with self._lock:
            found = self._groups.get(identity, {}).get(key)
        return None if found is None else found[0]

    def put(
        self, identity: Identity, key: Any, value: Any, nbytes: int, *, made: bool = True
    ) -> bool:
        """Keep a thing of a group; False where the budget has no room for it.

        Args:
            identity: of the group. key: what it is of the group.
            nbytes: its size, with what will be made of it.
            made: False for what costs nothing to make again, and is not counted as rebuilt.
        """
        with self._lock:
            if made and (identity, key) in self._made and self.on_rebuilt is not None:
                self.on_rebuilt()
            if made:
                self._made.add((identity, key))
            _, before = self._groups.get(identity, {}).get(key, (None, 0))
            if not self._make_room(identity, nbytes - before):
                return False
            self._remove(identity, key)
            self._groups.setdefault(identity, {})[key] = value, nbytes
            self.nbytes += nbytes
        return True

    def admit(self, nbytes: int) -> bool:
        """Take bytes out of the budget for something that stays; False where they do not fit."""
        with self._lock:
            fits = self.nbytes + nbytes <= self._limit()
            self.nbytes += nbytes if fits else 0
        return fits

    def drop(self, unwanted: Callable[[Identity, Any], bool], *, again: bool = False) -> None:
        """Forget things by group and key, of which something else took the place, or which nobody
        needs.

        Args:
            unwanted: says which.
            again: whether making one again counts as rebuilding it.
        """
        with self._lock:
            for identity, things in list(self._groups.items()):
                for key in [key for key in things if unwanted(identity, key)]:
                    self._remove(identity, key)
                    if not again:
                        self._made.discard((identity, key))

    def values(self, kind: str) -> list[Any]:
        """All things whose key is `kind` or begins with it."""
        with self._lock:
            return [
                value
                for things in self._groups.values()
                for key, (value, _) in things.items()
                if key == kind or (isinstance(key, tuple) and key[0] == kind)
            ]

    def identities(self) -> set[Identity]:
        """Groups of which anything is kept."""
        with self._lock:
            return set(self._groups)

    def _make_room(self, identity: Identity, nbytes: int) -> bool:
        """Evict what is needed later than this group until `nbytes` fit; nothing if they never
        do."""
        missing = self.nbytes + nbytes - self._limit()
        if missing <= 0:
            return True
        if self.schedule is None:
            return False
        wait = self.schedule.wait
        later = {one: wait(one) for one in self._groups if one != identity}
        mine = wait(identity)
        victims = []
        for one in sorted(later, key=lambda one: -later[one]):
            if missing <= 0 or later[one] <= mine:
                break
            victims.append(one)
            missing -= sum(size for _, size in self._groups[one].values())
        if missing > 0:
            return False
        for one in victims:
            for key in list(self._groups[one]):
                self._remove(one, key)
            if self.on_evict is not None:
                self.on_evict(one)
        return True

    def _remove(self, identity: Identity, key: Any) -> None:
        things = self._groups.get(identity, {})
        if key in things:
            self.nbytes -= things.pop(key)[1]
            if not things:
                del self._groups[identity]
