"""Replay of stale aggregation in numpy: which rows had to be sent, and what others then read.

The replay knows the rows that are shown in every epoch and the losses. Copies, distances,
thresholds and counts are its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, at_most, equal
from dgbench.systems.dgc.recount import EdgeRecount, width_of
from dgbench.systems.dgc.stale import StaleSettings
from dgbench.systems.dgc.stale_workers import Boundary, StaleWorkers, Workers
from dgbench.systems.dgc.volumes import shape_of

AGAINST: Final = "replay of every epoch"
NEAR: Final = 1e-5
"""Relative distance from the threshold at which rounding may decide."""


@dataclass(slots=True)
class _Copies:
    """Of one exchange: rows as they were compared with and as others read them, and past D."""

    compared: np.ndarray
    received: np.ndarray
    past: dict[int, float] = field(default_factory=dict)


class AuditedStaleWorkers(StaleWorkers):
    """`StaleWorkers` whose exchanges are replayed; see `checks`.

    Args:
        workers, settings: as of `StaleWorkers`.
        edges: of the same snapshots.
        name: of the run, for the checks.
    """

    def __init__(
        self, workers: Workers, settings: StaleSettings, edges: EdgeRecount, name: str
    ) -> None:
        super().__init__(workers, settings)
        shape = shape_of(self.model)
        self._shape, self._name = shape, name
        self._lists = edges.rows(workers.placement, shape)
        self._copies: dict[str, _Copies] = {}
        self._seen_losses: list[float] = []
        self._compared = self._wrong = self._rows = self._all = self._bytes = 0

    def accumulate(self) -> float:
        loss = super().accumulate()
        self._seen_losses.append(loss)
        return loss

    def checks(self) -> list[ResultCheck]:
        """Checks of the rows that were read and of the counts, over all epochs so far."""
        share = self._wrong / max(1, self._compared)
        found = {
            "rows": self.totals.rows,
            "all": self.totals.plain_rows,
            "bytes": self.totals.bytes,
        }
        wanted = {"rows": self._rows, "all": self._all, "bytes": self._bytes}
        if self.settings.states:
            found["bytes of copies"] = self.cache_bytes
            wanted["bytes of copies"] = sum(4 * c.compared.size for c in self._copies.values())
        counters = equal("counters", found, wanted, against=AGAINST)
        if not (self._compared or self.totals.plain_rows):
            return [counters]  # no edge crosses the partition: nothing can be stale
        stale = at_most(
            "stale rows", share, 0.0, against=AGAINST, compared=self._compared, part=self._name
        )
        return [stale, counters]

    def _fetch(self, name: str, x: Tensor, boundary: Boundary) -> Tensor:
        seen = super()._fetch(name, x, boundary)
        if torch.is_grad_enabled():
            now = x.detach().index_select(0, boundary.rows).double().numpy()
            self._replay(name, now, seen.detach().double().numpy(), boundary)
        return seen

    def _replay(self, name: str, now: np.ndarray, seen: np.ndarray, boundary: Boundary) -> None:
        share, readers = self._share(name), boundary.readers.numpy()
        copies = self._copies.get(name)
        lists = self._lists.get(name, np.zeros((1, 1), np.int64))
        width, passes = width_of(name, self._shape)
        self._all += int(lists.sum())
        self._compared += now.shape[0]
        if share is None or copies is None:
            sent, expected = np.ones(now.shape[0], bool), now
            self._copies[name] = _Copies(now.copy(), now.copy())
        else:
            far, near = self._judged(now, copies, boundary.sender.numpy(), share)
            sent = far | (near & (seen == now).all(1))
            expected = np.where(sent[:, None], now, copies.received)
            kept = np.where(sent[:, None], now, copies.compared)
            copies.compared = now if self.settings.cache == "previous" else kept
            copies.received = expected
            if passes == 2:
                self._bytes += int((-(-lists // 8)).sum())
        self._wrong += int((seen != expected).any(1).sum())
        number = int(readers[sent].sum())
        self._rows += number
        self._bytes += 4 * width * passes * number

    def _judged(
        self, now: np.ndarray, copies: _Copies, sender: np.ndarray, share: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows that have to be sent, and those so near the threshold that either is right."""
        distance = np.sqrt(np.square(now - copies.compared).sum(1))
        limit = np.zeros_like(distance)
        one = self.settings.scope == "global"
        for group in [0] if one else np.unique(sender).tolist():
            mine = np.ones(sender.size, bool) if one else sender == group
            some = distance[mine]
            if self.settings.quantile < 1:
                some = np.sort(some[some > 0])
                place = max(1, math.ceil(self.settings.quantile * some.size)) - 1
                reach = float(some[place]) if some.size else 0.0
            else:
                reach = float(some.max(initial=0.0))
            if self.settings.reach == "past":
                reach = copies.past[group] = max(reach, copies.past.get(group, 0.0))
            limit[mine] = share * reach
        near = np.abs(distance - limit) <= NEAR * limit
        near &= limit > 0
        return (distance > limit) & ~near, near

    def _share(self, name: str) -> float | None:
        """theta / D of this epoch by equations 6 and 7, None where everything is sent."""
        some, epoch = self.settings, len(self._seen_losses)
        fresh = name.startswith("state") and not some.states
        if some.threshold == 0 or fresh or epoch < some.whole_epochs:
            return None
        if some.threshold is not None:
            return some.threshold
        first, last = self._seen_losses[0], self._seen_losses[-1]
        norm = (first - last) / first
        return 1 / (1 + math.exp(norm if some.sign == "printed" else -norm))
