"""Experience replay: old events that are trained on once more beside a round's new ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dgbench.runtime.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Replay:
    """Number and selection of the old events that a round trains on again.

    The paper (sections 3 and 6.1) names a ratio and does not define it. Ours is old events per new
    event, drawn uniformly without replacement from everything before the round.

    Attributes:
        ratio: old events per new one, >= 0; 0 is the paper's own setting outside of Figure 11.
        seed: of the draw; the draw hangs on nothing else but the round's first event.
    """

    ratio: float
    seed: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.ratio, bool) or not 0 <= self.ratio < float("inf"):
            raise InvalidInputError(f"ratio is {self.ratio!r}; a finite number >= 0 is allowed")

    def choose(self, first: int, last: int) -> Tensor:
        """Ordinals of the old events for a round of the events first .. last - 1.

        Returns:
            int64[min(first, round(ratio * (last - first)))], ascending, so in time order.

        Raises:
            InvalidInputError: not 0 <= first <= last.
        """
        if not 0 <= first <= last:
            raise InvalidInputError(f"events {first} .. {last - 1} are no range of a stream")
        count = min(first, round(self.ratio * (last - first)))
        rng = np.random.default_rng((self.seed, first))
        chosen = rng.choice(first, size=count, replace=False) if count else np.empty(0, np.int64)
        return torch.from_numpy(np.sort(chosen).astype(np.int64))
